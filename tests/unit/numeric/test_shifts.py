"""Changes of level whose place is known."""

import math

import numpy as np
import pytest

from engine.numeric.shifts import level_shift

NAN = math.nan


def shift_of(row, least=4, floor=1e-9):
    values = np.atleast_2d(np.asarray(row, dtype=float))
    return level_shift(values, least, np.full(len(values), floor))


def test_a_step_is_found_where_it_is():
    rng = np.random.default_rng(1)
    values = rng.normal(0, 1, (50, 40)) + np.where(np.arange(40) >= 25, 6.0, 0.0)
    found = shift_of(values)
    assert np.mean(np.abs(found.place - 25) <= 1) > 0.95
    assert np.mean(found.after - found.before) == pytest.approx(6, rel=0.05)
    assert np.mean(found.noise) == pytest.approx(1, rel=0.1)
    assert (found.score > 8).all()
    assert (found.stepwise > 0).all()


def test_the_score_is_the_shift_in_its_standard_errors():
    """For noise that does not remember, at a place that is given, it is standard normal: so the largest is a few."""
    noise = np.random.default_rng(2).normal(0, 1, (2000, 40))
    found = shift_of(noise, least=20)  # one place only
    assert found.place.tolist() == [20] * 2000
    assert np.std(found.score) == pytest.approx(1, abs=0.25)


def test_noise_that_remembers_is_allowed_for():
    rng = np.random.default_rng(3)
    shocks = rng.normal(0, 1, (500, 140))
    walk = np.zeros((500, 140))
    for index in range(1, 140):
        walk[:, index] = 0.8 * walk[:, index - 1] + shocks[:, index]
    plain = shift_of(rng.normal(0, 1, (500, 40)))
    remembering = shift_of(walk[:, 100:])
    assert np.quantile(np.abs(plain.score), 0.99) < 6
    assert np.quantile(np.abs(remembering.score), 0.99) < 8


def test_a_slope_is_no_step():
    rng = np.random.default_rng(4)
    assert (shift_of(np.arange(40) + rng.normal(0, 1, (20, 40))).stepwise < 0).all()


def test_missing_values_are_left_out():
    row = np.where(np.arange(40) >= 20, 5.0, 1.0)
    row[[3, 19, 20, 30]] = NAN
    found = shift_of(row)
    assert (found.before[0], found.after[0]) == (1, 5)
    assert found.place[0] in (19, 20, 21)
    assert np.isnan(shift_of(np.full(40, NAN)).score).all()


def test_too_short_a_side_is_none():
    row = np.where(np.arange(40) >= 39, 5.0, 1.0)
    assert shift_of(row).after[0] == shift_of(row).before[0] == 1
    assert np.isnan(shift_of([1.0, 2.0, 3.0]).score).all()

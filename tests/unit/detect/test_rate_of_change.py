"""Slopes that are known."""

import math

import numpy as np
import pytest
from scipy.stats import theilslopes

from engine.detect.rate_of_change import Direction, RateOfChange
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of

NAN = math.nan
NOW = 1_800_000_000.0
MINUTES = np.arange(-60.0, 1.0)
FAST = RateOfChange(per_hour=5.0)


def judge(values, example=FAST):
    rows = np.atleast_2d(np.asarray(values, dtype=float))
    labels = [Labels(instance=f"n{index}") for index in range(len(rows))]
    return example.judge(Window.of(labels, NOW + 60 * MINUTES, rows), {}, instant_of(NOW))


def ramp(per_hour, level=100.0):
    return level + per_hour * MINUTES / 60


def noise(sd, seed=1):
    return np.random.default_rng(seed).normal(0, sd, 61)


def test_the_slope_is_theil_and_sens():
    values = ramp(6) + noise(0.2)
    details = judge(values).details_of(0)
    assert details["slope_per_hour"] == pytest.approx(theilslopes(values, MINUTES / 60).slope, rel=0.02)
    assert details["slope_low"] < details["slope_per_hour"] < details["slope_high"]
    assert details["level"] == pytest.approx(100, abs=0.3)
    assert details["relative_per_hour"] == pytest.approx(0.06, rel=0.05)


def test_the_interval_holds_the_true_slope_about_as_often_as_it_says():
    rows = ramp(6) + np.random.default_rng(2).normal(0, 1, (2000, 61))
    details = judge(rows).details
    held = np.mean((details["slope_low"] <= 6) & (details["slope_high"] >= 6))
    assert held == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize(
    ("values", "is_bad"),
    [
        (ramp(6) + noise(0.1), True),
        (ramp(5.2) + noise(2), False),  # it may be slower
        (ramp(4) + noise(0.1), False),
        (ramp(-6), False),
        (ramp(0) + np.where(MINUTES == -3, 1e6, 0), False),
        (np.where(MINUTES > -1, 200.0, 100.0), False),
    ],
)
def test_only_what_is_surely_too_fast_is_bad(values, is_bad):
    verdicts = judge(values)
    assert verdicts.known[0]
    assert verdicts.bad[0] == is_bad


def test_directions():
    assert judge(ramp(-6), RateOfChange(per_hour=5, direction=Direction.DOWN)).bad[0]
    both = RateOfChange(per_hour=5, direction=Direction.BOTH)
    assert judge([ramp(-6), ramp(6), ramp(1)], both).bad.tolist() == [True, True, False]


def test_relative_to_the_level_and_both_limits():
    relative = RateOfChange(relative=0.1)
    assert judge([ramp(12), ramp(12, level=1000.0), ramp(-12)], relative).bad.tolist() == [True, False, False]
    both = RateOfChange(per_hour=20, relative=0.1)
    assert judge([ramp(12), ramp(22), ramp(22, level=1000.0)], both).bad.tolist() == [False, True, False]


def test_of_too_little_nothing_is_said():
    assert not judge(np.where(MINUTES < -20, NAN, ramp(9))).known[0]
    assert not judge(np.where(MINUTES > -5, NAN, ramp(9))).known[0]
    assert judge(np.where(MINUTES < -20, NAN, ramp(9)), RateOfChange(per_hour=5, min_samples=15)).bad[0]
    assert judge(np.where(MINUTES % 2 == 0, ramp(9), NAN)).bad[0]


def test_it_ends_when_it_has_been_slow_for_a_while():
    values = np.r_[ramp(6), np.full(120, 100.0)]
    memory, found = None, []
    for minute in (0, 20, 40, 60, 80, 100):
        at = NOW + 60 * minute
        signal = Window.of([Labels()], at + 60 * MINUTES, [values[minute : minute + 61]])
        verdicts = FAST.judge(signal, {}, instant_of(at), *([memory] if memory else []))
        memory = verdicts.memory
        found.append(bool(verdicts.bad[0]))
    assert found[0]
    assert not found[-1]
    assert found == sorted(found, reverse=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "needs 'per_hour', 'relative' or both"),
        ({"per_hour": -5}, "'direction' says which way"),
        ({"relative": NAN}, "more than 0"),
        ({"per_hour": 5, "coverage": 1}, "coverage"),
        ({"per_hour": 5, "step": Duration()}, "step"),
        ({"per_hour": 5, "lookback": Duration(minutes=5)}, "too few to see a trend"),
        ({"per_hour": 5, "min_samples": 2}, "min_samples"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        RateOfChange(**wrong)


def test_time_must_rise():
    signal = Window.of([Labels()], [NOW, NOW], [[1.0, 2.0]])
    with pytest.raises(DetectError):
        FAST.judge(signal, {}, instant_of(NOW))

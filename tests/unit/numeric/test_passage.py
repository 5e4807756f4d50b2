"""Times and probabilities of first passage against a fine grid of times, and against simulated courses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.numeric.normal import normal_cdf, normal_quantile
from engine.numeric.passage import Course

GRID = np.linspace(0, 8, 160_001)
SIZES = st.just(0.0) | st.floats(1e-3, 2)


def course(gap, slope, level_error=0.0, slope_error=0.0, walk=0.0):
    return Course(*(np.array([float(x)]) for x in (gap, slope, level_error, slope_error, walk)))


def scores_on_grid(gap, slope, level_error, slope_error, walk):
    variance = level_error**2 + walk**2 * GRID + (slope_error * GRID) ** 2
    return (gap + slope * GRID) / np.sqrt(np.maximum(variance, 1e-24))


COURSES = st.tuples(st.floats(-2, 0.2), st.floats(-2, 2), st.floats(1e-3, 0.5), SIZES, SIZES)


@given(COURSES)
def test_the_probability_is_the_largest_on_the_way(numbers):
    plain = normal_cdf(np.max(scores_on_grid(*numbers)))
    assert course(*numbers).probability(8.0) == pytest.approx(plain, abs=1e-4)


@given(COURSES, st.sampled_from([0.05, 0.3, 0.5, 0.8, 0.95]))
def test_the_time_is_the_first_at_which_the_probability_is_reached(numbers, probability):
    time = course(*numbers).time_of(probability)[0]
    scores = scores_on_grid(*numbers)
    wanted = normal_quantile(probability)
    earlier = time > GRID * (1 + 1e-3) + 1e-3
    assert not (scores[earlier] >= wanted + 1e-6).any()
    if time <= 8:
        assert course(*numbers).probability(time * (1 + 1e-6) + 1e-9) >= probability - 1e-4


@given(COURSES)
def test_more_certainty_takes_longer(numbers):
    early, even, late = (course(*numbers).time_of(p)[0] for p in (0.05, 0.5, 0.95))
    assert early <= even <= late


def test_a_certain_line_arrives_when_it_arrives():
    certain = course(gap=-3, slope=1.5)
    assert certain.time_of(0.05) == certain.time_of(0.5) == certain.time_of(0.95) == pytest.approx(2)
    assert certain.probability(1.9) == 0
    assert certain.probability(2.1) == 1


@pytest.mark.parametrize("slope", [0.0, -0.5])
def test_what_does_not_approach_never_arrives(slope):
    assert np.isinf(course(gap=-1, slope=slope, level_error=0.1).time_of(0.5))
    assert course(gap=-1, slope=slope, level_error=0.1).probability(100.0) < 1e-20


def test_what_has_arrived_takes_no_time():
    assert course(gap=0.5, slope=-1, level_error=0.1).time_of(0.95) == 0


def test_simulated_courses_arrive_as_often_as_said():
    """An uncertain line is met exactly; a walk is met at most twice as often as said."""
    rng = np.random.default_rng(5)
    level, slope = rng.normal(-1, 0.1, 20_000), rng.normal(0.8, 0.3, 20_000)
    arrived = np.mean(np.maximum(level, level + slope * 1.0) >= 0)
    assert course(-1, 0.8, 0.1, 0.3).probability(1.0) == pytest.approx(arrived, abs=0.01)
    walks = -0.5 + np.cumsum(rng.normal(0, 0.3 / math.sqrt(400), (5000, 400)), axis=1)
    said = course(-0.5, 0, walk=0.3).probability(1.0)[0]
    assert said <= np.mean(walks.max(axis=1) >= 0) + 0.01 <= 2 * said + 0.02


def test_the_normal_distribution_is_exact_in_both_tails():
    values = normal_cdf(np.array([-20.0, -1.96, 0, 1.96, math.inf, math.nan]))
    expected = [2.7536241186062337e-89, 0.024997895148220435, 0.5, 0.9750021048517795, 1, math.nan]
    np.testing.assert_allclose(values, expected, rtol=1e-12)


@given(st.floats(1e-6, 1 - 1e-6))
def test_the_quantile_undoes_the_distribution(probability):
    assert normal_cdf(np.array([normal_quantile(probability)])) == pytest.approx(probability, rel=1e-9)

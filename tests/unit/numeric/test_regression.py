"""Lines through noisy series against slow and plain ones, and their errors against what noise really does."""

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.numeric.regression import choose, fit_line, lag_one_autocorrelation, theil_sen

NONE = np.zeros(1)
POINTS = st.lists(
    st.tuples(st.integers(0, 1000), st.none() | st.integers(-1000, 1000)),
    min_size=1,
    max_size=12,
    unique_by=lambda point: point[0],
)


def arrays(points):
    points = sorted(points)
    values = [math.nan if value is None else value for _, value in points]
    return np.array([[float(time) for time, _ in points]]), np.array([values], dtype=float)


@given(POINTS)
def test_the_slope_is_the_median_over_all_pairs(points):
    known = sorted((t, x) for t, x in points if x is not None)
    slopes = [(x2 - x1) / (t2 - t1) for (t1, x1), (t2, x2) in itertools.combinations(known, 2)]
    expected = statistics.median(slopes) if slopes else math.nan
    np.testing.assert_allclose(theil_sen(*arrays(points)), [expected], rtol=1e-12)


@given(POINTS, st.floats(-3, 3), st.floats(-100, 100))
def test_adding_a_line_adds_its_slope_and_level(points, slope, level):
    times, values = arrays(points)
    plain, tilted = fit_line(times, values, NONE), fit_line(times, values + level + slope * times, NONE)
    np.testing.assert_allclose(tilted.slope, plain.slope + slope, atol=1e-6)
    np.testing.assert_allclose(tilted.level, plain.level + level, atol=1e-6)


def test_a_quarter_of_wild_points_does_not_move_the_line():
    times = np.arange(24.0)[None]
    values = 3 + 0.5 * times
    values[0, [1, 7, 12, 15, 20]] = [900, -400, 1e6, 77, -1e5]
    line = fit_line(times, values, NONE)
    assert line.slope == pytest.approx(0.5)
    assert line.level == pytest.approx(3)
    assert line.noise == pytest.approx(0)


@pytest.mark.parametrize(
    ("points", "autocorrelation", "least"),
    [(8, 0.0, 0.8), (24, 0.0, 0.8), (24, 0.5, 0.8), (60, 0.7, 0.8), (8, 0.5, 0.7)],
)
def test_the_errors_are_what_noise_really_does(points, autocorrelation, least):
    """Over many series the slope and the level scatter as their errors say, or a little less."""
    rng = np.random.default_rng(7)
    noise = rng.normal(0, 1, (4000, points))
    for column in range(1, points):
        noise[:, column] = (
            autocorrelation * noise[:, column - 1] + math.sqrt(1 - autocorrelation**2) * noise[:, column]
        )
    times = np.broadcast_to(np.linspace(-1, 0, points), noise.shape)
    line = fit_line(times, 2 * times + noise, np.zeros(len(noise)))
    for estimate, truth, error in (
        (line.slope, 2, line.slope_error),
        (line.level, 0, line.level_error),
    ):
        inside = np.mean(np.abs(estimate - truth) <= 1.645 * error)
        assert least < inside < 0.97


def test_the_noise_is_never_below_its_floor():
    times = np.arange(10.0)[None]
    assert fit_line(times, 2 * times, np.array([0.3])).noise == 0.3


def test_one_point_is_no_line():
    line = fit_line(np.array([[1.0, 2.0]]), np.array([[5.0, math.nan]]), NONE)
    assert np.isnan(line.slope)
    assert np.isnan(line.slope_error)
    assert line.points == 1


@pytest.mark.parametrize("truth", [0.0, 0.3, 0.6])
def test_autocorrelation_of_residuals_is_found_without_the_bias_of_fitting(truth):
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 1, (3000, 60))
    for column in range(1, 60):
        noise[:, column] = truth * noise[:, column - 1] + math.sqrt(1 - truth**2) * noise[:, column]
    times = np.arange(60.0)
    fits = np.polynomial.polynomial.polyfit(times, noise.T, 1)
    residuals = noise - fits[0][:, None] - fits[1][:, None] * times
    assert np.median(lag_one_autocorrelation(residuals)) == pytest.approx(truth, abs=0.03)


def test_an_exact_line_has_no_autocorrelation():
    times = np.arange(8.0)[None]
    assert fit_line(times, 1 / 3 + times / 7, np.array([1e-6])).autocorrelation == 0


def test_choosing_takes_each_series_from_one_line_or_the_other():
    times = np.array([[0.0, 1, 2], [0, 1, 2]])
    up, down = fit_line(times, times, np.zeros(2)), fit_line(times, -times, np.zeros(2))
    np.testing.assert_array_equal(choose(up, down, np.array([True, False])).slope, [-1, 1])

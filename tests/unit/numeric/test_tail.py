"""Tails of samples whose tail is known, and ranges by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.numeric.innovation import innovations
from engine.numeric.season import lagged_range, trailing_range
from engine.numeric.tail import tail

NAN = math.nan
MATRICES = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 3), st.integers(0, 30)),
    elements=st.floats(-9, 9) | st.just(NAN),
)


def test_the_tail_of_exponential_noise_is_exponential():
    sample = np.random.default_rng(1).exponential(2.0, (50, 20_000))
    fitted = tail(sample, 0.005, np.zeros(50))
    assert fitted.threshold.mean() == pytest.approx(-2 * math.log(0.005), rel=0.02)
    assert fitted.excess.mean() == pytest.approx(2.0, rel=0.05)
    # P(X > 20) = exp(-10)
    assert fitted.surprise(np.full(50, 20.0)).mean() == pytest.approx(10, rel=0.05)


def test_a_value_of_a_surprise_has_that_surprise():
    fitted = tail(np.random.default_rng(2).normal(0, 1, (5, 400)), 0.01, np.zeros(5))
    np.testing.assert_allclose(fitted.surprise(fitted.at(9.0)), 9.0)


def test_missing_values_do_not_count():
    sample = np.random.default_rng(3).normal(0, 1, (1, 400))
    holes = np.full((1, 800), NAN)
    holes[:, ::2] = sample
    for one, other in zip(tail(sample, 0.01, np.zeros(1)), tail(holes, 0.01, np.zeros(1)), strict=True):
        np.testing.assert_allclose(one, other)


def test_what_never_happened_is_surprising_by_the_least_excess():
    """Excesses that are all 0: beyond 0, each `least` is one more."""
    fitted = tail(np.zeros((1, 600)), 0.005, np.array([0.1]))
    assert fitted.surprise(np.array([0.0])) == 0
    assert fitted.surprise(np.array([0.3])) == pytest.approx(3 - math.log(0.005))


@pytest.mark.parametrize("size", [0, 1, 2, 3])
def test_nothing_surprises_those_who_know_nothing(size):
    assert tail(np.zeros((2, size)), 0.1, np.ones(2)).surprise(np.full(2, 9e9)).tolist() == [0, 0]


def extremes(parts):
    parts = parts[~np.isnan(parts)]
    return (parts.min(), parts.max()) if parts.size else (NAN, NAN)


@given(MATRICES, st.integers(1, 12), st.integers(0, 6))
def test_a_trailing_range_is_that_of_the_columns_before(values, width, gap):
    found = trailing_range(values, width, gap)
    for row, column in np.ndindex(*values.shape):
        part = values[row, max(0, column - gap - width + 1) : max(0, column - gap + 1)]
        np.testing.assert_equal((found.low[row, column], found.high[row, column]), extremes(part))


@given(MATRICES, st.integers(3, 12), st.integers(0, 2))
def test_a_lagged_range_is_that_of_the_same_time_before(values, period, near):
    found = lagged_range(values, [period, 2 * period], near)
    for row, column in np.ndindex(*values.shape):
        parts = [
            values[row, max(0, column - lag - near) : max(0, column - lag + near + 1)]
            for lag in (period, 2 * period)
            if column - lag + near >= 0
        ]
        part = np.concatenate(parts) if parts else np.empty(0)
        np.testing.assert_equal((found.low[row, column], found.high[row, column]), extremes(part))


def test_an_exceedance_is_on_the_side_that_is_asked_for():
    band = trailing_range(np.array([[1.0, 3.0, 5.0, 0.0]]), 2, 1)  # of column 3: 3 to 5
    values = np.array([[1.0, 3.0, 5.0, 0.0]])
    assert band.exceedance(values, up=True, down=False)[0, 3] == 0
    assert band.exceedance(values, up=False, down=True)[0, 3] == 3
    assert band.exceedance(values, up=True, down=True)[0, 3] == 3


@given(MATRICES)
def test_an_innovation_is_what_the_median_of_five_did_not_tell(values):
    found = innovations(values)
    for row, column in np.ndindex(*values.shape):
        expected = values[row, column] - np.median(values[row, column - 5 : column]) if column >= 5 else NAN
        np.testing.assert_allclose(found[row, column], expected)

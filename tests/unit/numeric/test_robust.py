"""The robust statistics against slow and plain ones."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.numeric.robust import block_medians, deviation, is_tied, median, quantile, quantum, spread

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False) | st.just(math.nan)
MATRICES = arrays.arrays(
    np.float64, arrays.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=9), elements=NUMBERS
)


def there(row):
    return [x for x in row if not math.isnan(x)]


@given(MATRICES)
def test_the_median_leaves_missing_values_out(values):
    expected = [statistics.median(there(row)) if there(row) else math.nan for row in values]
    np.testing.assert_allclose(median(values), expected, rtol=1e-12)


@given(MATRICES)
def test_the_deviation_is_the_scaled_median_distance_from_the_median(values):
    def plain(row):
        if not (known := there(row)):
            return math.nan
        middle = statistics.median(known)
        return statistics.median([abs(x - middle) for x in known]) / statistics.NormalDist().inv_cdf(0.75)

    np.testing.assert_allclose(deviation(values), [plain(row) for row in values], rtol=1e-9, atol=1e-9)


def test_the_deviation_of_normal_noise_is_its_standard_deviation():
    noise = np.random.default_rng(1).normal(5, 3, (50, 1000))
    assert np.mean(deviation(noise)) == pytest.approx(3, rel=0.02)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1, 3, 3, 8], 2),
        ([5e6, 2e7, 1.5e7, math.nan, 5e6], 5e6),
        ([7, 7, 7], 0),
        ([math.nan, math.nan], 0),
        ([math.nan, 4], 0),
        ([0.3, 0.1 + 0.2, 0.5], 0.2),  # 0.1 + 0.2 differs from 0.3 by rounding alone
        ([4], 0),
        ([], 0),
    ],
)
def test_the_quantum_is_the_smallest_real_gap(row, expected):
    assert quantum(np.array([row], dtype=float)) == pytest.approx(expected)


def test_a_block_holds_its_left_edge_and_not_its_right_one():
    times = np.array([0.0, 1, 2, 3, 4])
    blocks = block_medians(times, np.array([[10.0, 11, 12, 13, 14]]), np.array([0.0, 2, 4]))
    np.testing.assert_array_equal(blocks.times, [[0.5, 2.5]])
    np.testing.assert_array_equal(blocks.values, [[10.5, 12.5]])


def test_a_block_without_samples_is_missing():
    blocks = block_medians(np.array([0.0, 5]), np.array([[1.0, 2], [3, math.nan]]), np.array([0.0, 1, 4, 6]))
    np.testing.assert_array_equal(blocks.values, [[1, math.nan, 2], [3, math.nan, math.nan]])
    np.testing.assert_array_equal(blocks.times, [[0, math.nan, 5], [0, math.nan, math.nan]])


@given(st.lists(st.booleans(), min_size=12, max_size=12), st.floats(-5, 5), st.floats(-5, 5))
def test_gaps_do_not_move_blocks_off_a_straight_line(gaps, slope, level):
    times = np.arange(12.0)
    values = np.where(gaps, math.nan, level + slope * times)[None]
    blocks = block_medians(times, values, np.array([0.0, 4, 8, 12]))
    np.testing.assert_allclose(blocks.values, level + slope * blocks.times, atol=1e-9)


@given(MATRICES, st.floats(0, 1))
def test_the_quantile_leaves_missing_values_out(values, share):
    expected = [np.quantile(there(row), share) if there(row) else math.nan for row in values]
    np.testing.assert_allclose(quantile(values, share), expected, rtol=1e-9, atol=1e-9)


@given(MATRICES)
def test_the_spread_is_the_largest_of_what_it_is_made_of(values):
    def plain(row):
        if not (known := there(row)):
            return math.nan
        low, quarter, middle, three, high = np.quantile(known, [0.05, 0.25, 0.5, 0.75, 0.95])
        mad = statistics.median([abs(x - middle) for x in known]) * 1.4826
        gap = quantum(np.array([row]))[0]
        winsorised = np.std(np.clip(known, low, high))
        return max(mad, (three - quarter) / 1.34898, 0.3 * winsorised, 0.02 * abs(middle), gap / 2)

    np.testing.assert_allclose(spread(values), [plain(row) for row in values], rtol=1e-4, atol=1e-7)


def test_the_spread_of_normal_noise_is_hardly_more_than_its_standard_deviation():
    noise = np.random.default_rng(1).normal(0, 3, (200, 1000))
    assert np.mean(spread(noise)) == pytest.approx(3, rel=0.03)


@pytest.mark.parametrize(
    ("row", "least", "expected"),
    [
        ([50.0] * 99 + [51.0], 0, 1.0),  # 2 % of 50, although 99 of 100 are equal
        ([0.0] * 60 + [1.0] * 40, 0, 1.0 / 1.3489795),  # the MAD is 0
        ([0.0] * 90 + [1.0] * 10, 0, 0.5),  # so are the quartiles; half the quantum
        ([0.0] * 8 + [math.nan], 0, 0.0),
        ([0.0] * 8, 0.25, 0.25),
        ([1e300, -1e300] * 5, 0, 1.4826022e300),
        ([1.7e308, -1.7e308] * 5, 0, math.inf),  # wider than floats are
        ([1e-300, 2e-300, 3e-300] * 5, 0, 1.4826022e-300),
        ([math.nan] * 3, 0.25, math.nan),
        ([], 0.25, math.nan),
    ],
)
def test_the_spread_of_what_hardly_moves(row, least, expected):
    found = spread(np.array([row], dtype=float), least=least)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


@pytest.mark.parametrize(
    ("row", "tied"),
    [
        ([1, 2, 3], False),
        ([1, 2, 1, 2], True),
        ([5, 5, 5, 1, 2], True),
        ([5, 5, 1, 2, math.nan], False),
        ([math.nan], True),
        ([], True),
    ],
)
def test_ties_are_told(row, tied):
    assert is_tied(np.array([row], dtype=float)).tolist() == [tied]

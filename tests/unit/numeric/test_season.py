"""What a value is compared with, against loops that say the same slowly."""

import numpy as np
import pytest

from engine.numeric.season import lagged_range, median_of_lags, trailing_mean, trailing_range, without_single

RNG = np.random.default_rng(8)
VALUES = RNG.normal(0, 1, (2, 60))
VALUES[0, RNG.random(60) < 0.2] = np.nan


def slowly(figure, values, columns):
    """Apply a figure to the present ones of the columns that belong to each column; NaN without any."""
    found = np.full(values.shape, np.nan)
    for row, own in enumerate(values):
        for column in range(values.shape[1]):
            held = [
                own[each]
                for each in columns(column)
                if 0 <= each < values.shape[1] and not np.isnan(own[each])
            ]
            if held:
                found[row, column] = figure(held)
    return found


@pytest.mark.parametrize(("lags", "near"), [((10,), 0), ((10, 20), 2), ((10, 100), 1)])
def test_the_range_at_such_times_before(lags, near):
    columns = lambda at: [at - lag + off for lag in lags if lag < 60 for off in range(-near, near + 1)]  # noqa: E731
    found = lagged_range(VALUES, lags, near)
    last = slice(max(lag for lag in lags if lag < 60) + near, None)  # before, a window is cut short
    np.testing.assert_array_equal(found.low[:, last], slowly(min, VALUES, columns)[:, last])
    np.testing.assert_array_equal(found.high[:, last], slowly(max, VALUES, columns)[:, last])


@pytest.mark.parametrize(("width", "gap"), [(1, 0), (7, 2), (100, 5)])
def test_the_range_of_late(width, gap):
    columns = lambda at: range(at - gap - width + 1, at - gap + 1)  # noqa: E731
    found = trailing_range(VALUES, width, gap)
    np.testing.assert_array_equal(found.low, slowly(min, VALUES, columns))
    np.testing.assert_array_equal(found.high, slowly(max, VALUES, columns))


@pytest.mark.parametrize("lags", [(7,), (7, 14, 21), (7, 99), (99,)])
def test_the_middle_at_such_times_before(lags):
    expected = slowly(np.median, VALUES, lambda at: [at - lag for lag in lags])
    np.testing.assert_allclose(median_of_lags(VALUES, lags), expected)


@pytest.mark.parametrize("width", [1, 5, 60, 100])
def test_the_mean_of_late_takes_half_of_the_samples(width):
    expected = slowly(np.mean, VALUES, lambda at: range(at - width + 1, at + 1))
    count = slowly(len, VALUES, lambda at: range(at - width + 1, at + 1))
    expected[~(2 * count > width)] = np.nan
    np.testing.assert_allclose(trailing_mean(VALUES, width), expected, atol=1e-12)


def test_one_wild_value_alone_is_gone_and_two_are_not():
    values = np.array([[1.0, 1, 9, 1, 1, 9, 9, 1, np.nan, 1]])
    found = without_single(values)
    assert found[0, :6].tolist() == [1, 1, 1, 1, 1, 1]
    assert found[0, 6] == 9
    assert np.isnan(found[0, 8])
    assert values[0, 2] == 9

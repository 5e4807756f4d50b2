import numpy as np
import pytest
from statsmodels.tsa.seasonal import MSTL, STL

from engine.numeric.decompose import decompose

RNG = np.random.default_rng(5)
K = np.arange(4 * 168)
DAY, WEEK = np.sin(2 * np.pi * K / 24), 0.6 * np.cos(2 * np.pi * K / 168)
NOISE = RNG.normal(0, 0.1, len(K))
TREND = 0.002 * K


@pytest.mark.parametrize("periods", [(24,), (24, 168)])
def test_a_series_is_the_sum_of_its_parts(periods):
    values = TREND + DAY + WEEK + NOISE
    parts = decompose(values, periods)
    np.testing.assert_allclose(parts.trend + parts.seasonal + parts.rest, values, atol=1e-12)


def test_one_season_is_stl():
    values = TREND + DAY + NOISE
    exact = STL(values, period=24, seasonal=11, robust=True).fit(inner_iter=1, outer_iter=2)
    parts = decompose(values, (24,))
    np.testing.assert_allclose(parts.seasonal, exact.seasonal, atol=0.02)
    np.testing.assert_allclose(parts.trend, exact.trend, atol=0.01)


def test_two_seasons_are_mstl():
    values = TREND + DAY + WEEK + NOISE
    options = {"robust": True, "inner_iter": 1, "outer_iter": 2}
    exact = MSTL(values, periods=(24, 168), stl_kwargs=options).fit()
    parts = decompose(values, (24, 168))
    np.testing.assert_allclose(parts.seasonal, exact.seasonal.sum(axis=1), atol=0.05)
    assert np.std(parts.seasonal - DAY - WEEK) < 0.1


def test_a_bad_day_does_not_bend_the_season():
    values = DAY + NOISE
    values[24 * 13 : 24 * 14] += 30.0
    parts = decompose(values, (24,))
    rest = np.delete(parts.seasonal - DAY, np.s_[24 * 13 : 24 * 14])
    assert np.abs(rest).max() < 0.6  # the day before and after; a mean of the days would be off by 1
    assert np.abs(rest[: 24 * 10]).max() < 0.25

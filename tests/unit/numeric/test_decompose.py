import warnings

import numpy as np
import pytest
from statsmodels.tsa.seasonal import MSTL, STL
from statsmodels.tsa.statespace.structural import UnobservedComponents

from engine.numeric.decompose import decompose, structure

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


@pytest.mark.parametrize("period", [None, 24.0])
def test_the_structure_is_that_of_statsmodels(period):
    """With the season taken where it predicts better, which it does here."""
    values = (TREND + DAY + NOISE)[:240]
    if period is None:
        model = UnobservedComponents(values, level="local linear trend")
    else:
        season = [{"period": 24.0, "harmonics": 3}]
        model = UnobservedComponents(
            values, level="local linear trend", freq_seasonal=season, stochastic_freq_seasonal=[False]
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = model.fit(disp=0, maxiter=200)
    found = structure(values, period)
    np.testing.assert_allclose(found.level, exact.level.smoothed, atol=1e-9)
    assert found.slope == pytest.approx(exact.trend.smoothed[-1])
    assert found.slope_error == pytest.approx(np.sqrt(exact.trend.smoothed_cov[-1]))
    np.testing.assert_allclose(found.level + found.seasonal + found.rest, values, atol=1e-12)
    if period is not None:
        assert np.abs(found.seasonal - DAY[:240]).max() < 0.1
        assert found.slope == pytest.approx(0.002, abs=0.002)


def test_a_season_that_is_not_there_is_not_taken():
    assert not structure((TREND + NOISE)[:240], 24.0).seasonal.any()


def test_gaps_are_no_matter_to_the_structure():
    values = (TREND + DAY + NOISE)[:240]
    gappy = np.where(RNG.random(240) < 0.2, np.nan, values)
    found = structure(gappy, 24.0)
    np.testing.assert_array_equal(np.isnan(found.rest), np.isnan(gappy))
    np.testing.assert_allclose(found.level, structure(values, 24.0).level, atol=0.2)


def test_noise_is_white_and_what_remembers_is_not():
    assert structure(NOISE[:300] * 10, None).whiteness > 0.01
    places = np.arange(300)
    assert structure((places % 4 == 0) + NOISE[:300], None).whiteness < 1e-6

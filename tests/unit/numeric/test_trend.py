"""Trends, held against scipy and against noise that has none."""

import numpy as np
import pytest
from scipy import stats

from engine.numeric.trend import curved_autocorrelation, fit_trend, inflation, score_variance

NAN = np.nan
TIMES = np.arange(24.0)


def remembering(correlation, *, count=2000, size=24, seed=5):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((count, size + 200))
    for column in range(1, size + 200):
        fresh = np.sqrt(1 - correlation**2) * values[:, column]
        values[:, column] = correlation * values[:, column - 1] + fresh
    return values[:, 200:]


def test_without_autocorrelation_the_test_is_kendalls():
    """S / sd is that of scipy's asymptotic test, but for the continuity correction of 1."""
    values = np.random.default_rng(1).normal(size=(20, 24)) + 0.02 * TIMES
    for row, z in zip(values, fit_trend(TIMES, values).z, strict=True):
        tau = stats.kendalltau(TIMES, row, method="asymptotic")
        score = tau.statistic * 24 * 23 / 2
        correlation = curved_autocorrelation(TIMES, row[None])
        sd = (
            abs(score) / stats.norm.isf(tau.pvalue / 2) * np.sqrt(inflation(correlation, np.array([24.0]))[0])
        )
        assert z == pytest.approx((score - np.sign(score)) / sd, rel=1e-6)


def test_the_variance_with_ties_is_that_of_the_handbook():
    """Gilbert (1987): groups of 2 and 3 ties among 10 points."""
    values = np.array([[1, 1, 2, 3, 3, 3, 4, 5, 6, 7.0]])
    expected = (10 * 9 * 25 - (2 * 1 * 9 + 3 * 2 * 11)) / 18
    assert score_variance(values)[0] == pytest.approx(expected)
    assert score_variance(np.full((1, 10), 3.0))[0] == 0


def test_a_point_that_is_missing_is_no_point():
    values = np.array([[1, NAN, 2, 3, 3, 3, 4, 5, 6, 7.0]])
    assert score_variance(values)[0] == pytest.approx((9 * 8 * 23 - 3 * 2 * 11) / 18)


def test_the_slope_and_its_interval_are_scipys():
    rng = np.random.default_rng(2)
    for _ in range(20):
        row = 0.3 * TIMES + rng.normal(size=24)
        trend = fit_trend(TIMES, row[None])
        slope, _, low, high = stats.theilslopes(row, TIMES, alpha=0.9)
        assert trend.slope[0] == pytest.approx(slope)
        if curved_autocorrelation(TIMES, row[None])[0] == 0:
            assert trend.low[0] == pytest.approx(low, abs=0.03)
            assert trend.high[0] == pytest.approx(high, abs=0.03)
        else:
            assert trend.low[0] <= low + 0.01
            assert trend.high[0] >= high - 0.01


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    trend = fit_trend(TIMES, 0.05 * TIMES + remembering(0.5))
    assert np.mean((trend.low <= 0.05) & (trend.high >= 0.05)) == pytest.approx(0.9, abs=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.8])
def test_noise_that_remembers_is_seldom_a_trend(correlation):
    """At a nominal 1 %; the plain test sees up to thirty times as many."""
    z = fit_trend(TIMES, remembering(correlation)).z
    assert np.mean(z > stats.norm.isf(0.01)) < 0.025


def test_the_autocorrelation_comes_out_unbiased():
    found = np.mean(curved_autocorrelation(TIMES, remembering(0.4)))
    assert found == pytest.approx(0.4, abs=0.07)


def test_growth_that_speeds_up_is_no_autocorrelation():
    bent = (TIMES / 10) ** 2 + np.random.default_rng(3).normal(0, 0.02, 24)
    assert curved_autocorrelation(TIMES, bent[None])[0] < 0.5
    assert fit_trend(TIMES, bent[None]).z[0] > 5


def test_inflation_is_the_sum_over_lags():
    """1 + 2 sum over k of (1 - k / b) r^k, for which it is the closed form."""
    for r, b in ((0.3, 10), (0.8, 24)):
        lags = np.arange(1, b)
        expected = 1 + 2 * np.sum((1 - lags / b) * r**lags)
        assert inflation(np.array([r]), np.array([float(b)]))[0] == pytest.approx(expected)
    assert inflation(np.array([0.0]), np.array([24.0]))[0] == 1


@pytest.mark.parametrize("values", [np.full(24, 0.5), np.where(TIMES < 20, NAN, TIMES), np.full(24, NAN)])
def test_of_a_constant_and_of_too_few_points_nothing_is_said(values):
    for figures in fit_trend(TIMES, values[None]):
        assert np.isnan(figures[0])


def test_falling_is_negative_and_wild_points_hardly_count():
    falling = -TIMES
    wild = np.where(TIMES == 5, 1e6, TIMES)
    trend = fit_trend(TIMES, np.stack([falling, wild]))
    assert trend.z[0] < -5
    assert trend.slope[0] == -1
    assert trend.z[1] > 4
    assert trend.slope[1] == pytest.approx(1)

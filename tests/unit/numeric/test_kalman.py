"""Local linear trends against statsmodels, and against a straight line."""

import numpy as np
import pytest
from statsmodels.tsa.statespace.structural import UnobservedComponents

from engine.numeric.kalman import _LEVELS, _SLOPES, _gains, crossing, fit_trend

NAN = np.nan


def series(seed=0, size=60, slope=0.01, sd=0.02):
    rng = np.random.default_rng(seed)
    return slope * np.arange(size) + sd * rng.normal(size=size)


@pytest.mark.parametrize("pair", [0, 7, 15, 23])
def test_the_variances_ahead_are_those_of_the_filter_of_statsmodels(pair):
    q1, q2 = [(level, slope) for level in _LEVELS for slope in _SLOPES][pair]
    model = UnobservedComponents(series(), "lltrend")
    model.ssm.initialize_known(np.zeros(2), 1e3 * np.eye(2))
    variances = model.smooth([1.0, q1, q2]).get_forecast(12).var_pred_mean - 1.0  # without the noise
    ahead = np.arange(1.0, 13)
    factors = _gains(60).variances[pair, 59]
    ours = factors[0] + factors[1] * ahead + factors[2] * ahead**2 + factors[3] * ahead**3
    np.testing.assert_allclose(ours, variances, rtol=1e-6)


def test_a_straight_line_is_followed():
    trend = fit_trend(np.stack([series(slope=0.01), series(slope=-0.03)]))
    np.testing.assert_allclose(trend.slope, [0.01, -0.03], atol=0.002)
    np.testing.assert_allclose(trend.level, [0.59, -1.77], atol=0.03)
    np.testing.assert_allclose(trend.noise, 0.02, rtol=0.4)
    np.testing.assert_allclose(trend.mean(np.array([10.0]))[:, 0], trend.level + 10 * trend.slope)


def test_what_is_missing_at_the_start_is_as_if_it_had_never_been_there():
    values = series()
    padded = np.where(np.arange(60) < 25, NAN, values)
    together = fit_trend(np.stack([values, padded]))
    alone = fit_trend(values[None, 25:])
    np.testing.assert_allclose(together.level[1], alone.level[0], rtol=1e-12)
    np.testing.assert_allclose(together.slope[1], alone.slope[0], rtol=1e-12)
    np.testing.assert_allclose(together.variances[1], alone.variances[0], rtol=1e-9)


def test_a_gap_is_bridged_and_a_wild_value_is_cut_off():
    values = series()
    gappy = np.where((np.arange(60) > 30) & (np.arange(60) < 40), NAN, values)
    wild = np.where(np.arange(60) == 50, 5.0, values)
    trend = fit_trend(np.stack([gappy, wild]))
    np.testing.assert_allclose(trend.slope, 0.01, atol=0.004)


def test_a_series_does_not_depend_on_the_others():
    rows = np.stack([series(seed, slope=0.01 * seed) for seed in range(6)])
    rows[2, :20] = NAN
    together = fit_trend(rows)
    for index, row in enumerate(rows):
        alone = fit_trend(row[None])
        np.testing.assert_allclose(together.level[index], alone.level[0], rtol=1e-12)
        np.testing.assert_allclose(together.variances[index], alone.variances[0], rtol=1e-9)


def test_the_bound_is_passed_with_even_odds_where_the_line_passes_it():
    trend = fit_trend(series(sd=0.001)[None])
    ahead = np.geomspace(1, 400, 120)
    scores = trend.scores(np.array([1.0]), ahead)
    left = (1.0 - trend.level[0]) / trend.slope[0]
    assert (np.diff(scores) >= 0).all()
    assert crossing(scores, ahead, 0.0)[0] == pytest.approx(left, rel=0.01)
    assert crossing(scores, ahead, -1.6)[0] < crossing(scores, ahead, 0.0)[0]
    assert np.isinf(crossing(scores, ahead, scores.max() + 1)[0])

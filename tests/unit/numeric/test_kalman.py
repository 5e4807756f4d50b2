"""The bank of trends against a Kalman filter of statsmodels, and against what is known."""

import numpy as np
import pytest
from statsmodels.tsa.statespace.structural import UnobservedComponents

from engine.numeric.kalman import TrendBank, trend_path

SIZE = 40


def noise(sd, size=SIZE):
    return np.random.default_rng(5).normal(0, sd, size)


def series(slope=0.02, sd=0.05):
    return 1 + slope * np.arange(SIZE) + noise(sd)


@pytest.mark.parametrize("ratios", [(0.0, 1e-3), (0.3, 1e-2), (3.0, 0.1)])
@pytest.mark.parametrize("gap", [slice(0, 0), slice(20, 25)])
def test_a_single_model_is_statsmodels_filter_at_the_same_variances(ratios, gap):
    values = series()
    values[gap] = np.nan
    bank = TrendBank(SIZE, *[(ratio,) for ratio in ratios])
    trend = bank.fit(values[None], clip=np.inf)
    model = UnobservedComponents(values, "lltrend")
    model.ssm.initialize_known(np.array([np.median(values[:3]), 0.0]), 1e3 * np.eye(2))
    found = model.filter([1.0, *ratios])
    if not gap.stop:  # with a gap the gains of the bank are those of a complete series
        assert trend.level[0] == pytest.approx(found.filtered_state[0, -1], abs=1e-6)
        assert trend.slope[0] == pytest.approx(found.filtered_state[1, -1], abs=1e-6)
    assert trend.level[0] == pytest.approx(found.filtered_state[0, -1], abs=0.1)
    steps = np.array([1.0, 5.0, 30.0])
    mean, variance = bank.ahead(trend, steps)
    expected = found.get_forecast(30)
    if not gap.stop:
        assert mean[0] == pytest.approx(expected.predicted_mean[[0, 4, 29]], abs=1e-5)
        # statsmodels' is of the next value, ours of the level: less the noise itself.
        theirs = (expected.se_mean[[0, 4, 29]] ** 2 - 1.0) * trend.variances[0, 0]
        assert variance[0] == pytest.approx(theirs, rel=1e-4)


def test_the_weights_add_up_and_prefer_the_model_that_made_the_series():
    still, wild = series(slope=0.0), np.cumsum(noise(1.0))
    bank = TrendBank(SIZE, (0.0, 3.0), (0.0,))
    weights = bank.fit(np.stack([still, wild])).weights
    assert weights.sum(axis=0) == pytest.approx([1, 1])
    assert weights[0, 0] > 0.8
    assert weights[1, 1] > 0.8


def test_one_wild_value_moves_the_trend_little():
    values = series(sd=0.02)
    wild = values.copy()
    wild[30] += 100
    bank = TrendBank(SIZE)
    clean, dirty = bank.fit(values[None]), bank.fit(wild[None])
    assert abs(dirty.level[0] - clean.level[0]) < 0.2
    assert abs(bank.fit(wild[None], clip=np.inf).level[0] - clean.level[0]) > 0.2


def test_a_straight_line_is_followed_to_its_crossing():
    values = (0.2 + 0.01 * np.arange(60))[None] + noise(1e-3, 60)
    path = trend_path(values, np.geomspace(0.01, 10, 60))
    assert path.slope[0] == pytest.approx(0.6, rel=0.02), "a block is a sixtieth"
    passage = path.passage(np.array([1.0]))
    early, middle, late = (passage.time_of(share)[0] for share in (0.05, 0.5, 0.95))
    assert middle == pytest.approx(21 / 60, rel=0.05)
    assert early < middle < late
    assert path.mean_at(0.5)[0] == pytest.approx(0.79 + 0.3, rel=0.02)
    wider = path.widened(np.array([0.3])).passage(np.array([1.0]))
    assert wider.time_of(0.05)[0] < early
    assert wider.time_of(0.95)[0] > late


def test_what_falls_never_gets_there_and_too_few_blocks_have_no_path():
    falling = (1 - 0.01 * np.arange(60))[None] + noise(1e-3, 60)
    short = np.where(np.arange(60) < 50, np.nan, falling)
    path = trend_path(np.concatenate([falling, short]), np.geomspace(0.01, 10, 60))
    assert np.isinf(path.passage(np.array([1.5, 1.5])).time_of(0.5)).all()
    assert np.isnan(path.mean[1]).all()
    after_reset = trend_path(np.where(np.arange(60) < 45, np.nan, falling), path.ahead)
    assert after_reset.slope[0] == pytest.approx(-0.6, rel=0.2)


def test_a_bank_needs_more_than_a_handful_of_values():
    with pytest.raises(ValueError, match="more than 4"):
        TrendBank(4)

"""Intervals follow what their forecasts came to."""

import numpy as np
import pytest

from engine.numeric.conformal import Track

EMPTY = Track.recall(None, None, 0.9)


def fed(sd, *, count=2000, side=1.0, lot=20):
    """A track of forecasts whose logarithm is off by `sd`, told to be within `side` on either side."""
    track, rng = EMPTY, np.random.default_rng(3)
    for _ in range(count // lot):
        errors = rng.normal(0, sd, lot)
        track = track.add(errors, np.full(lot, side), np.full(lot, side), least=200, coverage=0.9)
    return track


def test_with_few_forecasts_intervals_stay_as_they_are():
    assert EMPTY.factors(200) == (1.0, 1.0)
    assert fed(1.0, count=180).factors(200) == (1.0, 1.0)


@pytest.mark.parametrize("sd", [0.5, 1.0, 2.0])
def test_both_sides_become_as_wide_as_the_errors_need(sd):
    """Of normal errors, 1.645 standard deviations leave a twentieth out on either side."""
    low, high = fed(sd).factors(200)
    assert low == pytest.approx(1.645 * sd, rel=0.2)
    assert high == pytest.approx(1.645 * sd, rel=0.2)


def test_what_was_told_holds_the_truth_as_often_as_meant():
    coverage, bias, error, count = fed(1.5).quality()
    assert coverage == pytest.approx(0.9, abs=0.03)
    assert bias == pytest.approx(0, abs=0.2)
    assert error == pytest.approx(np.expm1(1.5 * 0.6745), rel=0.15)
    assert count == 512


def test_each_side_is_its_own():
    track = EMPTY.add(np.full(300, 0.5), np.ones(300), np.full(300, 0.25), least=200, coverage=0.9)
    assert track.factors(200) == (0.5, 2.0)


def test_nothing_known_is_no_figure():
    assert np.isnan(EMPTY.quality()[:3]).all()
    assert EMPTY.add(*np.empty((3, 0)), least=200, coverage=0.9) is EMPTY
    assert Track.recall(np.ones((2, 5)), np.ones(2), 0.9).quality()[3] == 0

"""Forecasts of times, scored by virtual limits."""

import numpy as np
import pytest

from engine.model.labels import Labels
from engine.model.verdict import Memory
from engine.numeric.crossings import FEW, PENDING, POOLED, Crossings, stretched

LABELS = (Labels(a="1"),)
HOUR = 3600.0


def waiting(*made, early=0.5, middle=1.0, late=2.0, limit=1.0):
    found = Crossings.none(1)
    for at in made:
        ends = (np.array([each * HOUR]) for each in (middle, early, late))
        found = found.wait(np.array([limit]), at, *ends)
    return found


def scored(after, **forecast):
    """Return scores and errors of a forecast whose limit is passed `after` hours."""
    found = waiting(0.0, **forecast).score(np.array([2.0]), after * HOUR)
    assert np.isnan(found.limit).all(), "it waits no more"
    return found.scores.tolist(), found.errors.tolist()


@pytest.mark.parametrize(
    ("after", "score"), [(1.0, 0.0), (0.5, -1.0), (2.0, 1.0), (0.25, -2.0), (3.9, 1.963)]
)
def test_the_score_is_in_half_widths_on_the_side_of_the_truth(after, score):
    assert scored(after)[0] == pytest.approx([score], abs=1e-3)
    assert scored(after)[1] == pytest.approx([np.log(after)])


def test_a_forecast_without_a_late_end_is_never_late():
    assert scored(3.0, late=np.inf)[0] == [0.0]


def test_a_forecast_waits_until_its_limit_is_passed_and_is_given_up_when_long_overdue():
    still = waiting(0.0).score(np.array([0.9]), HOUR)
    assert np.isfinite(still.limit).sum() == 1
    assert len(still.scores) == 0
    overdue = waiting(0.0).score(np.array([0.9]), 5 * HOUR)
    assert np.isnan(overdue.limit).all()
    assert len(overdue.scores) == 0, "what never came is not pooled with what came late"


def test_what_waits_and_what_is_pooled_is_bounded():
    found = waiting(*range(20))
    assert found.made[0].tolist() == list(range(PENDING)), "those that wait keep their places"
    many = found._replace(scores=np.zeros(POOLED), errors=np.zeros(POOLED))
    assert len(many.score(np.array([2.0]), HOUR).scores) == POOLED


def test_a_forecast_that_says_nothing_does_not_wait():
    assert np.isnan(waiting(0.0, middle=np.inf).limit).all()
    assert np.isnan(waiting(0.0, limit=np.nan).limit).all()


def pooled(scores):
    return Crossings.none(1)._replace(scores=np.array(scores), errors=np.zeros(len(scores)))


def test_intervals_are_stretched_only_where_they_hold_the_truth_too_seldom():
    rng = np.random.default_rng(3)
    right = rng.normal(0, 1 / 1.645, 600)  # nine of ten within one half-width
    assert pooled(right).coverage() == pytest.approx(0.9, abs=0.02)
    assert pooled(right).stretch(0.9) == (1.0, 1.0)
    assert pooled(0.1 * right).stretch(0.9) == (1.0, 1.0), "too wide is not narrowed"
    early, late = pooled(2 * right).stretch(0.9)
    assert early == pytest.approx(2, rel=0.15)
    assert late == pytest.approx(2, rel=0.15)
    early, late = pooled(np.abs(2 * right)).stretch(0.9)
    assert early == 1.0
    assert late > 1.8
    assert pooled(np.full(FEW - 1, 9.0)).stretch(0.9) == (1.0, 1.0), "on so few nothing is concluded"


def test_stretched_intervals_hold_what_they_claim():
    rng = np.random.default_rng(4)
    past, future = rng.standard_t(3, 600), rng.standard_t(3, 6000)
    early, late = pooled(past).stretch(0.9)
    assert np.mean((future >= -early) & (future <= late)) == pytest.approx(0.9, abs=0.02)


def test_an_end_is_stretched_on_a_logarithm():
    middle = np.array([2.0, 2.0, 0.0, 2.0])
    end = np.array([1.0, 4.0, 0.0, np.inf])
    assert stretched(middle, end, 2.0).tolist() == [0.5, 8.0, 0.0, np.inf]


def test_all_of_it_comes_back_from_a_memory():
    found = waiting(0.0)._replace(scores=np.array([1.0, 2.0]), errors=np.array([0.1, 0.2]))
    memory = Memory(LABELS, found.columns(), found.shared())
    back = Crossings.recall(memory, LABELS)
    for mine, other in zip(found, back, strict=True):
        np.testing.assert_array_equal(mine, other)
    torn = Memory(LABELS, found.columns(), {"scores": np.ones(3), "errors": np.ones(2)})
    assert len(Crossings.recall(torn, LABELS).scores) == 0

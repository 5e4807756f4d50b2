"""Earlier lines, held against what came."""

import numpy as np
import pytest

from engine.model.labels import Labels
from engine.model.verdict import NOTHING, Memory
from engine.numeric.hindcast import Hindcast

LABELS = (Labels(a="1"), Labels(a="2"))
NEVER = np.full(2, np.nan)


def lines(*drawn, slope=1.0):
    past = Hindcast.recall(NOTHING, LABELS, "line", 3)
    for at in drawn:
        past = past.note(np.array([at, 0.0]), np.array([slope, np.nan]), at, every=10.0)
    return past


def test_what_a_line_was_off_by_is_taken_over_the_time_that_passed():
    error = lines(0.0).slope_error(np.array([50.0, 0.0]), 100.0, NEVER, shortest=5.0)
    assert error[0] == pytest.approx(0.5)
    assert np.isnan(error[1]), "without a slope there was no line"
    both = lines(0.0, 50.0).slope_error(np.array([125.0, 0.0]), 100.0, NEVER, shortest=5.0)
    assert both[0] == pytest.approx(np.sqrt((0.25**2 + 0.5**2) / 2))


def test_lines_that_are_too_young_or_before_a_reset_do_not_count():
    past = lines(0.0, 50.0)
    level = np.array([125.0, 0.0])
    assert past.slope_error(level, 100.0, NEVER, shortest=60.0)[0] == pytest.approx(0.25)
    assert past.slope_error(level, 100.0, np.array([20.0, 0.0]), shortest=5.0)[0] == pytest.approx(0.5)
    assert np.isnan(past.slope_error(level, 100.0, np.array([60.0, 0.0]), shortest=5.0)[0])


def test_the_last_lines_are_kept_with_a_pause_between_them():
    assert lines(0.0, 5.0, 10.0, 20.0, 30.0).drawn[0].tolist() == [10.0, 20.0, 30.0]
    assert lines(30.0, 20.0).drawn[0, -1] == 20.0, "a clock that was set back begins anew"


def test_lines_come_back_from_a_memory_and_can_be_forgotten():
    past = lines(0.0, 50.0)
    back = Hindcast.recall(Memory(LABELS, past.columns("line")), LABELS[::-1], "line", 3)
    assert back.drawn[1].tolist()[1:] == [0.0, 50.0]
    assert np.isnan(past.without(np.array([True, False])).drawn[0]).all()

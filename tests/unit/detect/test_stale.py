"""Series that stand still."""

import math

import numpy as np
import pytest

from engine.detect.stale import Stale
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING

NAN = math.nan
NOW = 1_800_000_000.0
A = Labels(instance="a")
TEN = Stale(after=Duration(minutes=10))
MINUTES = np.arange(-12.0, 1.0)


def judge(values, *, at=NOW, memory=NOTHING, present=None):
    signal = Window.of([A], at + 60 * MINUTES, [np.asarray(values, dtype=float)], present=present)
    return TEN.judge(signal, {}, instant_of(at), memory)


@pytest.mark.parametrize(
    ("values", "is_bad"),
    [
        (np.full(13, 5.0), True),
        (np.where(MINUTES >= -10, 5.0, 4.0), True),
        (np.where(MINUTES >= -9, 5.0, 4.0), False),
        (np.where(MINUTES == -5, 6.0, 5.0), False),  # it went and came back
        (np.where(MINUTES % 3 == 0, 5.0, NAN), True),  # gaps are no change
        (np.where(MINUTES >= -9, 5.0, NAN), False),  # it began a while ago
        (MINUTES, False),
        (np.where(MINUTES >= -3, 0.0, 5.0), False),  # a reset
    ],
)
def test_what_has_not_changed_for_so_long_is_bad(values, is_bad):
    verdicts = judge(values)
    assert verdicts.known[0]
    assert verdicts.bad[0] == is_bad


def test_nothing_is_said_of_what_is_gone():
    assert not judge(np.where(MINUTES <= -3, 5.0, NAN)).known[0]
    assert not judge(np.full(13, NAN)).known[0]


def test_a_value_that_is_no_number_stands_still_too():
    assert judge(np.full(13, NAN), present=np.ones((1, 13), dtype=bool)).bad[0]


def test_since_when_is_remembered_beyond_the_window():
    memory = judge(np.where(MINUTES >= -4, 5.0, 4.0)).memory
    verdicts = judge(np.full(13, 5.0), at=NOW + 3600, memory=memory)
    assert verdicts.details_of(0) == {"since": NOW - 240, "unchanged_for": 3840}
    other = judge(np.full(13, 6.0), at=NOW + 3600, memory=memory)  # it changed while nobody looked
    assert other.details_of(0)["since"] == NOW + 3600 - 720
    early = judge(np.full(13, 5.0), at=NOW - 3600, memory=memory)  # somebody set the clock back
    assert early.details_of(0)["unchanged_for"] == 720


@pytest.mark.parametrize("wrong", [{"step": Duration()}, {"after": Duration(minutes=1)}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="step"):
        Stale(**wrong)


def test_time_must_rise():
    with pytest.raises(DetectError):
        TEN.judge(Window.of([A], [NOW, NOW], [[1.0, 2.0]]), {}, instant_of(NOW))

"""Series that go, come back, and are gone for good."""

import math

import numpy as np
import pytest

from engine.detect.absent import Absent
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING

NAN = math.nan
NOW = 1_800_000_000.0
A, B = Labels(instance="a"), Labels(instance="b")
GONE = Absent(after=Duration(minutes=5))
MINUTES = np.arange(-60.0, 1.0)


def judge(rows, *, at=NOW, memory=NOTHING, example=GONE):
    signal = Window.of(list(rows), at + 60 * MINUTES, list(rows.values()))
    return example.judge(signal, {}, instant_of(at), memory)


def there(until=0.0, value=7.0):
    return np.where(until >= MINUTES, value, NAN)


def test_gone_for_longer_than_after_is_bad():
    verdicts = judge({A: there(), B: there(until=-6)})
    assert verdicts.bad.tolist() == [False, True]
    assert verdicts.details_of(1) == {"last_seen": NOW - 360, "gone_for": 360}
    assert verdicts.values[1] == 7
    assert not judge({B: there(until=-5)}).bad[0]  # not longer than


def test_a_series_that_the_answer_no_longer_mentions_is_remembered():
    memory = judge({A: there(), B: there()}).memory
    for minutes, is_bad in ((4, False), (6, True), (600, True), (1439, True)):
        verdicts = judge({A: there()}, at=NOW + 60 * minutes, memory=memory)
        memory = verdicts.memory
        assert verdicts.labels == (A, B)
        assert verdicts.bad.tolist() == [False, is_bad]
        assert verdicts.values[1] == 7
    verdicts = judge({A: there()}, at=NOW + 60 * 1441, memory=memory)
    assert verdicts.known.tolist() == [True, True]  # so that its alert resolves
    assert verdicts.bad.tolist() == [False, False]
    assert verdicts.memory.labels == (A,)


def test_when_everything_is_gone_everything_is_bad():
    memory = judge({A: there(), B: there()}).memory
    verdicts = judge({}, at=NOW + 600, memory=memory)
    assert verdicts.labels == (A, B)
    assert verdicts.bad.all()


def test_what_comes_back_is_fine():
    memory = judge({A: there(until=-30)}).memory
    verdicts = judge({A: np.where(MINUTES == 0, 3.0, NAN)}, at=NOW + 600, memory=memory)
    assert not verdicts.bad[0]
    assert verdicts.values[0] == 3


def test_a_clock_that_is_set_back_makes_nothing_absent():
    memory = judge({A: there()}, at=NOW + 1e6).memory
    verdicts = judge({}, memory=memory)
    assert not verdicts.bad[0]
    assert verdicts.details_of(0)["gone_for"] == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"step": Duration()}, "step"),
        ({"after": Duration(seconds=30)}, "shorten step"),
        ({"lookback": Duration(minutes=5)}, "lookback"),
        ({"forget": Duration(minutes=5)}, "forget"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Absent(**wrong)


def test_time_must_rise():
    with pytest.raises(DetectError):
        GONE.judge(Window.of([A], [NOW, NOW], [[1.0, 2.0]]), {}, instant_of(NOW))

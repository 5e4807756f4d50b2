"""The condition of a plain Prometheus rule."""

import math

import numpy as np

from engine.detect.present import Present
from engine.model.labels import Labels
from engine.model.series import Window, instant_of

NAN = math.nan
LABELS = (Labels(instance="n1"), Labels(instance="n2"))


def judge(window, seconds=100.0):
    return Present().judge(window, {}, instant_of(seconds))


def test_every_element_is_bad_with_its_value():
    verdicts = judge(Window.of(LABELS, [100.0], [[3.0], [-1.0]]))
    assert verdicts.labels == LABELS
    assert verdicts.bad.tolist() == verdicts.known.tolist() == [True, True]
    assert verdicts.values.tolist() == [3, -1]
    assert verdicts.details == {}


def test_a_sample_that_is_nan_is_there():
    window = Window.of(LABELS, [100.0], [[NAN], [NAN]], present=np.array([[True], [False]]))
    assert judge(window).bad.tolist() == [True, False]


def test_what_was_there_earlier_or_comes_later_is_not_there_now():
    window = Window.of(LABELS, [40.0, 100.0, 160.0], [[1, NAN, 1], [NAN, 2, NAN]])
    verdicts = judge(window)
    assert verdicts.bad.tolist() == [False, True]
    assert verdicts.known.tolist() == [True, True]


def test_it_asks_for_the_newest_sample_only():
    assert not Present().lookback
    assert not Present().inputs

"""Levels that changed, and what only looks like it."""

import math

import numpy as np
import pytest

from engine.detect.changepoint import Changepoint, Direction
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING, Persist

NAN = math.nan
NOW = 1_800_000_000.0
SIZE = 73  # six hours at five minutes
PLACE = np.arange(SIZE)
AT_ONCE = Changepoint(persist=Persist(m=1, n=1))


def judge(values, example=AT_ONCE, *, at=NOW, memory=NOTHING):
    rows = np.atleast_2d(np.asarray(values, dtype=float))
    labels = [Labels(instance=f"n{index}") for index in range(len(rows))]
    return example.judge(
        Window.of(labels, at + 300 * np.arange(1 - SIZE, 1), rows), {}, instant_of(at), memory
    )


def noise(sd=1.0, seed=1):
    return np.random.default_rng(seed).normal(0, sd, SIZE)


STEP = np.where(PLACE >= 50, 20.0, 10.0)


def test_a_step_is_bad_and_says_when_and_how_much():
    verdicts = judge(STEP + noise())
    assert verdicts.bad[0]
    details = verdicts.details_of(0)
    assert details["shift"] == pytest.approx(10, abs=1)
    assert details["before"] == pytest.approx(10, abs=1)
    assert details["after"] == pytest.approx(20, abs=1)
    assert details["since"] == pytest.approx(NOW - 300 * 22.5, abs=900)
    assert details["score"] > 7


FINE = {
    "constant": np.full(SIZE, 3.0),
    "noise": noise(),
    "slope": 0.5 * PLACE + noise(),
    "spike": np.where(PLACE == 50, 500.0, 10.0) + noise(),
    "over again": np.where((PLACE >= 20) & (PLACE < 50), 20.0, 10.0) + noise(),
    "a moment ago": np.where(PLACE >= 70, 20.0, 10.0) + noise(),
    "season": 10 * np.sin(2 * np.pi * PLACE / 30) + noise(),
    "walk": np.cumsum(noise(seed=5)),
}


@pytest.mark.parametrize("values", FINE.values(), ids=FINE.keys())
def test_what_is_no_lasting_step_is_fine(values):
    verdicts = judge(values)
    assert verdicts.known[0]
    assert not verdicts.bad[0]


def test_pure_noise_hardly_ever_steps():
    """Independent, remembering, heavy-tailed and quantised noise: one of 4,000 windows at most."""
    rng = np.random.default_rng(7)
    shocks = rng.normal(0, 1, (1000, SIZE + 100))
    remembering = np.zeros_like(shocks)
    for index in range(1, shocks.shape[1]):
        remembering[:, index] = 0.7 * remembering[:, index - 1] + shocks[:, index]
    shapes = [
        rng.normal(5, 1, (1000, SIZE)),
        remembering[:, 100:],
        np.exp(rng.normal(0, 0.8, (1000, SIZE))),
        rng.poisson(0.5, (1000, SIZE)),
    ]
    assert sum(int(judge(shape).bad.sum()) for shape in shapes) <= 1


def test_directions_and_what_nobody_cares_about():
    down = 30 - STEP + noise()
    assert judge(down).bad[0]
    assert judge(down, Changepoint(direction=Direction.DOWN, persist=Persist(m=1, n=1))).bad[0]
    assert not judge(down, Changepoint(direction=Direction.UP, persist=Persist(m=1, n=1))).bad[0]
    for example, is_bad in (
        (Changepoint(min_shift=9, persist=Persist(m=1, n=1)), True),
        (Changepoint(min_shift=11, persist=Persist(m=1, n=1)), False),
        (Changepoint(min_rel_shift=0.8, persist=Persist(m=1, n=1)), True),
        (Changepoint(min_rel_shift=1.2, persist=Persist(m=1, n=1)), False),
    ):
        assert judge(STEP + noise(0.3), example).bad[0] == is_bad


def test_one_judgement_is_not_enough_by_default():
    first = judge(STEP + noise(), Changepoint())
    assert not first.bad[0]
    assert judge(STEP + noise(), Changepoint(), at=NOW + 300, memory=first.memory).bad[0]


def test_of_too_little_nothing_is_said():
    assert not judge(np.where(PLACE < 40, NAN, STEP)).known[0]
    assert not judge(np.where(PLACE > 65, NAN, STEP)).known[0]
    verdicts = judge(np.where(PLACE % 3 == 0, NAN, STEP + noise()))
    assert verdicts.known[0]
    assert verdicts.bad[0]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sensitivity": 0}, "sensitivity"),
        ({"min_shift": -1}, "min_shift"),
        ({"min_rel_shift": NAN}, "min_rel_shift"),
        ({"clear": 0}, "clear"),
        ({"step": Duration()}, "step"),
        ({"lookback": Duration(hours=1)}, "13 samples; 36 are needed"),
        ({"min_samples": 99}, "min_samples"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Changepoint(**wrong)


def test_time_must_rise():
    signal = Window.of([Labels()], [NOW, NOW], [[1.0, 2.0]])
    with pytest.raises(DetectError):
        AT_ONCE.judge(signal, {}, instant_of(NOW))

"""When models are fitted, and when what they learned counts."""

import time
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
import pytest

from engine.clients.aside import Aside
from engine.detect.seasonal import Seasonal
from engine.errors import DetectError
from engine.flow.events import Events
from engine.flow.memories import Memories
from engine.flow.refits import FITTED, RETRIED_AFTER, Refits
from engine.model.duration import Duration
from engine.model.event import Kind
from engine.model.labels import Labels
from engine.model.rule import AlertingRule
from engine.model.series import Window, instant_of
from engine.model.verdict import Memory
from engine.store.memory import MemoryStore

AT = instant_of(1_800_000_000.0)
DAY = timedelta(days=1)
ONE, TWO, NEW = Labels(i="1"), Labels(i="2"), Labels(i="3")


@dataclass(frozen=True)
class Means:
    """Learns each series' mean."""

    lookback: Duration = Duration(hours=1)
    step: Duration = Duration(minutes=15)
    history: Duration = Duration(days=2)
    refit: Duration = Duration(days=1)
    fails: bool = False

    def fit(self, signal, at):
        if self.fails:
            raise DetectError("too little of it")
        return Memory(signal.labels, {"mean": np.nanmean(signal.values, axis=1)})


class Bench:
    """Refits of one rule, with what they were asked and what they told."""

    def __init__(self, model, aside=None, value=5.0):
        self.rule, self.value, self.asked, self.told = (
            AlertingRule(alert="A", expr="x", detect=model, id="r"),
            value,
            [],
            [],
        )
        store = MemoryStore()
        self.memories = Memories({"r": self.rule}, store)
        self.refits = Refits(self.memories, Events(store, [self.told.append]), aside)
        self.memories.note("r", Memory((ONE, TWO), {"votes": np.array([1.0, 2.0])}), AT)

    def step(self, at):
        """One evaluation: returns the means that count in it."""
        self.refits.take(self.rule, at)
        self.refits.ask(self.rule, at, lambda length: self.history(at, length))
        return self.memories.of("r").rows((ONE, TWO), "mean").tolist()

    def history(self, at, length):
        self.asked.append((at, length))
        return Window.of([TWO, ONE, NEW], [0.0, 1.0], [[self.value + 1] * 2, [self.value] * 2, [9.0] * 2])

    def troubles(self):
        return [event.reason for event in self.told if event.kind is Kind.TROUBLE]


def test_a_fit_counts_from_the_evaluation_after_it_on():
    bench = Bench(Means())
    assert np.isnan(bench.step(AT)).all()
    assert bench.step(AT + timedelta(minutes=1)) == [5.0, 6.0]
    assert bench.asked == [(AT, Duration(days=2))]


def test_what_else_was_noted_stays_and_series_that_are_not_known_are_left_out():
    bench = Bench(Means())
    bench.step(AT)
    bench.step(AT)
    memory = bench.memories.of("r")
    assert memory.labels == (ONE, TWO)
    assert memory.rows((ONE, TWO), "votes").tolist() == [1.0, 2.0]
    assert memory.shared[FITTED].tolist() == [AT.timestamp()]


def test_a_series_that_was_not_fitted_keeps_the_fit_before():
    bench = Bench(Means())
    bench.memories.add("r", Memory((ONE, TWO), {"mean": np.array([1.0, 2.0])}))
    bench.memories.add("r", Memory((TWO,), {"mean": np.array([7.0])}))
    assert bench.memories.of("r").rows((ONE, TWO), "mean").tolist() == [1.0, 7.0]


def test_it_is_fitted_again_after_a_day():
    bench = Bench(Means())
    for at in (AT, AT + timedelta(hours=1), AT + DAY - timedelta(minutes=1)):
        bench.step(at)
    assert len(bench.asked) == 1
    bench.value = 8.0
    bench.step(AT + DAY)
    assert bench.step(AT + DAY + timedelta(minutes=1)) == [8.0, 9.0]


def test_a_restart_does_not_fit_anew():
    bench = Bench(Means())
    bench.step(AT)
    bench.step(AT + timedelta(minutes=1))
    bench.refits = Refits(bench.memories, Events(MemoryStore()))
    bench.step(AT + timedelta(hours=2))
    assert len(bench.asked) == 1


def test_a_clock_that_was_set_back_fits_anew():
    bench = Bench(Means())
    bench.step(AT)
    bench.step(AT)
    bench.step(AT - DAY)
    assert len(bench.asked) == 2


def test_a_fit_that_fails_is_told_and_tried_again_later():
    bench = Bench(Means(fails=True))
    for minutes in range(0, 60, 5):
        bench.step(AT + timedelta(minutes=minutes))
    assert bench.troubles() == ["too little of it"] * 2
    assert [at - AT for at, _ in bench.asked] == [timedelta(), RETRIED_AFTER]


def test_a_history_that_cannot_be_had_is_the_evaluations_trouble_and_tried_again_later():
    bench = Bench(Means())
    bench.history = lambda at, length: 1 / 0
    with pytest.raises(ZeroDivisionError):
        bench.step(AT)
    del bench.history
    bench.step(AT + timedelta(minutes=1))
    assert bench.asked == []
    bench.step(AT + RETRIED_AFTER)
    assert len(bench.asked) == 1


def test_detectors_without_a_model_are_left_alone():
    bench = Bench(Means())
    bench.rule = replace(bench.rule, detect=object())
    bench.step(AT)
    assert bench.asked == []


def slept(bench, aside):
    while bench.refits._running and not bench.refits._running["r"].done():
        time.sleep(0.01)


def signal(days=8, series=3):
    times = AT.timestamp() + 900.0 * np.arange(1 - 96 * days, 1)
    values = (
        10
        + 3 * np.sin(2 * np.pi * times / 86_400)
        + np.random.default_rng(1).normal(0, 0.2, (series, len(times)))
    )
    return Window.of([ONE, TWO, NEW][:series], times, values)


def test_a_season_is_fitted_in_a_process_of_its_own_as_it_would_be_here():
    aside = Aside()
    try:
        model = Seasonal(history=Duration(days=7))
        bench = Bench(model, aside)
        bench.history = lambda at, length: signal()
        bench.refits.ask(bench.rule, AT, lambda length: signal())
        assert "profile" not in bench.memories.of("r").columns
        slept(bench, aside)
        bench.refits.take(bench.rule, AT)
        here = model.fit(signal(), AT)
        for name, column in here.columns.items():
            np.testing.assert_allclose(bench.memories.of("r").columns[name], column[:2], rtol=1e-9)
        assert bench.troubles() == []
    finally:
        aside.close()


def test_the_evaluations_go_on_when_the_process_of_a_fit_is_killed():
    aside = Aside()
    try:
        bench = Bench(Seasonal(history=Duration(days=7)), aside)
        bench.refits.ask(bench.rule, AT, lambda length: signal())
        while not aside._children:
            time.sleep(0.01)
        next(iter(aside._children)).kill()
        slept(bench, aside)
        bench.refits.take(bench.rule, AT)
        assert bench.troubles() == ["fitted_at: its process ended by SIGKILL"]
        bench.refits.ask(bench.rule, AT + RETRIED_AFTER, lambda length: signal())
        slept(bench, aside)
        bench.refits.take(bench.rule, AT + RETRIED_AFTER)
        assert bench.memories.of("r").columns["profile"].shape == (2, 672)
    finally:
        aside.close()

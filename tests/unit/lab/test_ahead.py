"""What is evaluated ahead of time gives the answers that asking directly gives."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import QueryRejected
from engine.lang.promql import Storage
from engine.model.labels import Labels
from engine.model.ports import Source
from engine.model.series import Window, instant_of
from engine.query.ahead import AheadSource
from engine.query.embedded import EmbeddedSource

T0 = instant_of(1_800_000_000)
SECOND = timedelta(seconds=1)
STEP, END = 30 * SECOND, T0 + 600 * SECOND
EXPRESSIONS = [
    "temperature",
    "temperature > 50",
    "rate(temperature[2m])",
    "sum by (room) (temperature offset 1m)",
    "temperature @ 1800000120",
    "temperature @ end()",
    "temperature @start ()",
    "max_over_time(temperature[2m:30s])",
    "time()",
    "absent(nowhere)",
    "temperature and on (room) (temperature > 50)",
    "sort_desc(temperature)",
    "topk(1, temperature)",
    "recorded",
    "sum(recorded) + sum(temperature)",
    '{__name__=~"rec.*"}',
    '{room="a"}',
]


class Counting:
    """A source that counts what it is asked."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.instants = self.ranges = 0

    def instant(self, expr: str, at: datetime) -> Window:
        self.instants += 1
        return self._source.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        self.ranges += 1
        return self._source.range(expr, start, end, step)


def storage_of(values: list[list[float]]) -> Storage:
    """Two rooms, a sample every 15 s; NaN is a missing one."""
    storage = Storage()
    for room, row in zip("ab", values, strict=False):
        there = [i for i, value in enumerate(row) if not np.isnan(value)]
        times = [round(T0.timestamp() * 1000) + i * 15_000 for i in there]
        storage.add(Labels({"__name__": "temperature", "room": room}), times, [row[i] for i in there])
    return storage


def same(one: Window, other: Window, *, ordered: bool = False) -> None:
    """Fail unless two answers are the same; the order of their series counts only if `ordered`."""

    def rows(window: Window) -> list[int]:
        every = range(len(window))
        return list(every) if ordered else sorted(every, key=lambda i: str(window.labels[i]))

    first, second = rows(one), rows(other)
    assert [one.labels[i] for i in first] == [other.labels[i] for i in second]
    np.testing.assert_array_equal(one.times, other.times)
    np.testing.assert_array_equal(one.present[first], other.present[second])
    np.testing.assert_array_equal(one.values[first], other.values[second])


VALUES = st.lists(
    st.lists(st.sampled_from([float("nan"), 0.0, 20.0, 60.0, 90.0]), min_size=41, max_size=41),
    min_size=2,
    max_size=2,
)
# On the grid, off the grid, before the start and after the end.
INSTANTS = st.one_of(st.integers(-4, 22).map(lambda k: k * 30), st.integers(-100, 700))


@given(VALUES, st.sampled_from(EXPRESSIONS), st.lists(INSTANTS, min_size=1, max_size=8))
def test_instants_are_those_of_the_source(values: list[list[float]], expr: str, asked: list[int]) -> None:
    direct = EmbeddedSource(storage_of(values))
    ahead = AheadSource(direct, STEP, END, {"recorded"})
    for seconds in asked:
        at = T0 + seconds * SECOND
        same(ahead.instant(expr, at), direct.instant(expr, at), ordered="sort" in expr or "topk" in expr)


@given(
    VALUES,
    st.sampled_from(EXPRESSIONS),
    st.lists(
        st.tuples(INSTANTS, st.integers(0, 20), st.sampled_from([30, 30, 30, 60, 45])), min_size=1, max_size=6
    ),
)
def test_ranges_are_those_of_the_source(
    values: list[list[float]], expr: str, asked: list[tuple[int, int, int]]
) -> None:
    direct = EmbeddedSource(storage_of(values))
    ahead = AheadSource(direct, STEP, END, {"recorded"})
    for begin, count, step in asked:
        start = T0 + begin * SECOND
        question = expr, start, start + count * step * SECOND, step * SECOND
        same(ahead.range(*question), direct.range(*question))


@given(VALUES, st.lists(st.integers(0, 20), min_size=2, max_size=10))
def test_instants_and_ranges_may_be_asked_of_one_source(values: list[list[float]], slots: list[int]) -> None:
    direct = EmbeddedSource(storage_of(values))
    ahead = AheadSource(direct, STEP, END)
    for slot in slots:
        at = T0 + slot * STEP
        same(ahead.instant("temperature", at), direct.instant("temperature", at))
        question = "temperature", at - 2 * STEP, at, STEP
        same(ahead.range(*question), direct.range(*question))


@pytest.mark.parametrize(
    "expr", ["recorded", "sum(recorded)", '{__name__=~"rec.*"}', '{room="a"}', "absent(recorded)"]
)
def test_what_is_recorded_meanwhile_is_seen(expr: str) -> None:
    storage = storage_of([])
    direct = EmbeddedSource(storage)
    ahead = AheadSource(direct, STEP, END, {"recorded"})
    for slot in range(5):
        at = T0 + slot * STEP
        same(ahead.instant(expr, at), direct.instant(expr, at))
        named = Labels({"__name__": "recorded", "room": "a"})
        storage.add(named, [round(at.timestamp() * 1000)], [float(slot)])
        same(ahead.instant(expr, at), direct.instant(expr, at))


def every_slot(ahead: AheadSource, ask: Callable[[datetime], object]) -> None:
    for slot in range(21):
        ask(T0 + slot * STEP)


@pytest.mark.parametrize("expr", ["temperature > 50", "recorded_elsewhere", 'temperature{room="recorded"}'])
def test_an_expression_is_evaluated_once_for_a_whole_test(expr: str) -> None:
    source = Counting(EmbeddedSource(storage_of([[60.0] * 41])))
    ahead = AheadSource(source, STEP, END, {"recorded"})
    every_slot(ahead, lambda at: ahead.instant(expr, at))
    every_slot(ahead, lambda at: ahead.range(expr, T0, at, STEP))
    assert (source.instants, source.ranges) == (0, 1)


@pytest.mark.parametrize(
    "expr", ["temperature @ end()", "sort(temperature)", "recorded", "sum(recorded > 5)"]
)
def test_what_cannot_be_known_ahead_is_asked_each_time(expr: str) -> None:
    source = Counting(EmbeddedSource(storage_of([[60.0] * 41])))
    ahead = AheadSource(source, STEP, END, {"recorded"})
    every_slot(ahead, lambda at: ahead.instant(expr, at))
    assert (source.instants, source.ranges) == (21, 0)


def test_an_instant_without_an_answer_does_not_cost_the_others_theirs() -> None:
    storage = storage_of([[60.0] * 41])
    twice = [round(T0.timestamp() * 1000) + 300_000]
    for n in "12":
        storage.add(Labels({"__name__": "humidity", "room": "a", "n": n}), twice, [1.0])
    ahead = AheadSource(EmbeddedSource(storage), STEP, END)
    expr = "temperature * on (room) humidity"
    assert len(ahead.instant(expr, T0)) == 0
    with pytest.raises(QueryRejected):
        ahead.instant(expr, T0 + 10 * STEP)


def test_an_expression_that_is_wrong_is_refused_by_the_source() -> None:
    ahead = AheadSource(EmbeddedSource(Storage()), STEP, END, {"recorded"})
    with pytest.raises(QueryRejected):
        ahead.instant("sum(", T0)

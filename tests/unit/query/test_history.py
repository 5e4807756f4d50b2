"""What is asked ahead of a server's history is what it would have answered slot after slot."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import QueryRejected, QueryUnavailable
from engine.lang.promql import Storage
from engine.model.labels import Labels
from engine.model.series import Window
from engine.query.embedded import EmbeddedSource
from engine.query.history import HistorySource

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SLOTS = 240


class Server:
    """A source that counts what it is asked, and refuses more than `most` instants."""

    def __init__(self, source, most=10**9, error=QueryRejected):
        self.source, self.most, self.error = source, most, error
        self.ranges = []

    def instant(self, expr, at):
        return self.source.instant(expr, at)

    def range(self, expr, start, end, step):
        count = (end - start) // step + 1
        if count > self.most:
            raise self.error(f"{count} instants")
        self.ranges.append(count)
        return self.source.range(expr, start, end, step)


def storage(seed=1, series=3):
    """Series of which the later ones begin later, end earlier and have gaps."""
    rng = np.random.default_rng(seed)
    found = Storage()
    for row in range(series):
        there = [i for i in range(20 * row, SLOTS - 10 * row) if rng.random() > 0.1 * row]
        at = [round((T0 + i * MINUTE).timestamp() * 1000) for i in there]
        stale = [j > 0 and there[j] - there[j - 1] > 1 for j in range(len(there))]
        found.add(Labels({"__name__": "m", "i": str(row)}), at, rng.normal(size=len(there)), stale)
    return EmbeddedSource(found)


def same(one: Window, other: Window) -> None:
    order = [one.labels.index(labels) for labels in other.labels]
    assert len(one) == len(other)
    np.testing.assert_array_equal(one.times, other.times)
    np.testing.assert_array_equal(one.present[order], other.present)
    np.testing.assert_array_equal(one.values[order], other.values)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 50),
    looks=st.lists(st.sampled_from([5, 30, 60]), min_size=1, max_size=3, unique=True),
    stride=st.sampled_from([1, 2, 7, 50]),
    most=st.sampled_from([61, 100, 10**6]),
    expr=st.sampled_from(["m", "m > 0", "sum(m)", "rate(m[5m])", "topk(1, m)", "m offset 10m"]),
)
def test_it_answers_as_the_server_would_at_each_slot(seed, looks, stride, most, expr):
    source = storage(seed)
    history = HistorySource(Server(source, most), T0 + SLOTS * MINUTE, MINUTE)
    for slot in range(0, SLOTS, stride):
        at = T0 + slot * MINUTE
        same(history.instant(expr, at), source.instant(expr, at))
        for look in looks:
            start = at - look * MINUTE
            same(history.range(expr, start, at, MINUTE), source.range(expr, start, at, MINUTE))


def test_an_expression_costs_a_few_queries_and_not_one_a_slot():
    server = Server(storage())
    history = HistorySource(server, T0 + SLOTS * MINUTE, MINUTE)
    for slot in range(SLOTS):
        at = T0 + slot * MINUTE
        history.range("m", at - 60 * MINUTE, at, MINUTE)
    assert len(server.ranges) <= 4
    assert sum(server.ranges) == SLOTS + 61  # each instant once, up to the end


def test_what_is_kept_does_not_grow_with_the_period(monkeypatch):
    monkeypatch.setattr("engine.query.history.CELLS", 120)
    history = HistorySource(storage(), T0 + SLOTS * MINUTE, MINUTE)
    for slot in range(SLOTS):
        at = T0 + slot * MINUTE
        history.range("m", at - 10 * MINUTE, at, MINUTE)
        held = sum(chunk.window.values.size for chunk in history._chunks.values())
        assert held <= 3 * (11 + 1 + 120)  # what is looked back at, and a chunk of three series at most


def test_questions_that_come_once_are_forgotten_first(monkeypatch):
    monkeypatch.setattr("engine.query.history.KEPT", 50)
    history = HistorySource(storage(), T0 + SLOTS * MINUTE, MINUTE)
    for seconds in range(1, 40):
        history.instant(f"m > {seconds}", T0 + 30 * MINUTE)
        history.range("m", T0 + 20 * MINUTE, T0 + 30 * MINUTE, MINUTE)
    assert [question.expr for question in history._chunks][-1] == "m"
    assert sum(chunk.window.values.size for chunk in history._chunks.values()) <= 50


def test_a_server_that_is_away_is_no_history_without_data():
    history = HistorySource(Server(storage(), most=0, error=QueryUnavailable), T0 + SLOTS * MINUTE, MINUTE)
    with pytest.raises(QueryUnavailable):
        history.instant("m", T0)
    assert history.unavailable is not None


def test_a_chunk_that_takes_too_long_is_asked_for_in_smaller_ones():
    server = Server(storage(), most=40, error=QueryUnavailable)
    history = HistorySource(server, T0 + SLOTS * MINUTE, MINUTE)
    for slot in range(SLOTS):
        history.instant("m", T0 + slot * MINUTE)
    assert history.unavailable is None
    assert max(server.ranges) <= 40

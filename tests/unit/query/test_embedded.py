"""The embedded source answers as a server would, from samples in memory."""

from datetime import UTC, datetime, timedelta

import pytest

from engine.errors import QueryRejected
from engine.lang.promql import Storage
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.ports import Source
from engine.query.embedded import EmbeddedSource

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def storage():
    storage = Storage()
    first = round(START.timestamp() * 1000)
    storage.add(Labels(__name__="ramp"), [first + 15_000 * index for index in range(40)], range(40))
    return storage


def test_an_instant_is_a_window_of_one_column(storage):
    source: Source = EmbeddedSource(storage)
    window = source.instant("ramp * 2", START + timedelta(minutes=1))
    assert window.times.tolist() == [START.timestamp() + 60]
    assert window.values.tolist() == [[8]]


@pytest.mark.parametrize(
    ("length", "step", "expected"),
    [(60, 30, [0, 2, 4]), (59, 30, [0, 2]), (0, 30, [0]), (0.3, 0.1, [0, 0, 0, 0]), (-1, 30, [])],
)
def test_a_range_holds_every_step_with_both_ends(storage, length, step, expected):
    window = EmbeddedSource(storage).range(
        "ramp", START, START + timedelta(seconds=length), timedelta(seconds=step)
    )
    assert window.values.reshape(-1).tolist() == expected


def test_a_sample_added_between_two_queries_is_seen(storage):
    source = EmbeddedSource(storage)
    assert len(source.instant("recorded", START)) == 0
    storage.add(Labels(__name__="recorded"), [round(START.timestamp() * 1000)], [1.0])
    assert source.instant("recorded", START).last().tolist() == [1]


def test_subqueries_without_a_step_use_the_sources(storage):
    source = EmbeddedSource(storage, subquery_step=Duration(seconds=30))
    assert source.instant("count_over_time(ramp[2m:])", START + timedelta(minutes=5)).last().tolist() == [4]


@pytest.mark.parametrize("expr", ["rate(ramp)", "info(ramp)", "topk(NaN, ramp)", "ramp[5m]"])
def test_what_is_refused_is_a_rejected_query_that_names_the_expression(storage, expr):
    with pytest.raises(QueryRejected) as rejection:
        EmbeddedSource(storage).instant(expr, START)
    assert repr(expr) in str(rejection.value)

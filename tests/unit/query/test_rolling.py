"""Windows that roll answer as fresh ones do."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import QueryError, QueryRejected, QueryUnavailable
from engine.lang.promql import Storage
from engine.lang.promql.steadiness import is_steady
from engine.model.labels import Labels
from engine.model.series import Window
from engine.query.embedded import EmbeddedSource
from engine.query.rolling import OVERLAP, WHOLE_AFTER, WINDOWS, RollingSource

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SPAN = 60 * MINUTE


class Asked:
    """A source that notes the ranges that it was asked for, and fails or warns on demand."""

    def __init__(self, storage):
        self.source = EmbeddedSource(storage)
        self.ranges = []
        self.error = None
        self.warnings = ()

    def instant(self, expr, at):
        return self.source.instant(expr, at)

    def range(self, expr, start, end, step):
        if self.error is not None:
            raise self.error
        self.ranges.append((expr, start, end, step))
        found = self.source.range(expr, start, end, step)
        return Window(found.labels, found.times, found.values, found.present, self.warnings)

    @property
    def points(self):
        """How many instants the last question had."""
        _, start, end, step = self.ranges[-1]
        return (end - start) // step + 1


def add(storage, first, last, value=None, **labels):
    """Add a sample a minute from `first` to `last`, in minutes after AT."""
    times = [round((AT + minute * MINUTE).timestamp() * 1000) for minute in range(first, last + 1)]
    values = [float(minute) if value is None else value for minute in range(first, last + 1)]
    storage.add(Labels(__name__="m", **labels), times, values)


@pytest.fixture
def asked():
    storage = Storage()
    add(storage, -120, 300, pid="1")
    return Asked(storage)


def ask(source, minutes, expr="m", span=SPAN, step=MINUTE):
    at = AT + minutes * MINUTE
    return source.range(expr, at - span, at, step)


def as_dict(window):
    """A window as plain values, whatever the order of its series."""
    rows = zip(window.labels, window.values.tolist(), window.present.tolist(), strict=True)
    return window.times.tolist(), {
        labels: [value if there else None for value, there in zip(values, present, strict=True)]
        for labels, values, present in rows
    }


def test_only_the_end_is_fetched_and_the_answer_is_the_same(asked):
    rolling = RollingSource(asked, 10_000)
    for minutes in (0, 1, 2, 7, 7):
        assert as_dict(ask(rolling, minutes)) == as_dict(ask(asked.source, minutes))
    # Five minutes, and what has passed since.
    assert [(end - start) // step + 1 for _, start, end, step in asked.ranges] == [61, 6, 6, 10, 5]
    assert asked.ranges[-1][2] == AT + 7 * MINUTE


def test_series_come_and_go(asked):
    add(asked.source.storage, 3, 8, pid="2")
    rolling = RollingSource(asked, 10_000)
    for minutes in range(0, 50, 2):
        assert as_dict(ask(rolling, minutes, span=20 * MINUTE)) == as_dict(
            ask(asked.source, minutes, span=20 * MINUTE)
        )
    assert asked.points < 21


def test_what_arrives_a_little_late_is_seen_at_once_and_the_rest_within_the_hour(asked):
    rolling = RollingSource(asked, 10_000)
    expr, span = "last_over_time(m[10s])", 120 * MINUTE
    assert len(ask(rolling, 0, expr, span)) == 1
    add(asked.source.storage, -3, -3, pid="late")
    assert len(ask(rolling, 1, expr, span)) == 2
    add(asked.source.storage, -30, -30, pid="backfilled")
    seen = {minutes: len(ask(rolling, minutes, expr, span)) for minutes in range(2, 70, 2)}
    assert {minutes for minutes, count in seen.items() if count == 3} == set(
        range(WHOLE_AFTER // MINUTE, 70, 2)
    )


def test_the_overlap_replaces_what_was_kept():
    storage = Storage()
    add(storage, -120, 0, pid="1")
    asked = Asked(storage)
    rolling = RollingSource(asked, 10_000)
    assert ask(rolling, 1, "last_over_time(m[30s])").present[0, -2:].tolist() == [True, False]
    add(storage, 1, 5, pid="1")
    window = ask(rolling, 2, "last_over_time(m[30s])")
    assert window.values[0, -3:].tolist() == [0, 1, 2]
    assert asked.points == 6


@pytest.mark.parametrize("minutes", [-1, -1000, 56, 1000, 0.5])
def test_a_clock_that_was_set_and_another_phase_begin_anew(asked, minutes):
    rolling = RollingSource(asked, 10_000)
    ask(rolling, 0)
    assert as_dict(ask(rolling, minutes)) == as_dict(ask(asked.source, minutes))
    assert asked.points == 61


def test_everything_is_fetched_anew_after_an_hour(asked):
    rolling = RollingSource(asked, 10_000)
    points = []
    for minutes in range(0, 130, 10):
        ask(rolling, minutes)
        points.append(asked.points)
    assert [minutes for minutes, count in zip(range(0, 130, 10), points, strict=True) if count == 61] == [
        0,
        60,
        120,
    ]


def test_a_failure_is_that_of_the_source_and_forgets_nothing(asked):
    rolling = RollingSource(asked, 10_000)
    ask(rolling, 0)
    asked.error = QueryUnavailable("gone")
    with pytest.raises(QueryUnavailable, match="gone"):
        ask(rolling, 1)
    asked.error = None
    assert as_dict(ask(rolling, 2)) == as_dict(ask(asked.source, 2))
    assert asked.points == 7


def test_a_partial_answer_is_told_and_not_kept(asked):
    rolling = RollingSource(asked, 10_000)
    ask(rolling, 0)
    asked.warnings = ("a store is away",)
    assert ask(rolling, 1).warnings == ("a store is away",)
    assert asked.points == 61
    asked.warnings = ()
    assert ask(rolling, 2).warnings == ()
    assert asked.points == 61


def test_remarks_about_the_expression_stay(asked):
    asked.warnings = ("PromQL info: metric might not be a counter",)
    rolling = RollingSource(asked, 10_000)
    ask(rolling, 0)
    assert ask(rolling, 1).warnings == asked.warnings
    assert asked.points == 6


@pytest.mark.parametrize(
    ("expr", "steady"),
    [
        ("m", True),
        ("sum by (a) (rate(m[5m])) / 2", True),
        ("m offset 5m", True),
        ("max_over_time(m[1h:1m] offset 1h)", True),
        ("m offset -5m", False),
        ("avg_over_time(m[5m] offset -1s)", False),
        ("m - m @ end()", False),
        ("m @ 1700000000", False),
        ("max_over_time(rate(m[1m])[1h:1m] @ start())", False),
        ("topk(3, m)", False),
        ("sum(bottomk(3, m))", False),
        ("new_function(m)", False),
        ("m[", False),
    ],
)
def test_only_what_stays_as_it_was_is_kept(asked, expr, steady):
    assert is_steady(expr) is steady


def test_other_expressions_and_own_series_are_asked_as_they_are(asked):
    rolling = RollingSource(asked, 10_000, growing=["recorded"])
    for expr in ("m offset -1m", "m + recorded"):
        for minutes in (0, 1):
            ask(rolling, minutes, expr)
            assert asked.points == 61


def test_what_is_kept_has_a_limit_and_the_oldest_goes():
    storage = Storage()
    for pid in range(10):
        add(storage, -120, 300, pid=str(pid))
    asked = Asked(storage)
    rolling = RollingSource(asked, 610)
    expressions = [f"m + {number}" for number in range(WINDOWS + 1)]
    for expr in expressions:
        ask(rolling, 0, expr)
    ask(rolling, 1, expressions[-1])
    assert asked.points == 6
    ask(rolling, 1, expressions[0])
    assert asked.points == 61


def test_an_answer_that_has_grown_too_large_is_refused_by_the_source(asked):
    class Limited(Asked):
        def range(self, expr, start, end, step):
            found = super().range(expr, start, end, step)
            if found.present.sum() > 100:
                raise QueryRejected("too many")
            return found

    add(asked.source.storage, 1, 300, pid="2")
    limited = Limited(asked.source.storage)
    rolling = RollingSource(limited, 100)
    for minutes in range(0, 40, 5):
        assert len(ask(rolling, minutes)) == 1 + (minutes > 0)
    with pytest.raises(QueryRejected, match="too many"):
        ask(rolling, 40)


def test_an_answer_cannot_be_changed(asked):
    window = ask(RollingSource(asked, 10_000), 0)
    with pytest.raises(ValueError, match="read-only"):
        window.values[0, 0] = 1


def test_threads_may_share_one(asked):
    rolling = RollingSource(asked, 10_000)
    ready = threading.Barrier(4)

    def work(seed):
        ready.wait()
        rng = np.random.default_rng(seed)
        for _ in range(30):
            minutes, expr = int(rng.integers(0, 100)), f"m + {rng.integers(3)}"
            assert as_dict(ask(rolling, minutes, expr)) == as_dict(ask(asked.source, minutes, expr))
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


EXPRESSIONS = [
    "m", "rate(m[3m])", "sum(m)", "sum by (pid) (increase(m[10m]))", "max_over_time(m[5m:1m])", "absent(m)", "m offset 7m",
    "m > 10", "min_over_time(m[2m])", "topk(1, m)", "m offset -2m", "m - m @ end()",
]  # fmt: skip
LIVES = st.lists(
    st.tuples(st.integers(-90, 80), st.integers(0, 120), st.sampled_from([None, 3.0])), max_size=4
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(EXPRESSIONS),
    LIVES,
    st.lists(st.integers(-3, 12), min_size=1, max_size=12),
    st.sampled_from([MINUTE, 2 * MINUTE, 7 * MINUTE, 90 * MINUTE / 60]),
)
def test_the_answer_is_the_fresh_one_whatever_is_asked_and_when(expr, lives, strides, step):
    storage = Storage()
    for pid, (first, length, value) in enumerate(lives):
        add(storage, first, first + length, value, pid=str(pid))
    asked = Asked(storage)
    rolling = RollingSource(asked, 10_000)
    at = AT
    for stride in strides:
        at += stride * step
        wanted = answer_of(asked.source, expr, at, step)
        assert answer_of(rolling, expr, at, step) == wanted


def answer_of(source, expr, at, step):
    try:
        return as_dict(source.range(expr, at - 30 * step, at, step))
    except QueryError as error:
        return str(error)


def test_the_overlap_is_two_steps_where_steps_are_long(asked):
    rolling = RollingSource(asked, 10_000)
    step = 2 * OVERLAP
    ask(rolling, 0, step=step, span=12 * step)
    ask(rolling, 10, step=step, span=12 * step)
    assert asked.points == 3

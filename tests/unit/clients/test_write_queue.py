"""Evaluations never wait for a receiver, and nothing is lost without being counted."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clients.write_queue import BATCH, FanOut, Fate, WriteQueue
from engine.errors import QueryRejected, QueryUnavailable, SamplesRejected
from engine.model.labels import Labels
from engine.model.ports import Point
from engine.model.settings import RemoteWrite

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class Receiver:
    """Takes samples, or fails as it is told to."""

    def __init__(self) -> None:
        self.taken: list[float | None] = []
        self.failures: list[Exception] = []
        self.requests = 0

    def write(self, points: Sequence[Point]) -> None:
        self.requests += 1
        if self.failures:
            raise self.failures.pop(0)
        self.taken += [point.value for point in points]


class Bench:
    """A queue before a receiver, and what was told of its samples."""

    def __init__(self, capacity: int = 1000) -> None:
        self.receiver = Receiver()
        self.told: Counter[Fate] = Counter()
        self.queue = WriteQueue(self.receiver, name="r", count=self._count, capacity=capacity)

    def _count(self, name: str, fate: Fate, samples: int) -> None:
        assert name == "r"
        self.told[fate] += samples


def points(values: Sequence[float]) -> list[Point]:
    return [Point(Labels(__name__="m"), T0 + value * SECOND, value) for value in values]


def test_samples_are_delivered_in_their_order_and_in_batches():
    bench = Bench(capacity=10 * BATCH)
    bench.queue.put(points(range(BATCH)))
    bench.queue.put(points(range(BATCH, 2 * BATCH + 1)))
    bench.queue.flush(T0)
    assert bench.receiver.taken == list(range(2 * BATCH + 1))
    assert bench.receiver.requests == 3
    assert (bench.queue.pending, bench.told) == (0, {Fate.WRITTEN: 2 * BATCH + 1})


def test_with_nothing_to_deliver_nobody_is_asked():
    bench = Bench()
    bench.queue.flush(T0)
    assert bench.receiver.requests == 0


def test_a_full_queue_drops_the_oldest_and_says_how_many():
    bench = Bench(capacity=3)
    bench.queue.put(points([1, 2]))
    bench.queue.put(points([3, 4, 5]))
    bench.queue.flush(T0)
    assert bench.receiver.taken == [3, 4, 5]
    assert bench.told == {Fate.DROPPED: 2, Fate.WRITTEN: 3}


def test_a_receiver_that_is_away_is_left_alone_longer_each_time_and_then_gets_everything():
    bench = Bench()
    bench.receiver.failures = [QueryUnavailable("away")] * 3
    bench.queue.put(points([1]))
    asked = []
    for second in range(12):
        before = bench.receiver.requests
        try:
            bench.queue.flush(T0 + second * SECOND)
        except QueryUnavailable:
            bench.queue.put(points([second + 2]))
        if bench.receiver.requests > before:
            asked.append(second)
    assert asked == [0, 1, 3, 7]
    assert bench.receiver.taken == [1, 2, 3, 5]
    assert bench.told == {Fate.WRITTEN: 4}


def test_a_clock_that_is_set_back_ends_the_pause():
    bench = Bench()
    bench.receiver.failures = [QueryUnavailable("away")]
    bench.queue.put(points([1]))
    with pytest.raises(QueryUnavailable):
        bench.queue.flush(T0)
    bench.queue.flush(T0 - timedelta(hours=1))
    assert bench.receiver.taken == [1]


def test_what_is_refused_is_not_sent_again_and_the_rest_goes_on():
    bench = Bench(capacity=10 * BATCH)
    bench.receiver.failures = [QueryRejected("no"), SamplesRejected("some", 5)]
    bench.queue.put(points(range(2 * BATCH + 1)))
    with pytest.raises(SamplesRejected, match="some"):
        bench.queue.flush(T0)
    assert bench.receiver.taken == [2 * BATCH]
    assert bench.told == {Fate.FAILED: BATCH + 5, Fate.WRITTEN: BATCH - 5 + 1}
    assert bench.queue.pending == 0
    bench.queue.flush(T0)
    assert bench.receiver.requests == 3


def test_what_comes_back_from_a_failed_delivery_is_older_than_what_came_meanwhile():
    bench = Bench(capacity=3)

    class Slow:
        def write(self, batch: Sequence[Point]) -> None:
            assert bench.queue.pending == len(batch), "what is on its way counts as pending"
            bench.queue.put(points([4, 5]))
            raise QueryUnavailable("too late")

    bench.queue._writer = Slow()
    bench.queue.put(points([1, 2, 3]))
    with pytest.raises(QueryUnavailable):
        bench.queue.flush(T0)
    assert bench.told == {Fate.DROPPED: 2}
    bench.queue._writer = bench.receiver
    bench.queue.flush(T0 + SECOND)
    assert bench.receiver.taken == [3, 4, 5]


def test_putting_waits_for_no_delivery():
    bench = Bench()
    entered, leave = threading.Event(), threading.Event()

    class Hanging:
        def write(self, _: Sequence[Point]) -> None:
            entered.set()
            leave.wait(30)

    bench.queue._writer = Hanging()
    bench.queue.put(points([1]))
    flushing = threading.Thread(target=bench.queue.flush, args=(T0,))
    flushing.start()
    assert entered.wait(30)
    bench.queue.put(points([2]))  # would never return if it waited: nobody has let the receiver go
    assert bench.queue.pending == 2
    leave.set()
    flushing.join(30)
    assert bench.queue.pending == 0


@given(
    st.lists(
        st.one_of(
            st.integers(0, 30).map(lambda count: ("put", count)),
            st.sampled_from([("flush", None), ("away", None), ("refuse", None)]),
        )
    )
)
def test_every_sample_is_written_failed_dropped_or_pending(steps):
    bench, put = Bench(capacity=40), 0
    for second, (step, count) in enumerate(steps):
        if step == "put":
            bench.queue.put(points(range(put, put + count)))
            put += count
            continue
        bench.receiver.failures = {"away": [QueryUnavailable("")], "refuse": [QueryRejected("")]}.get(
            step, []
        )
        with contextlib.suppress(QueryUnavailable, QueryRejected):
            bench.queue.flush(T0 + second * timedelta(minutes=1))
    assert sum(bench.told.values()) + bench.queue.pending == put
    assert bench.queue.pending <= 40
    assert bench.receiver.taken == sorted(set(bench.receiver.taken))


def test_a_fan_out_has_a_queue_for_each_receiver_named_without_secrets():
    receivers = [
        RemoteWrite(url="http://user:secret@one:9090/api/v1/write"),
        RemoteWrite(url="https://two/api/v1/push?tenant=secret"),
        RemoteWrite(url="https://two/api/v1/push"),
    ]
    fan_out = FanOut.of(receivers, lambda *_: None)
    assert [queue.name for queue in fan_out.queues] == [
        "one:9090/api/v1/write",
        "two/api/v1/push",
        "two/api/v1/push#2",
    ]
    fan_out.write(points([1, 2]))
    assert [queue.pending for queue in fan_out.queues] == [2, 2, 2]

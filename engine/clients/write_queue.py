"""What stands between evaluations and the receivers of their series: queues in memory, one for each receiver.

`write` only puts samples down and never waits. Each queue is emptied by `flush`, which `serve` calls at every
pulse on a thread of its own, so that a receiver that hangs holds up neither an evaluation nor another receiver.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import urlsplit

from engine.clients.remote_write import RemoteWriter
from engine.clients.wording import host_of
from engine.errors import QueryError, QueryRejected, QueryUnavailable, SamplesRejected
from engine.model.ports import Point, Writer
from engine.model.settings import RemoteWrite

CAPACITY = 100_000  # samples that may wait; about 50 MB
BATCH = 2_000  # samples in a request
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=1), timedelta(seconds=30)


class Fate(StrEnum):
    """What became of samples."""

    WRITTEN = "written"
    FAILED = "failed"  # refused by the receiver
    DROPPED = "dropped"  # the queue was full


Count = Callable[[str, Fate, int], None]
"""Told the queue's name, and the fate of how many samples."""


class WriteQueue:
    """Samples that wait for one receiver, oldest first. Any thread may put; one at a time may flush."""

    def __init__(self, writer: Writer, *, name: str, count: Count, capacity: int = CAPACITY) -> None:
        self.name = name
        self._writer = writer
        self._count = count
        self._capacity = capacity
        self._waiting: deque[Point] = deque()
        self._sending = 0
        self._lock = threading.Lock()  # guards the two above
        self._pause = timedelta()
        self._failed_at: datetime | None = None

    @property
    def pending(self) -> int:
        """How many samples are not delivered yet."""
        with self._lock:
            return len(self._waiting) + self._sending

    def put(self, points: Sequence[Point]) -> None:
        """Take points; the oldest go when there are too many."""
        with self._lock:
            self._waiting.extend(points)
            dropped = self._make_room()
        self._tell(Fate.DROPPED, dropped)

    def flush(self, at: datetime) -> None:
        """Deliver what waits.

        QueryUnavailable if the receiver took none: it is left alone for a while then. QueryRejected, once
        everything was tried, if it refused some.
        """
        # A failure later than now means that the clock was set back.
        if self._failed_at is not None and self._failed_at <= at < self._failed_at + self._pause:
            return
        refusal: QueryError | None = None
        while batch := self._take():
            try:
                refusal = self._deliver(batch) or refusal
            except QueryUnavailable:
                self._give_back(batch)
                self._failed_at = at
                self._pause = min(2 * self._pause or _FIRST_PAUSE, _LONGEST_PAUSE)
                raise
            self._done()
        self._failed_at, self._pause = None, timedelta()
        if refusal is not None:
            raise refusal

    def _deliver(self, batch: Sequence[Point]) -> QueryRejected | None:
        try:
            self._writer.write(batch)
        except QueryRejected as error:
            refused = error.count if isinstance(error, SamplesRejected) else len(batch)
            self._tell(Fate.FAILED, refused)
            self._tell(Fate.WRITTEN, len(batch) - refused)
            return error
        self._tell(Fate.WRITTEN, len(batch))
        return None

    def _take(self) -> list[Point]:
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._sending = len(batch)
        return batch

    def _done(self) -> None:
        with self._lock:
            self._sending = 0

    def _give_back(self, batch: Sequence[Point]) -> None:
        with self._lock:
            self._sending = 0
            self._waiting.extendleft(reversed(batch))
            dropped = self._make_room()
        self._tell(Fate.DROPPED, dropped)

    def _make_room(self) -> int:
        """Drop the oldest samples beyond the capacity, and return how many."""
        surplus = max(0, len(self._waiting) - self._capacity)
        for _ in range(surplus):
            self._waiting.popleft()
        return surplus

    def _tell(self, fate: Fate, samples: int) -> None:
        if samples:
            self._count(self.name, fate, samples)


class FanOut:
    """All receivers as one writer that never waits; their queues are flushed one by one."""

    def __init__(self, queues: Sequence[WriteQueue]) -> None:
        self.queues = tuple(queues)

    @classmethod
    def of(cls, receivers: Sequence[RemoteWrite], count: Count) -> FanOut:
        """Return a queue for each receiver, named after its address."""
        seen: Counter[str] = Counter()
        queues = []
        for receiver in receivers:
            name = f"{host_of(receiver.url)}{urlsplit(receiver.url).path}"
            seen[name] += 1
            number = f"#{seen[name]}" if seen[name] > 1 else ""
            queues.append(WriteQueue(RemoteWriter(receiver), name=f"{name}{number}", count=count))
        return cls(queues)

    def write(self, points: Sequence[Point]) -> None:
        for queue in self.queues:
            queue.put(points)

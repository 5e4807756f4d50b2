"""The only readers of time.

Everything else is told what time it is: functions take `at`. Ruff bans
`datetime.now`, `time.time` and `time.sleep` everywhere but here, which is what
lets `test-rule` and `backtest` run the production code at any date and speed.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time, and waits for it to pass."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        ...

    def sleep(self, duration: timedelta) -> None:
        """Return when `duration` has passed."""
        ...


class SystemClock:
    """The time on the wall."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, duration: timedelta) -> None:
        time.sleep(duration.total_seconds())


class VirtualClock:
    """A time that passes only when told to."""

    def __init__(self, start: datetime) -> None:
        self._now = start

    def now(self) -> datetime:
        return self._now

    def sleep(self, duration: timedelta) -> None:
        self._now += duration

    def set(self, at: datetime) -> None:
        """Make it `at`."""
        self._now = at


class Stopwatch:
    """Seconds since it was made, by a clock that never jumps: for deadlines, never for evaluation."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds passed since the start."""
        return time.monotonic() - self._start

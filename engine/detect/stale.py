"""A series that is there and stands still: a heartbeat, a counter, a clock that should move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import numpy as np

from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.series import Floats, Window
from engine.model.verdict import NOTHING, Memory, Verdicts
from engine.registry import detector

_FRESH = 2.5  # steps: what has no sample so lately is gone, which is another matter


@detector("stale")
@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """Bad when the value of a series has not changed for `after`, although the series is there.

    Any change counts, also a counter's reset. Missing samples are no change. Nothing is said of a series that is gone
    (`absent` is for those), nor of one that has not been there for `after` yet.
    """

    after: Duration = Duration(minutes=10)
    step: Duration = Duration(minutes=1)

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "since": "when the value last changed, or was first seen, in Unix seconds",
        "unchanged_for": "seconds since then",
    }

    def __post_init__(self) -> None:
        if self.step <= Duration():
            raise ValueError(f"step must be longer than {self.step}")
        if self.after < 2 * self.step:
            raise ValueError(f"after {self.after} must be two steps of {self.step} or more; shorten step")

    @property
    def lookback(self) -> Duration:
        steps = -(-self.after // self.step) + 2
        return Duration.of(steps * self.step)

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("stale: the times of the signal do not rise")
        window, now = signal.until(at), at.timestamp()
        since, value, newest = _standing(window)
        noted, before = memory.rows(window.labels, "stands_since"), memory.rows(window.labels, "standing")
        noted = np.where(noted > now, np.nan, noted)  # somebody set the clock back
        # It stood before the window began, if it has not changed within it.
        same = (value == before) & (since <= window.times[0]) if len(window.times) else np.isnan(value)
        since = np.where(same & (noted < since), noted, since)
        fresh = now - newest <= _FRESH * self.step.total_seconds()
        still = now - since
        known = fresh & ~np.isnan(since)
        bad = known & (still >= self.after.total_seconds())
        return Verdicts(
            window.labels,
            bad,
            known,
            value,
            {"since": np.where(known, since, np.nan), "unchanged_for": np.where(known, still, np.nan)},
            memory=Memory(window.labels, {"stands_since": since, "standing": value}, at=now),
        )


def _standing(window: Window) -> tuple[Floats, Floats, Floats]:
    """Return since when each series has its newest value [n], that value, and when it was last there; else NaN."""
    size = len(window.times)
    if not size:
        return (np.full(len(window), np.nan),) * 3
    rows = np.arange(len(window))
    last = size - 1 - np.argmax(window.present[:, ::-1], axis=1)
    ever = window.present[rows, last]
    value = window.values[rows, last]
    alike = (window.values == value[:, None]) | (np.isnan(window.values) & np.isnan(value)[:, None])
    other = window.present & ~alike
    changed = size - np.argmax(other[:, ::-1], axis=1)  # the place after the newest other value
    start = np.where(other.any(axis=1), changed, 0)
    standing = window.present & (np.arange(size) >= start[:, None])
    first = np.argmax(standing, axis=1)
    return (
        np.where(ever, window.times[first], np.nan),
        np.where(ever, value, np.nan),
        np.where(ever, window.times[last], np.nan),
    )

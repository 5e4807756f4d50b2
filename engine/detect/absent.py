"""A series that was there and is gone: what an expression that compares can never say, since it returns nothing."""

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


@detector("absent")
@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Bad when a series that was there has had no sample for longer than `after`.

    Every series that was seen within `lookback` is known at the start, and every later one from then on, also when the
    answer no longer mentions it. One that has been gone for longer than `forget` is thought to be gone for
    good: its alert resolves. The value is the last that was seen. Prometheus itself counts a series as there for
    five minutes after its last sample unless a scrape was without it; `after` begins when that is over.
    """

    after: Duration = Duration(minutes=5)
    forget: Duration = Duration(days=1)
    lookback: Duration = Duration(hours=1)
    step: Duration = Duration(minutes=1)

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "last_seen": "when the series was last there, in Unix seconds",
        "gone_for": "seconds since then",
    }

    def __post_init__(self) -> None:
        if self.step <= Duration():
            raise ValueError(f"step must be longer than {self.step}")
        if self.after < self.step:
            raise ValueError(f"after {self.after} is shorter than step {self.step}; shorten step")
        if self.lookback <= self.after:
            raise ValueError(f"lookback {self.lookback} must be longer than after {self.after}")
        if self.forget <= self.after:
            raise ValueError(f"forget {self.forget} must be longer than after {self.after}")

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("absent: the times of the signal do not rise")
        window, now = signal.until(at), at.timestamp()
        there = set(window.labels)
        known_before = ~np.isnan(memory.rows(memory.labels, "last_seen"))
        away = (each for each, row in zip(memory.labels, known_before, strict=True) if row)
        labels = (*window.labels, *(each for each in away if each not in there))
        seen, value = _last(window)
        pad = np.full(len(labels) - len(window), np.nan)
        seen, value = np.concatenate([seen, pad]), np.concatenate([value, pad])
        noted = memory.rows(labels, "last_seen")
        noted = np.where(noted > now, now, noted)  # somebody set the clock back
        older = np.isnan(seen) | (noted > seen)
        value = np.where(older, memory.rows(labels, "last_value"), value)
        seen = np.where(older, noted, seen)
        known = ~np.isnan(seen)
        gone = now - seen
        kept = known & (gone <= self.forget.total_seconds())
        bad = kept & (gone > self.after.total_seconds())
        return Verdicts(
            labels,
            bad,
            known,
            value,
            {"last_seen": np.where(known, seen, np.nan), "gone_for": np.where(known, gone, np.nan)},
            memory=Memory(
                tuple(each for each, keep in zip(labels, kept, strict=True) if keep),
                {"last_seen": seen[kept], "last_value": value[kept]},
                at=now,
            ),
        )


def _last(window: Window) -> tuple[Floats, Floats]:
    """Return when each series was last there [n], and its value then; NaN where it never was."""
    if not len(window.times):
        return np.full(len(window), np.nan), np.full(len(window), np.nan)
    last = window.present.shape[1] - 1 - np.argmax(window.present[:, ::-1], axis=1)
    rows = np.arange(len(window))
    ever = window.present[rows, last]
    return np.where(ever, window.times[last], np.nan), np.where(ever, window.values[rows, last], np.nan)

"""A level that is another one than it was: a step, as an alert of its own or as evidence beside one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np

from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.series import Bools, Floats, Window
from engine.model.verdict import NOTHING, Memory, Persist, Verdicts
from engine.numeric.robust import SD_PER_QUANTUM, block_medians, median, quantum
from engine.numeric.shifts import Shift, level_shift
from engine.numeric.votes import Votes
from engine.registry import detector

_BLOCKS = 36  # per lookback
_LEAST = 4  # blocks on either side of a change
_FRESH = 2.5  # steps: what has no sample so lately is gone
_FLOOR = 1e-9  # of the largest value: arithmetic knows no less
_LASTING = 0.5  # of the shift must still be there in the newest blocks


class Direction(StrEnum):
    """Which way the level moved."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


class _Found(NamedTuple):
    """What was found in each series, in units of its largest value, and when."""

    shift: Shift
    since: Floats  # [n], Unix seconds
    clear: Bools  # [n]: a step rather than a slope, and still there


@detector("changepoint")
@dataclass(frozen=True, slots=True, kw_only=True)
class Changepoint:
    """Bad when the level of the signal changed within the lookback, and has stayed so.

    Of all places between the medians of 36 blocks, that is taken which parts them best. The medians before and
    after must differ by `sensitivity` standard errors, which allow for noise that remembers, by `min_shift`, and by
    `min_rel_shift` of the level before. It must be a step: two levels fit better than a straight line, and at
    least half of the shift is still there. A change is seen once a ninth of the lookback lies behind it, and
    forgotten when it is about to leave the lookback: the new level is the usual one then. Nothing is said with
    fewer than `min_samples` samples, or with none in the last two steps.
    """

    direction: Direction = Direction.BOTH
    sensitivity: float = 7.0
    min_shift: float = 0.0
    min_rel_shift: float = 0.0
    lookback: Duration = Duration(hours=6)
    step: Duration = Duration(minutes=5)
    min_samples: int | None = None  # None: half of the lookback's
    persist: Persist = Persist(m=2, n=3)
    clear: float = 0.5

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "shift": "how much the level changed, in the signal's unit",
        "since": "when it changed, in Unix seconds",
        "before": "the level before, in the signal's unit",
        "after": "the level after, in the signal's unit",
        "score": "the shift in its standard errors",
    }

    def __post_init__(self) -> None:
        if self.sensitivity <= 0:
            raise ValueError(f"sensitivity must be more than 0, not {self.sensitivity:g}")
        for name, least in (("min_shift", self.min_shift), ("min_rel_shift", self.min_rel_shift)):
            if not least >= 0:
                raise ValueError(f"{name} must be 0 or more, not {least:g}; 'direction' says which way")
        if not 0 < self.clear <= 1:
            raise ValueError(f"clear must be a share of the sensitivity, 0 to 1, not {self.clear:g}")
        if self.step <= Duration():
            raise ValueError(f"step must be longer than {self.step}")
        held = self.lookback // self.step + 1
        if held < _BLOCKS:
            raise ValueError(
                f"lookback {self.lookback} at step {self.step} holds {held} samples; {_BLOCKS} are needed"
            )
        if self.min_samples is not None and not 2 * _LEAST <= self.min_samples <= held:
            raise ValueError(f"min_samples must be between {2 * _LEAST} and {held}, not {self.min_samples}")

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("changepoint: the times of the signal do not rise")
        window, now = signal.until(at), at.timestamp()
        recent = window.times >= now - (self.lookback + 0.5 * self.step).total_seconds()
        times, samples = window.times[recent], window.values[:, recent]
        values = np.where(window.present[:, recent] & np.isfinite(samples), samples, np.nan)
        largest = np.max(np.abs(values), axis=1, where=~np.isnan(values), initial=0.0)
        unit = np.where(largest > 0, largest, 1.0)
        found = self._find(times, values / unit[:, None], now)
        known = self._is_enough(times, values, now)
        votes = Votes.recall(memory, window.labels, self.persist).take(
            np.where(known, self._rate(found, unit), np.nan),
            now,
            persist=self.persist,
            every=0.0,
            clear=self.clear,
        )
        told = known & found.clear
        details = {
            name: np.where(told & np.isfinite(figure), figure, np.nan)
            for name, figure in _figures(found, unit).items()
        }
        return Verdicts(
            window.labels,
            votes.bad & known,
            known,
            _newest(window),
            details,
            memory=Memory(window.labels, votes.columns(), at=now),
        )

    def _find(self, times: Floats, values: Floats, now: float) -> _Found:
        """Return the largest change of level in each of `values[n, m]`."""
        length = self.lookback.total_seconds()
        edges = now - length + np.linspace(0, length, _BLOCKS + 1)
        edges[0] -= self.step.total_seconds()
        edges[-1] += 1.0  # the newest sample is in the last block
        blocks = block_medians(times, values, edges)
        floor = np.maximum(_FLOOR, SD_PER_QUANTUM * quantum(values))
        shift = level_shift(blocks.values, _LEAST, floor)
        newest = median(blocks.values[:, -_LEAST:])
        lasting = np.abs(newest - shift.before) >= _LASTING * np.abs(shift.after - shift.before)
        same_side = (newest - shift.before) * (shift.after - shift.before) > 0
        return _Found(shift, edges[shift.place], lasting & same_side & (shift.stepwise > 0))

    def _is_enough(self, times: Floats, values: Floats, now: float) -> Bools:
        there = ~np.isnan(values)
        least = self.min_samples or (self.lookback // self.step + 1) // 2
        fresh = there[:, times >= now - _FRESH * self.step.total_seconds()].any(axis=1)
        enough: Bools = fresh & (np.count_nonzero(there, axis=1) >= least)
        return enough

    def _rate(self, found: _Found, unit: Floats) -> Floats:
        """Return how sure each change is [n], where 1 is bad."""
        shift = found.shift.after - found.shift.before
        sides = {
            Direction.UP: found.shift.score,
            Direction.DOWN: -found.shift.score,
            Direction.BOTH: np.abs(found.shift.score),
        }
        with np.errstate(invalid="ignore", over="ignore"):
            matters = (np.abs(shift) * unit >= self.min_shift) & (
                np.abs(shift) >= self.min_rel_shift * np.abs(found.shift.before)
            )
        return np.where(found.clear & matters, np.maximum(sides[self.direction] / self.sensitivity, 0.0), 0.0)


def _figures(found: _Found, unit: Floats) -> dict[str, Floats]:
    with np.errstate(over="ignore"):
        return {
            "shift": (found.shift.after - found.shift.before) * unit,
            "since": found.since,
            "before": found.shift.before * unit,
            "after": found.shift.after * unit,
            "score": found.shift.score,
        }


def _newest(window: Window) -> Floats:
    """Return each series' newest sample [n], NaN where it has none."""
    if not len(window.times):
        return np.full(len(window), np.nan)
    last = window.present.shape[1] - 1 - np.argmax(window.present[:, ::-1], axis=1)
    rows = np.arange(len(window))
    return np.where(window.present[rows, last], window.values[rows, last], np.nan)

"""A change that is too fast: per hour, in the signal's unit or as a share of its level, and surely so."""

from __future__ import annotations

import math
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
from engine.numeric.normal import normal_quantile
from engine.numeric.regression import Line, fit_line
from engine.numeric.robust import SD_PER_QUANTUM, block_medians, quantum
from engine.numeric.votes import Votes
from engine.registry import detector

_BLOCKS = 24  # per lookback; fewer samples than that are blocks of their own
_LEAST_SAMPLES = 8  # below which nothing is a trend
_FRESH = 2.5  # steps: what has no sample so lately is gone
_FLOOR = 1e-9  # of the largest value: arithmetic knows no less


class Direction(StrEnum):
    """Which way the signal must not go so fast."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


class _Slopes(NamedTuple):
    """Change per hour [n] in the signal's unit, its interval, and the level that it starts from now."""

    slope: Floats
    low: Floats
    high: Floats
    level: Floats


@detector("rate_of_change")
@dataclass(frozen=True, slots=True, kw_only=True)
class RateOfChange:
    """Bad when the signal changes by `per_hour` or more, and by `relative` of its level or more, per hour.

    The change is the Theil-Sen slope through the medians of 24 blocks of the lookback, with an interval that
    holds the true one with probability `coverage`. Both limits must be exceeded if both are given, and by the
    whole interval: what might be slower is fine. Nothing is said with fewer than `min_samples` samples, or with
    none in the last two steps.
    """

    per_hour: float | None = None
    relative: float | None = None
    direction: Direction = Direction.UP
    coverage: float = 0.9
    lookback: Duration = Duration(hours=1)
    step: Duration = Duration(minutes=1)
    min_samples: int | None = None  # None: half of the lookback's, but at least 8
    persist: Persist = Persist(m=1, n=3)
    clear: float = 0.5

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "slope_per_hour": "change of the signal per hour, in its unit",
        "slope_low": "the least that it may be",
        "slope_high": "the most that it may be",
        "relative_per_hour": "change per hour as a share of the level",
        "level": "the signal now without its noise, in its unit",
    }

    def __post_init__(self) -> None:
        limits = [limit for limit in (self.per_hour, self.relative) if limit is not None]
        if not limits:
            raise ValueError("rate_of_change needs 'per_hour', 'relative' or both")
        for limit in limits:
            if not (math.isfinite(limit) and limit > 0):
                raise ValueError(f"a limit must be more than 0, not {limit:g}; 'direction' says which way")
        for name, share in (("coverage", self.coverage), ("clear", self.clear)):
            if not 0 < share < 1:
                raise ValueError(f"{name} must be between 0 and 1, both excluded, not {share:g}")
        self._check_history()

    def _check_history(self) -> None:
        for name, length in (("lookback", self.lookback), ("step", self.step)):
            if length <= Duration():
                raise ValueError(f"{name} must be longer than {length}")
        held = self.lookback // self.step + 1
        if held <= _LEAST_SAMPLES:
            raise ValueError(
                f"lookback {self.lookback} at step {self.step} holds {held} samples, too few to see a trend; "
                f"lengthen lookback to {Duration.of(self.step * _LEAST_SAMPLES)} or more, or shorten step"
            )
        if self.min_samples is not None and not 3 <= self.min_samples <= held:
            raise ValueError(f"min_samples must be between 3 and {held}, not {self.min_samples}")

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("rate_of_change: the times of the signal do not rise")
        window, now = signal.until(at), at.timestamp()
        times = (window.times - now) / 3600
        recent = times >= -(self.lookback + 0.5 * self.step) / Duration(hours=1)
        samples = window.values[:, recent]
        values = np.where(window.present[:, recent] & np.isfinite(samples), samples, np.nan)
        slopes = self._slopes(times[recent], values)
        known = self._is_enough(times[recent], values) & ~np.isnan(slopes.slope)
        votes = Votes.recall(memory, window.labels, self.persist).take(
            np.where(known, self._rate(slopes), np.nan),
            now,
            persist=self.persist,
            every=0.0,
            clear=self.clear,
        )
        details = {
            name: np.where(known & np.isfinite(figure), figure, np.nan)
            for name, figure in self._figures(slopes).items()
        }
        return Verdicts(
            window.labels,
            votes.bad & known,
            known,
            _newest(window),
            details,
            memory=Memory(window.labels, votes.columns(), at=now),
        )

    def _slopes(self, times: Floats, values: Floats) -> _Slopes:
        """Return the slopes of `values[n, m]` at `times[m]`, in hours before now."""
        largest = np.max(np.abs(values), axis=1, where=~np.isnan(values), initial=0.0)
        unit = np.where(largest > 0, largest, 1.0)
        scaled = values / unit[:, None]  # so that nothing overflows
        hours = self.lookback / Duration(hours=1)
        blocks = block_medians(times, scaled, _edges(times, hours))
        floor = np.maximum(_FLOOR, SD_PER_QUANTUM * quantum(scaled))
        line: Line = fit_line(blocks.times, blocks.values, floor)
        error = normal_quantile(0.5 + self.coverage / 2) * line.slope_error
        with np.errstate(over="ignore"):
            return _Slopes(
                line.slope * unit, (line.slope - error) * unit, (line.slope + error) * unit, line.level * unit
            )

    def _is_enough(self, times: Floats, values: Floats) -> Bools:
        there = ~np.isnan(values)
        least = self.min_samples or max(_LEAST_SAMPLES, (self.lookback // self.step) // 2)
        fresh = there[:, times >= -_FRESH * self.step / Duration(hours=1)].any(axis=1)
        enough: Bools = fresh & (np.count_nonzero(there, axis=1) >= least)
        return enough

    def _rate(self, slopes: _Slopes) -> Floats:
        """Return how surely too fast each series changes [n]: the slow end of its interval over the limit."""
        up, down = slopes.low, -slopes.high
        sides = {Direction.UP: up, Direction.DOWN: down, Direction.BOTH: np.maximum(up, down)}
        surely = sides[self.direction]
        rate = np.full(len(surely), np.inf)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if self.per_hour is not None:
                rate = np.minimum(rate, surely / self.per_hour)
            if self.relative is not None:
                rate = np.minimum(rate, surely / np.abs(slopes.level) / self.relative)
        return rate

    def _figures(self, slopes: _Slopes) -> dict[str, Floats]:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return {
                "slope_per_hour": slopes.slope,
                "slope_low": slopes.low,
                "slope_high": slopes.high,
                "relative_per_hour": slopes.slope / np.abs(slopes.level),
                "level": slopes.level,
            }


def _edges(times: Floats, hours: float) -> Floats:
    """Return the edges of blocks of equal length; each sample is a block where there are few."""
    if len(times) <= _BLOCKS:
        return np.append(times, 1.0) if len(times) else np.array([-hours, 1.0])
    edges = np.linspace(times[0], times[-1], _BLOCKS + 1)
    edges[-1] = 1.0  # the newest sample is in the last block
    return edges


def _newest(window: Window) -> Floats:
    """Return each series' newest sample [n], NaN where it has none."""
    if not len(window.times):
        return np.full(len(window), np.nan)
    last = window.present.shape[1] - 1 - np.argmax(window.present[:, ::-1], axis=1)
    rows = np.arange(len(window))
    return np.where(window.present[rows, last], window.values[rows, last], np.nan)

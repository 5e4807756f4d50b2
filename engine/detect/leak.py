"""Growth that does not end: memory, threads, handles or CPU of something that leaks.

What is looked at are floors: the lowest samples of blocks, which garbage collection and bursts leave alone. A
floor that leaks rises, steadily, above where it ever was; one that warms up rises ever more slowly, one that
steps rises at once, one that breathes comes back. All lengths are fractions of `lookback`, so that a demo of
twenty minutes is judged like a day.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Bools, Floats, Window, rows_for
from engine.model.verdict import NOTHING, Memory, Persist, Verdicts
from engine.numeric.explained import unexplained
from engine.numeric.normal import normal_cdf, normal_quantile
from engine.numeric.regression import theil_sen
from engine.numeric.robust import SD_PER_QUANTUM, largest, median, quantum
from engine.numeric.shapes import block_floors, growth
from engine.numeric.trend import fit_trend
from engine.numeric.votes import Votes
from engine.registry import detector

_BLOCKS = 24  # per window
_SHORTEST = 1 / 4  # of the lookback: the least that is looked at, where so much is enough
_PAUSE = 1 / 48  # of the lookback, between two judgements
_COVERAGE = 0.6  # of a window's samples must be there
_FRESH = 3  # steps: without a sample in them a series is gone
_QUANTA = 4.0  # that a growth must span, to be seen on a grid
_LEAST_NOISE = 1e-3  # of the level: nothing is quieter
_TOP = 2.0  # the highest score; what is above the threshold is above it
_SLACK = 1e-3  # of a step: an instant a little before its step's end is in it
_NOTED = "noted."  # before the names of details in memory


class Preset(StrEnum):
    """How sure it wants to be."""

    STRICT = "strict"
    BALANCED = "balanced"
    SENSITIVE = "sensitive"


class Seasonality(StrEnum):
    """After how long the signal may come back to where it was."""

    AUTO = "auto"  # within a lookback
    NONE = "none"  # never: a quarter of the lookback is enough to judge


class _Marks(NamedTuple):
    """What a preset asks of growth."""

    windows: tuple[float, ...]  # of the lookback, longest first; one is enough
    z: float  # of the trend test
    noises: float  # that the growth exceeds
    level: float  # share of the level that it is
    quarter: float  # share of it that each quarter of the window brings
    jump: float  # share of it that one step may bring
    half: float  # slope of the newer half to that of the older one
    record: float  # noises by which the newest floor is above all before the window


_WHOLE_TO_THIRD = (1, 1 / 2, 1 / 3)
_MARKS = {
    Preset.STRICT: _Marks(_WHOLE_TO_THIRD, normal_quantile(0.997), 4.0, 0.12, 0.18, 0.5, 0.85, 3.0),
    Preset.BALANCED: _Marks(_WHOLE_TO_THIRD, normal_quantile(0.99), 4.0, 0.12, 0.16, 0.5, 0.85, 3.0),
    Preset.SENSITIVE: _Marks(
        (*_WHOLE_TO_THIRD, _SHORTEST), normal_quantile(0.99), 3.0, 0.05, 0.12, 0.5, 0.6, 1.0
    ),
}


class _Look(NamedTuple):
    """What was seen of k series: their scores, and figures of those that are worth a closer look."""

    score: Floats  # [k], 1 where all conditions just hold, NaN where nothing can be said
    figures: Mapping[str, Floats]  # [k] each


@detector("leak")
@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Bad when the floor of the signal grows without end.

    The whole, a half and a third of the lookback are looked at, in 24 blocks each, whose lowest samples are its
    floors (also a quarter, where `seasonality` allows for so little history). It leaks where in one of them all
    of this holds: the floors rise by the test of Mann and Kendall; their growth is 4 times their noise, 12 % of
    their level and 4 quanta; each quarter of the window brings its share of it, and no single step half; the
    newer half is no slower than 0.85 of the older; and the newest floor is above all that were there before,
    as far back as `seasonality`. Growth in step with `load` does not count.

    Judged every 48th of the lookback; in between the verdict is held. Nothing is said of a series with less
    history than `seasonality`, with more than 40 % missing, or without a sample in the last three steps.
    """

    preset: Preset | None = None  # None: strict where the rule asks for a playbook, else balanced
    seasonality: Seasonality | Duration = Seasonality.AUTO
    load: str | None = None
    bound: float | str | None = None
    min_slope_per_hour: float = 0.0
    min_age: Duration | None = None  # None: a 48th of the lookback
    lookback: Duration = Duration(days=1)
    step: Duration = Duration(minutes=5)
    persist: Persist = Persist(m=3, n=4)
    clear: float = 0.5

    over: ClassVar[str | None] = "min"
    details: ClassVar[Mapping[str, str]] = {
        "slope_per_hour": "growth of the floor per hour, in the signal's unit",
        "slope_low": "low end of the slope's 90 % interval",
        "slope_high": "high end of the slope's 90 % interval",
        "since": "when the growth began, in Unix seconds",
        "eta": "seconds until the bound is reached at this slope",
        "level": "the floor now, in the signal's unit",
        "growth": "by how much the floor grew within the window that shows it best",
        "noise": "standard deviation of a floor about the line",
        "p_value": "how often a floor that does not grow would look so",
        "quarter": "share of the growth that the weakest quarter of the window brought; 0.25 is steady",
        "score": "1 where all conditions just hold",
    }

    def __post_init__(self) -> None:
        for name, length in (("lookback", self.lookback), ("step", self.step)):
            if length <= Duration():
                raise ValueError(f"{name} must be longer than {length}")
        least = Duration.of(self.step * math.ceil(_BLOCKS / _SHORTEST))
        if self.lookback < least:
            raise ValueError(
                f"lookback {self.lookback} at step {self.step} is too short for {_BLOCKS} blocks in a quarter of "
                f"it; lengthen lookback to {least} or more, or shorten step"
            )
        if isinstance(self.seasonality, Duration) and not self._shortest <= self.seasonality <= self.lookback:
            raise ValueError(
                f"seasonality {self.seasonality} must be between {self._shortest} and lookback {self.lookback}"
            )
        if not 0 < self.clear <= 1:
            raise ValueError(f"clear must be above 0 and at most 1, not {self.clear:g}")
        if not self.min_slope_per_hour >= 0 or math.isinf(self.min_slope_per_hour):
            raise ValueError(f"min_slope_per_hour must be 0 or more, not {self.min_slope_per_hour:g}")
        for name, text in (("load", self.load), ("bound", self.bound)):
            if isinstance(text, str) and not text.strip():
                raise ValueError(f"{name} is empty; write PromQL with the signal's labels, or leave it out")
        if isinstance(self.bound, float) and not math.isfinite(self.bound):
            raise ValueError(f"bound must be a finite number or PromQL, not {self.bound}")

    @property
    def _shortest(self) -> Duration:
        return Duration.of(self.lookback * _SHORTEST)

    @property
    def _needed(self) -> Duration:
        """The history without which nothing is said."""
        if isinstance(self.seasonality, Duration):
            return self.seasonality
        return self._shortest if self.seasonality is Seasonality.NONE else self.lookback

    @property
    def inputs(self) -> Mapping[str, str]:
        return {"bound": self.bound} if isinstance(self.bound, str) else {}

    @property
    def histories(self) -> Mapping[str, str]:
        return {} if self.load is None else {"load": self.load}

    def before_acting(self) -> Leak:
        return self if self.preset is not None else replace(self, preset=Preset.STRICT)

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("leak: the times of the signal do not rise")
        window, now = signal.until(at), at.timestamp()
        labels, every = window.labels, _PAUSE * self.lookback.total_seconds()
        votes = Votes.recall(memory, labels, self.persist)
        fresh = self._is_fresh(window, now)
        due = fresh & votes.due(now, every)
        rows = np.flatnonzero(due)
        with np.errstate(all="ignore"):  # what overflows is left out, and what is missing is not compared
            lowest = self._on_grid(window, rows, now)
            look = self._look(lowest, self._load_of(labels, rows, inputs, now), now)
        score = _spread_out(look.score, rows, len(labels))
        votes = votes.take(score, now, persist=self.persist, every=every, clear=self.clear)
        known = fresh & ~np.isnan(np.where(due, score, votes.scores[:, -1]))

        noted = {name: memory.rows(labels, _NOTED + name) for name in self.details}
        figures = {name: _spread_out(values, rows, len(labels)) for name, values in look.figures.items()}
        # An episode keeps the figures that it was last seen with, and the earliest time that it was traced to.
        grown = ~np.isnan(figures["score"])
        figures["since"] = np.where(votes.bad, np.fmin(figures["since"], noted["since"]), figures["since"])
        keep = ~due | (votes.bad & ~grown)
        figures = {name: np.where(keep, noted[name], values) for name, values in figures.items()}
        figures["eta"] = self._eta(figures, labels, inputs, at)
        notes = {**votes.columns(), **{_NOTED + name: values for name, values in figures.items()}}
        return Verdicts(
            labels,
            votes.bad & known,
            known,
            _newest(window),
            {name: np.where(known & np.isfinite(each), each, np.nan) for name, each in figures.items()},
            memory=Memory(labels, notes, at=now),
        )

    @property
    def _points(self) -> int:
        """How many steps are looked at."""
        return self.lookback // self.step

    def _is_fresh(self, window: Window, now: float) -> Bools:
        """Tell which series [n] have a sample in the last steps."""
        lately = self._age(window, now) < _FRESH
        fresh: Bools = np.any(window.present[:, lately] & np.isfinite(window.values[:, lately]), axis=1)
        return fresh

    def _age(self, window: Window, now: float) -> NDArray[np.intp]:
        """Return how many whole steps ago each instant of the window was [m]."""
        return np.floor((now - window.times) / self.step.total_seconds() + _SLACK).astype(np.intp)

    def _on_grid(self, window: Window, rows: NDArray[np.intp], now: float, *, mean: bool = False) -> Floats:
        """Return of some series the lowest value, or the mean, of each step of the lookback [k, points].

        It is NaN where there is none. Of the row -1 there is never any.
        """
        age = self._age(window, now)
        inside = np.flatnonzero((age >= 0) & (age < self._points))
        columns = self._points - 1 - age[inside]
        samples: Floats = window.values[rows][:, inside]
        there = window.present[rows][:, inside] & np.isfinite(samples) & (rows >= 0)[:, None]
        samples[~there] = np.nan
        places, starts = np.unique(columns, return_index=True)
        if len(places) == self._points == len(columns):
            return samples
        grid = np.full((len(rows), self._points), np.nan)
        if len(places) == len(columns):
            grid[:, columns] = samples
        elif mean:
            count = np.add.reduceat(~np.isnan(samples), starts, axis=1, dtype=np.float64)
            grid[:, places] = np.add.reduceat(np.nan_to_num(samples), starts, axis=1) / count
        else:
            grid[:, places] = np.fmin.reduceat(samples, starts, axis=1)
        return grid

    def _load_of(
        self, labels: tuple[Labels, ...], rows: NDArray[np.intp], inputs: Mapping[str, Window], now: float
    ) -> Floats | None:
        """Return the load of some series on the grid [k, points], NaN where it is not known."""
        answer = inputs.get("load") if self.load is not None else None
        if answer is None or not len(answer):
            return None
        return self._on_grid(answer, rows_for(answer, [labels[row] for row in rows]), now, mean=True)

    def _look(self, lowest: Floats, load: Floats | None, now: float) -> _Look:
        """Return what the floors of `lowest[k, points]` do that `load[k, points]` does not explain."""
        marks = _MARKS[self.preset or Preset.BALANCED]
        size = largest(lowest)
        size[size == 0] = 1.0
        values, history = self._grown_up(lowest / size[:, None])
        if load is not None:
            values = unexplained(values, load, blocks=_BLOCKS)
        looks = [self._look_at(values, share, size, marks) for share in self._windows(marks)]
        scores = np.stack([look.score for look in looks])
        scores[:, history < self._needed / self.step - _FRESH] = np.nan
        # The longest of those that are sure knows the slope best.
        best = np.argmax(np.nan_to_num(np.minimum(scores, 1.0), nan=-1.0), axis=0)
        every = np.arange(len(values))
        figures = {
            name: np.stack([look.figures[name] for look in looks])[best, every] for name in looks[0].figures
        }
        lowest_floor = np.fmin.reduce(block_floors(values, _BLOCKS), axis=1) * size
        hours = (figures["level"] - lowest_floor) / figures["slope_per_hour"]
        hours = np.clip(hours, 0.0, history * (self.step / Duration(hours=1)))
        return _Look(
            np.fmax.reduce(scores),
            {**figures, "since": now - 3600 * hours, "eta": np.full(len(values), np.nan)},
        )

    def _windows(self, marks: _Marks) -> tuple[float, ...]:
        """Return the shares of the lookback that are looked at, longest first."""
        hurried = self._needed < marks.windows[-1] * self.lookback
        return (*marks.windows, _SHORTEST) if hurried else marks.windows

    def _grown_up(self, values: Floats) -> tuple[Floats, Floats]:
        """Return `values[k, m]` without the first steps of series that are new, and how long there are any [k]."""
        size = values.shape[1]
        there = ~np.isnan(values)
        first = np.where(there.any(axis=1), np.argmax(there, axis=1), size)
        young = self.lookback * _PAUSE if self.min_age is None else self.min_age
        warm = np.where(first >= _FRESH, first + young / self.step, 0.0)
        return np.where(np.arange(size) < warm[:, None], np.nan, values), (size - first).astype(np.float64)

    def _look_at(self, values: Floats, share: float, size: Floats, marks: _Marks) -> _Look:
        """Return what the newest `share` of `values[k, m]`, in `size[k]`, says.

        What is cheap to ask is asked of all, and the rest only of those whose answer may still count.
        """
        length = int(values.shape[1] * share) // _BLOCKS
        span = _BLOCKS * length
        window = values[:, -span:]
        floors = block_floors(window, _BLOCKS)
        grown = growth(floors)
        parts = [
            _ratio(grown.total, marks.level * np.abs(median(floors))),
            grown.quarter / marks.quarter,
            (1 - grown.jump) / (1 - marks.jump),
        ]
        score = np.clip(np.minimum.reduce(parts), 0.0, _TOP)
        seen = np.count_nonzero(~np.isnan(window), axis=1) >= _COVERAGE * span
        score[~seen] = np.nan
        rows = np.flatnonzero(score >= self.clear)
        newest = median(floors[rows, -3:])
        above = newest - self._record(values[rows, :-span], span, length)
        closer = self._closer(floors[rows], share, grown.total[rows], above, marks)
        score[rows] = np.minimum(score[rows], closer.score)
        an_hour = size[rows] / (self.lookback / Duration(hours=1))
        unit = {"slope_per_hour": an_hour, "slope_low": an_hour, "slope_high": an_hour, "noise": size[rows]}
        figures = {name: each * unit.get(name, 1.0) for name, each in closer.figures.items()}
        if self.min_slope_per_hour:
            fast = np.clip(figures["slope_per_hour"] / self.min_slope_per_hour, 0.0, _TOP)
            score[rows] = np.minimum(score[rows], fast)
        figures |= {
            "level": newest * size[rows],
            "growth": grown.total[rows] * size[rows],
            "quarter": grown.quarter[rows],
            "score": score[rows],
        }
        return _Look(score, {name: _spread_out(each, rows, len(values)) for name, each in figures.items()})

    def _record(self, before: Floats, span: int, length: int) -> Floats:
        """Return the highest floor [k] of blocks of `length` steps before the window, as far as the season goes."""
        if isinstance(self.seasonality, Duration):
            before = before[:, -max(0, round(self.seasonality / self.step) - span) or before.shape[1] :]
        blocks = before.shape[1] // length
        if not blocks:
            return np.full(len(before), -np.inf)
        highest: Floats = np.fmax.reduce(block_floors(before, blocks), axis=1)
        return np.where(np.isnan(highest), -np.inf, highest)

    def _closer(self, floors: Floats, share: float, total: Floats, above: Floats, marks: _Marks) -> _Look:
        """Return what the trend of `floors[k, b]` says: slopes per lookback, noise in sizes."""
        times = share * (np.arange(_BLOCKS) + 0.5) / _BLOCKS
        half = _BLOCKS // 2
        trend = fit_trend(times, floors)
        grain = quantum(floors)
        noise = np.fmax.reduce([trend.noise, _LEAST_NOISE * np.abs(median(floors)), SD_PER_QUANTUM * grain])
        moments = np.broadcast_to(times, floors.shape)
        older = theil_sen(moments[:, :half], floors[:, :half])
        newer = theil_sen(moments[:, half:], floors[:, half:])
        parts = [
            trend.z / marks.z,
            _ratio(total, marks.noises * noise),
            _ratio(total, _QUANTA * grain),
            _ratio(newer, marks.half * np.maximum(older, 0.0)),
            _ratio(above, marks.record * noise),
        ]
        figures = {
            "slope_per_hour": trend.slope,
            "slope_low": trend.low,
            "slope_high": trend.high,
            "noise": noise,
            "p_value": normal_cdf(-trend.z),
        }
        return _Look(np.clip(np.minimum.reduce(parts), 0.0, _TOP), figures)

    def _eta(
        self,
        figures: Mapping[str, Floats],
        labels: tuple[Labels, ...],
        inputs: Mapping[str, Window],
        at: datetime,
    ) -> Floats:
        """Return the seconds [n] until the bound is reached, NaN without one."""
        bound = np.full(len(labels), np.nan)
        if isinstance(self.bound, str):
            if (answer := inputs.get("bound")) is not None:
                bound = np.append(answer.until(at).last(), np.nan)[rows_for(answer, labels)]
        elif self.bound is not None:
            bound[:] = self.bound
        with np.errstate(all="ignore"):
            return np.maximum(3600 * (bound - figures["level"]) / figures["slope_per_hour"], 0.0)


def _ratio(value: Floats, mark: Floats) -> Floats:
    """Return value / mark, the top score where anything will do, and 0 where there is nothing."""
    return np.where(mark > 0, value / np.where(mark > 0, mark, 1.0), np.where(value > 0, _TOP, 0.0 * value))


def _spread_out(values: Floats, rows: NDArray[np.intp], count: int) -> Floats:
    """Return `values[k]` in their `rows` of [count], NaN elsewhere."""
    spread = np.full(count, np.nan)
    spread[rows] = values
    return spread


def _newest(window: Window) -> Floats:
    """Return each series' newest sample [n], NaN where it has none."""
    if not len(window.times):
        return np.full(len(window), np.nan)
    last = window.present.shape[1] - 1 - np.argmax(window.present[:, ::-1], axis=1)
    rows = np.arange(len(window))
    return np.where(window.present[rows, last], window.values[rows, last], np.nan)

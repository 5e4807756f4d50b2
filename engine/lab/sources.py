"""What the engine asks in a test: made-up or recorded series, in memory or in a real Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np

from engine.lang.promql import Storage
from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME, Labels
from engine.model.ports import Point
from engine.model.series import Bools, Floats, Window
from engine.model.testing import InputSeries, TestGroup
from engine.numeric.robust import median
from engine.query.ahead import AheadSource
from engine.query.embedded import EmbeddedSource


class Ground(Protocol):
    """A source that series can be added to."""

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        ...

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid."""
        ...

    def add(self, points: Sequence[Point]) -> None:
        """Add samples, newer than those of the same series that are there."""
        ...


class EmbeddedGround:
    """Series in memory behind the embedded evaluator; `subquery_step` is that of subqueries which name none."""

    def __init__(self, storage: Storage, subquery_step: timedelta) -> None:
        self._storage = storage
        self._source = EmbeddedSource(storage, Duration.of(subquery_step))
        self._waiting: list[Point] = []  # nobody may ever ask for them

    def instant(self, expr: str, at: datetime) -> Window:
        self._settle()
        return self._source.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        self._settle()
        return self._source.range(expr, start, end, step)

    def add(self, points: Sequence[Point]) -> None:
        self._waiting += points

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        series: dict[Labels, list[Point]] = {}
        for point in waiting:
            series.setdefault(point.labels, []).append(point)
        for labels, points in series.items():
            values = [math.nan if point.value is None else point.value for point in points]
            times = [round(point.at.timestamp() * 1000) for point in points]
            self._storage.add(labels, times, values, [point.value is None for point in points])


def samples_of(test: TestGroup, interval: timedelta) -> Iterator[tuple[Labels, list[int], Floats, Bools]]:
    """Yield the input series of a test: labels, times in milliseconds, values, and which are stale markers."""
    start, step = round(test.start.timestamp() * 1000), round(interval.total_seconds() * 1000)
    for series in test.input_series:
        stale = np.asarray(series.stale, dtype=bool)
        there = np.asarray(series.present, dtype=bool) | stale
        yield (
            series.labels,
            (start + np.flatnonzero(there) * step).tolist(),
            series.values[there],
            stale[there],
        )
    for recorded in test.input_files:
        times = np.round(recorded.times * 1000).astype(np.int64).tolist()
        yield recorded.labels, times, recorded.values, np.asarray(recorded.stale, dtype=bool)


def embedded(test: TestGroup, interval: timedelta, subquery_step: timedelta) -> EmbeddedGround:
    """Return a test's series in memory; their samples lie `interval` apart."""
    storage = Storage()
    for labels, times, values, stale in samples_of(test, interval):
        storage.add(labels, times, values, stale)
    return EmbeddedGround(storage, subquery_step)


class StageSource:
    """What the engine asks: expressions ahead of time, `input_signal` in place of a rule's `expr`."""

    def __init__(
        self, ground: Ground, ahead: Mapping[timedelta, AheadSource], signals: Mapping[str, Window]
    ) -> None:
        self._ground = ground
        self._ahead = ahead
        self.signals = signals
        self._any: AheadSource | Ground = next(iter(ahead.values()), ground)

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        if expr in self.signals:
            return _sample(self.signals[expr], [at.timestamp()])
        return self._any.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid."""
        if expr in self.signals:
            count = (end - start) // step + 1
            return _sample(self.signals[expr], [(start + i * step).timestamp() for i in range(count)])
        return self._ahead.get(step, self._ground).range(expr, start, end, step)


class RecordingStage(StageSource):
    """The same for tests in which somebody reads what rules make."""

    def record(self, points: Sequence[Point]) -> None:
        """Take what a rule made, for the later rules to read."""
        self._ground.add(points)


def signal_window(series: Sequence[InputSeries], start: datetime, interval: timedelta) -> Window:
    """Return `input_signal` as a window."""
    length = max(len(one.values) for one in series)
    values = np.full((len(series), length), np.nan)
    present = np.zeros((len(series), length), dtype=bool)
    for row, one in enumerate(series):
        values[row, : len(one.values)] = one.values
        present[row, : len(one.values)] = one.present
    times = start.timestamp() + np.arange(length, dtype=np.float64) * interval.total_seconds()
    return Window(tuple(one.labels for one in series), times, values, present)


_FIGURES: Mapping[str, Callable[[Floats], Floats]] = {
    "min": lambda values: np.fmin.reduce(values, axis=-1),
    "max": lambda values: np.fmax.reduce(values, axis=-1),
    "avg": lambda values: np.nansum(values, axis=-1) / np.count_nonzero(~np.isnan(values), axis=-1),
    "median": median,
}


def figure_window(window: Window, figure: str, step: timedelta) -> Window:
    """Return what `over_step` makes of `input_signal`: at each sample the figure of those in the `step` before."""
    every = window.times[1] - window.times[0] if len(window.times) > 1 else 60.0
    count = max(1, round(step.total_seconds() / every))
    values = np.where(window.present, window.values, np.nan)
    padded = np.pad(values, ((0, 0), (count - 1, 0)), constant_values=np.nan)
    runs = np.lib.stride_tricks.sliding_window_view(padded, count, axis=1)
    with np.errstate(invalid="ignore"):  # 0 / 0 where there is no sample
        found = _FIGURES[figure](runs)
    labels = tuple(each.without(METRIC_NAME) for each in window.labels)
    return Window(labels, window.times, found, ~np.isnan(found))


def _sample(window: Window, times: Sequence[float]) -> Window:
    """Return a window's samples at `times`: the newest that is at most one and a half steps old."""
    step = window.times[1] - window.times[0] if len(window.times) > 1 else 60.0
    wanted = np.asarray(times, dtype=np.float64)
    index = np.searchsorted(window.times, wanted + 1e-6, side="right") - 1
    fresh = (index >= 0) & (wanted - window.times[np.maximum(index, 0)] < 1.5 * step)
    present = window.present[:, np.maximum(index, 0)] & fresh
    values = np.where(present, window.values[:, np.maximum(index, 0)], np.nan)
    keep = np.flatnonzero(present.any(axis=1))
    return Window(tuple(window.labels[i] for i in keep), wanted, values[keep], present[keep])

"""Samples in memory, as a Prometheus server would have scraped them.

Adding is cheap at any time, also between evaluations (recording rules feed the
later rules of their group): samples newer than the last are appended in
amortised constant time, and nothing derived outlives the series it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, KeysView, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.lang.promql.syntax import LabelMatcher, selected_metric
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Bools, Floats

Ints = NDArray[np.int64]


class Samples(NamedTuple):
    """Rising times in milliseconds, the values there, and which of them are stale markers."""

    times: Ints
    values: Floats
    stale: Bools

    def at(self, index: slice | Ints | Bools) -> Samples:
        """Return the samples that `index` takes."""
        return Samples(self.times[index], self.values[index], self.stale[index])


class Series:
    """The samples of one set of labels."""

    __slots__ = ("_buffers", "_live", "_size", "labels")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self._buffers = _buffers(8)
        self._size = 0
        self._live: Samples | None = None

    def add(self, added: Samples) -> None:
        """Add samples whose times rise; where there is one already, the first stays, as in Prometheus."""
        if self._size and added.times[0] <= self._buffers.times[self._size - 1]:
            added = _union(self.samples, added)
            self._size = 0
            self._buffers = _buffers(len(added.times))
        self._append(added)
        self._live = None

    def _append(self, added: Samples) -> None:
        end = self._size + len(added.times)
        if end > len(self._buffers.times):
            grown = _buffers(2 * end)
            for new, old in zip(grown, self._buffers, strict=True):
                new[: self._size] = old[: self._size]
            self._buffers = grown
        for buffer, part in zip(self._buffers, added, strict=True):
            buffer[self._size : end] = part
        self._size = end

    @property
    def samples(self) -> Samples:
        """All samples, stale markers too."""
        return self._buffers.at(slice(self._size))

    @property
    def live(self) -> Samples:
        """The samples that are values: what a range sees."""
        if self._live is None:
            samples = self.samples
            keep = ~samples.stale
            self._live = samples if keep.all() else samples.at(keep)
        return self._live


class Storage:
    """Series by their labels, found by matchers."""

    def __init__(self) -> None:
        self._series: dict[Labels, Series] = {}
        self._by_metric: dict[str, list[Series]] = {}

    def add(
        self,
        labels: Labels,
        times_ms: Sequence[int] | Ints,
        values: Sequence[float] | Floats,
        stale: Sequence[bool] | Bools | None = None,
    ) -> None:
        """Add samples of one series in any order; where `stale`, the sample is a stale marker."""
        times = np.asarray(times_ms, dtype=np.int64)
        markers = np.zeros(len(times), bool) if stale is None else np.asarray(stale, dtype=bool)
        added = Samples(times, np.asarray(values, dtype=np.float64), markers)
        if len(times) == 0:
            return
        if (np.diff(times) <= 0).any():
            first = np.unique(times, return_index=True)[1]
            added = added.at(first)
        self._series_of(labels).add(added)

    def _series_of(self, labels: Labels) -> Series:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = Series(labels)
            self._by_metric.setdefault(labels.get(METRIC_NAME, ""), []).append(series)
        return series

    @property
    def metric_names(self) -> KeysView[str]:
        """The names of all metrics that have a series."""
        return self._by_metric.keys()

    def select(self, matchers: Sequence[LabelMatcher]) -> Iterator[Series]:
        """Return the series that pass all matchers."""
        name = selected_metric(matchers)
        candidates = self._series.values() if name is None else self._by_metric.get(name, ())
        for series in candidates:
            if all(matcher.matches(series.labels) for matcher in matchers):
                yield series


def _buffers(size: int) -> Samples:
    return Samples(np.empty(size, np.int64), np.empty(size, np.float64), np.empty(size, bool))


def _union(old: Samples, new: Samples) -> Samples:
    together = Samples(
        np.concatenate([old.times, new.times]),
        np.concatenate([old.values, new.values]),
        np.concatenate([old.stale, new.stale]),
    )
    first = np.unique(together.times, return_index=True)[1]  # of equal times, and `old` comes first
    return together.at(first)

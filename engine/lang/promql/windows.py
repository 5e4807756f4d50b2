"""The samples that each instant's range holds, for several series at all instants.

Sums over windows are made by doubling: of the sums of 2^k samples behind each
other, those that fill a window are added. That costs the same however much
windows overlap, subtracts nothing, and lets no sample outside a window, be it
infinite or huge, touch its sum; so a range and its instants cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.lang.promql.storage import Ints
from engine.model.labels import Labels
from engine.model.series import Bools, Floats

Extended = NDArray[np.longdouble]
"""Sums are made in extended precision where the platform has it: Prometheus compensates its sums."""

_BATCH = 1 << 16  # samples at a time: what fits a processor's cache


@dataclass(frozen=True, slots=True)
class Windows:
    """Samples `[first[k], stop[k])` of `times` (ms) and `values` lie in `(ends[k] - length_ms, ends[k]]`.

    `at[k]` is the instant of evaluation, which `@` and `offset` have moved `ends[k]` away from. Series lie
    behind each other in `times` and `values`; no window reaches over the end of one.
    """

    times: Ints
    values: Floats
    first: Ints
    stop: Ints
    ends: Ints
    at: Ints
    length_ms: int

    def where(self, chosen: Bools) -> Windows:
        """Return the chosen windows."""
        if chosen.all():
            return self
        return Windows(
            self.times,
            self.values,
            self.first[chosen],
            self.stop[chosen],
            self.ends[chosen],
            self.at[chosen],
            self.length_ms,
        )

    @property
    def counts(self) -> Ints:
        """How many samples each window holds."""
        return self.stop - self.first

    @property
    def last(self) -> Ints:
        """The index of each window's last sample."""
        return self.stop - 1

    def lists(self) -> Iterator[list[float]]:
        """Yield each window's values, for what is more exact in Python than in numpy."""
        for start, stop in zip(self.first.tolist(), self.stop.tolist(), strict=True):
            yield self.values[start:stop].tolist()

    def counted(self, flags: Bools) -> Ints:
        """Return how often each window has a pair of successive samples whose flag is set."""
        upto = np.concatenate([[0], np.cumsum(flags)])
        return np.asarray(upto[self.last] - upto[self.first], dtype=np.int64)

    def totals(self, *terms: Floats | Extended) -> list[Extended]:
        """Return the sums over each window of every one of `terms`, which have a value for each sample."""
        sums: list[NDArray[Any]] = [np.asarray(each, dtype=np.longdouble) for each in terms]
        found = [np.zeros(len(self.first), np.longdouble) for _ in terms]
        counts, at = self.counts, self.first.copy()
        longest = int(counts.max(initial=0))
        size = 1
        while size <= longest:
            taken = np.flatnonzero(counts & size)
            if len(taken):
                index = at[taken]
                for total, each in zip(found, sums, strict=True):
                    total[taken] += each[index]
                at[taken] = index + size
            sums = [each[:-size] + each[size:] for each in sums]  # now of twice as many samples
            size *= 2
        return found


class RangeVector(NamedTuple):
    """A range vector: every series' samples as (ms, values), and the windows that all of them have."""

    labels: Sequence[Labels]
    samples: Sequence[tuple[Ints, Floats]]
    ends: Ints
    at: Ints
    length_ms: int

    def batches(self) -> Iterator[tuple[list[Labels], Windows]]:
        """Yield the windows of some series after the other: [series, instants], flat."""
        edges = np.concatenate([self.ends - self.length_ms, self.ends])
        batch: list[tuple[Labels, Ints, Floats, Ints]] = []
        held = 0
        for labels, (times, values) in zip(self.labels, self.samples, strict=True):
            bounds = times.searchsorted(edges, side="right")
            low, high = int(bounds[0]), int(bounds[-1])  # for the ends rise
            if low == high:
                continue
            batch.append((labels, times[low:high], values[low:high], bounds - (low - held)))
            held += high - low
            if held >= _BATCH:
                yield self._together(batch)
                batch, held = [], 0
        if batch:
            yield self._together(batch)

    def _together(self, batch: list[tuple[Labels, Ints, Floats, Ints]]) -> tuple[list[Labels], Windows]:
        labels, times, values, bounds = zip(*batch, strict=True)
        first, stop = np.array(bounds).reshape(len(batch), 2, len(self.ends)).swapaxes(0, 1)
        repeats = len(batch)
        return list(labels), Windows(
            np.concatenate(times),
            np.concatenate(values),
            first.ravel(),
            stop.ravel(),
            np.tile(self.ends, repeats),
            np.tile(self.at, repeats),
            self.length_ms,
        )

"""The samples that each instant's range holds, for several series at all instants.

Sums and extremes of windows are made of two parts: from the window's start to the end of
its block, and from there to the window's end; blocks are as long as the longest
window. That costs the same however much windows overlap, and unlike differences
of running totals it subtracts nothing and lets no sample outside a window, be it
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

_BATCH = 1 << 15  # samples at a time: what fits a processor's cache


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
        """Return the sums over each window of terms that every sample has one of."""
        return [self.folded(np.add, np.asarray(each, dtype=np.longdouble)) for each in terms]

    def folded(self, fold: np.ufunc, terms: NDArray[Any]) -> NDArray[Any]:
        """Return what `fold` makes of the `terms` of each window, none of which is empty."""
        length = int(self.counts.max())
        blocks = np.append(terms, np.zeros(-len(terms) % length, terms.dtype)).reshape(-1, length)
        upto = fold.accumulate(blocks, axis=1).ravel()
        onwards = fold.accumulate(blocks[:, ::-1], axis=1)[:, ::-1].ravel()
        found: NDArray[Any] = fold(onwards[self.first], upto[self.last])
        inside = self.first // length == self.last // length  # within one block
        if inside.any():
            chosen = self.where(inside)
            # reduceat of [first, stop, first, stop, …] has each window at the even places.
            bounds = np.column_stack([chosen.first, chosen.stop]).ravel()
            padded = np.append(terms, terms[-1:])  # so that a stop at the end is an index
            found[inside] = fold.reduceat(padded, bounds)[::2]
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

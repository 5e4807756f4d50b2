"""The samples that each instant's range holds, for one series at all instants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from engine.lang.promql.storage import Ints
from engine.model.labels import Labels
from engine.model.series import Bools, Floats

Extended = np.longdouble
"""Sums are made in extended precision where the platform has it: Prometheus compensates its sums."""


class Flat(NamedTuple):
    """All windows' samples behind each other; `starts[k]` is where window `window[i] = k` begins."""

    times: Ints
    values: Floats
    window: Ints
    starts: Ints

    def totals(self, terms: Floats) -> Floats:
        """Return the sum of `terms` over each window."""
        return np.add.reduceat(terms.astype(Extended), self.starts).astype(np.float64)


@dataclass(frozen=True)
class Windows:
    """Samples `[first[k], stop[k])` of `times` (ms) and `values` lie in `(ends[k] - length_ms, ends[k]]`.

    `at[k]` is the instant of evaluation, which `@` and `offset` have moved `ends[k]` away from.
    """

    times: Ints
    values: Floats
    first: Ints
    stop: Ints
    ends: Ints
    at: Ints
    length_ms: int

    @classmethod
    def over(cls, times: Ints, values: Floats, ends: Ints, at: Ints, length_ms: int) -> Windows:
        """Return the windows of Prometheus 3: open on the left, closed on the right."""
        first = np.searchsorted(times, ends - length_ms, side="right")
        stop = np.searchsorted(times, ends, side="right")
        return cls(times, values, first, stop, ends, at, length_ms)

    def where(self, chosen: Bools) -> Windows:
        """Return the windows of the chosen instants."""
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

    @cached_property
    def flat(self) -> Flat:
        """The samples of all windows, none of which may be empty."""
        counts = self.counts
        starts = np.cumsum(counts) - counts
        window = np.repeat(np.arange(len(counts)), counts)
        index = np.arange(len(window)) - np.repeat(starts - self.first, counts)
        return Flat(self.times[index], self.values[index], window, starts)

    def lists(self) -> Iterator[list[float]]:
        """Yield each window's values, for what is quicker or more exact in Python than in numpy."""
        values = self.values.tolist()
        for start, stop in zip(self.first.tolist(), self.stop.tolist(), strict=True):
            yield values[start:stop]

    def counted(self, flags: Bools) -> Floats:
        """Return how often each window has a pair of successive samples whose flag is set."""
        upto = running_total(flags)
        return np.asarray(upto[self.last] - upto[self.first], dtype=np.float64)


def running_total(terms: Floats | Bools) -> Floats:
    """Return the sums of the first 0, 1, 2 … of `terms`."""
    return np.concatenate([[0.0], np.cumsum(terms, dtype=np.float64)])


class RangeVector(NamedTuple):
    """A range vector: the windows of every series."""

    labels: list[Labels]
    windows: list[Windows]

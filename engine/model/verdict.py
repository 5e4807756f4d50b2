"""What detectors say of series, and what they note of them from one evaluation to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from engine.model.labels import Labels
from engine.model.series import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """A detector's notes, handed back to it at its next evaluation.

    `columns[name]` has one row for each of `labels`, `[n]` or `[n, k]`, NaN where there is nothing to tell;
    `shared[name]` is an array of any shape about all series of the rule together. `at` is when they were
    noted, in Unix seconds, -inf for notes that were never made. A detector returns new notes and never
    changes the ones that it was given. The column `seen` and the field `kind` are the flow's.
    """

    labels: tuple[Labels, ...] = ()
    columns: Mapping[str, Floats] = field(default_factory=dict)
    shared: Mapping[str, Floats] = field(default_factory=dict)
    at: float = -np.inf
    kind: str = ""  # of the rule's settings under which they were noted

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, labels: tuple[Labels, ...], name: str, width: int | None = None) -> Floats:
        """Return a column's rows for `labels`, as a new array `[n]`, or `[n, width]`.

        Rows are NaN for a series without notes, and all are where the column has another width.
        """
        shape = (len(labels),) if width is None else (len(labels), width)
        found = np.full(shape, np.nan)
        column = self.columns.get(name)
        if column is None or column.shape[1:] != shape[1:]:
            return found
        if self.labels == labels:
            found[:] = column
            return found
        rows = _places(self.labels, labels)
        found[rows >= 0] = column[rows[rows >= 0]]
        return found


@lru_cache(8)
def _places(known: tuple[Labels, ...], wanted: tuple[Labels, ...]) -> NDArray[np.intp]:
    """Return where each of `wanted` is among `known`, -1 where it is not: the same for all columns of a memory."""
    places = {each: row for row, each in enumerate(known)}
    return np.array([places.get(each, -1) for each in wanted], dtype=np.intp)


NOTHING = Memory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Bad at `m` of the last `n` judgements."""

    m: int = 3
    n: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.m <= self.n <= 100:
            raise ValueError(f"persist needs 1 <= m <= n <= 100, not m: {self.m}, n: {self.n}")


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """A detector's answer for every series of a window, as arrays of the length of `labels`.

    `bad` is true where the condition holds. `known` is false where there was too little to say: an alert
    stays as it is then. `details` are the detector's own figures (`$detect.eta` in templates), NaN where
    a series has none. `quality` is how well the detector has been doing on this rule, by figure, such as the
    share of its forecasts' intervals that held the truth. `memory` is for its next evaluation.
    """

    labels: tuple[Labels, ...]
    bad: Bools
    known: Bools
    values: Floats
    details: Mapping[str, Floats] = field(default_factory=dict)
    quality: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = NOTHING

    def __len__(self) -> int:
        return len(self.labels)

    def details_of(self, index: int) -> dict[str, float]:
        """Return the figures of one series; those it does not have are left out."""
        found = {name: float(column[index]) for name, column in self.details.items()}
        return {name: value for name, value in found.items() if not np.isnan(value)}

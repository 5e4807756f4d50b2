"""What an expression comes to: values for every instant of the evaluation at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from engine.errors import ExpressionError
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Bools, Floats


@lru_cache(maxsize=1 << 16)
def nameless(labels: Labels) -> Labels:
    """Return `labels` without the metric's name."""
    return labels.without(METRIC_NAME)


class Row(NamedTuple):
    """One series of a vector: its labels, values [m] and where they are there [m]."""

    labels: Labels
    values: Floats
    present: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """An instant vector at m instants: labels[n], values[n, m], present[n, m]."""

    labels: Sequence[Labels]
    values: Floats
    present: Bools

    @classmethod
    def of(cls, rows: Iterable[Row], instants: int) -> Vector:
        """Return the vector of these rows."""
        found = list(rows)
        if not found:
            return cls((), np.empty((0, instants)), np.empty((0, instants), bool))
        labels, values, present = zip(*found, strict=True)
        return cls(labels, np.array(values), np.array(present))

    @property
    def rows(self) -> Iterator[Row]:
        """The series one by one."""
        return (Row(*row) for row in zip(self.labels, self.values, self.present, strict=True))

    def nameless(self) -> list[Labels]:
        """Return the labels without the metric's name, which no computed value keeps."""
        return [nameless(labels) for labels in self.labels]


def any_row(present: Bools) -> Bools:
    """Return at which instants at least one row is there."""
    found: Bools = np.any(present, axis=0)
    return found


Scalar = Floats  # a number at every instant [m]
Value = Scalar | Vector | str


def merge(vector: Vector, complaint: str = "vector cannot contain metrics with the same labelset") -> Vector:
    """Return `vector` with rows of equal labels joined, and without rows that are never there.

    Rows become equal when labels are dropped or changed; that is an error at an instant where both are there.
    """
    there: Bools = np.any(vector.present, axis=1)
    if there.all() and len(set(vector.labels)) == len(vector.labels):
        return vector
    joined: dict[Labels, Row] = {}
    for row, any_there in zip(vector.rows, there, strict=True):
        if not any_there:
            continue
        other = joined.get(row.labels)
        if other is not None:
            if (other.present & row.present).any():
                raise ExpressionError(f"{complaint}: {row.labels}")
            values = np.where(row.present, row.values, other.values)
            row = Row(row.labels, values, row.present | other.present)  # noqa: PLW2901
        joined[row.labels] = row
    return Vector.of(joined.values(), vector.values.shape[1])

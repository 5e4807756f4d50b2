"""What queries return: labelled sequences of samples, as arrays over all series at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from engine.model.labels import METRIC_NAME, Labels

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Series on one grid of instants.

    `labels[n]`; `times[m]` in Unix seconds, rising; `values[n, m]`, in the unit of the expression;
    `present[n, m]` tells a missing sample (whose value is NaN) from a sample that *is* NaN.
    """

    labels: tuple[Labels, ...]
    times: Floats
    values: Floats
    present: Bools
    warnings: tuple[str, ...] = ()  # what the server said beside the answer, such as a partial result

    @classmethod
    def of(
        cls,
        labels: Sequence[Labels],
        times: Sequence[float] | Floats,
        values: Sequence[Sequence[float]] | Floats,
        *,
        present: Bools | None = None,
        warnings: Sequence[str] = (),
    ) -> Window:
        """Return a window; without `present`, NaN means missing."""
        instants = np.asarray(times, dtype=np.float64)
        matrix = np.asarray(values, dtype=np.float64).reshape(len(labels), len(instants))
        there = ~np.isnan(matrix) if present is None else present
        return cls(tuple(labels), instants, matrix, there, tuple(warnings))

    def __len__(self) -> int:
        return len(self.labels)

    def until(self, at: datetime) -> Window:
        """Return the part of the window that is not later than `at`."""
        keep = int(np.searchsorted(self.times, at.timestamp() + 1e-9, side="right"))
        return Window(
            self.labels, self.times[:keep], self.values[:, :keep], self.present[:, :keep], self.warnings
        )

    def row_of(self, signal: Labels) -> int | None:
        """Return the row of the series with these labels, beside the metric's name; None if there is none."""
        rows = (row for row, each in enumerate(self.labels) if each.without(METRIC_NAME) == signal)
        return next(rows, None)

    def last(self) -> Floats:
        """Return each series' value at the last instant [n]; NaN where the sample is missing."""
        if len(self.times) == 0:
            return np.full(len(self), np.nan)
        return np.where(self.present[:, -1], self.values[:, -1], np.nan)


def rows_for(answer: Window, labels: Sequence[Labels]) -> NDArray[np.intp]:
    """Return the row of `answer` that belongs to each of `labels` [n], -1 where there is none or more than one.

    Names of metrics do not matter. A single series without labels belongs to all.
    """
    names = [name.unnamed for name in answer.labels]
    if len(names) == 1 and not names[0]:
        return np.zeros(len(labels), dtype=np.intp)
    found: dict[Labels, int] = {}
    for row, name in enumerate(names):
        found[name] = -1 if name in found else row
    return np.array([found.get(name.unnamed, -1) for name in labels], dtype=np.intp)


def instant_of(seconds: float) -> datetime:
    """Return Unix `seconds` as an instant in UTC."""
    return datetime.fromtimestamp(seconds, UTC)

"""What became of lines that were drawn earlier: how wrong their slopes were."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.labels import Labels
from engine.model.series import Bools, Floats
from engine.model.verdict import Memory

_LATE = 0.9  # of the pause between two lines: a slot that comes a little early still counts


class Hindcast(NamedTuple):
    """The last lines of each of n series, newest last, NaN where there is none: all [n, k].

    `level` at the time `drawn`, in Unix seconds, and `slope` a second.
    """

    level: Floats
    slope: Floats
    drawn: Floats

    @classmethod
    def recall(cls, memory: Memory, labels: tuple[Labels, ...], name: str, size: int) -> Hindcast:
        """Return the lines noted under `name`."""
        return cls(*(memory.rows(labels, f"{name}_{part}", size) for part in cls._fields))

    def columns(self, name: str) -> dict[str, Floats]:
        """Return them as columns of a memory."""
        return {f"{name}_{part}": array for part, array in zip(self._fields, self, strict=True)}

    def without(self, rows: Bools) -> Hindcast:
        """Forget the lines of some series [n]."""
        return Hindcast(*(np.where(rows[:, None], np.nan, array) for array in self))

    def slope_error(self, level: Floats, at: float, since: Floats, shortest: float) -> Floats:
        """Return the root mean square [n] of what the slopes were off by, a second; NaN without a line.

        A line counts once it is `shortest` seconds old, and if it was drawn after `since[n]`, NaN for ever:
        what it expected by now is held against `level[n]`, over the time that has passed.
        """
        age = at - self.drawn
        fit = (age >= shortest) & ~(self.drawn < since[:, None])
        off = np.where(fit, (level[:, None] - self.level - self.slope * age) / np.where(fit, age, 1.0), 0.0)
        count = np.count_nonzero(fit & ~np.isnan(off), axis=1)
        square = np.nansum(off * off, axis=1)
        found: Floats = np.sqrt(np.divide(square, count, out=np.full(len(count), np.nan), where=count > 0))
        return found

    def note(self, level: Floats, slope: Floats, at: float, every: float) -> Hindcast:
        """Return the lines with the newest one, for series whose last is `every` seconds old."""
        newest = self.drawn[:, -1]
        due = ~np.isnan(slope) & ~((at - newest < _LATE * every) & (newest <= at))
        news = (level, slope, np.full(len(level), at))
        return Hindcast(
            *(
                np.where(due[:, None], np.column_stack([array[:, 1:], new]), array)
                for array, new in zip(self, news, strict=True)
            )
        )

"""How often a series has been as bad as it is now: what recovered by itself so often is no news."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.labels import Labels
from engine.model.series import Floats
from engine.model.verdict import Memory

_KEPT = 32  # episodes of each series
_QUIET = 12 * 3600.0  # seconds without a new record that end an episode
_COMPARABLE = 0.9  # of the size now: an earlier episode of that size was as bad
_DAMPING = 0.5  # for each of them


class Episodes(NamedTuple):
    """The largest sizes of each series' latest episodes: `peaks[n, k]`, newest first, at `peaked[n, k]`."""

    peaks: Floats
    peaked: Floats

    @classmethod
    def recall(cls, memory: Memory, labels: tuple[Labels, ...]) -> Episodes:
        """Return what was noted of `labels`."""
        return cls(memory.rows(labels, "peaks", _KEPT), memory.rows(labels, "peaked", _KEPT))

    def columns(self) -> dict[str, Floats]:
        """Return them as columns of a memory."""
        return {"peaks": self.peaks, "peaked": self.peaked}

    def damping(self, sizes: Floats, at: float) -> Floats:
        """Return what to divide the sizes [n] at `at` by: 1 + N / 2, where N earlier episodes were as large."""
        with np.errstate(invalid="ignore"):
            alike = (self.peaks >= _COMPARABLE * sizes[:, None]) & (at - self.peaked >= _QUIET)
        damping: Floats = 1.0 + _DAMPING * np.count_nonzero(alike, axis=1)
        return damping

    def is_new(self, sizes: Floats, at: float) -> Floats:
        """Return the sizes [n] where they are a record of the episode that goes on, or begin one; 0 elsewhere."""
        with np.errstate(invalid="ignore"):
            going = at - self.peaked[:, 0] < _QUIET
            return np.where(going & ~(sizes > self.peaks[:, 0]), 0.0, sizes)

    def note(self, sizes: Floats, at: float) -> Episodes:
        """Return the episodes with the sizes [n] at `at`: 0 is none."""
        with np.errstate(invalid="ignore"):
            ahead = self.peaked > at + 1e-6  # somebody set the clock
            peaks, peaked = np.where(ahead, np.nan, self.peaks), np.where(ahead, np.nan, self.peaked)
            going = at - peaked[:, 0] < _QUIET
            record = (sizes > 0) & ~(going & ~(sizes > peaks[:, 0]))
        begins = record & ~going
        peaks = np.where(begins[:, None], np.roll(peaks, 1, axis=1), peaks)
        peaked = np.where(begins[:, None], np.roll(peaked, 1, axis=1), peaked)
        peaks[:, 0] = np.where(record, sizes, peaks[:, 0])
        peaked[:, 0] = np.where(record, at, peaked[:, 0])
        return Episodes(peaks, peaked)

"""Where a series began anew."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.model.series import Floats
from engine.numeric.robust import deviation


def carry_forward(values: Floats) -> Floats:
    """Return `values[n, m]` with each missing value replaced by the one before it, if there is any.

    For comparing neighbours only: a repeated value is no observation, and belongs in no statistic.
    """
    columns = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    return np.take_along_axis(values, np.maximum.accumulate(columns, axis=1), axis=1)


def calm(values: Floats) -> Floats:
    """Return `values[n, m]` with each one replaced by the median of itself and its two neighbours.

    A single wild sample is gone; edges of steps stay where they are, and the two ends as they were.
    """
    before, here, after = values[:, :-2], values[:, 1:-1], values[:, 2:]
    low, high = np.minimum(before, here), np.maximum(before, here)
    calmed = values.copy()
    calmed[:, 1:-1] = np.maximum(low, np.minimum(high, after))
    return calmed


def last_fall(
    values: Floats, at_least: Floats, *, deviations: float = 5.0, over: int = 3
) -> NDArray[np.intp]:
    """Return the index [n] of the sample at the foot of each series' last fall, 0 without one.

    A fall of `values[n, m]` goes down within `over` samples by more than `at_least[n]` and by more than
    `deviations` robust standard deviations of such changes, so that neither a small dip nor ordinary noise is
    one, nor the way back from a single wild sample.
    """
    feet = np.zeros(len(values), dtype=np.intp)
    if values.shape[1] <= over:
        return feet
    there = ~np.isnan(values)
    highest = np.max(values, axis=1, where=there, initial=-np.inf)
    lowest = np.min(values, axis=1, where=there, initial=np.inf)
    # What moves over less cannot have fallen by as much: most series, most of the time.
    rows = np.flatnonzero(highest - lowest > at_least)
    feet[rows] = _last_fall(values[rows], at_least[rows], deviations, over)
    return feet


def _last_fall(values: Floats, at_least: Floats, deviations: float, over: int) -> NDArray[np.intp]:
    filled = calm(carry_forward(values))
    changes = filled[:, over:] - filled[:, :-over]
    falls = changes < -np.maximum(at_least, deviations * deviation(changes))[:, None]
    newest = falls.shape[1] - 1 - np.argmax(falls[:, ::-1], axis=1)
    # The fall happened somewhere within these samples; its foot is the lowest of them.
    candidates = newest[:, None] + np.arange(1, over + 1)
    foot = newest + 1 + np.argmin(np.take_along_axis(filled, candidates, axis=1), axis=1)
    return np.where(falls.any(axis=1), foot, 0)

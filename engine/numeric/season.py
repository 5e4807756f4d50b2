"""Between which values a series was: at the same time of earlier periods, or lately."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.model.series import Floats
from engine.numeric.robust import median


class Range(NamedTuple):
    """For every value, the least and the largest of those that it is compared with `[n, m]`; NaN without any."""

    low: Floats
    high: Floats

    def exceedance(self, values: Floats, *, up: bool, down: bool) -> Floats:
        """Return how far `values[n, m]` lie outside [n, m]: 0 within, NaN where there is nothing to compare."""
        above = np.maximum(values - self.high, 0.0)
        below = np.maximum(self.low - values, 0.0)
        if up and down:
            return np.maximum(above, below)
        return above if up else below


def lagged_range(values: Floats, lags: Sequence[int], near: int) -> Range:
    """Return the range of the values at each of `lags` columns before, give or take `near` columns.

    NaN in `values[n, m]` are missing. So a value at eight is held against those about eight of the days before.
    """
    return Range(*(_lagged(extreme, values, lags, near) for extreme in (np.fmin, np.fmax)))


def trailing_range(values: Floats, width: int, gap: int) -> Range:
    """Return the range of the `width` columns that end `gap` columns before each of `values[n, m]`.

    NaN are missing. The gap leaves out what just happened, which is to be judged and not to be learned.
    """
    return Range(*(_shifted(_trailing(extreme, values, width), gap) for extreme in (np.fmin, np.fmax)))


def median_of_lags(values: Floats, lags: Sequence[int]) -> Floats:
    """Return, for each of `values[n, m]`, the median of those `lags` columns before it [n, m]; NaN without any."""
    reach = [lag for lag in lags if 0 < lag < values.shape[1]]
    if not reach:
        return np.full(values.shape, np.nan)
    stacked = np.full((*values.shape, len(reach)), np.nan)
    for index, lag in enumerate(reach):
        stacked[:, lag:, index] = values[:, :-lag]
    return median(stacked)


def without_single(values: Floats) -> Floats:
    """Return each of `values[n, m]` as the median of itself and the two before it: one wild value alone is gone."""
    found = values.copy()
    first, second, third = values[:, :-2], values[:, 1:-1], values[:, 2:]
    low, high = np.fmin(first, second), np.fmax(first, second)
    found[:, 2:] = np.where(np.isnan(third), np.nan, np.fmax(low, np.fmin(high, third)))
    return found


def trailing_mean(values: Floats, width: int) -> Floats:
    """Return the mean of each of `values[n, m]` and the `width - 1` before it; NaN where half of them are missing."""
    there = ~np.isnan(values)
    total = np.cumsum(np.where(there, values, 0.0), axis=1)
    count = np.cumsum(there, axis=1).astype(np.float64)
    if width < values.shape[1]:
        total[:, width:] -= total[:, :-width].copy()
        count[:, width:] -= count[:, :-width].copy()
    found: Floats = np.divide(total, count, out=np.full(values.shape, np.nan), where=2 * count > width)
    return found


def _lagged(extreme: np.ufunc, values: Floats, lags: Sequence[int], near: int) -> Floats:
    around = _trailing(
        extreme, values, 2 * near + 1
    )  # of a column and those before; ends `near` after the lag
    found = np.full(values.shape, np.nan)
    for lag in lags:
        back = lag - near
        if 0 < back < values.shape[1]:
            found[:, back:] = extreme(found[:, back:], around[:, : values.shape[1] - back])
    return found


def _trailing(extreme: np.ufunc, values: Floats, width: int) -> Floats:
    """Return the extremes of each column and the `width - 1` before it, by doubling: log2(width) passes."""
    if width >= values.shape[1]:
        accumulated: Floats = extreme.accumulate(values, axis=1)
        return accumulated
    found, reach = values.copy(), 1
    while reach < width:
        step = min(reach, width - reach)
        found[:, step:] = extreme(found[:, step:], found[:, :-step])
        reach += step
    return found


def _shifted(values: Floats, by: int) -> Floats:
    found = np.full(values.shape, np.nan)
    if by < values.shape[1]:
        found[:, by:] = values[:, : values.shape[1] - by]
    return found

"""Middles and spreads that a few wild values do not move.

Everything works over the last axis, leaves missing values (NaN) out and never warns: figures of a series
without values are NaN. Infinite values are the caller's to leave out.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.series import Bools, Floats

SD_PER_MAD = (
    1.482602218505602  # 1 / the normal's upper quartile: makes the MAD of normal noise its standard deviation
)
_SD_IN_QUARTILES = 1.3489795003921634  # standard deviations between the normal's quartiles
_TAIL = 0.05  # of the values on each side, that winsorising moves inwards
_OF_WINSORISED = 0.3  # of the winsorised standard deviation: a floor for when the MAD is next to nothing
SD_PER_QUANTUM = 1 / math.sqrt(12)  # the standard deviation of what rounding to a grid of width 1 takes away


def median(values: Floats) -> Floats:
    """Return the median over the last axis [...].

    By `np.sort`, which beats the partition behind `np.median` at a few hundred values (NaN sort last).
    """
    size = values.shape[-1]
    if size == 0:
        return np.full(values.shape[:-1], np.nan)
    ordered = np.sort(values, axis=-1)
    if not np.isnan(ordered[..., -1]).any():
        return 0.5 * ordered[..., (size - 1) // 2] + 0.5 * ordered[..., size // 2]
    count = np.count_nonzero(~np.isnan(ordered), axis=-1)[..., None]
    lower = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=-1)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, size - 1), axis=-1)
    middle: Floats = (0.5 * lower + 0.5 * upper)[..., 0]
    return middle


def deviation(values: Floats) -> Floats:
    """Return the MAD over the last axis [...], as a standard deviation: 1.4826 median |x - median x|."""
    return SD_PER_MAD * median(np.abs(values - median(values)[..., None]))


def largest(values: Floats) -> Floats:
    """Return the largest size |x| over the last axis [...], 0 where there is none."""
    found: Floats = np.max(np.abs(values), axis=-1, where=~np.isnan(values), initial=0.0)
    return found


def quantile(values: Floats, share: float) -> Floats:
    """Return the value over the last axis [...] that a `share` of them, 0 to 1, is not above.

    Between two values it is interpolated in a straight line (type 7 of Hyndman and Fan 1996).
    """
    size = values.shape[-1]
    if size == 0:
        return np.full(values.shape[:-1], np.nan)
    return _of_ordered(np.sort(values, axis=-1), np.count_nonzero(~np.isnan(values), axis=-1), share)


def _of_ordered(ordered: Floats, count: NDArray[np.intp], share: float) -> Floats:
    """Return the quantile of rising values of which the first `count` are there."""
    place = share * np.maximum(count - 1, 0)[..., None]
    lower = np.floor(place).astype(np.intp)
    upper = np.minimum(lower + 1, ordered.shape[-1] - 1)
    weight = place - lower
    above = np.take_along_axis(ordered, upper, axis=-1)
    below = np.take_along_axis(ordered, lower, axis=-1)
    found: Floats = np.where(weight > 0, (1 - weight) * below + weight * above, below)[..., 0]
    return found


def spread(values: Floats, *, relative: float = 0.02, least: float | Floats = 0.0) -> Floats:
    """Return the standard deviation over the last axis [...] that a score may safely be divided by.

    It is the largest of: 1.4826 MAD; the interquartile range / 1.349; 0.3 standard deviations of the values
    winsorised at their 5 % and 95 % quantiles, which stays when more than half of them are equal; `relative`
    times the median's size, since nobody minds 2 %; half the quantum, since rounding hides less than that;
    and `least`, in the values' unit. So a series that hardly ever moves does not make a shock of its first
    small step. It is 0 only for values that are all 0, NaN without any.
    """
    size = values.shape[-1]
    if size == 0:
        return np.full(values.shape[:-1], np.nan)
    with np.errstate(all="ignore"):  # what overflows is infinitely wide
        ordered = np.sort(values, axis=-1)
        count = np.count_nonzero(~np.isnan(ordered), axis=-1)
        middle = _of_ordered(ordered, count, 0.5)
        quartiles = _of_ordered(ordered, count, 0.75) - _of_ordered(ordered, count, 0.25)
        low, high = _of_ordered(ordered, count, _TAIL), _of_ordered(ordered, count, 1 - _TAIL)
        widest = np.where(high > low, high - low, 1.0)[..., None]  # for squares that do not overflow
        inside = (np.clip(ordered, low[..., None], high[..., None]) - middle[..., None]) / widest
        total = np.sum(np.where(np.isnan(inside), 0.0, inside), axis=-1) / np.maximum(count, 1)
        square = np.sum(np.where(np.isnan(inside), 0.0, inside**2), axis=-1) / np.maximum(count, 1)
        winsorised = np.sqrt(np.maximum(square - total**2, 0.0)) * widest[..., 0]
        parts = (
            SD_PER_MAD * median(np.abs(values - middle[..., None])),
            quartiles / _SD_IN_QUARTILES,
            _OF_WINSORISED * winsorised,
            relative * np.abs(middle),
            quantum(values) / 2,
            np.broadcast_to(least, middle.shape),
        )
    widest_part: Floats = np.fmax.reduce(np.stack(np.broadcast_arrays(*parts)))
    return np.where(count > 0, widest_part, np.nan)


def is_tied(values: Floats) -> Bools:
    """Tell of which series over the last axis [...] the spread says little.

    Those with fewer than three different values, or with more than half of their values equal to the median:
    the MAD is 0 there whatever the rest does, and only the range or the rate of change can be judged.
    """
    size = values.shape[-1]
    if size == 0:
        return np.ones(values.shape[:-1], dtype=np.bool_)
    ordered = np.sort(values, axis=-1)
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.count_nonzero(np.diff(ordered, axis=-1) > 0, axis=-1)  # never true of NaN
    equal = np.count_nonzero(values == median(values)[..., None], axis=-1)
    count = np.count_nonzero(~np.isnan(values), axis=-1)
    tied: Bools = (steps < 2) | (2 * equal > count)
    return tied


def quantum(values: Floats) -> Floats:
    """Return the smallest gap between different values over the last axis [...]; 0 with fewer than two.

    It is the grid that a quantised series lives on. Gaps of a billionth of the largest value are taken for
    the rounding of arithmetic.
    """
    if values.shape[-1] < 2:
        return np.zeros(values.shape[:-1])
    largest = np.max(np.abs(values), axis=-1, where=~np.isnan(values), initial=0.0)
    gaps = np.diff(np.sort(values, axis=-1), axis=-1)
    real = gaps > 1e-9 * largest[..., None]  # never true of NaN
    smallest = np.min(gaps, axis=-1, where=real, initial=np.inf)
    return np.where(np.isinf(smallest), 0.0, smallest)


class Blocks(NamedTuple):
    """Medians of runs of samples: `times[n, b]` and `values[n, b]`, NaN where a run has no sample."""

    times: Floats
    values: Floats


def block_medians(times: Floats, values: Floats, edges: Floats) -> Blocks:
    """Return the medians of `values[n, m]`, taken at rising `times[m]`, between successive `edges[b + 1]`.

    A block holds its left edge and not its right one. A block's time is the median time of those of its
    samples that are there, so that gaps do not bend a straight line.
    """
    bounds = np.searchsorted(times, edges, side="left")
    sizes = np.diff(bounds)
    if len(sizes) and sizes[0] and (sizes == sizes[0]).all():  # on an even grid, all at once
        inside = slice(bounds[0], bounds[-1])
        parts = values[:, inside].reshape(len(values), len(sizes), sizes[0])
        return Blocks(_median_times(times[inside].reshape(parts.shape[1:]), parts), median(parts))
    shape = (len(values), len(sizes))
    blocks = Blocks(np.full(shape, np.nan), np.full(shape, np.nan))
    for index, (start, stop) in enumerate(pairwise(bounds)):
        if start < stop:
            part = values[:, start:stop]
            blocks.values[:, index] = median(part)
            blocks.times[:, index] = _median_times(times[start:stop], part)
    return blocks


def _median_times(times: Floats, values: Floats) -> Floats:
    """Return the median of the rising `times[..., k]` at which `values[n, ..., k]` are there [n, ...]."""
    missing = np.isnan(values)
    if missing.any():
        return median(np.where(missing, np.nan, times))
    size = times.shape[-1]
    return np.broadcast_to(0.5 * times[..., (size - 1) // 2] + 0.5 * times[..., size // 2], values.shape[:-1])

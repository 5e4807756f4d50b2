"""Middles and spreads that a few wild values do not move.

Everything works over the last axis, leaves missing values (NaN) out and never warns: figures of a series
without values are NaN. Infinite values are the caller's to leave out.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from engine.model.series import Floats

SD_PER_MAD = (
    1.482602218505602  # 1 / the normal's upper quartile: makes the MAD of normal noise its standard deviation
)
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
    shape = (len(values), len(edges) - 1)
    blocks = Blocks(np.full(shape, np.nan), np.full(shape, np.nan))
    for index, (start, stop) in enumerate(pairwise(bounds)):
        if start == stop:
            continue
        part = values[:, start:stop]
        blocks.values[:, index] = median(part)
        missing = np.isnan(part)
        moments = np.where(missing, np.nan, times[start:stop]) if missing.any() else times[None, start:stop]
        blocks.times[:, index] = median(moments)
    return blocks

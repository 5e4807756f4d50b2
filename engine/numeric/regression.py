"""Straight lines through noisy series, over all series at once.

Theil-Sen: the median of the slopes between all pairs of points. A quarter of the points may be wild without
moving it much (its breakdown point is 29 %), and for normal noise it is almost as sharp as least squares.
Pairs grow with the square of the points, so reduce long series to a few dozen block medians first.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.series import Bools, Floats
from engine.numeric.robust import SD_PER_MAD, median

_SLOPE_VARIANCE = math.pi / 3  # of Theil-Sen against least squares, for normal noise (Sen 1968)
_MEDIAN_VARIANCE = math.pi / 2  # of the median against the mean, for normal noise
_MAX_AUTOCORRELATION = 0.8  # beyond it a few dozen points say nothing of their spread


class Line(NamedTuple):
    """A line through each of n series; every field is [n], NaN where fewer than two points are there."""

    slope: Floats  # per unit of time
    level: Floats  # at time 0
    noise: Floats  # standard deviation of one point about the line
    slope_error: Floats  # standard error of the slope
    level_error: Floats  # standard error of the level
    autocorrelation: Floats  # of successive residuals, 0 to 0.8
    points: Floats  # how many are there


def theil_sen(times: Floats, values: Floats) -> Floats:
    """Return the median slope [n] between all pairs of the points `times[n, b]`, `values[n, b]`.

    Theil (1950), Sen (1968). A point is missing where its value is NaN; times rise along each row.
    """
    earlier, later = _pairs(values.shape[-1])
    return median((values[:, later] - values[:, earlier]) / (times[:, later] - times[:, earlier]))


@lru_cache(maxsize=16)  # some hundred points are ten thousands of pairs
def _pairs(count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the places of the earlier and of the later point of all pairs; not to be written to."""
    earlier, later = np.triu_indices(count, 1)
    for places in (earlier, later):
        places.setflags(write=False)
    return earlier, later


def lag_one_autocorrelation(residuals: Floats) -> Floats:
    """Return the autocorrelation [n] of successive residuals `[n, b]` of a fitted line, within 0 and 0.8.

    r = sum e_i e_(i+1) / sum e_i^2 comes out too low by about (2 + 4 r) / b when level and trend were fitted
    to the same points (Marriott and Pope 1954, extended to a trend); this is undone.
    """
    count = np.count_nonzero(~np.isnan(residuals), axis=1)
    there = np.nan_to_num(residuals)
    square = np.sum(there * there, axis=1)
    product = np.sum(there[:, 1:] * there[:, :-1], axis=1)
    raw = np.divide(product, square, out=np.zeros_like(square), where=square > 0)
    unbiased: Floats = np.clip((raw * count + 2) / np.maximum(count - 4, 1), 0.0, _MAX_AUTOCORRELATION)
    return unbiased


def fit_line(times: Floats, values: Floats, floor: Floats) -> Line:
    """Return the Theil-Sen line through the points `times[n, b]`, `values[n, b]`, with its errors.

    noise = 1.4826 median |residual| sqrt(b / (b - 2)), at least `floor[n]`. The slope's error is least
    squares' own, noise / sqrt(sum (t - mean t)^2), times sqrt(pi / 3); the level's is the median's at the
    mean time plus the slope's from there. Both are widened by sqrt((1 + r) / (1 - r)) for autocorrelation r,
    the usual correction of the sample size; with a dozen points or fewer it comes out too small.
    """
    slope = theil_sen(times, values)
    level = median(values - slope[:, None] * times)
    residuals = values - slope[:, None] * times - level[:, None]
    there = ~np.isnan(values)
    count = np.count_nonzero(there, axis=1).astype(np.float64)
    noise = SD_PER_MAD * median(np.abs(residuals)) * np.sqrt(count / np.maximum(count - 2, 1))
    noise = np.maximum(noise, floor)
    moments = np.where(there, times, 0.0)
    middle = np.sum(moments, axis=1) / np.maximum(count, 1)
    spread = np.sum(np.where(there, (moments - middle[:, None]) ** 2, 0.0), axis=1)
    # What is below the floor is rounding, and rounding does not remember.
    correlation = np.where(noise > floor, lag_one_autocorrelation(residuals), 0.0)
    widened = noise * np.sqrt((1 + correlation) / (1 - correlation))
    slope_variance = np.divide(
        _SLOPE_VARIANCE * widened**2, spread, out=np.full_like(spread, np.nan), where=spread > 0
    )
    level_variance = _MEDIAN_VARIANCE * widened**2 / np.maximum(count, 1) + middle**2 * slope_variance
    return Line(slope, level, noise, np.sqrt(slope_variance), np.sqrt(level_variance), correlation, count)


def choose(first: Line, second: Line, where: Bools) -> Line:
    """Return `second` for the series `where[n]` is true, `first` for the others."""
    return Line(*(np.where(where, b, a) for a, b in zip(first, second, strict=True)))

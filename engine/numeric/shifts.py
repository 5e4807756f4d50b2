"""Where the level of a series changed, by how much, and how sure that is."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.series import Floats
from engine.numeric.regression import lag_one_autocorrelation, theil_sen
from engine.numeric.robust import median, spread

_MEDIAN_VARIANCE = math.pi / 2  # of the median against the mean, for normal noise


class Shift(NamedTuple):
    """The largest change of level of each of n series; fields are [n], NaN where there is none to be looked for."""

    place: NDArray[np.intp]  # of the first value after it
    before: Floats  # median of what lies before
    after: Floats  # median of what lies after
    noise: Floats  # standard deviation of one value about these two levels
    score: Floats  # (after - before) / its standard error
    stepwise: Floats  # 1 - the mean distance from the two levels over that from the best straight line; 1: a clean step


def level_shift(values: Floats, least: int, floor: Floats) -> Shift:
    """Return the change of level that parts the series `values[n, m]` best, `least` values or more on each side.

    Of all places the one with the least sum of distances from the medians before and after: Bai (1995), least
    absolute deviation estimation of a shift. Its standard error is that of two medians of the noise about
    them, which is at least `floor[n]`, widened by sqrt((1 + r) / (1 - r)) for autocorrelation r. The largest of many
    scores is looked at, so 3 is nothing. NaN is a missing value.
    """
    size = values.shape[1]
    nothing = np.full(len(values), np.nan)
    best, place = np.full(len(values), np.inf), np.zeros(len(values), dtype=np.intp)
    before, after, weight = nothing, nothing, nothing
    there = np.cumsum(~np.isnan(values), axis=1)
    for split in range(least, size - least + 1):
        left, right = there[:, split - 1], there[:, -1] - there[:, split - 1]
        low, high = median(values[:, :split]), median(values[:, split:])
        distance = _total(values[:, :split] - low[:, None]) + _total(values[:, split:] - high[:, None])
        better = (distance < best) & (left >= least) & (right >= least)
        best, place = np.where(better, distance, best), np.where(better, split, place)
        before, after = np.where(better, low, before), np.where(better, high, after)
        weight = np.where(better, np.sqrt(left * right / np.maximum(left + right, 1)), weight)
    return _measured(values, Shift(place, before, after, weight, weight, weight), floor)


def _measured(values: Floats, found: Shift, floor: Floats) -> Shift:
    """Return the shift with its noise, its score (`found` has the weight of the place there) and its shape."""
    columns = np.arange(values.shape[1])
    level = np.where(columns < found.place[:, None], found.before[:, None], found.after[:, None])
    residuals = values - level
    noise = spread(residuals, relative=0.0, least=floor)
    correlation = np.where(noise > floor, lag_one_autocorrelation(residuals), 0.0)
    error = noise * np.sqrt(_MEDIAN_VARIANCE * (1 + correlation) / (1 - correlation)) / found.score
    times = np.broadcast_to(columns.astype(np.float64), values.shape)
    slope = theil_sen(times, values)
    line = values - slope[:, None] * columns
    sloped = line - median(line)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        score = (found.after - found.before) / error
        stepwise = 1 - _size(residuals) / _size(sloped)
    return found._replace(noise=noise, score=score, stepwise=stepwise)


def _size(residuals: Floats) -> Floats:
    """Return the mean distance from 0 [n], NaN without values."""
    count = np.count_nonzero(~np.isnan(residuals), axis=1)
    return np.where(count > 0, _total(residuals) / np.maximum(count, 1), np.nan)


def _total(residuals: Floats) -> Floats:
    total: Floats = np.sum(np.abs(np.nan_to_num(residuals)), axis=1)
    return total

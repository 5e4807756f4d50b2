"""Whether a few dozen points rise, tested and measured, over all series at once.

The test is Mann and Kendall's: it counts which pairs rise, so wild points and bent courses do it no harm. Points
that remember the one before make runs that look like trends; the variance is widened for them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.series import Floats
from engine.numeric.normal import normal_quantile
from engine.numeric.robust import SD_PER_MAD, median

_MOST = 0.95  # autocorrelation beyond which a few dozen points are hardly more than one


class Trend(NamedTuple):
    """The trend of each of n series; every field is [n], NaN with fewer than nine points."""

    z: Floats  # of the test: standard normal without a trend, large if the series rises
    slope: Floats  # Theil-Sen, per unit of time
    low: Floats  # end of the slope's interval
    high: Floats  # the other end
    noise: Floats  # standard deviation of a point about the line


def fit_trend(times: Floats, values: Floats, *, coverage: float = 0.9) -> Trend:
    """Return the trend of `values[n, b]` at rising `times[b]`, NaN where missing.

    S is the number of pairs that rise less the number of those that fall (Mann 1945, Kendall 1975). Its variance
    is corrected for ties and for autocorrelation (`inflation`). z = (S - 1) / sd for S > 0, (S + 1) / sd for S < 0.
    The slope is the median over all pairs; its interval ends at the order statistics of the pairs' slopes that
    are z(coverage) sd / 2 from the middle (Sen 1968), with the same variance.
    """
    earlier, later = np.triu_indices(values.shape[1], 1)
    rises = values[:, later] - values[:, earlier]
    score = np.nansum(np.sign(rises), axis=1)
    count = np.count_nonzero(~np.isnan(values), axis=1).astype(np.float64)
    deviation = np.sqrt(score_variance(values) * inflation(curved_autocorrelation(times, values), count))
    enough = (count >= 9) & (deviation > 0)
    z = np.where(enough, (score - np.sign(score)) / np.where(enough, deviation, 1.0), np.nan)
    slopes = np.sort(rises / (times[later] - times[earlier]), axis=1)
    slope = median(slopes)
    residuals = values - slope[:, None] * times
    noise = SD_PER_MAD * median(np.abs(residuals - median(residuals)[:, None]))
    pairs = np.count_nonzero(~np.isnan(slopes), axis=1)
    margin = normal_quantile(0.5 + coverage / 2) * deviation
    low = _of_rank(slopes, np.floor((pairs - margin) / 2) - 1, pairs)
    high = _of_rank(slopes, np.ceil((pairs + margin) / 2), pairs)
    return Trend(z, *(np.where(enough, each, np.nan) for each in (slope, low, high, noise)))


def _of_rank(ordered: Floats, rank: Floats, count: Floats) -> Floats:
    """Return the value at `rank[n]` of rising values [n, m] of which the first `count` are there."""
    place = np.clip(rank, 0, np.maximum(count - 1, 0)).astype(np.intp)
    found: Floats = np.take_along_axis(ordered, place[:, None], axis=1)[:, 0]
    return found


def score_variance(values: Floats) -> Floats:
    """Return the variance [n] of S without a trend: (b (b-1) (2b+5) - sum over ties t (t-1) (2t+5)) / 18."""
    count = np.count_nonzero(~np.isnan(values), axis=1).astype(np.float64)
    ordered = np.sort(values, axis=1)
    tied = np.zeros(len(values))
    run = np.ones(len(values))
    for same in (ordered[:, 1:] == ordered[:, :-1]).T:
        tied += np.where(same, 0.0, run * (run - 1) * (2 * run + 5))
        run = np.where(same, run + 1, 1.0)
    tied += run * (run - 1) * (2 * run + 5)
    variance: Floats = (count * (count - 1) * (2 * count + 5) - tied) / 18
    return variance


def curved_autocorrelation(times: Floats, values: Floats) -> Floats:
    """Return the autocorrelation [n] of successive residuals of `values[n, b]`, within 0 and 0.95.

    They are those of a parabola and not of a line: residuals of a line remember where growth is merely bent,
    and a leak that speeds up would count as noise. r = sum e_i e_(i+1) / sum e_i^2 comes out too low by about
    (3 + 5 r) / b after three fitted parameters (Marriott and Pope 1954, extended); this is undone.
    """
    there = ~np.isnan(values)
    count = np.count_nonzero(there, axis=1)
    middle = (times - times.mean()) / np.ptp(times)
    basis, _ = np.linalg.qr(np.column_stack([np.ones_like(middle), middle, middle**2]))
    filled = np.where(there, values, median(values)[:, None])
    residuals = np.nan_to_num(filled - np.matmul(np.matmul(filled, basis), basis.T))
    square = np.sum(residuals**2, axis=1)
    product = np.sum(residuals[:, 1:] * residuals[:, :-1], axis=1)
    # What is a billionth of the values is the rounding of arithmetic, and rounding does not remember.
    real = square > 1e-18 * np.sum(np.nan_to_num(filled) ** 2, axis=1)
    raw = np.divide(product, square, out=np.zeros_like(square), where=real)
    unbiased = np.clip((raw * count + 3) / np.maximum(count - 8, 1), 0.0, _MOST)
    return np.where(real, unbiased, 0.0)


def inflation(correlation: Floats, count: Floats) -> Floats:
    """Return by how much autocorrelation widens the variance of S [n], at least 1 (Yue and Wang 2004).

    1 + 2 (r^(b+1) - b r^2 + (b-1) r) / (b (r-1)^2), which is b over the number of independent points that
    say as much.
    """
    r, b = correlation, np.maximum(count, 1)
    widened: Floats = np.maximum(1 + 2 * (r ** (b + 1) - b * r**2 + (b - 1) * r) / (b * (r - 1) ** 2), 1.0)
    return widened

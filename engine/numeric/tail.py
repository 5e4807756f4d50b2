"""How surprising a value is that lies beyond nearly all of those before it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from engine.model.series import Floats

_FEWEST = 3  # excesses, of which a mean can be taken


class Tail(NamedTuple):
    """The exponential upper tail of each of n samples; fields are [n].

    P(X > x) = share exp(-(x - threshold) / excess) for x above the threshold.
    """

    threshold: Floats
    excess: Floats  # mean of what lies beyond the threshold; more than 0
    share: Floats  # of the sample that lies beyond it

    def surprise(self, values: Floats) -> Floats:
        """Return -ln P(X > value) [n] for values beyond the threshold, 0 for others."""
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            found = (values - self.threshold) / self.excess - np.log(self.share)
        return np.where(values > self.threshold, found, 0.0)

    def at(self, surprise: float | Floats) -> Floats:
        """Return the values [n] of that surprise, which is at least that of the threshold."""
        with np.errstate(over="ignore", divide="ignore"):
            beyond: Floats = np.maximum(surprise + np.log(self.share), 0.0) * self.excess
        return self.threshold + beyond


def tail(sample: Floats, share: float, least: Floats) -> Tail:
    """Fit the tail beyond the quantile 1 - `share` of each row of `sample[n, m]`, whose NaN are missing.

    Peaks over threshold: excesses over a high threshold are generalised Pareto (Balkema and de Haan 1974, Pickands
    1975); the shape is taken to be 0, an exponential tail, since it cannot be told from a handful of excesses.
    Their mean is never taken to be less than `least[n]`, and never fewer than three are used. Rows with fewer than
    four values have an infinite threshold, so that nothing surprises.
    """
    size = sample.shape[1]
    held = min(max(_FEWEST, math.ceil(share * size)) + 1, size)
    missing = np.isnan(sample)
    count = size - np.count_nonzero(missing, axis=1)
    filled = np.where(missing, -np.inf, sample)
    top = np.sort(np.partition(filled, size - held, axis=1)[:, size - held :], axis=1)[:, ::-1]
    beyond = np.maximum(_FEWEST, np.ceil(share * count)).astype(np.intp)
    enough = count > beyond
    beyond = np.minimum(beyond, held - 1) if held else beyond
    rows = np.arange(len(sample))
    threshold = np.where(enough, top[rows, beyond] if held else np.inf, np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.cumsum(np.where(np.isfinite(top), top, 0.0), axis=1)
        mean = (
            np.where(enough, total[rows, beyond - 1] / np.maximum(beyond, 1) - threshold, 0.0)
            if held
            else 0.0
        )
    excess = np.maximum(np.maximum(mean, least), np.finfo(float).tiny)
    return Tail(threshold, excess, beyond / np.maximum(count, 1))

"""Local linear trends of many series at once: where they are going, and how sure that is.

y_t = l_t + e_t, l_(t+1) = l_t + b_t + n_t, b_(t+1) = b_t + z_t, with variances s^2, q1 s^2 and q2 s^2 (Harvey
1989, section 2.3.2). While nothing is missing, the Kalman filter's gains follow from q1, q2 and the count of
values alone, so for each pair on a grid all series are filtered by the same few multiplications; s^2 has a closed
form, and the pairs are weighed by their likelihoods (Bayesian model averaging, every pair as likely beforehand).
That replaces the optimiser, which is nearly all that a fit of one series costs.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.model.series import Floats
from engine.numeric.robust import SD_PER_MAD, median

_LEVELS = (0.0, 0.03, 0.3, 3.0)  # q1
_SLOPES = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1)  # q2
_DIFFUSE = 1e3  # variance of level and slope beforehand, in those of the noise
_LEARNING = 4  # first values, whose surprise says more of the start than of the pair
_CLIPPED_FROM = 7
_OF_MEAN = 0.02  # of the mean change: less is the rounding of arithmetic
_TINY = 1e-300


class _Gains(NamedTuple):
    """Of each pair g after t values: all `[g, t]`, and `variances[g, t, 4]`.

    The last are those of the level h ahead as factors of 1, h, h^2 and h^3.
    """

    level: Floats
    slope: Floats
    surprise: Floats
    variances: Floats


class Trend(NamedTuple):
    """Where each of n series is, and its level h ahead: mean `level` + `slope` h, variance `variances` . h^k."""

    level: Floats  # [n]
    slope: Floats  # [n], per step
    noise: Floats  # [n], standard deviation of one value
    variances: Floats  # [n, 4], factors of 1, h, h^2 and h^3

    def mean(self, ahead: Floats) -> Floats:
        """Return the expected level `ahead[h]` or `ahead[n, h]` steps from the last value [n, h]."""
        return self.level[:, None] + self.slope[:, None] * ahead

    def deviation(self, ahead: Floats) -> Floats:
        """Return the standard deviation of the level `ahead[h]` or `ahead[n, h]` steps on [n, h]."""
        c0, c1, c2, c3 = (self.variances[:, k, None] for k in range(4))
        return np.sqrt(np.maximum(c0 + ahead * (c1 + ahead * (c2 + ahead * c3)), 0.0))

    def scores(self, bound: Floats, ahead: Floats) -> Floats:
        """Return the z [n, h] for which Phi(z) is P(`bound[n]` passed upwards by `ahead[h]`), which rises.

        First passage is taken to be the largest probability to be above until then, as in `passage`.
        """
        spread = np.maximum(self.deviation(ahead), 1e-12)
        return np.maximum.accumulate((self.mean(ahead) - bound[:, None]) / spread, axis=1)


def crossing(scores: Floats, ahead: Floats, z: float) -> Floats:
    """Return when rising `scores[n, h]`, taken at rising `ahead[h]` > 0, first reach z [n]; infinite if never.

    Between two points the score is a straight line over the logarithm of time; before the first one, it is
    reached then.
    """
    passed = scores >= z
    after = np.argmax(passed, axis=1)
    before = np.maximum(after - 1, 0)
    rows = np.arange(len(scores))
    low, high = scores[rows, before], scores[rows, after]
    share = np.divide(z - low, high - low, out=np.ones_like(low), where=(after > before) & (high > low))
    times = np.exp(np.log(ahead[before]) * (1 - share) + np.log(ahead[after]) * share)
    return np.where(passed.any(axis=1), times, np.inf)


def fit_trend(values: Floats, *, clip: float = 4.0) -> Trend:
    """Return the local linear trend of `values[n, b]`, evenly spaced, NaN where missing.

    What is missing before a series' first value is left out exactly. A gap later on is bridged: the level goes on
    along the slope, with the gains of a series without a gap, so after long gaps too little is forgotten and the
    errors are a little small. From the seventh value on, surprises are cut off at `clip` robust standard deviations.
    """
    there = ~np.isnan(values)
    first = np.where(there.any(axis=1), np.argmax(there, axis=1), values.shape[1] - 1)
    order = np.argsort(first, kind="stable")
    length = values.shape[1] - first[order]
    columns = np.minimum(np.arange(values.shape[1]) + first[order][:, None], values.shape[1] - 1)
    aligned = np.take_along_axis(values[order], columns, axis=1)
    aligned[np.arange(values.shape[1]) >= length[:, None]] = np.nan
    found = _filter(aligned, length, clip)
    back = np.argsort(order, kind="stable")
    return Trend(*(each[back] for each in found))


def _filter(values: Floats, length: NDArray[np.intp], clip: float) -> Trend:
    """Return the trends of series that begin in the first column, the longest first."""
    gains = _gains(values.shape[1])
    pairs = gains.level.shape[0]
    columns = np.ascontiguousarray(values.T)
    widest = clip * _noise(values)
    level = np.tile(np.nan_to_num(median(values[:, :3])), (pairs, 1))
    slope = np.zeros_like(level)
    square, logs = np.zeros_like(level), np.zeros_like(level)
    count = np.zeros(len(values))
    for step, column in enumerate(columns):
        here = int(np.searchsorted(-length, -step, side="left"))  # series longer than `step`
        seen = ~np.isnan(column[:here])
        variance = gains.surprise[:, step, None]
        if step:
            level[:, :here] += slope[:, :here]
        surprise = np.where(seen, column[:here] - level[:, :here], 0.0)
        if step >= _CLIPPED_FROM:
            limit = widest[:here] * np.sqrt(variance)
            surprise = np.clip(surprise, -limit, limit)
        level[:, :here] += gains.level[:, step, None] * surprise
        slope[:, :here] += gains.slope[:, step, None] * surprise
        if step >= _LEARNING:
            square[:, :here] += surprise * surprise / variance
            logs[:, :here] += np.where(seen, np.log(variance), 0.0)
            count[:here] += seen
    count = np.maximum(count, 3)
    square = square / count
    return _average(level, slope, square, -0.5 * (count * np.log(square + _TINY) + logs), gains, length)


def _average(
    level: Floats, slope: Floats, square: Floats, likelihood: Floats, gains: _Gains, length: NDArray[np.intp]
) -> Trend:
    """Return the mixture of all pairs `[g, n]`: their variances, and that of their means."""
    weights = np.exp(likelihood - likelihood.max(axis=0))
    weights /= weights.sum(axis=0)
    mean, rate = (weights * level).sum(axis=0), (weights * slope).sum(axis=0)
    variances = np.einsum("gn,gnk->nk", weights * square, gains.variances[:, np.maximum(length, 1) - 1])
    off, turned = level - mean, slope - rate
    variances[:, 0] += (weights * off * off).sum(axis=0)
    variances[:, 1] += 2 * (weights * off * turned).sum(axis=0)
    variances[:, 2] += (weights * turned * turned).sum(axis=0)
    return Trend(mean, rate, np.sqrt((weights * square).sum(axis=0)), variances)


def _noise(values: Floats) -> Floats:
    """Return the robust standard deviation [n] of the noise, from the changes from one value to the next.

    It is infinite where most changes are the same, as of steps: nothing is wild there.
    """
    changes = np.diff(values, axis=1)
    off = np.abs(changes - median(changes)[:, None])
    noise = SD_PER_MAD * median(off) / 1.2
    mean = np.nansum(off, axis=1) / np.maximum(np.count_nonzero(~np.isnan(off), axis=1), 1)
    return np.where(noise > _OF_MEAN * mean, noise, np.inf)


@cache
def _gains(count: int) -> _Gains:
    grid = [(level, slope) for level in _LEVELS for slope in _SLOPES]
    level, slope, surprises = np.zeros((3, len(grid), count))
    gains = _Gains(level, slope, surprises, np.zeros((len(grid), count, 4)))
    move = np.array([[1.0, 1.0], [0.0, 1.0]])
    for pair, (q1, q2) in enumerate(grid):
        state = np.diag([_DIFFUSE, _DIFFUSE])
        for step in range(count):
            surprise = state[0, 0] + 1
            gain = state[:, 0] / surprise
            state = state - np.outer(gain, state[0])
            gains.level[pair, step], gains.slope[pair, step] = gain
            gains.surprise[pair, step] = surprise
            # q2 adds the sum of k^2 for k < h: h^3/3 - h^2/2 + h/6.
            gains.variances[pair, step] = (
                state[0, 0],
                2 * state[0, 1] + q1 + q2 / 6,
                state[1, 1] - q2 / 2,
                q2 / 3,
            )
            state = move @ state @ move.T + np.diag([q1, q2])
    for array in gains:
        array.flags.writeable = False
    return gains

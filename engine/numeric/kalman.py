"""Local linear trends of many series at once: where each is, where it is going, and how sure that is.

The model is the structural one of Harvey (1989): y = level + noise, the level walks by its slope and a step of
its own, and the slope walks too. Without missing values the Kalman gains depend on the two ratios of the
variances alone, not on the data; so for each pair of a small grid of ratios the gains are worked out once, and
filtering all series is a recursion of two numbers a series. The pairs are weighed by their likelihoods
(Bayesian model averaging), the noise's variance being concentrated out, instead of searching for the best.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from engine.model.series import Bools, Floats
from engine.numeric.normal import normal_cdf
from engine.numeric.robust import SD_PER_MAD, median, quantile

LEVEL_RATIOS = (0.0, 0.03, 0.3, 3.0)
"""Variance of the level's own steps, as multiples of the noise's."""

SLOPE_RATIOS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""Variance of the slope's steps, the same."""

_DIFFUSE = 1e3  # variance of level and slope before anything was seen, as multiples of the noise's
_SETTLED = 4  # steps before which the likelihood says more of the start than of the series
_CLIPPED_FROM = 7  # steps from which on a wild value is cut to what is plausible
_LEAST = 1e-18  # a variance that is none


class Trend(NamedTuple):
    """What a filter ends with. Times are in steps from the last value; fields are [n]."""

    level: Floats
    slope: Floats  # a step
    noise: Floats  # standard deviation of one value
    weights: Floats  # [models, n], of the pairs of ratios
    levels: Floats  # [models, n]
    slopes: Floats  # [models, n]
    variances: Floats  # [models, n], of the noise under each pair


class TrendBank:
    """Filters series of `size` values under every pair of ratios."""

    def __init__(
        self,
        size: int,
        level_ratios: tuple[float, ...] = LEVEL_RATIOS,
        slope_ratios: tuple[float, ...] = SLOPE_RATIOS,
    ) -> None:
        if size <= _SETTLED:
            raise ValueError(f"a trend needs more than {_SETTLED} values, not {size}")
        self.size = size
        self._pairs = np.array(list(product(level_ratios, slope_ratios)))
        self._gains, self._factors, self._ends = self._filter_pairs()

    def _filter_pairs(self) -> tuple[Floats, Floats, Floats]:
        """Return gains [models, size, 2], innovation variances [models, size], and final covariances [models, 3]."""
        pairs = len(self._pairs)
        level, both, slope = np.full(pairs, _DIFFUSE), np.zeros(pairs), np.full(pairs, _DIFFUSE)
        gains, factors = np.empty((pairs, self.size, 2)), np.empty((pairs, self.size))
        for step in range(self.size):
            factor = level + 1
            first, second = level / factor, both / factor
            gains[:, step, 0], gains[:, step, 1], factors[:, step] = first, second, factor
            level, both, slope = level - first * level, both - first * both, slope - second * both
            end = np.column_stack([level, both, slope])
            level, both = level + 2 * both + slope + self._pairs[:, 0], both + slope
            slope = slope + self._pairs[:, 1]
        return gains, factors, end

    @cached_property
    def _log_factors(self) -> Floats:
        total: Floats = np.log(self._factors[:, _SETTLED:]).sum(axis=1)
        return total

    def fit(self, values: Floats, *, clip: float = 4.0) -> Trend:
        """Return the trends of `values[n, size]`, NaN where missing; innovations are cut at `clip` deviations."""
        there = ~np.isnan(values.T)
        steps = np.ascontiguousarray(np.where(there, values.T, 0.0))
        spread = _spread(values)
        start = _start(values)
        found = [self._filter(model, steps, there, start, clip * spread) for model in range(len(self._pairs))]
        levels, slopes, squares = (np.stack(part) for part in zip(*found, strict=True))
        count = np.maximum(np.count_nonzero(there[_SETTLED:], axis=0), 3)
        variances = squares / count
        likelihood = -0.5 * count * np.log(variances + _LEAST) - 0.5 * self._log_factors[:, None]
        weights = np.exp(likelihood - likelihood.max(axis=0))
        weights /= weights.sum(axis=0)
        return Trend(
            level=(weights * levels).sum(axis=0),
            slope=(weights * slopes).sum(axis=0),
            noise=np.sqrt((weights * variances).sum(axis=0)),
            weights=weights,
            levels=levels,
            slopes=slopes,
            variances=variances,
        )

    def _filter(
        self, model: int, steps: Floats, there: Bools, start: Floats, most: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return level, slope, and the sum of squared innovations, all [n], under one pair of ratios."""
        level, slope, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
        complete = bool(there.all())
        for step in range(self.size):
            expected = level + slope if step else level
            surprise = steps[step] - expected
            if not complete:
                surprise = np.where(there[step], surprise, 0.0)
            if step >= _CLIPPED_FROM:
                bound = most * np.sqrt(self._factors[model, step])
                surprise = np.clip(surprise, -bound, bound)
            level = expected + self._gains[model, step, 0] * surprise
            slope = slope + self._gains[model, step, 1] * surprise
            if step >= _SETTLED:
                square += surprise * surprise / self._factors[model, step]
        return level, slope, square

    def ahead(self, trend: Trend, steps: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance [n, h] of the level `steps[h]` after the last value.

        The variance is that within each model plus that between the models.
        """
        level, both, slope = (column[:, None] for column in self._ends.T)
        own, turning = (column[:, None] for column in self._pairs.T)
        growth = (
            level
            + 2 * steps * both
            + steps**2 * slope
            + steps * own
            + turning * np.maximum(steps * (steps - 1) * (2 * steps - 1) / 6, 0.0)
        )
        mean = trend.level[:, None] + trend.slope[:, None] * steps
        within = np.einsum("gn,gh->nh", trend.weights * trend.variances, growth)
        off, tilt = trend.levels - trend.level, trend.slopes - trend.slope
        between = (
            (trend.weights * off * off).sum(axis=0)[:, None]
            + 2 * steps * (trend.weights * off * tilt).sum(axis=0)[:, None]
            + steps**2 * (trend.weights * tilt * tilt).sum(axis=0)[:, None]
        )
        return mean, within + between


def _spread(values: Floats) -> Floats:
    """Return the robust standard deviation [n] of successive differences, less what two noises add up to.

    At least a third of the size that nine of ten stay below: a series that stood still and now moves is not wild.
    """
    changes = np.diff(values, axis=1)
    found = SD_PER_MAD * median(np.abs(changes - median(changes)[:, None])) / 1.2
    found = np.fmax(found, quantile(np.abs(changes), 0.9) / 3)
    return np.where(np.isfinite(found) & (found > 0), found, 1e-6)


def _start(values: Floats) -> Floats:
    """Return where each series [n] begins: the median of its first three values, or of all, or 0."""
    first = median(values[:, :3])
    return np.nan_to_num(np.where(np.isnan(first), median(values), first))


_PARTS = (1.0, 0.75, 0.5, 0.34, 0.25)
"""Of a series' blocks: a bank for each, so that a series with fewer blocks after a reset has one too."""

_FEWEST = 6  # blocks that are a trend


class Passage(NamedTuple):
    """P(a bound is reached by then): `times[h]`, rising, and `probability[n, h]`, never falling along a row."""

    times: Floats
    probability: Floats

    def time_of(self, share: float) -> Floats:
        """Return the first time [n] by which the probability is `share`, infinite if it never is."""
        reached = self.probability >= share
        index = reached.argmax(axis=1)
        before = np.maximum(index - 1, 0)
        rows = np.arange(len(index))
        low, high = self.probability[rows, before], self.probability[rows, index]
        inside = (index > 0) & (high > low)
        part = np.divide(share - low, high - low, out=np.ones_like(low), where=inside)
        time = self.times[before] + (self.times[index] - self.times[before]) * np.clip(part, 0, 1)
        return np.where(reached.any(axis=1), time, np.inf)


class Path(NamedTuple):
    """Where series are going: normal about `mean[n, h]` with `variance[n, h]` at the times `ahead[h]`.

    `slope[n]` is the present one. Rows are NaN for series with too few values.
    """

    ahead: Floats
    mean: Floats
    variance: Floats
    slope: Floats

    def widened(self, slope_error: Floats) -> Path:
        """Return it with further doubt [n] about the slope."""
        return self._replace(variance=self.variance + (slope_error[:, None] * self.ahead) ** 2)

    def mean_at(self, time: float) -> Floats:
        """Return the mean [n] at a time."""
        index = int(np.clip(np.searchsorted(self.ahead, time), 1, len(self.ahead) - 1))
        before, after = self.ahead[index - 1], self.ahead[index]
        part = float(np.clip((time - before) / (after - before), 0, 1))
        between: Floats = (1 - part) * self.mean[:, index - 1] + part * self.mean[:, index]
        return between

    def passage(self, limit: Floats) -> Passage:
        """Return when `limit[n]` is reached from below.

        P(reached by h) is taken to be the largest P(above it at h') of all h' <= h, as in `Course`.
        """
        score = (self.mean - limit[:, None]) / np.sqrt(np.maximum(self.variance, _LEAST))
        above = np.nan_to_num(normal_cdf(score))
        return Passage(self.ahead, np.maximum.accumulate(above, axis=1))


@lru_cache(maxsize=64)
def _bank(size: int) -> TrendBank:
    return TrendBank(size)


def trend_path(blocks: Floats, ahead: Floats) -> Path:
    """Return the paths of `blocks[n, b]`, NaN where missing; times are in units of all b blocks."""
    size = blocks.shape[1]
    shape = (len(blocks), len(ahead))
    path = Path(ahead, np.full(shape, np.nan), np.ones(shape), np.full(len(blocks), np.nan))
    there = ~np.isnan(blocks)
    held = np.where(there.any(axis=1), size - there.argmax(axis=1), 0)
    left = np.ones(len(blocks), dtype=np.bool_)
    for part in sorted({int(size * part) for part in _PARTS}, reverse=True):
        rows = np.flatnonzero(left & (held >= part)) if part >= _FEWEST else np.zeros(0, dtype=np.intp)
        if len(rows):
            bank = _bank(part)
            trend = bank.fit(blocks[rows, size - part :])
            path.mean[rows], path.variance[rows] = bank.ahead(trend, ahead * size)
            path.slope[rows] = trend.slope * size
            left[rows] = False
    return path

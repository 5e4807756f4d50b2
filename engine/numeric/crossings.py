"""Forecasts of times, held against what came: by limits that are crossed every day, where real ones hardly ever are.

A forecast of when a series reaches its bound can seldom be scored. But the same forecast says when the series
passes any level before that; so each is given a virtual limit, and scored when the series passes it. How far off
it was is measured in the half-width of its own interval, on the side on which the truth lay: 1 is its very end.
Where intervals hold the truth significantly less often than they claim, the quantiles of these scores say by how
much they have to be stretched (split conformal prediction: Vovk et al. 2005; here over times, on a logarithm).
They are never narrowed. The newest scores count, so that the stretch follows a rule that changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from engine.model.labels import Labels
from engine.model.series import Bools, Floats
from engine.model.verdict import Memory

PENDING = 8  # forecasts of a series that wait for their truth; further ones are not scored
POOLED = 600  # scores of a rule that are kept
FEW = 50  # scores below which nothing is concluded
_GIVEN_UP = 4.0  # times the expected time, after which a forecast is no longer waited for
_MOST = 4.0  # times its width, that an interval is stretched
_SIGNIFICANT = 2.0  # standard errors of the achieved coverage
_CLOSEST = 0.03  # of the expected time: no interval is taken to be narrower on either side


class Crossings(NamedTuple):
    """Forecasts that wait, all [n, k], NaN where there is none; and `scores[m]` of those that do not, newest last.

    `limit` is what is to be passed, `made` when it was said, in Unix seconds, and `early`, `middle`, `late`
    the expected time, in seconds from then.
    """

    limit: Floats
    made: Floats
    early: Floats
    middle: Floats
    late: Floats
    scores: Floats
    errors: Floats  # ln(true time / expected time), of the same forecasts

    @classmethod
    def none(cls, size: int) -> Crossings:
        """Return what there is before the first forecast of `size` series."""
        return cls(*[*[np.full((size, PENDING), np.nan)] * 5, np.zeros(0), np.zeros(0)])

    @classmethod
    def recall(cls, memory: Memory, labels: tuple[Labels, ...]) -> Crossings:
        """Return what was noted."""
        pending = [memory.rows(labels, f"limit_{part}", PENDING) for part in cls._fields[:5]]
        pools = [_pool(memory.shared.get(part)) for part in cls._fields[5:]]
        if len(pools[0]) != len(pools[1]):
            pools = [np.zeros(0), np.zeros(0)]
        return cls(*[*pending, *pools])

    def columns(self) -> dict[str, Floats]:
        """Return what waits as columns of a memory."""
        return {f"limit_{part}": array for part, array in zip(self._fields[:5], self[:5], strict=True)}

    def shared(self) -> dict[str, Floats]:
        """Return the scores as shared notes of a memory."""
        return {"scores": self.scores, "errors": self.errors}

    def without(self, rows: Bools) -> Crossings:
        """Forget what waits of some series [n]."""
        kept = [np.where(rows[:, None], np.nan, array) for array in self[:5]]
        return Crossings(*[*kept, self.scores, self.errors])

    def score(self, level: Floats, at: float) -> Crossings:
        """Score the forecasts whose limit `level[n]` has passed by now, and give up those that are long overdue."""
        age = at - self.made
        passed = (level[:, None] >= self.limit) & (age > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.log(age / self.middle)
            width = np.where(error < 0, np.log(self.middle / self.early), np.log(self.late / self.middle))
        score = error / np.maximum(width, _CLOSEST)
        counted = passed & np.isfinite(score)
        gone = passed | (age > _GIVEN_UP * self.middle) | (age < 0)
        kept = [np.where(gone, np.nan, array) for array in self[:5]]
        scores = np.concatenate([self.scores, score[counted]])[-POOLED:]
        errors = np.concatenate([self.errors, error[counted]])[-POOLED:]
        return Crossings(*[*kept, scores, errors])

    def wait(self, limit: Floats, at: float, middle: Floats, early: Floats, late: Floats) -> Crossings:
        """Let forecasts wait for their truth, all [n]; NaN is none, and so is one for which there is no room."""
        news = (limit, np.full(len(limit), at), early, middle, late)
        fit = np.isfinite(limit) & np.isfinite(early) & np.isfinite(middle) & (middle > 0)
        free = np.isnan(self.limit)
        rows = np.flatnonzero(fit & free.any(axis=1))
        places = free[rows].argmax(axis=1)
        pending = [array.copy() for array in self[:5]]
        for array, new in zip(pending, news, strict=True):
            array[rows, places] = new[rows]
        return Crossings(*[*pending, self.scores, self.errors])

    def coverage(self) -> float:
        """Return the share of the scored forecasts whose interval held the truth, NaN without any."""
        return float(np.mean(np.abs(self.scores) <= 1)) if len(self.scores) else np.nan

    def stretch(self, coverage: float) -> tuple[float, float]:
        """Return by how much the early and the late side have to be stretched, on a logarithm, to hold `coverage`.

        Nothing is concluded from fewer than `FEW` scores.
        """
        count = len(self.scores)
        error = math.sqrt(coverage * (1 - coverage) / max(count, 1))
        if count < FEW or self.coverage() >= coverage - _SIGNIFICANT * error:
            return 1.0, 1.0
        share = min(1.0, (1 - (1 - coverage) / 2) * (count + 1) / count)
        sides = (np.maximum(-self.scores, 0.0), np.maximum(self.scores, 0.0))
        early, late = (float(np.clip(np.quantile(side, share), 1.0, _MOST)) for side in sides)
        return early, late


def stretched(middle: Floats, end: Floats, by: float) -> Floats:
    """Return an interval's `end[n]` moved away from its `middle[n]`: `by` times as far, on a logarithm."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moved = middle * (end / middle) ** by
    return np.where(np.isfinite(moved) & (middle > 0), moved, end)


def _pool(array: Floats | None) -> Floats:
    return (
        array[-POOLED:] if array is not None and array.ndim == 1 and np.isfinite(array).all() else np.zeros(0)
    )

"""When something on an uncertain course first reaches a bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.series import Bools, Floats
from engine.numeric.normal import normal_cdf, normal_quantile

_NO_SPREAD = 1e-12  # of a course that is certain; courses are in units in which that is next to nothing


class Course(NamedTuple):
    """Where each of n series is going: a straight line from now on, and how far it may be from the truth.

    At time h the series is normal about `gap` + `slope` h, measured from the bound (so below 0 before the
    bound is reached), with variance `level_error`^2 + `walk`^2 h + `slope_error`^2 h^2. Fields are [n].

    First passage is approximated: P(passed by h) is taken to be the largest P(above the bound at h') of all
    h' <= h. For an uncertain rising line that is exact; for a walk it is a lower bound, at worst half the
    truth (the reflection principle).
    """

    gap: Floats
    slope: Floats
    level_error: Floats
    slope_error: Floats
    walk: Floats

    def probability(self, within: float) -> Floats:
        """Return the probability [n] that the bound is reached by time `within`."""
        best = np.maximum(self._score(np.zeros_like(self.gap)), self._score(np.full_like(self.gap, within)))
        inside = (self._turn() > 0) & (self._turn() < within)
        turn = np.where(inside, self._turn(), 0.0)
        return normal_cdf(np.maximum(best, self._score(turn)))

    def time_of(self, probability: float) -> Floats:
        """Return the first time [n] by which the bound is reached with `probability`, infinite if never."""
        z = normal_quantile(probability)
        # (gap + slope h)^2 = z^2 variance(h), a quadratic a h^2 + b h + c = 0 in the time h.
        a = self.slope**2 - (z * self.slope_error) ** 2
        b = 2 * self.gap * self.slope - (z * self.walk) ** 2
        c = self.gap**2 - (z * self.level_error) ** 2
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            half = -0.5 * (b + np.copysign(np.sqrt(b * b - 4 * a * c), b))
            roots = (half / a, c / half) if z else (-self.gap / self.slope, -self.gap / self.slope)
            times = [np.where(self._is_root(root, z), root, np.inf) for root in roots]
        passed = self._score(np.zeros_like(self.gap)) >= z
        return np.where(passed, 0.0, np.minimum(*times))

    def _score(self, time: Floats) -> Floats:
        variance = self.level_error**2 + self.walk**2 * time + (self.slope_error * time) ** 2
        return (self.gap + self.slope * time) / np.sqrt(np.maximum(variance, _NO_SPREAD**2))

    def _turn(self) -> Floats:
        """Return the time at which the score turns, NaN or out of range if it never does."""
        start = 2 * self.slope * self.level_error**2 - self.gap * self.walk**2
        growth = self.slope * self.walk**2 - 2 * self.gap * self.slope_error**2
        with np.errstate(over="ignore"):
            return np.divide(-start, growth, out=np.full_like(growth, np.nan), where=growth != 0)

    def _is_root(self, time: Floats, z: float) -> Bools:
        """Tell which roots of the squared equation solve the equation itself: those on z's side."""
        side = (self.gap + self.slope * time) * np.sign(z)
        right: Bools = np.isfinite(time) & (time > 0) & (side >= 0)
        return right

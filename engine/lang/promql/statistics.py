"""Statistics of samples and of elements as Prometheus defines them, for NaN, infinities and constants too."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.model.series import Floats


def total(values: Sequence[float]) -> float:
    """Return the exactly rounded sum; infinite or NaN where infinities meet or the sum overflows."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        with np.errstate(all="ignore"):
            return float(np.sum(values))


def mean(values: Sequence[float]) -> float:
    """Return the mean, also of values whose sum overflows."""
    found = total(values)
    if math.isinf(found) and not any(math.isinf(value) for value in values):
        return math.fsum(value / len(values) for value in values)
    return found / len(values)


def variance(values: Sequence[float]) -> float:
    """Return the population's variance: exactly 0 for equal values, NaN if one is not finite."""
    pivot = values[0]
    offsets = [value - pivot for value in values]
    centre = total(offsets) / len(offsets)
    distances = [offset - centre for offset in offsets]
    return total([distance * distance for distance in distances]) / len(
        offsets
    )  # ** 2 would raise OverflowError


def quantile(q: float, values: Sequence[float] | Floats) -> float:
    """Return the q-quantile by linear interpolation; NaN sorts lowest, q beyond [0, 1] gives an infinity."""
    if math.isnan(q) or len(values) == 0:
        return math.nan
    if q < 0 or q > 1:
        return math.copysign(math.inf, q)
    ordered = sorted(values, key=lambda value: (not math.isnan(value), value))
    rank = q * (len(ordered) - 1)
    lower = math.floor(rank)
    upper = min(len(ordered) - 1, lower + 1)
    weight = rank - lower
    return float(ordered[lower] * (1 - weight) + ordered[upper] * weight)

"""The normal distribution over arrays, without scipy, whose import costs more than a whole evaluation."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from engine.model.series import Floats

_erfc = np.frompyfunc(math.erfc, 1, 1)


def normal_cdf(z: Floats) -> Floats:
    """Return P(Z <= z) elementwise: erfc(-z / sqrt 2) / 2, exact in both tails; NaN stays NaN.

    About 0.1 µs an element: meant for one figure a series, not for one a sample.
    """
    return 0.5 * np.asarray(_erfc(-np.asarray(z, dtype=np.float64) / math.sqrt(2)), dtype=np.float64)


def normal_quantile(probability: float) -> float:
    """Return the z that a standard normal stays below with `probability`, between 0 and 1."""
    return NormalDist().inv_cdf(probability)

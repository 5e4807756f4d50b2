"""Levels that change once, and noise whose level never does. A sample every five minutes; noise of standard deviation 1."""

import numpy as np
from scipy.signal import lfilter

from engine.model.series import Floats
from tests.bench.scenarios import stream

SIZES = (2.0, 3.0, 5.0)  # of a change, in standard deviations of the noise
NOISES = ("white", "remembering", "heavy", "slow")


def quiet(seed: int, kind: str, index: int, samples: int) -> Floats:
    """Return noise: white, first-order autoregressive (0.7; 0.95 if slow), or with a heavy tail."""
    rng = stream("shifts", seed, kind, index)
    if kind == "white":
        return rng.normal(0, 1, samples)
    if kind == "heavy":
        return np.asarray(rng.standard_t(2.5, samples), dtype=np.float64)
    memory = 0.95 if kind == "slow" else 0.7
    shocks = rng.normal(0, np.sqrt(1 - memory**2), samples + 200)
    return np.asarray(lfilter([1], [1, -memory], shocks)[200:], dtype=np.float64)


def shifted(seed: int, size: float, index: int, samples: int, at: int) -> Floats:
    """Return noise that remembers and whose level rises by `size` at the sample `at`."""
    return quiet(seed, "remembering", index, samples) + size * (np.arange(samples) >= at)

"""A fleet of nodes that do the same work: what is common to all, and single nodes that are slow for a while.

Latencies, a sample a minute. The logarithm of each is its node's own level, plus a daily course and incidents that all
nodes share, plus noise of its own that remembers (a first-order autoregression), plus noise that does not, plus spikes
with a heavy tail. Then some nodes are slow for a while, by a known factor.
"""

from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from engine.model.series import Floats
from tests.bench.scenarios import stream

DAY = 1440  # samples
INCIDENTS = 4  # in the days after the first, common to all
SIZES = (0.2, 0.4, 0.7)  # of a slowdown, on the logarithm
LENGTHS = (15, 30, 120)  # of a slowdown, in minutes
REMEMBERED, OWN, WHITE = 0.8, 0.10, 0.05  # autocorrelation and standard deviations of the noise


class Slowdown(NamedTuple):
    """One node, slow from sample `start` on for `length` samples, by the factor exp(`size`)."""

    node: int
    start: int
    length: int
    size: float


class Fleet(NamedTuple):
    """Latencies `[nodes, samples]` in seconds, and what is wrong with which of them."""

    values: Floats
    slowdowns: tuple[Slowdown, ...]


def fleet(seed: int, *, nodes: int = 200, days: int = 4, slow: int = 90) -> Fleet:
    """Return a fleet of which `slow` nodes are slow once, after the first day."""
    samples = days * DAY
    logs = np.stack([_node(seed, index, samples) for index in range(nodes)]) + _common(seed, samples)
    rng = stream("peers", seed, "slowdowns", 0)
    chosen = rng.permutation(nodes)[:slow].tolist()
    kinds = [(size, length) for size in SIZES for length in LENGTHS]
    slowdowns = []
    for number, node in enumerate(chosen):
        size, length = kinds[number % len(kinds)]
        start = int(rng.integers(DAY + 60, samples - length - 60))
        logs[node, start : start + length] += size
        slowdowns.append(Slowdown(node, start, length, size))
    return Fleet(np.exp(logs), tuple(slowdowns))


def _node(seed: int, index: int, samples: int) -> Floats:
    rng = stream("peers", seed, "node", index)
    shocks = rng.normal(0, OWN * np.sqrt(1 - REMEMBERED**2), samples)
    noise = lfilter([1], [1, -REMEMBERED], shocks) + rng.normal(0, WHITE, samples)
    spikes = 0.3 * np.minimum(rng.pareto(2, samples), 8) * (rng.random(samples) < 0.002)
    return np.asarray(np.log(0.1) + rng.normal(0, 0.25) + noise + spikes, dtype=np.float64)


def _common(seed: int, samples: int) -> Floats:
    rng = stream("peers", seed, "common", 0)
    days = np.arange(samples) / DAY
    course = 0.35 * np.sin(2 * np.pi * days) + 0.1 * np.sin(4 * np.pi * days)
    for _ in range(INCIDENTS):
        start, length = rng.uniform(1.1, samples / DAY - 0.2), rng.uniform(0.01, 0.08)
        course += rng.uniform(0.3, 1.0) * ((days > start) & (days < start + length))
    return np.asarray(course, dtype=np.float64)

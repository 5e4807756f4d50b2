"""Latencies of services, a week at five minutes, with what goes wrong known: medians over five minutes, in seconds.

Every series has a daily and a weekly course, noise that remembers on the logarithm, and common incidents of its fleet in
the past. What differs is what happens in the last two days.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from tests.bench.scenarios import stream

STEP = 300.0
DAY = 288
DAYS = 9
SIZE = DAYS * DAY
LAST = 7 * DAY  # where the days begin in which something happens

Array = np.ndarray


class Incidents(NamedTuple):
    """`values[n, m]`; each series has one incident `[start, stop)`, or none: -1."""

    kinds: Array
    values: Array
    start: Array
    stop: Array


Change = Callable[[np.random.Generator, Array, int], tuple[Array, int]]
"""Takes the series and where it happens; returns what becomes of it, and for how many steps."""


def course(rng: np.random.Generator) -> Array:
    """Return a series of a week and more in which nothing is wrong."""
    days = np.arange(SIZE) / DAY
    daily = rng.uniform(0.1, 0.4) * np.sin(2 * np.pi * (days + rng.uniform()))
    weekend = -rng.uniform(0, 0.2) * ((days % 7) >= 5)
    noise = lfilter([1.0], [1.0, -0.7], rng.normal(0, 0.05, SIZE))
    spikes = (rng.random(SIZE) < 0.002) * rng.pareto(2, SIZE).clip(0, 8) * 0.3
    return rng.lognormal(-3, 0.5) * np.exp(daily + weekend + noise + spikes)


def slower(size: float, steps: int) -> Change:
    """A slowdown by a factor exp(size) for some steps."""

    def change(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
        values[at : at + steps] *= np.exp(size)
        return values, steps

    return change


def deploy(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
    """A new version that is slower for good."""
    values[at:] *= np.exp(0.6)
    return values, DAY


def retries(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
    """A storm of retries: it feeds itself for an hour, and ends."""
    steps = 12
    values[at : at + steps] *= np.exp(np.linspace(0.2, 1.6, steps))
    return values, steps


def flatline(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
    """An exporter that repeats its last value: nothing that a rule on latency should call slow."""
    values[at : at + DAY // 2] = values[at]
    return values, 0


def restless(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
    """The same level, three times the noise, for four hours."""
    steps = 48
    values[at : at + steps] *= np.exp(rng.normal(0, 0.35, steps))
    return values, steps


def few(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
    """A percentile of a dozen requests at night: wild, and nothing is wrong."""
    night = (np.arange(SIZE) % DAY) < DAY // 3
    values[night] *= np.exp(rng.normal(0, 0.4, night.sum()))
    return values, 0


def clock_change(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
    """Everybody comes an hour earlier from now on."""
    first = LAST + DAY // 2
    values[first:-12] = values[first + 12 :]
    return values, 0


def fine(rng: np.random.Generator, values: Array, at: int) -> tuple[Array, int]:
    return values, 0


CHANGES: Mapping[str, Change] = {
    "+0.4 for 30 min": slower(0.4, 6),
    "+0.7 for 30 min": slower(0.7, 6),
    "+0.7 for 2 h": slower(0.7, 24),
    "+1.5 for 30 min": slower(1.5, 6),
    "deploy": deploy,
    "retry storm": retries,
    "restless": restless,
    "nothing": fine,
    "flatline": flatline,
    "few requests": few,
    "clock change": clock_change,
}


def latency(seeds: Sequence[int], per_kind: int) -> Incidents:
    """Return `per_kind` series of every kind for each seed."""
    kinds, values, starts, stops = [], [], [], []
    for seed in seeds:
        for kind, change in CHANGES.items():
            for index in range(per_kind):
                rng = stream("latency", seed, kind, index)
                at = int(rng.integers(LAST + 12, SIZE - DAY // 2))
                changed, steps = change(rng, course(rng), at)
                kinds.append(kind)
                values.append(changed)
                starts.append(at if steps else -1)
                stops.append(at + steps if steps else -1)
    return Incidents(np.array(kinds), np.array(values), np.array(starts), np.array(stops))

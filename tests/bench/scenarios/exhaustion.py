"""Resources that fill up, and such that only look like it: shares of a capacity of 1, a day at a minute."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from tests.bench.scenarios import stream

HOURS = 24.0
MINUTE = 1 / 60
TIMES = np.arange(round(HOURS / MINUTE)) * MINUTE
"""Hours since the start [m]."""

Array = np.ndarray


class Draw(NamedTuple):
    """What the classes have in common: the base, when and how fast it fills, and more chance."""

    rng: np.random.Generator
    base: float
    start: float  # hours
    full: float  # nominally, hours

    @property
    def since(self) -> Array:
        return np.maximum(TIMES - self.start, 0)

    @property
    def slope(self) -> float:
        return (1 - self.base) / (self.full - self.start)

    @property
    def line(self) -> Array:
        return self.base + self.slope * self.since


class Series(NamedTuple):
    """`values[n, m]` with noise and missed scrapes; `full[n]`, the index at which the truth reaches 1, -1 if never."""

    kinds: Array
    values: Array
    full: Array


def ar1(rng: np.random.Generator, rho: float, sd: float, size: int = len(TIMES)) -> Array:
    """Return first-order autoregressive noise of standard deviation `sd`."""
    steps = rng.standard_normal(size) * np.sqrt(1 - rho**2)
    steps[0] = rng.standard_normal()
    return sd * lfilter([1.0], [1.0, -rho], steps)


def accel(d: Draw) -> Array:
    return d.base + (1 - d.base) * (d.since / (d.full - d.start)) ** 2


def exponential(d: Draw) -> Array:
    rate = d.rng.uniform(1.5, 3.5)
    return d.base + (1 - d.base) * np.expm1(rate * d.since / (d.full - d.start)) / np.expm1(rate)


def saw(d: Draw) -> Array:
    period, height = d.rng.uniform(0.15, 1.0), d.rng.uniform(0.03, 0.12)
    return d.line + height * ((TIMES / period) % 1) - height / 2


def step_jobs(d: Draw) -> Array:
    period = d.rng.uniform(0.1, 0.8)
    return d.base + d.slope * period * np.floor(d.since / period)


def seasonal_fill(d: Draw) -> Array:
    phase = d.rng.uniform()
    return d.line + 0.04 * np.sin(2 * np.pi * (TIMES / 24 + phase)) + 0.02 * np.sin(2 * np.pi * TIMES / 3)


def reset_refill(d: Draw) -> Array:
    reset = d.rng.uniform(3, 7)
    refill = d.base + 1.3 * d.slope * np.maximum(TIMES - reset, 0)
    return np.where(reset > TIMES, d.base + 0.3 * TIMES / reset, refill)


def late_burst(d: Draw) -> Array:
    begin = d.full - d.rng.uniform(2, 4)
    return d.base + (1 - d.base) * np.maximum((TIMES - begin) / (d.full - begin), 0)


def burst_drain(d: Draw) -> Array:
    level = np.full(len(TIMES), d.base)
    for _ in range(3):
        at, width = d.rng.uniform(2, HOURS - 5), d.rng.uniform(0.3, 1.2)
        height = d.rng.uniform(0.1, 0.4) * (1 - d.base)
        rise = np.clip((TIMES - at) / width, 0, 1) - np.clip((TIMES - at - 1.5 * width) / width, 0, 1)
        level = np.maximum(level, d.base + height * rise)
    return level


def plateau(d: Draw) -> Array:
    height = d.rng.uniform(0.3, 0.7) * (1 - d.base)
    return d.base + height * -np.expm1(-d.since / d.rng.uniform(0.5, 3))


def cleanup80(d: Draw) -> Array:
    period, top = d.rng.uniform(1.5, 6), d.rng.uniform(0.7, 0.88)
    return d.base + (top - d.base) * ((TIMES / period + d.rng.uniform()) % 1)


def seasonal(d: Draw) -> Array:
    return d.base + 0.25 * (1 - d.base) * np.sin(2 * np.pi * (TIMES / 24 + d.rng.uniform()))


def stops(d: Draw) -> Array:
    length = d.rng.uniform(3, 8)
    return d.base + d.rng.uniform(0.3, 0.6) * (1 - d.base) * np.clip((TIMES - d.start) / length, 0, 1)


def walk(d: Draw) -> Array:
    return d.base + ar1(d.rng, 0.9995, 0.05)


def line(d: Draw) -> Array:
    return d.line


def flat(d: Draw) -> Array:
    return np.full(len(TIMES), d.base)


FILLING: Mapping[str, Callable[[Draw], Array]] = {
    "lin": line,
    "noisy": line,
    "accel": accel,
    "exp": exponential,
    "saw": saw,
    "step_jobs": step_jobs,
    "seasonal_fill": seasonal_fill,
    "reset_refill": reset_refill,
    "late_burst": late_burst,
}
OTHERS: Mapping[str, Callable[[Draw], Array]] = {
    "flat": flat,
    "burst_drain": burst_drain,
    "plateau": plateau,
    "cleanup80": cleanup80,
    "seasonal": seasonal,
    "stops": stops,
    "walk": walk,
}


def exhaustion(seeds: Sequence[int], per_kind: int) -> Series:
    """Return `per_kind` series of every kind for each seed."""
    kinds, values, full = [], [], []
    for seed in seeds:
        for kind, shape in {**FILLING, **OTHERS}.items():
            for index in range(per_kind):
                rng = stream("exhaustion", seed, kind, index)
                sd, rho = rng.uniform(0.002, 0.012), rng.choice([0.0, 0.6, 0.95])
                noise = ar1(rng, rho, sd * (4 if kind == "noisy" else 1))
                base, start = rng.uniform(0.15, 0.5), rng.uniform(1, 5)
                truth = shape(Draw(rng, base, start, rng.uniform(9, HOURS - 1)))
                seen = np.clip(truth + noise, 0, 1)
                seen[rng.random(len(seen)) < 0.005] = np.nan
                reached = np.flatnonzero(truth >= 1)
                kinds.append(kind)
                values.append(seen)
                full.append(reached[0] if len(reached) else -1)
    return Series(np.array(kinds), np.array(values), np.array(full))

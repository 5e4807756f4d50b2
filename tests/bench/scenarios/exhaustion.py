"""Usage of something that has an end: nine ways to fill up within a day, and seven that only look like it.

A day at a minute, in shares of the capacity. The truth is when the level without its noise reaches 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from engine.model.series import Floats
from tests.bench.scenarios import stream

HOURS = 24.0
MINUTES = 1440
_H = np.arange(MINUTES) / 60


class Usage(NamedTuple):
    """Series `values[n, 1440]`, their `kinds[n]`, and `full[n]`, the hour at which each is full, infinite if never."""

    values: Floats
    kinds: tuple[str, ...]
    full: Floats


class _Draw(NamedTuple):
    """What every class begins with: start, end and base of the fill."""

    rng: np.random.Generator
    base: float
    begin: float
    end: float

    @property
    def age(self) -> Floats:
        return np.maximum(_H - self.begin, 0)

    @property
    def rate(self) -> float:
        return (1 - self.base) / (self.end - self.begin)

    @property
    def line(self) -> Floats:
        return self.base + self.rate * self.age


def _ar1(rng: np.random.Generator, rho: float, sd: float) -> Floats:
    shocks = rng.standard_normal(MINUTES) * np.sqrt(1 - rho**2)
    out = np.empty(MINUTES)
    value = rng.standard_normal()
    for minute, shock in enumerate(shocks):
        out[minute] = value = rho * value + shock if minute else value
    return sd * out


def _exp(d: _Draw) -> Floats:
    k = d.rng.uniform(1.5, 3.5)
    return d.base + (1 - d.base) * np.expm1(k * d.age / (d.end - d.begin)) / np.expm1(k)


def _saw(d: _Draw) -> Floats:
    period, height = d.rng.uniform(0.15, 1), d.rng.uniform(0.03, 0.12)
    return d.line + height * ((_H / period) % 1) - height / 2


def _step_jobs(d: _Draw) -> Floats:
    period = d.rng.uniform(0.1, 0.8)
    return d.base + d.rate * period * np.floor(d.age / period)


def _seasonal_fill(d: _Draw) -> Floats:
    return d.line + 0.04 * np.sin(2 * np.pi * (_H / 24 + d.rng.uniform())) + 0.02 * np.sin(2 * np.pi * _H / 3)


def _reset_refill(d: _Draw) -> Floats:
    reset = d.rng.uniform(3, 7)
    return d.base + np.where(reset > _H, 0.3 * _H / reset, 1.3 * d.rate * (_H - reset))


def _late_burst(d: _Draw) -> Floats:
    begin = d.end - d.rng.uniform(2, 4)
    return d.base + (1 - d.base) * np.maximum(_H - begin, 0) / (d.end - begin)


def _burst_drain(d: _Draw) -> Floats:
    level = np.full(MINUTES, d.base)
    for _ in range(3):
        at, width = d.rng.uniform(2, HOURS - 5), d.rng.uniform(0.3, 1.2)
        size = d.rng.uniform(0.1, 0.4) * (1 - d.base)
        burst = np.clip((_H - at) / width, 0, 1) - np.clip((_H - at - 1.5 * width) / width, 0, 1)
        level = np.maximum(level, d.base + size * burst)
    return level


def _plateau(d: _Draw) -> Floats:
    size, pace = d.rng.uniform(0.3, 0.7) * (1 - d.base), d.rng.uniform(0.5, 3)
    return d.base - size * np.expm1(-d.age / pace)


def _cleanup80(d: _Draw) -> Floats:
    period, top = d.rng.uniform(1.5, 6), d.rng.uniform(0.7, 0.88)
    return d.base + (top - d.base) * ((_H / period + d.rng.uniform()) % 1)


def _stops(d: _Draw) -> Floats:
    length, size = d.rng.uniform(3, 8), d.rng.uniform(0.3, 0.6) * (1 - d.base)
    return d.base + size * np.clip(d.age / length, 0, 1)


FILLING: dict[str, Callable[[_Draw], Floats]] = {
    "lin": lambda d: d.line,
    "noisy": lambda d: d.line,
    "accel": lambda d: d.base + (1 - d.base) * (d.age / (d.end - d.begin)) ** 2,
    "exp": _exp,
    "saw": _saw,
    "step_jobs": _step_jobs,
    "seasonal_fill": _seasonal_fill,
    "reset_refill": _reset_refill,
    "late_burst": _late_burst,
}
OTHERS: dict[str, Callable[[_Draw], Floats]] = {
    "flat": lambda d: np.full(MINUTES, d.base),
    "burst_drain": _burst_drain,
    "plateau": _plateau,
    "cleanup80": _cleanup80,
    "seasonal": lambda d: d.base + 0.25 * (1 - d.base) * np.sin(2 * np.pi * (_H / 24 + d.rng.uniform())),
    "stops": _stops,
    "walk": lambda d: d.base + _ar1(d.rng, 0.9995, 0.05),
}
KINDS = FILLING | OTHERS


def usage(seed: int, count: int) -> Usage:
    """Return `count` series of every class."""
    values, kinds, full = [], [], []
    for kind in KINDS:
        for index in range(count):
            row, hour = one(seed, kind, index)
            values.append(row)
            kinds.append(kind)
            full.append(hour)
    return Usage(np.stack(values), tuple(kinds), np.array(full))


def one(seed: int, kind: str, index: int) -> tuple[Floats, float]:
    """Return the samples of one series, and the hour at which it is full."""
    rng = stream("exhaustion", seed, kind, index)
    sd, rho = rng.uniform(0.002, 0.012), float(rng.choice([0.0, 0.6, 0.95]))
    noise = _ar1(rng, rho, 4 * sd if kind == "noisy" else sd)
    draw = _Draw(rng, rng.uniform(0.15, 0.5), rng.uniform(1, 5), rng.uniform(9, HOURS - 1))
    level = KINDS[kind](draw)
    missed = rng.random(MINUTES) < 0.005
    reached = np.flatnonzero(level >= 1)
    full = float(_H[reached[0]]) if reached.size else np.inf
    return np.where(missed, np.nan, np.clip(level + noise, 0, 1)), full

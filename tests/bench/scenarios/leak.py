"""Memory and its like over three days: eleven ways to leak, sixteen to look as if, each with its load.

Values are shares of a limit. Each series has a level, noise of its own memory, and a shape; some are quantised
or have gaps. The truth is the shape: when the growth began that does not end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from engine.model.series import Bools, Floats
from tests.bench.scenarios import stream

HOURS = 72
STEP = 90.0  # seconds between two samples
T = np.arange(round(HOURS * 3600 / STEP)) * STEP / 3600  # hours

_MISSED = 0.003  # of the scrapes
_CORRELATIONS = (0.0, 0.5, 0.9, 0.97)  # of one sample's noise with the next one's


class Series(NamedTuple):
    """One series: its class, what is seen, the work it does, and whether and when it begins to leak."""

    kind: str
    values: Floats  # [m], NaN where a scrape is missing
    load: Floats  # [m], tasks running
    leaks: bool
    onset: float  # hours; 0 where it does not leak


class Shape(NamedTuple):
    """What a class makes of a level: the course without noise, what load it follows, when it begins to leak."""

    course: Floats
    load: Floats | float = 0.0  # relative to the usual one
    onset: float = 0.0


Maker = Callable[[np.random.Generator, float], Shape]


def autoregressive(rng: np.random.Generator, correlation: float, size: int = len(T)) -> Floats:
    """Return stationary noise of standard deviation 1 in which each value remembers the one before."""
    shocks = rng.standard_normal(size) * np.sqrt(1 - correlation**2)
    shocks[0] = rng.standard_normal()
    return np.asarray(lfilter([1.0], [1.0, -correlation], shocks), dtype=np.float64)


def _since(start: float) -> Floats:
    return np.maximum(T - start, 0.0)


def _day(phase: float) -> Floats:
    return np.sin(2 * np.pi * (T / 24 + phase))


def _cycle(rng: np.random.Generator, period: float) -> Floats:
    return (T / period + rng.uniform()) % 1


def _onset(rng: np.random.Generator) -> float:
    return float(rng.uniform(8, 30))


def _rate(rng: np.random.Generator) -> float:
    return float(rng.uniform(0.006, 0.04))


# ── Leaks ────────────────────────────────────────────────────────────────────


def _lin(rng: np.random.Generator, base: float) -> Shape:
    return Shape(base + _rate(rng) * T)


def _lin_mid(rng: np.random.Generator, base: float) -> Shape:
    onset = _onset(rng)
    return Shape(base + _rate(rng) * _since(onset), onset=onset)


def _lin_slow(rng: np.random.Generator, base: float) -> Shape:
    onset = _onset(rng)
    return Shape(base + rng.uniform(0.0025, 0.006) * _since(onset), onset=onset)


def _convex(rng: np.random.Generator, base: float) -> Shape:
    onset = _onset(rng)
    return Shape(base + _rate(rng) * (_since(onset) + _since(onset) ** 2 / 40), onset=onset)


def _stair(rng: np.random.Generator, base: float) -> Shape:
    onset, every = _onset(rng), rng.uniform(0.3, 1.5)
    return Shape(base + _rate(rng) * every * np.floor(_since(onset) / every), onset=onset)


def _saw_floor(rng: np.random.Generator, base: float) -> Shape:
    onset, tooth = _onset(rng), base * rng.uniform(0.1, 0.5)
    return Shape(base + _rate(rng) * _since(onset) + tooth * _cycle(rng, rng.uniform(0.3, 2.0)), onset=onset)


def _seasonal(rng: np.random.Generator, base: float) -> Shape:
    onset, day = _onset(rng), _day(rng.uniform())
    swing = rng.uniform(0.1, 0.4)
    return Shape(base * (1 + swing * day) + _rate(rng) * _since(onset), swing * day, onset)


def _restart(rng: np.random.Generator, base: float) -> Shape:
    onset, life = _onset(rng), rng.uniform(14, 26)
    return Shape(base + _rate(rng) * (_since(onset) % life), onset=onset)


# ── No leaks ─────────────────────────────────────────────────────────────────


def _flat(rng: np.random.Generator, base: float) -> Shape:
    return Shape(np.full(len(T), base))


def _ou_slow(rng: np.random.Generator, base: float) -> Shape:
    return Shape(base * (1 + 0.05 * autoregressive(rng, 0.999)))


def _bounded_walk(rng: np.random.Generator, base: float) -> Shape:
    return Shape(base * (1 + 0.1 * autoregressive(rng, 0.9997)))


def _warm_exp(rng: np.random.Generator, base: float) -> Shape:
    since = _since(rng.uniform(0, 20))
    return Shape(base * (1 + rng.uniform(0.3, 1.5) * (1 - np.exp(-since / rng.uniform(0.3, 4)))))


def _warm_log(rng: np.random.Generator, base: float) -> Shape:
    return Shape(base * (1 + 0.12 * np.log1p(_since(rng.uniform(0, 20)) * rng.uniform(1, 10))))


def _step1(rng: np.random.Generator, base: float) -> Shape:
    return Shape(base * (1 + rng.uniform(0.1, 0.8) * (rng.uniform(5, 60) < T)))


def _steps3(rng: np.random.Generator, base: float) -> Shape:
    return Shape(base * (1 + sum(rng.uniform(0.05, 0.3) * (rng.uniform(5, 60) < T) for _ in range(3))))


def _saw_flat(rng: np.random.Generator, base: float) -> Shape:
    return Shape(base * (1 + rng.uniform(0.1, 0.8) * _cycle(rng, rng.uniform(0.3, 5.0))))


def _diurnal(rng: np.random.Generator, base: float) -> Shape:
    swing = rng.uniform(0.1, 0.4) * _day(rng.uniform()) + rng.uniform(0, 0.1) * np.sin(4 * np.pi * T / 24)
    return Shape(base * (1 + swing), swing)


def _load_ramp(rng: np.random.Generator, base: float) -> Shape:
    """Up within 3 to 8 hours, a while there, and as slowly down: memory follows the tasks."""
    start, width = rng.uniform(8, 40), rng.uniform(3, 8)
    up = np.clip(_since(start) / width, 0, 1)
    down = np.clip(_since(start + width + rng.uniform(2, 8)) / width, 0, 1)
    rise = rng.uniform(0.2, 0.8) * (up - down)
    return Shape(base * (1 + rise), rise)


def _cache_fill(rng: np.random.Generator, base: float) -> Shape:
    since, width = _since(rng.uniform(0, 20)), rng.uniform(2, 8)
    return Shape(base * (1 + rng.uniform(0.2, 1.0) * np.clip(since / width, 0, 1)))


def _restarts_flat(rng: np.random.Generator, base: float) -> Shape:
    life = rng.uniform(4, 20)
    age = _cycle(rng, life) * life
    return Shape(base * (0.6 + 0.4 * (1 - np.exp(-age / 0.5))))


LEAKS: Mapping[str, Maker] = {
    "lin": _lin,
    "lin_mid": _lin_mid,
    "lin_slow": _lin_slow,
    "saw_floor": _saw_floor,
    "stair": _stair,
    "seasonal": _seasonal,
    "restart": _restart,
    "quant": _lin_mid,
    "gaps": _lin_mid,
    "heavy": _lin_mid,
    "convex": _convex,
}
OTHERS: Mapping[str, Maker] = {
    "stat_ar": _flat,
    "ou_slow": _ou_slow,
    "randwalk_bounded": _bounded_walk,
    "warm_exp": _warm_exp,
    "warm_log": _warm_log,
    "step1": _step1,
    "steps3": _steps3,
    "saw_flat": _saw_flat,
    "diurnal": _diurnal,
    "load_ramp": _load_ramp,
    "cache_fill": _cache_fill,
    "quant_flat": _flat,
    "restarts_flat": _restarts_flat,
    "gaps_flat": _flat,
    "heavy_flat": _flat,
    "const": _flat,
}


def make(seed: int, kind: str, index: int) -> Series:
    """Return one series of a class."""
    rng = stream("leak", seed, kind, index)
    base = rng.uniform(0.1, 0.45)
    shape = (LEAKS | OTHERS)[kind](rng, base)
    values = shape.course + base * rng.uniform(0.003, 0.03) * autoregressive(rng, rng.choice(_CORRELATIONS))
    if kind == "const":
        values = shape.course
    if kind.startswith("heavy"):
        spikes = np.minimum(rng.pareto(1.5, len(T)), 5) * 0.1
        values = values + base * np.where(rng.random(len(T)) < 0.01, spikes, 0.0)
    if kind.startswith("quant"):
        grain = base * rng.uniform(0.02, 0.08)
        values = np.round(values / grain) * grain
    values = np.where(_missing(rng, kind), np.nan, np.maximum(values, 0.0))
    load = 40 * (1 + shape.load) * (1 + 0.05 * autoregressive(rng, 0.9))
    return Series(kind, values, np.asarray(load), kind in LEAKS, shape.onset)


def _missing(rng: np.random.Generator, kind: str) -> Bools:
    missing: Bools = rng.random(len(T)) < (0.0 if kind == "const" else _MISSED)
    if kind.startswith("gaps"):
        for _ in range(6):
            start = rng.integers(0, len(T) - 60)
            missing[start : start + rng.integers(5, 60)] = True
    return missing

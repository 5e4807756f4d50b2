"""Loads of services and nodes that follow the day: what is usual, and hours in which it is not.

A value each quarter of an hour. Each is its level times the course of its kind, times noise that remembers (a
first-order autoregression of the logarithm). Every second series has one incident in the days that are judged: a
drop or a rise by a known share for an hour or three.
"""

from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

from engine.model.series import Floats
from tests.bench.scenarios import stream

DAY = 96  # samples
KINDS = ("smooth", "office", "batch", "flat", "growing", "spiky")
SIZES = (0.2, 0.4, 0.7)  # of an incident, as a share of the value
LENGTHS = (4, 12)  # of an incident, in samples
REMEMBERED, NOISE = 0.6, 0.05  # autocorrelation and standard deviation of the noise


class Service(NamedTuple):
    """One series [samples], and its incident: from sample `start` on for `length`, 0 without one; `size` of it."""

    kind: str
    values: Floats
    start: int
    length: int
    size: float


def services(seed: int, *, each: int, days: int, judged: int) -> list[Service]:
    """Return `each` services of every kind, of so many days, of which the last `judged` may have incidents."""
    return [_service(seed, kind, index, days, judged) for kind in KINDS for index in range(each)]


def _service(seed: int, kind: str, index: int, days: int, judged: int) -> Service:
    rng = stream("services", seed, kind, index)
    places = np.arange(days * DAY)
    noise = lfilter([1], [1, -REMEMBERED], rng.normal(0, NOISE * np.sqrt(1 - REMEMBERED**2), len(places)))
    values = rng.uniform(10, 1000) * _course(kind, rng, places / DAY) * np.exp(noise)
    start, length, size = 0, 0, 0.0
    if index % 2:
        size, length = SIZES[index // 2 % len(SIZES)], LENGTHS[index // 6 % len(LENGTHS)]
        start = int(rng.integers((days - judged) * DAY + 8, days * DAY - length - 8))
        values[start : start + length] *= 1 + size if rng.random() < 0.5 else 1 - size
    return Service(kind, values, start, length, size)


def _course(kind: str, rng: np.random.Generator, days: Floats) -> Floats:
    """Return what is usual at each of `days[m]`, about 1."""
    hours = 24 * ((days + rng.uniform(0, 1)) % 1)
    wave = 1 + 0.5 * np.sin(2 * np.pi * hours / 24) + 0.15 * np.sin(4 * np.pi * hours / 24)
    if kind == "flat":
        return np.ones_like(days)
    if kind == "office":
        work = 0.3 + 0.9 / (1 + np.exp(-(hours - 8) / 0.5)) / (1 + np.exp((hours - 18) / 0.5))
        return np.where((days + rng.uniform(0, 7)) % 7 < 5, work, 0.4 * work + 0.1)
    if kind == "batch":
        begins = 2 + rng.normal(0, 0.1, len(days))
        return 0.5 + 1.5 * ((hours >= begins) & (hours < begins + 1.5))
    if kind == "growing":
        return wave * (1 + 0.02 * days)
    if kind == "spiky":
        return wave * (1 + 0.6 * (rng.random(len(days)) < 0.004))
    return wave

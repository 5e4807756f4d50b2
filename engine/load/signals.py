"""Series that are made up: promtool's notation, and `generate:` with its seeded parts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from engine.load.matchers import Misread
from engine.load.records import suggest
from engine.model.duration import Duration
from engine.model.series import Floats

MAX_SAMPLES = 1_000_000  # of one series
_DIGITS = "[0-9]+(?:_[0-9]+)*"
_NUMBER = rf"(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][-+]?{_DIGITS})?"
# promtool's lexer: `Infx3` is one word that it does not know, but `Inf+0x3` is an item.
_ITEM = re.compile(
    rf"(?P<value>[-+]?(?:{_NUMBER}|(?i:inf|nan)(?!x)))(?:(?P<step>[-+]{_NUMBER})?x(?P<times>[0-9]+))?"
    r"|_(?:x(?P<missing>[0-9]+))?"
    r"|(?P<stale>stale)"
)


class Samples(NamedTuple):
    """One value an interval; `present` is false where there is none, `stale` true at a stale marker."""

    values: Floats
    present: tuple[bool, ...]
    stale: tuple[bool, ...]


def parse_values(text: str) -> Samples:
    """Return what promtool's notation `0+10x100 _x3 stale 1 -2-4x3` stands for. Raises Misread."""
    if "{{" in text:
        message = "native histograms are not supported; use the classic `_bucket` series"
        raise Misread(message, text.index("{{"))
    values, present, stale = [np.zeros(0)], list[bool](), list[bool]()
    for word in re.finditer(r"\S+", text):
        item = _ITEM.fullmatch(word[0])
        if item is None:
            shown = repr(word[0][:40])
            message = (
                f"cannot read {shown}; write 5, 5x3, 0+10x100, _, _x3 or stale, with blanks between them"
            )
            raise Misread(message, word.start())
        length = _length(item)
        if len(stale) + length > MAX_SAMPLES:
            raise Misread(f"more than {MAX_SAMPLES} samples in one series", word.start())
        values.append(_values(item, length))
        present += [item["value"] is not None] * length
        stale += [item["stale"] is not None] * length
    return Samples(np.concatenate(values), tuple(present), tuple(stale))


def _length(item: re.Match[str]) -> int:
    """Return how many samples an item makes: `_x3` is three, but `5x3` is four."""
    count = item["missing"] or item["times"]
    if count is None:
        return 1
    if len(count) > len(str(MAX_SAMPLES)):
        return MAX_SAMPLES + 1
    return int(count) + (item["times"] is not None)


def _values(item: re.Match[str], length: int) -> Floats:
    if item["value"] is None:
        return np.full(length, np.nan)
    steps = np.full(length, float(item["step"] or 0))
    if length:
        steps[0] = float(item["value"])
    with np.errstate(all="ignore"):  # from infinity to infinity is NaN, as everywhere
        return np.add.accumulate(steps)  # step by step, as promtool does: the last bit counts


class Part(Protocol):
    """One summand of a generated series."""

    def values(self, seconds: Floats) -> Floats:
        """Return its values at `seconds` from the test's start; NaN makes the sample missing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Always `value`."""

    value: float

    def values(self, seconds: Floats) -> Floats:
        return np.full(len(seconds), self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """Grows by `per_hour`, from 0 at the start."""

    per_hour: float

    def values(self, seconds: Floats) -> Floats:
        return seconds / 3600 * self.per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """A sine of `amplitude` that crosses 0, rising, `phase` after the start."""

    period: Duration
    amplitude: float
    phase: Duration = Duration()

    def __post_init__(self) -> None:
        _need_positive(self.period)

    def values(self, seconds: Floats) -> Floats:
        turns = (seconds - self.phase.total_seconds()) / self.period.total_seconds()
        return self.amplitude * np.sin(2 * np.pi * turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Independent normal deviations; the same `seed` gives the same ones."""

    sd: float
    seed: int = 0

    def __post_init__(self) -> None:
        if self.sd < 0 or self.seed < 0:
            raise ValueError("sd and seed cannot be negative")

    def values(self, seconds: Floats) -> Floats:
        return np.random.default_rng(self.seed).normal(0, self.sd, len(seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From `at` on, higher by `by`."""

    at: Duration
    by: float

    def values(self, seconds: Floats) -> Floats:
        return np.where(seconds >= self.at.total_seconds(), self.by, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """No samples from `at` on, `for` so long."""

    at: Duration
    length: Duration = field(metadata={"key": "for"})

    def values(self, seconds: Floats) -> Floats:
        start = self.at.total_seconds()
        return np.where((seconds >= start) & (seconds < start + self.length.total_seconds()), np.nan, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sawtooth:
    """Grows from 0 to `amplitude` in every `period`, then falls back."""

    period: Duration
    amplitude: float

    def __post_init__(self) -> None:
        _need_positive(self.period)

    def values(self, seconds: Floats) -> Floats:
        length = self.period.total_seconds()
        return self.amplitude * np.mod(seconds, length) / length


def _need_positive(period: Duration) -> None:
    if not period:
        raise ValueError("period must be longer than 0")


_PARTS: dict[str, type] = {
    cls.__name__.lower(): cls for cls in (Constant, Ramp, Season, Noise, Step, Gap, Sawtooth)
}


def find_part(name: str) -> type:
    """Return the class of a part by its word, or raise LookupError with a hint."""
    if name in _PARTS:
        return _PARTS[name]
    raise LookupError(f"no part of a signal is called {name!r}{suggest(name, _PARTS)}")


def generate(parts: Sequence[Part], interval: Duration, until: Duration) -> Samples:
    """Return the sum of `parts` at every `interval`, from the start to `until`, both included."""
    seconds = np.arange(until // interval + 1, dtype=np.float64) * interval.total_seconds()
    total: Floats = np.zeros(len(seconds))
    with np.errstate(all="ignore"):
        for part in parts:
            total = total + part.values(seconds)
    return Samples(total, tuple(bool(there) for there in ~np.isnan(total)), (False,) * len(seconds))

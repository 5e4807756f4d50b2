"""Which unit the figures of an expression have, as far as its names say."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.lang.readable import number, size, size_rate, span


@dataclass(frozen=True, slots=True)
class Unit:
    """How a signal's figures are read: in words, and divided by what to be written at an axis."""

    show: Callable[[float], str]
    scales: Sequence[tuple[float, str]]  # rising, each with its name; the first is the signal's own

    def scale(self, largest: float) -> tuple[float, str]:
        """Return the largest scale that leaves `largest` at one or more."""
        fitting = [scale for scale in self.scales if scale[0] <= largest]
        return fitting[-1] if fitting else self.scales[0]


_BYTES = Unit(size, [(1024.0**power, name) for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))])
_RATE = Unit(size_rate, [(factor, f"{name}/s") for factor, name in _BYTES.scales])
_SECONDS = Unit(span, [(0.001, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"), (86_400.0, "d")])
_NUMBER = Unit(number, [(1.0, ""), (1e6, "million"), (1e9, "billion")])

_QUOTED = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|`[^`]*`')
_INNER = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
_COUNTS = re.compile(r"\b(?:count|absent|changes|resets|count_over_time|absent_over_time)\s*(?:\(|$)")
_PER_SECOND = re.compile(r"\b(?:rate|irate|deriv)\s*\(")


def unit_of(expr: str) -> Unit:
    """Return the unit that the names in `expr` suggest; a plain number when they do not, or cancel out."""
    bare = _INNER.sub("", _QUOTED.sub('""', expr))
    if (
        _COUNTS.search(bare)
        or re.search(r"/\s*[^\s\d]", bare)
        or re.search(r"_(?:ratio|percent|percentage)\b", bare)
    ):
        return _NUMBER
    if re.search(r"bytes|memory|_mem_", bare):
        return _RATE if _PER_SECOND.search(bare) else _BYTES
    if re.search(r"_(?:seconds|duration_s)\b", bare) and not _PER_SECOND.search(bare):
        return _SECONDS
    return _NUMBER

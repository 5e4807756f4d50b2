"""A length of time, written the Prometheus way."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import ClassVar


class Duration(timedelta):
    """A length of time, written `1h30m`: units in falling order, each at most once, as Prometheus reads them."""

    _UNITS: ClassVar = (
        ("y", 31_536_000_000),
        ("w", 604_800_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    )
    _LONGEST_MS: ClassVar = (1 << 63) // 1_000_000  # Prometheus counts nanoseconds in 64 bits
    _PATTERN: ClassVar = re.compile("".join(rf"(?:(\d+){unit})?" for unit, _ in _UNITS), re.ASCII)

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Return the duration `text` stands for; ValueError if it is none."""
        match = cls._PATTERN.fullmatch(text)
        if text == "0":
            return cls()
        if not text or match is None:
            raise ValueError(f"not a duration: {text!r} (write it like 30s, 5m or 1h30m)")
        total = sum(int(n) * ms for n, (_, ms) in zip(match.groups(), cls._UNITS, strict=True) if n)
        if total > cls._LONGEST_MS:
            raise ValueError(f"duration out of range: {text!r} (the longest is 292y, as in Prometheus)")
        return cls(milliseconds=total)

    @classmethod
    def of(cls, length: timedelta) -> Duration:
        """Return `length` as a Duration."""
        return cls(days=length.days, seconds=length.seconds, microseconds=length.microseconds)

    def __str__(self) -> str:
        rest = round(self.total_seconds() * 1000)
        if rest == 0:
            return "0s"
        sign, rest, parts = ("-" if rest < 0 else ""), abs(rest), []
        for unit, ms in self._UNITS:
            # Prometheus writes years, weeks and days only when nothing is left over.
            if unit in ("y", "w", "d") and rest % ms:
                continue
            count, rest = divmod(rest, ms)
            if count:
                parts.append(f"{count}{unit}")
        return sign + "".join(parts)

"""Figures, instants and tables as a person reads them: short, with a unit, in UTC.

Shared by everything that shows an alert to a person. The functions of rule templates are not these: they are
Prometheus' own and must print what Prometheus prints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.model.alert import Alert
from engine.model.labels import ALERT_NAME, Labels

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "k", "M", "G", "T", "P")
_SPANS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_CELL = 60  # characters of a table's cell


def cut(text: str, limit: int) -> str:
    """Return `text`, shortened to `limit` characters with an ellipsis if it is longer."""
    return text if len(text) <= limit else text[: max(limit - 1, 0)].rstrip() + "…"


def one_line(text: str, limit: int = 300) -> str:
    """Return `text` with each run of blanks and control characters as one space, cut to `limit`."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return cut(" ".join(printable.split()), limit)


def plural(count: int, noun: str) -> str:
    """Return `1 alert` or `37 alerts`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def number(value: float) -> str:
    """Return `value` in three or four figures, thousands as k, M, G, T."""
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "no value")
    return _scaled(value, 1000, _DECIMAL)


def size(count: float) -> str:
    """Return a number of bytes, such as `7.2 GiB`."""
    if not math.isfinite(count):
        return number(count)
    return _scaled(count, 1024, _BINARY, " ")


def size_rate(per_second: float) -> str:
    """Return bytes a second, such as `94.4 MiB/s`."""
    return f"{size(per_second)}/s"


def _scaled(value: float, base: int, units: Sequence[str], gap: str = "") -> str:
    power = 0
    # Compared after rounding: 999.96 is 1k and not 1000.
    while power < len(units) - 1 and float(f"{abs(value) / base**power:.4g}") >= base:
        power += 1
    scaled = value / base**power
    text = f"{scaled:.4g}" if base == 1000 else f"{scaled:.3g}" if abs(scaled) < 999.5 else f"{scaled:.0f}"
    return f"{text}{gap}{units[power]}"


def span(seconds: float) -> str:
    """Return a length of time in its two largest units, such as `1h 40m`."""
    if not math.isfinite(seconds):
        return "for ever"
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    rest, parts = round(abs(seconds)), list[str]()
    if rest >= 86_400:
        rest = round(rest / 3600) * 3600
    elif rest >= 3600:
        rest = round(rest / 60) * 60
    for unit, length in _SPANS:
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return ("-" if seconds < 0 else "") + " ".join(parts[:2])


def clock(at: datetime, beside: datetime | None = None) -> str:
    """Return the instant in UTC; the date is left out when `beside` is of the same day."""
    at = at.astimezone(UTC)
    same_day = beside is not None and beside.astimezone(UTC).date() == at.date()
    return f"{at:%H:%M} UTC" if same_day else f"{at:%Y-%m-%d %H:%M} UTC"


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 84) -> list[str]:
    """Return a table as aligned lines of at most `width` characters; cells that look like figures lean right.

    The widest column gives way until a line fits.
    """
    table = [[one_line(cell, _CELL) for cell in row] for row in (header, *rows)]
    count = max((len(row) for row in table), default=0)
    if count == 0:
        return []
    table = [row + [""] * (count - len(row)) for row in table]
    widths = [max(len(row[column]) for row in table) for column in range(count)]
    while sum(widths) + 2 * (count - 1) > width and max(widths) > 4:
        widths[widths.index(max(widths))] -= 1
    right = [all(not row[column] or row[column][0].isdigit() for row in table[1:]) for column in range(count)]
    return [
        cut(
            "  ".join(
                cut(cell, wide).rjust(wide) if leans else cut(cell, wide).ljust(wide)
                for cell, wide, leans in zip(row, widths, right, strict=True)
            ).rstrip(),
            width,
        )
        for row in table
    ]


@dataclass(frozen=True, slots=True)
class Telling:
    """The labels of a group's alerts: those that all share, and those that tell them apart."""

    shared: Labels
    names: tuple[str, ...]

    @classmethod
    def of(cls, alerts: Sequence[Alert]) -> Telling:
        """Return what `alerts` share and what tells them apart; the alert's name is in neither."""
        if not alerts:
            return cls(Labels(), ())
        everywhere = set(alerts[0].labels.items()).intersection(
            *(alert.labels.items() for alert in alerts[1:])
        )
        shared = Labels(dict(everywhere)).without(ALERT_NAME)
        names = {name for alert in alerts for name in alert.labels}
        return cls(shared, tuple(sorted(names - set(shared) - {ALERT_NAME})))

    def apart(self, alert: Alert) -> Labels:
        """Return the labels that tell `alert` from its companions."""
        return alert.labels.only(*self.names)

"""Go's time.Time and time.Duration, as far as `toTime` and `toDuration` bring them into templates.

Their methods are in tables, `TIME_METHODS` and `DURATION_METHODS`: a template can call those and no others.
All times are in UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Self

_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


class Named(int):
    """An integer with a name that it prints as: a month or a day of the week."""

    def __new__(cls, number: int, name: str, go_type: str) -> Self:
        self = super().__new__(cls, number)
        self.name, self.type = name, go_type
        return self

    name: str
    type: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A length of time in nanoseconds."""

    nanoseconds: int
    type: ClassVar[str] = "*time.Duration"

    def __str__(self) -> str:
        size, sign = abs(self.nanoseconds), "-" if self.nanoseconds < 0 else ""
        if size == 0:
            return "0s"
        for unit, scale in (("ns", 1), ("µs", 1000), ("ms", 1_000_000)):
            if size < scale * 1000:
                return f"{sign}{_decimal(size, scale)}{unit}"
        minutes, rest = divmod(size, 60 * _SECOND)
        hours, minutes = divmod(minutes, 60)
        text = f"{_decimal(rest, _SECOND)}s"
        if hours or minutes:
            text = f"{minutes}m{text}"
        return f"{sign}{hours}h{text}" if hours else f"{sign}{text}"


@dataclass(frozen=True, slots=True, order=True)
class Time:
    """An instant, in nanoseconds since 1970. One beyond the years 1 to 9999 is an OverflowError."""

    nanoseconds: int
    type: ClassVar[str] = "*time.Time"

    def __post_init__(self) -> None:
        assert self.utc  # computing it is the check

    @property
    def utc(self) -> datetime:
        """The instant to the second."""
        return _EPOCH + timedelta(seconds=self.nanoseconds // _SECOND)

    @property
    def fraction(self) -> int:
        """The nanoseconds within the second."""
        return self.nanoseconds % _SECOND

    def __str__(self) -> str:
        return format_time(self, "2006-01-02 15:04:05.999999999 -0700 MST")


def _decimal(number: int, scale: int) -> str:
    """Return `number / scale` exactly; `scale` is a power of ten."""
    whole, rest = divmod(number, scale)
    digits = f"{rest:0{len(str(scale)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


# The words of a layout, longest first where one begins like another; see Go's package time.
_LAYOUT: dict[str, Callable[[datetime], str]] = {
    "January": lambda t: _MONTHS[t.month - 1],
    "Jan(?![a-z])": lambda t: _MONTHS[t.month - 1][:3],
    "Monday": lambda t: _DAYS[t.isoweekday() % 7],
    "MST": lambda _: "UTC",
    "Mon(?![a-z])": lambda t: _DAYS[t.isoweekday() % 7][:3],
    "2006": lambda t: f"{t.year:04d}",
    "_2(?!006)": lambda t: f"{t.day:2d}",
    "__2": lambda t: f"{t.timetuple().tm_yday:3d}",
    "002": lambda t: f"{t.timetuple().tm_yday:03d}",
    "01": lambda t: f"{t.month:02d}",
    "02": lambda t: f"{t.day:02d}",
    "03": lambda t: f"{(t.hour + 11) % 12 + 1:02d}",
    "04": lambda t: f"{t.minute:02d}",
    "05": lambda t: f"{t.second:02d}",
    "06": lambda t: f"{t.year % 100:02d}",
    "15": lambda t: f"{t.hour:02d}",
    "PM": lambda t: "PM" if t.hour >= 12 else "AM",
    "pm": lambda t: "pm" if t.hour >= 12 else "am",
    "Z07:00:00": lambda _: "Z",
    "Z07:00": lambda _: "Z",
    "Z070000": lambda _: "Z",
    "Z0700": lambda _: "Z",
    "Z07": lambda _: "Z",
    "-07:00:00": lambda _: "+00:00:00",
    "-07:00": lambda _: "+00:00",
    "-070000": lambda _: "+000000",
    "-0700": lambda _: "+0000",
    "-07": lambda _: "+00",
    "1": lambda t: str(t.month),
    "2": lambda t: str(t.day),
    "3": lambda t: str((t.hour + 11) % 12 + 1),
    "4": lambda t: str(t.minute),
    "5": lambda t: str(t.second),
}
_WORD = re.compile("|".join([*(f"({word})" for word in _LAYOUT), r"([.,]0+(?!\d))", r"([.,]9+(?!\d))"]))


def format_time(time: Time, layout: str) -> str:
    """Return the instant as Go's `Time.Format` writes it by a layout such as `2006-01-02 15:04`."""
    writers, moment = list(_LAYOUT.values()), time.utc

    def write(match: re.Match[str]) -> str:
        word, number = match[0], (match.lastindex or 0) - 1
        if number < len(writers):
            return writers[number](moment)
        digits = f"{time.fraction:09d}"[: len(word) - 1]
        if word[1] == "9":
            digits = digits.rstrip("0")
        return word[0] + digits if digits else ""

    return _WORD.sub(write, layout)


def _add_date(time: Time, years: int, months: int, days: int) -> Time:
    count = time.utc.year * 12 + time.utc.month - 1 + months + years * 12
    first = time.utc.replace(year=count // 12, month=count % 12 + 1, day=1)
    moment = first + timedelta(days=time.utc.day - 1 + days)
    return Time(int((moment - _EPOCH).total_seconds()) * _SECOND + time.fraction)


def _truncate(time: Time, step: Duration) -> Time:
    since = int((_EPOCH - datetime(1, 1, 1, tzinfo=UTC)).total_seconds()) * _SECOND  # Go counts from year 1
    rest = (time.nanoseconds + since) % step.nanoseconds if step.nanoseconds > 0 else 0
    return Time(time.nanoseconds - rest)


Methods = dict[str, tuple[tuple[str, ...], Callable[..., object]]]
"""By name: the kinds of the parameters, as `functions.accept` has them, and what to call."""

TIME_METHODS: Methods = {
    "Add": (("duration",), lambda t, d: Time(t.nanoseconds + d.nanoseconds)),
    "AddDate": (("int", "int", "int"), _add_date),
    "After": (("time",), lambda t, u: t > u),
    "Before": (("time",), lambda t, u: t < u),
    "Day": ((), lambda t: t.utc.day),
    "Equal": (("time",), lambda t, u: t == u),
    "Format": (("string",), format_time),
    "Hour": ((), lambda t: t.utc.hour),
    "IsZero": ((), lambda _: False),  # that would be year 1, which `toTime` cannot reach
    "Minute": ((), lambda t: t.utc.minute),
    "Month": ((), lambda t: Named(t.utc.month, _MONTHS[t.utc.month - 1], "time.Month")),
    "Nanosecond": ((), lambda t: t.fraction),
    "Second": ((), lambda t: t.utc.second),
    "String": ((), str),
    "Sub": (("time",), lambda t, u: Duration(t.nanoseconds - u.nanoseconds)),
    "Truncate": (("duration",), _truncate),
    "UTC": ((), lambda t: t),
    "Unix": ((), lambda t: t.nanoseconds // _SECOND),
    "UnixMilli": ((), lambda t: t.nanoseconds // 1_000_000),
    "UnixNano": ((), lambda t: t.nanoseconds),
    "Weekday": ((), lambda t: Named(t.utc.isoweekday() % 7, _DAYS[t.utc.isoweekday() % 7], "time.Weekday")),
    "Year": ((), lambda t: t.utc.year),
    "YearDay": ((), lambda t: t.utc.timetuple().tm_yday),
}

DURATION_METHODS: Methods = {
    "Abs": ((), lambda d: Duration(abs(d.nanoseconds))),
    "Hours": ((), lambda d: d.nanoseconds / (3600 * _SECOND)),
    "Microseconds": ((), lambda d: int(d.nanoseconds / 1000)),
    "Milliseconds": ((), lambda d: int(d.nanoseconds / 1_000_000)),
    "Minutes": ((), lambda d: d.nanoseconds / (60 * _SECOND)),
    "Nanoseconds": ((), lambda d: d.nanoseconds),
    "Seconds": ((), lambda d: d.nanoseconds / _SECOND),
    "String": ((), str),
}

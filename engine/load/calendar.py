"""Time intervals, written as in Alertmanager: `monday:friday`, `-3:-1`, `may:august`, `22:00` to `24:00`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.load.nodes import MappingNode, Node, ScalarNode
from engine.load.records import Decoder, Reader
from engine.model.route import TimeRange, TimeSpan

_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_INTEGER = re.compile(r"-?[0-9]{1,4}")


class _Weekdays(tuple[int, int]):
    __slots__ = ()


class _Days(tuple[int, int]):
    __slots__ = ()


class _Months(tuple[int, int]):
    __slots__ = ()


class _Years(tuple[int, int]):
    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenTimeRange:
    start_time: str
    end_time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenTimeSpan:
    times: tuple[TimeRange, ...] = ()
    weekdays: tuple[_Weekdays, ...] = ()
    days_of_month: tuple[_Days, ...] = ()
    months: tuple[_Months, ...] = ()
    years: tuple[_Years, ...] = ()
    location: ZoneInfo | None = None


def read_time_span(decoder: Decoder, node: Node, _what: str) -> TimeSpan:
    """Return one element of a time interval."""
    with decoder.reading(_READERS):
        written = decoder.record(node, _WrittenTimeSpan, "a time interval")
    return TimeSpan(
        times=written.times,
        weekdays=tuple((first, last) for first, last in written.weekdays),
        days_of_month=tuple((first, last) for first, last in written.days_of_month),
        months=tuple((first, last) for first, last in written.months),
        years=tuple((first, last) for first, last in written.years),
        location="UTC" if written.location is None else written.location.key,
    )


def _read_range(decoder: Decoder, node: Node, _what: str) -> TimeRange:
    written = decoder.record(node, _WrittenTimeRange, "a time range")
    assert isinstance(node, MappingNode)
    minutes = []
    for key, text in (("start_time", written.start_time), ("end_time", written.end_time)):
        if not _CLOCK.fullmatch(text):
            raise decoder.fail(node.entries[key].value, f"{key!r} must be a time such as 09:30, got {text!r}")
        hour, minute = text.split(":")
        minutes.append(int(hour) * 60 + int(minute))
    if minutes[0] >= minutes[1]:
        way_out = "for a night write two ranges, one to 24:00 and one from 00:00"
        raise decoder.fail(node, f"the range ends before it starts; {way_out}")
    return TimeRange(start_minute=minutes[0], end_minute=minutes[1])


def _read_zone(decoder: Decoder, node: Node, what: str) -> ZoneInfo:
    if isinstance(node, ScalarNode):
        try:
            return ZoneInfo(node.value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise decoder.fail(node, f"{what} must be a time zone such as Europe/Berlin, got {node}")


def _span_reader(expected: str, value_of: Callable[[str], int | None]) -> Reader:
    """Return how `first:last`, or one of them alone, is read."""

    def read(decoder: Decoder, node: Node, what: str) -> tuple[int, int]:
        if isinstance(node, ScalarNode):
            first, colon, last = node.value.lower().partition(":")
            start, end = value_of(first.strip()), value_of(last.strip() if colon else first.strip())
            if start is not None and end is not None:
                if start > end and (start > 0) is (end > 0):
                    raise decoder.fail(node, f"{what}: {node.value!r} ends before it starts")
                if start < 0 < end:
                    raise decoder.fail(node, f"{what}: {node.value!r} counts from both ends of the month")
                return start, end
        raise decoder.fail(node, f"{what} must be {expected}, got {node}")

    return read


def _day(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) and 1 <= abs(int(text)) <= 31 else None


def _month(text: str) -> int | None:
    if text in _MONTHS:
        return _MONTHS.index(text) + 1
    return int(text) if _INTEGER.fullmatch(text) and 1 <= int(text) <= 12 else None


def _weekday(text: str) -> int | None:
    return _WEEKDAYS.index(text) if text in _WEEKDAYS else None


def _year(text: str) -> int | None:
    return int(text) if _INTEGER.fullmatch(text) and int(text) > 0 else None


_READERS: Mapping[Any, Reader] = {
    TimeRange: _read_range,
    ZoneInfo | None: _read_zone,
    _Weekdays: _span_reader("a weekday or monday:friday", _weekday),
    _Days: _span_reader("a day of the month such as 1:7 or -3:-1", _day),
    _Months: _span_reader("a month such as may or 5:8", _month),
    _Years: _span_reader("a year or 2026:2028", _year),
}

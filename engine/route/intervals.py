"""Time intervals: when a route speaks and when it is silent."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from engine.model.route import TimeSpan
from engine.route.tree import ResolvedRoute

Intervals = Mapping[str, Sequence[TimeSpan]]
"""Spans by the interval's name; an instant is inside if any of them holds it."""


def mute_reason(route: ResolvedRoute, intervals: Intervals, at: datetime) -> str | None:
    """Return in words why the calendar keeps `route` silent at `at`, None if it may speak."""
    for name in route.mute_time_intervals:
        if inside(intervals[name], at):
            return f"inside mute time interval {name!r}"
    active = route.active_time_intervals
    if active and not any(inside(intervals[name], at) for name in active):
        return f"outside active time interval {' and '.join(map(repr, active))}"
    return None


def inside(spans: Sequence[TimeSpan], at: datetime) -> bool:
    """Tell whether any span holds `at`."""
    return any(_holds(span, at) for span in spans)


def _holds(span: TimeSpan, at: datetime) -> bool:
    # "Local" is Alertmanager's word for the zone of the machine.
    local = at.astimezone(None if span.location == "Local" else ZoneInfo(span.location))
    minute = local.hour * 60 + local.minute
    return (
        _within(span.years, local.year)
        and _within(span.months, local.month)
        and _within(span.weekdays, local.isoweekday() % 7)
        and _within(_days(span, local), local.day)
        and (not span.times or any(time.start_minute <= minute < time.end_minute for time in span.times))
    )


def _within(ranges: Sequence[tuple[int, int]], value: int) -> bool:
    return not ranges or any(first <= value <= last for first, last in ranges)


def _days(span: TimeSpan, local: datetime) -> Sequence[tuple[int, int]]:
    """Return the ranges of days; -1 is the last of the month."""
    length = monthrange(local.year, local.month)[1]

    def counted(day: int) -> int:
        return length + day + 1 if day < 0 else day

    return tuple((counted(first), counted(last)) for first, last in span.days_of_month)

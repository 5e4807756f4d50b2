"""Time intervals follow Alertmanager."""

from datetime import UTC, datetime

import pytest

from engine.model.route import TimeRange, TimeSpan
from engine.route.intervals import inside, mute_reason
from engine.route.tree import ResolvedRoute

NINE_TO_FIVE = (TimeRange(start_minute=9 * 60, end_minute=17 * 60),)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("span", "instant", "expected"),
    [
        (TimeSpan(), "2024-05-01T00:00", True),
        (TimeSpan(times=NINE_TO_FIVE), "2024-05-01T08:59:59.999999", False),
        (TimeSpan(times=NINE_TO_FIVE), "2024-05-01T09:00", True),
        (TimeSpan(times=NINE_TO_FIVE), "2024-05-01T16:59:59", True),
        (TimeSpan(times=NINE_TO_FIVE), "2024-05-01T17:00", False),
        (TimeSpan(times=(TimeRange(start_minute=0, end_minute=1440),)), "2024-05-01T23:59:59", True),
        (TimeSpan(weekdays=((0, 0),)), "2024-05-05T12:00", True),  # a Sunday
        (TimeSpan(weekdays=((1, 5),)), "2024-05-05T12:00", False),
        (TimeSpan(weekdays=((1, 5),)), "2024-05-06T12:00", True),
        (TimeSpan(weekdays=((6, 6),)), "2024-05-04T12:00", True),
        (TimeSpan(days_of_month=((1, 5),)), "2024-05-05T12:00", True),
        (TimeSpan(days_of_month=((1, 5),)), "2024-05-06T12:00", False),
        (TimeSpan(days_of_month=((-1, -1),)), "2024-02-29T12:00", True),
        (TimeSpan(days_of_month=((-1, -1),)), "2023-02-28T12:00", True),
        (TimeSpan(days_of_month=((-1, -1),)), "2024-02-28T12:00", False),
        (TimeSpan(days_of_month=((-3, -1),)), "2024-04-28T12:00", True),
        (TimeSpan(days_of_month=((-3, -1),)), "2024-04-27T12:00", False),
        (TimeSpan(days_of_month=((25, -1),)), "2024-02-29T12:00", True),
        (TimeSpan(days_of_month=((31, 31),)), "2024-04-30T12:00", False),
        (TimeSpan(days_of_month=((-31, 3),)), "2024-04-03T12:00", True),
        (TimeSpan(days_of_month=((-31, 3),)), "2024-04-04T12:00", False),
        (TimeSpan(months=((5, 7),)), "2024-05-01T00:00", True),
        (TimeSpan(months=((5, 7),)), "2024-08-01T00:00", False),
        (TimeSpan(years=((2023, 2024),)), "2024-12-31T23:59", True),
        (TimeSpan(years=((2023, 2024),)), "2025-01-01T00:00", False),
        (TimeSpan(months=((1, 1), (5, 5)), weekdays=((3, 3),)), "2024-05-01T00:00", True),
        (TimeSpan(months=((1, 1), (5, 5)), weekdays=((4, 4),)), "2024-05-01T00:00", False),
        # New York is four hours behind UTC in summer and five in winter.
        (TimeSpan(times=NINE_TO_FIVE, location="America/New_York"), "2024-07-01T12:59", False),
        (TimeSpan(times=NINE_TO_FIVE, location="America/New_York"), "2024-07-01T13:00", True),
        (TimeSpan(times=NINE_TO_FIVE, location="America/New_York"), "2024-01-01T13:30", False),
        (TimeSpan(days_of_month=((1, 1),), location="Asia/Tokyo"), "2024-04-30T15:00", True),
        (TimeSpan(weekdays=((3, 3),), location="Asia/Tokyo"), "2024-04-30T15:00", True),
        # The day on which the clocks went forward is an hour short; its month still has 31 days.
        (TimeSpan(days_of_month=((-1, -1),), location="Europe/Berlin"), "2024-03-31T12:00", True),
        (TimeSpan(days_of_month=((-1, -1),), location="Europe/Berlin"), "2024-03-30T12:00", False),
    ],
)
def test_a_span_holds_an_instant_if_every_field_does(span: TimeSpan, instant: str, expected: bool) -> None:
    assert inside([span], at(instant)) is expected


def test_an_interval_holds_what_any_of_its_spans_holds() -> None:
    spans = [TimeSpan(months=((1, 1),)), TimeSpan(months=((5, 5),))]
    assert inside(spans, at("2024-05-01T00:00"))
    assert not inside(spans, at("2024-06-01T00:00"))
    assert not inside([], at("2024-06-01T00:00"))


def test_the_machines_own_zone_is_called_local() -> None:
    instant = at("2024-05-01T12:00")
    here = instant.astimezone()
    minute = here.hour * 60 + here.minute
    span = TimeSpan(times=(TimeRange(start_minute=minute, end_minute=minute + 1),), location="Local")
    assert inside([span], instant)


INTERVALS = {"may": (TimeSpan(months=((5, 5),)),), "june": (TimeSpan(months=((6, 6),)),), "never": ()}


@pytest.mark.parametrize(
    ("mute", "active", "reason"),
    [
        ((), (), None),
        (("may",), (), "inside mute time interval 'may'"),
        (("june",), (), None),
        (("june", "may"), (), "inside mute time interval 'may'"),
        ((), ("may",), None),
        ((), ("june", "may"), None),
        ((), ("june",), "outside active time interval 'june'"),
        ((), ("june", "never"), "outside active time interval 'june' and 'never'"),
        (("may",), ("may",), "inside mute time interval 'may'"),
    ],
)
def test_a_route_is_silent_inside_mute_and_outside_active_intervals(
    mute: tuple[str, ...], active: tuple[str, ...], reason: str | None
) -> None:
    route = ResolvedRoute(
        key="{}", id="{}", receiver="r", mute_time_intervals=mute, active_time_intervals=active
    )
    assert mute_reason(route, INTERVALS, at("2024-05-01T12:00")) == reason

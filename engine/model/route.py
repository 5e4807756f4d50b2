"""Who hears of an alert, and when: Alertmanager's configuration schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.model.duration import Duration
from engine.model.labels import Matchers
from engine.model.ports import Notifier
from engine.model.rule import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A node of the routing tree. None means: as the parent has it."""

    receiver: str | None = None
    matchers: Matchers = field(default=Matchers())
    group_by: tuple[str, ...] | None = None  # ("...",) groups by all labels
    group_wait: Duration | None = None
    group_interval: Duration | None = None
    repeat_interval: Duration | None = None
    continue_: bool = field(default=False, metadata={"key": "continue"})
    mute_time_intervals: tuple[str, ...] = ()
    active_time_intervals: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """A name, and the places that hear what is sent to it, by the word of the integration."""

    name: str
    integrations: tuple[tuple[str, Notifier], ...] = field(default=(), metadata={"key": None})
    origin: Origin = field(default=Origin("", 1, 1), metadata={"key": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class InhibitRule:
    """While a source alert fires, target alerts with equal values of `equal` are muted."""

    source_matchers: Matchers
    target_matchers: Matchers
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Minutes of the day, the end exclusive; `24:00` is 1440."""

    start_minute: int
    end_minute: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """One element of a time interval; an empty field means any. Ranges are inclusive pairs."""

    times: tuple[TimeRange, ...] = ()
    weekdays: tuple[tuple[int, int], ...] = ()  # Sunday is 0
    days_of_month: tuple[tuple[int, int], ...] = ()  # negative counts from the month's end
    months: tuple[tuple[int, int], ...] = ()
    years: tuple[tuple[int, int], ...] = ()
    location: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """All of it together, with every name resolved."""

    route: Route
    receivers: Mapping[str, Receiver]
    inhibit_rules: tuple[InhibitRule, ...] = ()
    time_intervals: Mapping[str, tuple[TimeSpan, ...]] = field(default_factory=dict)

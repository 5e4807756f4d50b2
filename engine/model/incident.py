"""What people remember: when something was wrong, and which alerts should have said so."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME, Labels, Matchers
from engine.model.rule import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something that went wrong from `start` to `end`.

    An alert whose labels pass `alertname` and `matchers` concerns it, and has seen it if it fired at any
    moment from `early` before the start to the end.
    """

    name: str
    start: datetime
    end: datetime
    alertname: str | None = None  # None: any
    matchers: Matchers = field(default=Matchers())
    early: Duration = Duration(hours=6)
    origin: Origin = field(default=Origin("", 1, 1))

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"end {self.end.isoformat()} is before start {self.start.isoformat()}")

    def concerns(self, alertname: str) -> bool:
        """Tell whether alerts of that name may be about it."""
        if self.alertname is not None and self.alertname != alertname:
            return False
        named = (matcher for matcher in self.matchers if matcher.name == ALERT_NAME)
        return all(matcher.matches({ALERT_NAME: alertname}) for matcher in named)

    def fits(self, labels: Labels) -> bool:
        """Tell whether an alert with these labels is about it."""
        return self.concerns(labels[ALERT_NAME]) and self.matchers.matches(labels)

    def overlaps(self, start: datetime, end: datetime) -> bool:
        """Tell whether an alert that fired from `start` to `end` was there early enough, and not too late."""
        return start <= self.end and end >= self.start - self.early

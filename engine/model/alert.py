"""One instance of a rule, and what is known beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from engine.model.labels import ALERT_NAME, Labels


class AlertState(StrEnum):
    """Prometheus' words."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One instance of a rule: the labels are its identity, all else is refreshed."""

    rule_id: str
    labels: Labels  # of the result, the rule and `alertname`, as Prometheus merges them
    signal: Labels  # the result's own labels, without the metric's name
    annotations: Mapping[str, str] = field(default_factory=dict)
    state: AlertState
    value: float
    details: Mapping[str, float] = field(default_factory=dict)
    active_at: datetime  # since when the condition holds
    fired_at: datetime | None = None
    keep_firing_since: datetime | None = None  # first evaluation at which the condition no longer held
    resolved_at: datetime | None = None
    seen_at: datetime | None = None  # the newest evaluation that had data on it
    late: bool = False  # found by an evaluation that ran too long after its slot: told, never healed
    over_budget: bool = False  # began to fire when its rule's budget was spent: neither told nor healed
    warnings: tuple[str, ...] = ()  # what the server said beside the answer

    @property
    def name(self) -> str:
        """The alert's name."""
        return self.labels[ALERT_NAME]

    @property
    def fingerprint(self) -> str:
        """Alertmanager's fingerprint of the labels."""
        return self.labels.fingerprint

    @property
    def episode(self) -> str:
        """Identity of this one time of firing: the fingerprint and the instant it began to fire."""
        return f"{self.fingerprint}@{self.fired_at.timestamp():.3f}" if self.fired_at else self.fingerprint

    @property
    def firing(self) -> bool:
        """Whether it fires."""
        return self.state is AlertState.FIRING


@dataclass(frozen=True, slots=True)
class Text:
    """Evidence in words."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """Evidence in rows; cells are text, already in readable units."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Evidence as a PNG."""

    title: str
    png: bytes
    alt: str


Evidence = Text | Table | Picture

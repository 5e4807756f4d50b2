"""Rules: a Prometheus rule file plus keys. Names of fields are the YAML's, spelled as Prometheus does.

`field(metadata={"key": "for"})` gives the YAML word where Python reserves it. Fields marked
`{"key": None}` are not read from YAML; `engine.load` fills them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.model.duration import Duration
from engine.model.ports import Comparer, Detector, Enricher, Rewriter


class Origin(NamedTuple):
    """Where in a file something was written; counts from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Staleness(StrEnum):
    """How long a series counts as there after its last sample; a duration says so outright."""

    PROMETHEUS = "prometheus"  # until a scrape is without it, or for five minutes
    AUTO = "auto"  # for three of the periods at which it is published


class Absence(StrEnum):
    """What becomes of alerts whose rule has no data, or cannot be evaluated."""

    KEEP = "keep"  # they stay as they are
    OK = "ok"  # as if the condition were false
    ALERT = "alert"  # they stay, and the engine's own alert about the rule fires at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Remediate:
    """Which playbook a firing alert asks for, how long after it began to fire, and what else must say so.

    `confirm` is PromQL, with the alert's labels filled in: a second signal. Nothing is done while it returns
    nothing.
    """

    playbook: str
    after: Duration = Duration()
    confirm: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many alerts of a rule may begin to fire within `per`: the others are held back, and one tells of them."""

    alerts: int
    per: Duration = Duration(days=1)

    def __post_init__(self) -> None:
        if self.alerts < 1:
            raise ValueError("a budget of less than 1 alert would hide the rule; remove the rule instead")
        if self.per <= Duration():
            raise ValueError(f"per must be longer than {self.per}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertingRule:
    """A definition of alerts: a signal, a condition on it, and what follows."""

    alert: str
    expr: str
    hold: Duration = field(default=Duration(), metadata={"key": "for"})
    keep_firing_for: Duration = Duration()
    labels: Mapping[str, str] = field(default_factory=dict)  # templates; the group's labels are merged in
    annotations: Mapping[str, str] = field(default_factory=dict)  # templates
    detect: Detector  # `present` when the file says nothing: every element of the result is bad
    enrich: tuple[Enricher, ...] = ()
    remediate: Remediate | None = None
    staleness: Staleness | Duration = Staleness.PROMETHEUS
    on_no_data: Absence | None = None  # None: `ok` for a plain rule, as in Prometheus; `keep` with `detect`
    on_error: Absence = Absence.KEEP
    budget: Budget | None = None
    id: str = field(default="", metadata={"key": None})  # file;group;name, stable over reloads
    origin: Origin = field(default=Origin("", 1, 1), metadata={"key": None})

    @property
    def name(self) -> str:
        """The alert's name."""
        return self.alert

    @property
    def inputs(self) -> Mapping[str, str]:
        """The further PromQL that its detector needs at the instant, by name."""
        return self.detect.inputs_of(self.expr) if isinstance(self.detect, Rewriter) else self.detect.inputs

    @property
    def histories(self) -> Mapping[str, str]:
        """The further PromQL of which its detector needs the history, by name."""
        return self.detect.histories if isinstance(self.detect, Comparer) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingRule:
    """A series computed from others; it feeds the later rules of its group."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    id: str = field(default="", metadata={"key": None})
    origin: Origin = field(default=Origin("", 1, 1), metadata={"key": None})

    @property
    def name(self) -> str:
        """The recorded metric's name."""
        return self.record


Rule = AlertingRule | RecordingRule


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleGroup:
    """Rules evaluated in order, together, at one instant."""

    name: str
    file: str = field(default="", metadata={"key": None})
    interval: Duration | None = None  # None: engine.yaml's evaluation_interval; `engine.load` resolves it
    query_offset: Duration = Duration()
    limit: int = 0  # 0: no limit
    labels: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    @property
    def id(self) -> str:
        """Identity over reloads: the file and the name."""
        return f"{self.file};{self.name}"

"""What a test group of a rule file says: promtool's format and the engine's additions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from engine.errors import Problem
from engine.model.alert import AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.rule import Origin, RuleGroup
from engine.model.series import Floats

NOWHERE = Origin("", 1, 1)


class Match(StrEnum):
    """Whether expected labels are all of them or some."""

    EXACT = "exact"
    SUBSET = "subset"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InputSeries:
    """A series that exists in the test: one value an interval from the start.

    `present` is false where a sample is missing, `stale` true at a stale marker.
    """

    labels: Labels
    values: Floats
    present: tuple[bool, ...]
    stale: tuple[bool, ...]
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedSeries:
    """A series that was recorded: samples at their own `times`, in Unix seconds, rising."""

    labels: Labels
    times: Floats
    values: Floats
    stale: tuple[bool, ...]


class Span(NamedTuple):
    """From `start`, which is part of it, to `end`, which is not; None: to the test's end."""

    start: Duration
    end: Duration | None

    def __str__(self) -> str:
        return f"{self.start}..{'' if self.end is None else self.end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAlert:
    """One alert that must be there; `annotations` None are not compared."""

    labels: Labels = field(default=Labels(), metadata={"key": "exp_labels"})
    annotations: Mapping[str, str] | None = field(default=None, metadata={"key": "exp_annotations"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRuleTest:
    """At `eval_time` exactly these alerts of that name are in `state`."""

    eval_time: Duration
    alertname: str
    exp_alerts: tuple[ExpectedAlert, ...] = ()
    state: AlertState | None = AlertState.FIRING  # None: inactive, nothing pending or firing
    match: Match = Match.EXACT
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSample:
    """One sample that an expression must return."""

    labels: Labels
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromqlExprTest:
    """At `eval_time` the expression returns exactly these samples."""

    expr: str
    eval_time: Duration
    exp_samples: tuple[ExpectedSample, ...] = ()
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTest:
    """At `eval_time` the firing alerts of that name would reach exactly these receivers."""

    eval_time: Duration
    alertname: str
    exp_receivers: tuple[str, ...]
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class RemediationTest:
    """By `eval_time` exactly these playbooks have been planned; `refused_by` names a guardrail that refused."""

    eval_time: Duration
    exp_playbooks: tuple[str, ...] = ()
    refused_by: str | None = None
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTest:
    """At `eval_time` the alert's `$detect.eta` is `eta`, give or take `within`."""

    eval_time: Duration
    alertname: str
    eta: Duration
    within: Duration
    labels: Labels = field(default=Labels())
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Never:
    """No alert of that name with these labels fires at any time of the test."""

    alertname: str
    labels: Labels = field(default=Labels())
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The whole life of the alerts of that name with these labels: at every evaluation they are as the spans say."""

    alertname: str
    labels: Labels = field(default=Labels())
    pending: tuple[Span, ...] = ()
    firing: tuple[Span, ...] = ()
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class TestGroup:
    """One story: what series there are, and what must come of them."""

    __test__ = False  # not a test case of pytest

    name: str = ""
    interval: Duration | None = None  # between samples; None: as the file's evaluation_interval
    start: datetime = field(metadata={"key": "start_timestamp"})
    input_series: tuple[InputSeries, ...] = ()
    input_signal: tuple[
        InputSeries, ...
    ] = ()  # what the rules' `expr` returns, when the model is what is tested
    input_files: tuple[RecordedSeries, ...] = ()
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    alert_rule_test: tuple[AlertRuleTest, ...] = ()
    promql_expr_test: tuple[PromqlExprTest, ...] = ()
    route_test: tuple[RouteTest, ...] = ()
    remediation_test: tuple[RemediationTest, ...] = ()
    forecast_test: tuple[ForecastTest, ...] = ()
    never: tuple[Never, ...] = ()
    timeline: tuple[Timeline, ...] = ()
    origin: Origin = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class TestFile:
    """The tests of one file, and the rules that they are about.

    In a promtool file every group runs at `evaluation_interval`. With None the tests stand in the rule file itself,
    and each group runs at its own interval.
    """

    __test__ = False  # not a test case of pytest

    file: str = field(default="", metadata={"key": None})
    rule_files: tuple[str, ...] = ()
    evaluation_interval: Duration | None = None
    group_eval_order: tuple[str, ...] = ()  # these first, in this order
    fuzzy_compare: bool = False  # samples may differ in the last bit
    tests: tuple[TestGroup, ...] = ()
    groups: tuple[RuleGroup, ...] = field(default=(), metadata={"key": None})
    beyond: tuple[Problem, ...] = field(
        default=(), metadata={"key": None}
    )  # PromQL that only a real server answers

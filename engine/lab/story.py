"""One test group, lived through: the engine on virtual time, and what it did at every slot."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import ExpressionError
from engine.flow.evaluator import Evaluator
from engine.flow.events import Events
from engine.flow.slots import interval_of
from engine.lab.sources import (
    Ground,
    RecordingStage,
    StageSource,
    embedded,
    figure_window,
    signal_window,
)
from engine.lang.promql import selects
from engine.lang.promql.rewrite import over_step
from engine.model.alert import Alert
from engine.model.duration import Duration
from engine.model.playbook import Mode, Playbook, Run
from engine.model.rule import AlertingRule, RecordingRule, RuleGroup
from engine.model.series import Window
from engine.model.settings import EngineAlerts, RayCluster, RemediationSettings, Settings
from engine.model.testing import TestGroup
from engine.query.ahead import AheadSource
from engine.store.memory import MemoryStore

if TYPE_CHECKING:
    from engine.flow.engine import Engine

ALERTS, ALERTS_FOR_STATE = "ALERTS", "ALERTS_FOR_STATE"


class Moment(NamedTuple):
    """How things were after one round of evaluations."""

    at: datetime
    alerts: tuple[Alert, ...]
    errors: Mapping[str, str]  # by rule id
    runs: tuple[Run, ...]


@dataclass(slots=True)
class Story:
    """What happened in a test group, in order, and the series it happened on."""

    start: datetime
    source: Ground
    stage: StageSource  # the same as the rules saw it: with `input_signal`, and ahead of time
    moments: list[Moment] = field(default_factory=list)

    def at(self, after: timedelta) -> Moment:
        """Return the newest moment that is not later than `after` from the start."""
        return self.moments[bisect_right(self.moments, self.start + after, key=lambda moment: moment.at) - 1]


def live_through(
    test: TestGroup,
    groups: Sequence[RuleGroup],
    *,
    settings: Settings,
    playbooks: Mapping[str, Playbook],
    interval: timedelta,
    own_intervals: bool,
    ground: Ground | None = None,
) -> Story:
    """Run a test group to the last instant that it asks about.

    Unless `own_intervals`, every group is evaluated at `interval` (promtool's way), which also lies between two
    samples where the test does not say. `ground` holds the test's series; without it they are kept in memory.
    """
    groups = [_bare(group, None if own_intervals else interval) for group in groups]
    spacing = test.interval or interval
    end = test.start + last_question(test, spacing)
    ground = ground or embedded(test, spacing, interval)
    stage = _stage(test, groups, ground, spacing, end)
    story = Story(test.start, ground, stage)
    settings, store = _quiet(settings, test), MemoryStore()
    if test.remediation_test:
        engine = _engine(settings, groups, playbooks, stage, store)
        evaluator = engine.evaluator
    else:  # nobody asks who is told and what is healed
        engine, events = None, Events(store)
        evaluator = Evaluator(
            settings=settings, groups=groups, source=stage, store=store, events=events, lazy=True
        )
    for at, due in _slots(groups, test.start, end):
        for group in due:
            (engine or evaluator).tick(group.id, at)
        if engine is not None:
            engine.flush(at)
            engine.heal(at)
        story.moments.append(_moment(evaluator, store, at))
    if not story.moments:  # no rules at all
        story.moments.append(_moment(evaluator, store, test.start))
    return story


def _slots(
    groups: Sequence[RuleGroup], start: datetime, end: datetime
) -> Iterator[tuple[datetime, list[RuleGroup]]]:
    """Yield the instants at which anything is evaluated, and the groups that are, in their order."""
    due = {group.id: start for group in groups}
    while due and (at := min(due.values())) <= end:
        now = [group for group in groups if due[group.id] == at]
        yield at, now
        for group in now:
            due[group.id] = at + interval_of(group)


def last_question(test: TestGroup, spacing: timedelta) -> timedelta:
    """Return the latest `eval_time` of a test group; with `never` and `timeline`, at least the length of its series."""
    asked: list[timedelta] = [
        question.eval_time
        for kind in (
            test.alert_rule_test,
            test.promql_expr_test,
            test.route_test,
            test.remediation_test,
            test.forecast_test,
        )
        for question in kind
    ]
    asked += [span.end or span.start for life in test.timeline for span in (*life.pending, *life.firing)]
    if test.never or test.timeline:
        asked.append(length_of(test, spacing))
    return max(asked, default=timedelta())


def length_of(test: TestGroup, spacing: timedelta) -> timedelta:
    """Return how long the series of a test group last, whose samples lie `spacing` apart."""
    longest = max((len(series.values) for series in (*test.input_series, *test.input_signal)), default=1)
    ends = [
        timedelta(seconds=float(series.times[-2 if series.stale[-1] else -1]) - test.start.timestamp())
        for series in test.input_files
    ]
    return max([spacing * max(0, longest - 1), *ends])


def reads_made(test: TestGroup, groups: Sequence[RuleGroup]) -> bool:
    """Tell whether any rule, template or question of a test may read what rules make."""
    rules = [rule for group in groups for rule in group.rules]
    made = {rule.record for rule in rules if isinstance(rule, RecordingRule)} | {ALERTS, ALERTS_FOR_STATE}
    asked = {rule.expr for rule in rules} | {it.expr for it in test.promql_expr_test}
    for rule in rules:
        if isinstance(rule, AlertingRule):
            asked |= {*rule.inputs.values(), *rule.histories.values()}
            if any("query" in text for text in (*rule.annotations.values(), *rule.labels.values())):
                return True
    try:
        return any(selects(expr, name) for expr in asked for name in made)
    except ExpressionError:
        return True  # it is asked of a real server, which reads more PromQL


def _moment(evaluator: Evaluator, store: MemoryStore, at: datetime) -> Moment:
    errors = {rule_id: status.error for rule_id, status in evaluator.status.items() if status.error}
    return Moment(at, tuple(evaluator.alerts()), errors, tuple(store.runs()))


def _bare(group: RuleGroup, interval: timedelta | None) -> RuleGroup:
    """Return a group without its enrichers, which look at a real cluster, and at another interval if one is given."""
    rules = tuple(
        replace(rule, enrich=()) if isinstance(rule, AlertingRule) and rule.enrich else rule
        for rule in group.rules
    )
    return replace(group, rules=rules, interval=group.interval if interval is None else Duration.of(interval))


def _quiet(settings: Settings, test: TestGroup) -> Settings:
    """Return settings that tell nobody; a playbook's own mode alone decides how far a run goes."""
    receivers = {
        name: replace(receiver, integrations=()) for name, receiver in settings.routing.receivers.items()
    }
    return replace(
        settings,
        routing=replace(settings.routing, receivers=receivers),
        remediation=RemediationSettings(mode=Mode.AUTO),
        engine_alerts=EngineAlerts(rule_failing_for=Duration(), rule_no_data_for=Duration()),
        external_labels=test.external_labels or settings.external_labels,
        external_url=test.external_url or settings.external_url,
    )


def _engine(
    settings: Settings,
    groups: Sequence[RuleGroup],
    playbooks: Mapping[str, Playbook],
    source: StageSource,
    store: MemoryStore,
) -> Engine:
    """Return a whole engine, whose cluster is made up."""
    from engine.flow.clusters import Clusters  # noqa: PLC0415 - most tests ask for no remedy
    from engine.flow.engine import Engine  # noqa: PLC0415
    from engine.lab.cluster import LabRay  # noqa: PLC0415

    entries = settings.ray.clusters or (RayCluster(name="lab", address="http://lab"),)
    ray = LabRay()
    return Engine(
        settings=settings,
        groups=groups,
        playbooks=playbooks,
        source=source,
        store=store,
        clusters=Clusters(entries, lambda _entry, _address: ray),
    )


def _stage(
    test: TestGroup, groups: Sequence[RuleGroup], ground: Ground, interval: timedelta, end: datetime
) -> StageSource:
    rules = [rule for group in groups for rule in group.rules]
    recorded = {rule.record for rule in rules if isinstance(rule, RecordingRule)} | {ALERTS, ALERTS_FOR_STATE}
    steps = {interval_of(group) for group in groups}
    steps |= {rule.detect.step for rule in rules if isinstance(rule, AlertingRule) and rule.detect.lookback}
    ahead = {step: AheadSource(ground, step, end, recorded) for step in sorted(steps) if step}
    signals: dict[str, Window] = {}
    if test.input_signal:
        window = signal_window(test.input_signal, test.start, interval)
        for rule in rules:
            if isinstance(rule, AlertingRule):
                signals[rule.expr] = window
            if isinstance(rule, AlertingRule) and (over := rule.detect.over) is not None:
                step = rule.detect.step
                signals[over_step(rule.expr, over, step)] = figure_window(window, over, step)
    kind = RecordingStage if reads_made(test, groups) else StageSource
    return kind(ground, ahead, signals)

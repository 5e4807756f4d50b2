"""One test group, lived through: the engine on virtual time, and what it did at every slot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from engine.flow.clusters import Clusters
from engine.flow.engine import Engine
from engine.flow.slots import interval_of
from engine.lab.cluster import LabRay
from engine.lang.promql import Storage
from engine.model.alert import Alert
from engine.model.duration import Duration
from engine.model.playbook import Mode, Playbook, Run
from engine.model.ports import Point, Source
from engine.model.rule import AlertingRule, RecordingRule, RuleGroup
from engine.model.series import Window
from engine.model.settings import EngineAlerts, RayCluster, RemediationSettings, Settings
from engine.model.testing import InputSeries, TestGroup
from engine.query.ahead import AheadSource
from engine.query.embedded import EmbeddedSource
from engine.store.memory import MemoryStore

ALERTS, ALERTS_FOR_STATE = "ALERTS", "ALERTS_FOR_STATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How things were after one round of evaluations."""

    at: datetime
    alerts: tuple[Alert, ...]
    errors: Mapping[str, str]  # by rule id
    runs: tuple[Run, ...]


@dataclass(slots=True)
class Story:
    """What happened in a test group, in order, and the series it happened on."""

    start: datetime
    source: Source
    moments: list[Moment] = field(default_factory=list)

    def at(self, after: timedelta) -> Moment:
        """Return the newest moment that is not later than `after` from the start."""
        wanted = self.start + after
        return max((moment for moment in self.moments if moment.at <= wanted), key=lambda moment: moment.at)


class LabSource:
    """The test's series behind PromQL; what rules make is added to them."""

    def __init__(self, storage: Storage, subquery_step: timedelta) -> None:
        self._storage = storage
        self._source = EmbeddedSource(storage, Duration.of(subquery_step))

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        return self._source.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid."""
        return self._source.range(expr, start, end, step)

    def add(self, points: Sequence[Point]) -> None:
        """Add what a rule made."""
        for labels, at, value in points:
            instant = [round(at.timestamp() * 1000)]
            self._storage.add(labels, instant, [math.nan if value is None else value], [value is None])


class StageSource:
    """What the engine asks in a test: expressions ahead of time, `input_signal` in place of a rule's `expr`."""

    def __init__(
        self, lab: LabSource, ahead: Mapping[timedelta, AheadSource], signals: Mapping[str, Window]
    ) -> None:
        self._lab = lab
        self._ahead = ahead
        self._signals = signals
        self._any = next(iter(ahead.values()), None)

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        if expr in self._signals:
            return _sample(self._signals[expr], [at.timestamp()])
        return self._any.instant(expr, at) if self._any is not None else self._lab.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid."""
        if expr in self._signals:
            count = (end - start) // step + 1
            return _sample(self._signals[expr], [(start + i * step).timestamp() for i in range(count)])
        source = self._ahead.get(step)
        return (source or self._lab).range(expr, start, end, step)

    def record(self, points: Sequence[Point]) -> None:
        """Take what a rule made, for the later rules to read."""
        self._lab.add(points)


def live_through(
    test: TestGroup,
    groups: Sequence[RuleGroup],
    *,
    settings: Settings,
    playbooks: Mapping[str, Playbook],
    interval: timedelta,
    own_intervals: bool,
) -> Story:
    """Run a test group to the last instant that it asks about.

    Unless `own_intervals`, every group is evaluated at `interval` (promtool's way), which also lies between two
    samples where the test does not say.
    """
    groups = [_bare(group, None if own_intervals else interval) for group in groups]
    spacing = test.interval or interval
    end = test.start + last_question(test, spacing)
    lab = LabSource(_storage(test, spacing), interval)
    source = _stage(test, groups, lab, spacing, end)
    engine = Engine(
        settings=_quiet(settings, test),
        groups=groups,
        playbooks=playbooks,
        source=source,
        store=MemoryStore(),
        clusters=_clusters(settings),
    )
    story = Story(test.start, lab)
    due = {group.id: test.start for group in groups}
    while due and (at := min(due.values())) <= end:
        for group in groups:
            if due[group.id] == at:
                engine.tick(group.id, at)
                due[group.id] = at + interval_of(group)
        engine.flush(at)
        engine.heal(at)
        story.moments.append(_moment(engine, at))
    if not story.moments:  # no rules at all
        story.moments.append(_moment(engine, test.start))
    return story


def last_question(test: TestGroup, spacing: timedelta) -> timedelta:
    """Return the latest `eval_time` of a test group; with `never`, at least the length of its series."""
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
    if test.never:
        asked.append(length_of(test, spacing))
    return max(asked, default=timedelta())


def length_of(test: TestGroup, spacing: timedelta) -> timedelta:
    """Return how long the series of a test group last, whose samples lie `spacing` apart."""
    longest = max((len(series.values) for series in (*test.input_series, *test.input_signal)), default=1)
    return spacing * max(0, longest - 1)


def _moment(engine: Engine, at: datetime) -> Moment:
    errors = {rule_id: status.error for rule_id, status in engine.status.items() if status.error}
    return Moment(at=at, alerts=tuple(engine.alerts()), errors=errors, runs=tuple(engine.store.runs()))


def _bare(group: RuleGroup, interval: timedelta | None) -> RuleGroup:
    """Return a group without its enrichers, which look at a real cluster, and at another interval if one is given."""
    rules = tuple(
        replace(rule, enrich=()) if isinstance(rule, AlertingRule) else rule for rule in group.rules
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


def _clusters(settings: Settings) -> Clusters:
    entries = settings.ray.clusters or (RayCluster(name="lab", address="http://lab"),)
    ray = LabRay()
    return Clusters(entries, lambda _entry, _address: ray)


def _storage(test: TestGroup, interval: timedelta) -> Storage:
    storage = Storage()
    for series in test.input_series:
        there = np.asarray(series.present) | np.asarray(series.stale)
        times = round(test.start.timestamp() * 1000) + np.flatnonzero(there) * round(
            interval.total_seconds() * 1000
        )
        storage.add(series.labels, times, series.values[there], np.asarray(series.stale)[there])
    return storage


def _stage(
    test: TestGroup, groups: Sequence[RuleGroup], lab: LabSource, interval: timedelta, end: datetime
) -> StageSource:
    rules = [rule for group in groups for rule in group.rules]
    recorded = {rule.record for rule in rules if isinstance(rule, RecordingRule)} | {ALERTS, ALERTS_FOR_STATE}
    steps = {interval_of(group) for group in groups}
    steps |= {rule.detect.step for rule in rules if isinstance(rule, AlertingRule) and rule.detect.lookback}
    ahead = {step: AheadSource(lab, step, end, recorded) for step in sorted(steps) if step}
    signals = {}
    if test.input_signal:
        window = _window(test.input_signal, test.start, interval)
        signals = {rule.expr: window for rule in rules if isinstance(rule, AlertingRule)}
    return StageSource(lab, ahead, signals)


def _window(series: Sequence[InputSeries], start: datetime, interval: timedelta) -> Window:
    length = max(len(one.values) for one in series)
    values = np.full((len(series), length), np.nan)
    present = np.zeros((len(series), length), dtype=bool)
    for row, one in enumerate(series):
        values[row, : len(one.values)] = one.values
        present[row, : len(one.values)] = one.present
    times = start.timestamp() + np.arange(length, dtype=np.float64) * interval.total_seconds()
    return Window(tuple(one.labels for one in series), times, values, present)


def _sample(window: Window, times: Sequence[float]) -> Window:
    """Return a window's samples at `times`: the newest that is at most one and a half steps old."""
    step = window.times[1] - window.times[0] if len(window.times) > 1 else 60.0
    wanted = np.asarray(times, dtype=np.float64)
    index = np.searchsorted(window.times, wanted + 1e-6, side="right") - 1
    fresh = (index >= 0) & (wanted - window.times[np.maximum(index, 0)] < 1.5 * step)
    present = window.present[:, np.maximum(index, 0)] & fresh
    values = np.where(present, window.values[:, np.maximum(index, 0)], np.nan)
    keep = np.flatnonzero(present.any(axis=1))
    return Window(tuple(window.labels[i] for i in keep), wanted, values[keep], present[keep])

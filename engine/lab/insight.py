"""What a rule sees and thinks of each series at an instant, and why it does not fire.

The rule is evaluated as the engine does, either from the state that a running engine has saved or over the last
hours, so that votes and levels are there. What stands in the way is read from the verdicts, from the alert, and
from what the detector remembers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from engine.errors import EngineError, ExpressionError, QueryError
from engine.flow.evaluator import Health, RuleStatus
from engine.flow.slots import interval_of, slot_at
from engine.lab.backtest import Course, Walk, chosen, slots
from engine.lang.promql import Comparison, split_comparison
from engine.lang.readable import clock, plural, span
from engine.load.records import suggest
from engine.model.alert import Alert, AlertState
from engine.model.labels import METRIC_NAME, Labels
from engine.model.ports import Source, Store
from engine.model.rule import AlertingRule, RuleGroup
from engine.model.series import Bools, Window
from engine.model.verdict import Memory, Persist, Verdicts
from engine.numeric.votes import Votes
from engine.query.history import HistorySource
from engine.store.memory import MemoryStore

_FRESH = 5  # slots: state that is older is not gone on with
_ORDER = ("firing", "pending", "resolved", "unknown", "inactive")


@dataclass(frozen=True, slots=True)
class Row:
    """One series: what it is at, and what stands in the way of an alert."""

    labels: Labels
    value: float
    state: str
    details: Mapping[str, float]
    gates: tuple[str, ...]

    @property
    def rank(self) -> tuple[int, float]:
        """The more interesting, the lower."""
        figure = self.details.get("score", self.details.get("probability", 0.0))
        return _ORDER.index(self.state), -figure


@dataclass(frozen=True, slots=True)
class Insight:
    """A rule at an instant. `signal` is what it looked at, `since` where its memory began."""

    rule: AlertingRule
    at: datetime
    since: datetime
    from_state: bool
    rows: Sequence[Row]
    quality: Mapping[str, float]
    error: str
    signal: Window | None


def look(
    rule: AlertingRule,
    groups: Sequence[RuleGroup],
    course: Course,
    source: Source,
    state: Store | None = None,
) -> Insight:
    """Evaluate a rule at the slots of the course, and tell what it thinks at the last one.

    With `state`, evaluation goes on from the slot that was saved there, if that is not long ago.
    """
    needs_others = any("ALERTS" in expr for expr in (rule.expr, *rule.inputs.values()))
    wanted = list(groups) if needs_others else chosen(groups, lambda name: name == rule.alert)
    group = next(each for each in wanted if any(one.id == rule.id for one in each.rules))
    at = slot_at(group, course.end)
    store, saved = _taken(rule, group, state, at)
    start = course.start if saved is None else saved + timedelta(milliseconds=1)
    history = HistorySource(source, course.end, interval_of(group))
    walk = Walk(course, wanted, history, store)
    for slot, each in slots(wanted, min(start, at), course.end):
        history.every = interval_of(each)
        walk.tick(each, slot)
        if history.unavailable is not None:
            raise history.unavailable
    status = walk.evaluator.status[rule.id]
    error = status.error if status.health is Health.ERROR else ""
    rows = sorted(_rows(rule, status, history, at), key=lambda row: row.rank)
    return Insight(
        rule, at, start, saved is not None, rows, status.quality, error, _signal(rule, history, course, at)
    )


def _taken(
    rule: AlertingRule, group: RuleGroup, state: Store | None, at: datetime
) -> tuple[MemoryStore, datetime | None]:
    """Return a store with what the running engine has saved of the rule, and when that was; nothing if long ago."""
    store = MemoryStore()
    saved = None if state is None else state.last_slot(group.id)
    if state is None or saved is None or not timedelta() <= at - saved <= _FRESH * interval_of(group):
        return store, None
    # At least one slot is evaluated anew, for its verdicts.
    before = min(saved, at - interval_of(group))
    store.save_alerts(group.id, before, {rule.id: state.alerts(rule.id)}, {rule.id: state.memory(rule.id)})
    return store, before


def _signal(rule: AlertingRule, source: Source, course: Course, at: datetime) -> Window | None:
    """Return the course of the rule's signal, for a chart."""
    expr = rule.expr if (comparison := _comparison(rule)) is None else comparison.signal
    length = rule.detect.lookback or at - course.start
    step = max(timedelta(seconds=round(length.total_seconds() / 120)), timedelta(seconds=1))
    try:
        return source.range(expr, at - length // step * step, at, step)
    except QueryError:
        return None


def _comparison(rule: AlertingRule) -> Comparison | None:
    try:
        return None if rule.detect.lookback else split_comparison(rule.expr)
    except ExpressionError:
        return None


def _rows(rule: AlertingRule, status: RuleStatus, source: Source, at: datetime) -> Iterator[Row]:
    if status.verdicts is None:
        return
    alerts = {alert.signal: alert for alert in status.alerts}
    gates = _Gates(rule, status.verdicts, _samples(rule, source, at), _bounded(rule, source, at))
    seen = set()
    for row, labels in enumerate(status.verdicts.labels):
        signal = labels.without(METRIC_NAME)
        seen.add(signal)
        alert = alerts.get(signal)
        said = tuple(gates.of(row, alert, at))
        state = _state(status.verdicts, row, alert)
        yield Row(signal, float(status.verdicts.values[row]), state, status.verdicts.details_of(row), said)
    for signal, alert in alerts.items():
        if signal not in seen:
            yield Row(signal, alert.value, alert.state.value, alert.details, (*_of_alert(rule, alert, at),))
    yield from _below(rule, source, at, seen)


def _state(verdicts: Verdicts, row: int, alert: Alert | None) -> str:
    if alert is not None:
        return alert.state.value
    return "inactive" if verdicts.known[row] else "unknown"


def _below(rule: AlertingRule, source: Source, at: datetime, seen: set[Labels]) -> Iterator[Row]:
    """Yield the series of a plain comparison for which it is not true: its result does not mention them."""
    if (comparison := _comparison(rule)) is None:
        return
    window = source.instant(comparison.signal, at)
    for labels, value in zip(window.labels, window.last().tolist(), strict=True):
        signal = labels.without(METRIC_NAME)
        if signal not in seen:
            gate = f"not {comparison.operator} {comparison.threshold:g}"
            yield Row(signal, value, "inactive", {}, (gate,))


def _samples(rule: AlertingRule, source: Source, at: datetime) -> Mapping[Labels, tuple[int, int]]:
    """Return by series how many samples its lookback holds, and how many there could be."""
    if not rule.detect.lookback:
        return {}
    steps = rule.detect.lookback // rule.detect.step
    try:
        window = source.range(rule.expr, at - steps * rule.detect.step, at, rule.detect.step)
    except QueryError:
        return {}
    counts: Sequence[int] = np.count_nonzero(window.present, axis=1).tolist()
    return {
        labels.without(METRIC_NAME): (count, steps + 1)
        for labels, count in zip(window.labels, counts, strict=True)
    }


def _bounded(rule: AlertingRule, source: Source, at: datetime) -> set[Labels] | None:
    """Return the series for which there is a bound, which may come from PromQL; None if there is one for all."""
    if "bound" not in rule.inputs:
        return None
    try:
        window = source.instant(rule.inputs["bound"], at)
    except QueryError:
        return set()
    found = {labels.without(METRIC_NAME) for labels in window.labels}
    return None if found == {Labels()} else found


@dataclass(frozen=True, slots=True)
class _Gates:
    """Says of a series why it does not fire."""

    rule: AlertingRule
    verdicts: Verdicts
    samples: Mapping[Labels, tuple[int, int]]
    bounded: set[Labels] | None

    def of(self, row: int, alert: Alert | None, at: datetime) -> Iterator[str]:
        """Yield what stands in the way, or what holds the alert."""
        if not self.verdicts.known[row]:
            yield f"cannot say: {self._unknown(row)}"
        if alert is not None:
            yield from _of_alert(self.rule, alert, at)
        if self.verdicts.known[row] and not self.verdicts.bad[row]:
            yield from self._figures(row)
        yield from self._votes(row)

    def _unknown(self, row: int) -> str:
        signal = self.verdicts.labels[row].without(METRIC_NAME)
        if self.bounded is not None and signal not in self.bounded:
            return "no bound for this series"
        if signal in self.samples:
            count, most = self.samples[signal]
            return f"{count} of {most} samples in the last {self.rule.detect.lookback}"
        return "no samples"

    def _figures(self, row: int) -> Iterator[str]:
        """Yield the figures of a verdict that are below what is needed."""
        details, detect = self.verdicts.details_of(row), self.rule.detect
        needed = getattr(detect, "probability", None)
        if "probability" in details and needed is not None and details["probability"] < needed:
            yield f"probability {details['probability']:.2f}, {needed:g} needed"
        if "score" in details and details["score"] < 1:
            yield f"score {details['score']:.2f}, 1 needed"
        if "bound" in details and "eta" not in details:
            yield "does not approach its bound"

    def _votes(self, row: int) -> Iterator[str]:
        persist: Persist | None = getattr(self.rule.detect, "persist", None)
        memory: Memory = self.verdicts.memory
        if not isinstance(persist, Persist) or "scores" not in memory.columns:
            return
        votes = Votes.recall(memory, (self.verdicts.labels[row],), persist)
        scores = votes.scores[0]
        bad: Bools = scores >= 1
        if votes.bad[0] and not scores[-1] >= 1:
            yield "held: its score is below 1, and has not been below the clear mark for long enough"
        elif not votes.bad[0] and bad.any():
            yield f"{int(bad.sum())} of {plural(persist.m, 'vote')} needed of the last {persist.n}"


def _of_alert(rule: AlertingRule, alert: Alert, at: datetime) -> Iterator[str]:
    if alert.state is AlertState.PENDING:
        left = max((alert.active_at + rule.hold - at).total_seconds(), 0.0)
        yield f"for {rule.hold}: {span(left)} to go"
    if alert.firing and alert.fired_at is not None:
        yield f"since {clock(alert.fired_at, at)}"
        if alert.keep_firing_since is not None:
            yield f"over since {clock(alert.keep_firing_since, at)}, kept for {rule.keep_firing_for}"
        if alert.over_budget:
            yield "over the rule's budget: not told"
    if alert.state is AlertState.RESOLVED and alert.resolved_at is not None:
        yield f"resolved at {clock(alert.resolved_at, at)}"


def find_rule(groups: Sequence[RuleGroup], name: str) -> AlertingRule:
    """Return the first alerting rule called `name`, or of that id. EngineError with a suggestion if there is none."""
    rules = [rule for group in groups for rule in group.rules if isinstance(rule, AlertingRule)]
    for rule in rules:
        if name in (rule.alert, rule.id):
            return rule
    raise EngineError(f"no rule is called {name!r}{suggest(name, {rule.alert for rule in rules})}")

"""Groups of rules at their slots: query, detect, track. What comes of it is state that others read.

One thread evaluates a group at a time; several groups are evaluated at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from engine.alert.render import Surroundings, findings
from engine.alert.tracker import Finding, Tracker
from engine.clients.aside import Aside
from engine.clock import Stopwatch
from engine.errors import DetectError, EngineError, QueryError, StoreError
from engine.flow.budgets import Budgets
from engine.flow.evaluate import evaluate, fetch, unseen
from engine.flow.events import Events
from engine.flow.memories import Memories
from engine.flow.presence import Presence
from engine.flow.refits import Refits
from engine.flow.series import SeriesBook, alert_series, recorded
from engine.flow.slots import interval_of, passed_at
from engine.flow.watch import RuleWatch
from engine.model.alert import Alert, AlertState
from engine.model.event import Kind
from engine.model.labels import Labels
from engine.model.ports import Point, Recorder, Source, Store, Writer
from engine.model.rule import Absence, AlertingRule, RecordingRule, Rule, RuleGroup
from engine.model.settings import Settings
from engine.model.verdict import Verdicts
from engine.query.ahead import AheadSource


class Health(StrEnum):
    """Prometheus' words for how a rule's last evaluation went."""

    UNKNOWN = "unknown"
    OK = "ok"
    ERROR = "err"


@dataclass(slots=True)
class RuleStatus:
    """How a rule is doing."""

    health: Health = Health.UNKNOWN
    error: str = ""
    evaluated_at: datetime | None = None
    seconds: float = 0.0  # that the last evaluation took
    alerts: tuple[Alert, ...] = ()
    conditions: Mapping[Labels, bool | None] = field(
        default_factory=dict
    )  # of the newest evaluation, by alert
    quality: Mapping[str, float] = field(default_factory=dict)  # how well its detector has been doing
    verdicts: Verdicts | None = None  # of the newest evaluation


class _Round(NamedTuple):
    """One evaluation of one group."""

    group: RuleGroup
    slot: datetime
    source: Source
    history: Source  # for what detectors look back at
    late: bool
    changed: set[str]  # rules of which an alert has changed

    @property
    def at(self) -> datetime:
        """The instant that is asked about."""
        return self.slot - self.group.query_offset


class Evaluator:
    """All groups, their alerts, and how their rules are doing."""

    def __init__(
        self,
        *,
        settings: Settings,
        groups: Sequence[RuleGroup],
        source: Source,
        store: Store,
        events: Events,
        writer: Writer | None = None,
        history: Source | None = None,
        aside: Aside | None = None,
        lazy: bool = False,
    ) -> None:
        """`lazy` leaves annotations to be filled in once somebody looks at them; `history` is as in `build`.

        Models are fitted `aside`; without it at once, in the middle of an evaluation.
        """
        self.groups = {group.id: group for group in groups}
        self.rules = {
            rule.id: rule for group in groups for rule in group.rules if isinstance(rule, AlertingRule)
        }
        self.status = {rule.id: RuleStatus() for group in groups for rule in group.rules}
        self._settings = settings
        self._source = source
        self._history = history or source
        self._recorder = source if isinstance(source, Recorder) else None
        self._lazy = lazy
        self._store = store
        self._events = events
        self._writer = writer
        self._presence = Presence(source)
        self._book = SeriesBook()
        self._trackers = {id_: Tracker(rule, store.alerts(id_)) for id_, rule in self.rules.items()}
        self._watch = RuleWatch(settings.engine_alerts, store)
        for id_, tracker in [*self._trackers.items(), *self._watch.trackers.items()]:
            self.status.setdefault(id_, RuleStatus()).alerts = tuple(tracker.alerts)
        known = [*self.rules, *self._watch.trackers]
        self._memories = Memories(self.rules, store)
        self._refits = Refits(self._memories, events, aside)
        self._budgets = Budgets(self.rules, store)
        # Rules that went while the engine did not run: what they had firing is told as resolved.
        self.orphans = [alert for alert in store.forget_alerts_except(known) if alert.firing]
        self._slots = {id_: store.last_slot(id_) for id_ in self.groups}
        self._lock = threading.Lock()  # guards `status`

    def tick(
        self, group_id: str, slot: datetime, *, late: bool = False, source: Source | None = None
    ) -> None:
        """Evaluate a group's rules, in order, for a slot. One rule's failure leaves its alerts as they are."""
        group = self.groups[group_id]
        now = _Round(group, slot, source or self._source, source or self._history, late, set())
        points: list[Point] = []
        for rule in group.rules:
            watch = Stopwatch()
            try:
                made = (
                    self._evaluate(now, rule) if isinstance(rule, AlertingRule) else self._record(now, rule)
                )
            except EngineError as error:
                self._failed(rule, str(error), slot)
            except Exception as error:  # noqa: BLE001  the door of one rule's evaluation: the others go on
                self._events.trouble(slot, "evaluation", error, rule=rule.id)
                self._failed(rule, f"{type(error).__name__}: {error}", slot)
            else:
                self._succeeded(rule, slot)
                points += made
            self.status[rule.id].seconds = watch.seconds()
        self._publish_watch(group, slot)
        self._write(points, slot)
        self._save(now)

    def catch_up(self, group_id: str, slots: Sequence[datetime]) -> int:
        """Evaluate slots that passed, each at its own instant, from one range query an expression.

        Return how many were evaluated: none further once no rule of the group could be.
        """
        group = self.groups[group_id]
        made = {rule.record for rule in group.rules if isinstance(rule, RecordingRule)}
        ahead = AheadSource(
            self._history,
            interval_of(group),
            slots[-1] - group.query_offset,
            growing=made | {"ALERTS", "ALERTS_FOR_STATE"},
        )
        for count, slot in enumerate(slots):
            self.tick(group_id, slot, late=True, source=ahead)
            if group.rules and all(self.status[rule.id].health is Health.ERROR for rule in group.rules):
                return count
        return len(slots)

    def alerts(self) -> list[Alert]:
        """Return every alert that is pending, firing or lately resolved."""
        with self._lock:
            return [alert for status in self.status.values() for alert in status.alerts]

    def last_slot(self, group_id: str) -> datetime | None:
        """Return the slot at which a group was last evaluated, before a restart included."""
        return self._slots[group_id]

    def judged(self, rule_id: str) -> bool:
        """Tell whether a rule's alerts are as this engine's newest evaluation found them, or the rule is gone."""
        with self._lock:
            status = self.status.get(rule_id)
            return status is None or status.health is Health.OK

    def alert_of(self, rule_id: str, labels: Labels) -> Alert | None:
        """Return a rule's alert with these labels."""
        with self._lock:
            alerts = self.status[rule_id].alerts if rule_id in self.status else ()
        return next((alert for alert in alerts if alert.labels == labels), None)

    def conditions(self, group_id: str) -> dict[str, Mapping[Labels, bool | None]]:
        """Return what the newest evaluation of each healthy rule of a group said, by rule id and alert."""
        with self._lock:
            return {
                rule.id: self.status[rule.id].conditions
                for rule in self.groups[group_id].rules
                if rule.id in self.rules and self.status[rule.id].health is Health.OK
            }

    def _evaluate(self, now: _Round, rule: AlertingRule) -> list[Point]:
        expr = self._presence.expr_of(rule.expr, rule.staleness, now.at)
        if error := self._memories.unread.pop(rule.id, None):
            self._events.trouble(now.slot, "store", error, rule=rule.id)  # its detector begins anew
        self._refits.take(rule, now.at)
        passed, memory = passed_at(now.group, now.slot), self._memories.of(rule.id)
        outcome = evaluate(rule, expr, now.source, now.at, memory, history=now.history, passed=passed)
        self._memories.note(rule.id, outcome.verdicts.memory, now.at)
        if not now.late:
            self._refits.ask(
                rule,
                now.at,
                lambda length: fetch(expr, rule.detect, now.source, now.at, passed=passed, lookback=length),
            )
        around = Surroundings(
            external_labels=self._settings.external_labels,
            external_url=self._settings.external_url,
            query=lambda text: _query(now.source, text, now.at),
            now=now.slot.timestamp(),
            lazy=self._lazy,
        )
        found = findings(rule, outcome.verdicts, around)
        tracker = self._trackers[rule.id]
        bad = sum(finding.bad is True for finding in found)
        if now.group.limit and bad > now.group.limit:
            tracker.clear()
            self._publish(rule.id, tracker, found)
            raise DetectError(
                f"{rule.origin}: {rule.alert}: {bad} alerts exceed the group's limit of {now.group.limit}"
            )
        probe = self._watch.is_due(rule, now.slot)
        gone, has_data = unseen(rule, outcome, tracker.alerts, now.source, now.at, probe=probe)
        self._watch.saw_data(rule, has_data=has_data, slot=now.slot)
        found += gone
        changed = tracker.update(found, now.slot, late=now.late, warnings=outcome.warnings)
        for before, after in changed:
            begins = after is not None and after.firing and not (before and before.firing)
            if after is not None and begins and not self._budgets.spend(rule.id, now.slot):
                tracker.hold_back(after.labels)
        self._publish(rule.id, tracker, found, outcome.verdicts.quality)
        self.status[rule.id].verdicts = outcome.verdicts
        self._tell(changed, now.slot)
        now.changed.update([rule.id] if changed else ())
        if self._recorder is None and self._writer is None:
            return []
        return self._made(now, rule.id, alert_series(tracker.alerts))

    def _record(self, now: _Round, rule: RecordingRule) -> list[Point]:
        made = recorded(rule, now.source.instant(rule.expr, now.at))
        if now.group.limit and len(made) > now.group.limit:
            raise DetectError(
                f"{rule.origin}: {rule.record}: {len(made)} series exceed the group's limit of {now.group.limit}"
            )
        return self._made(now, rule.id, made)

    def _made(self, now: _Round, rule_id: str, values: Mapping[Labels, float]) -> list[Point]:
        """Hand on what a rule made, for the later rules of the group to read."""
        points = self._book.points(rule_id, values, now.at)
        if self._recorder is not None:
            self._recorder.record(points)
        return points

    def _write(self, points: Sequence[Point], slot: datetime) -> None:
        if self._writer is None or not points:
            return
        try:
            self._writer.write(points)
        except QueryError as error:
            self._events.trouble(slot, "remote_write", error)

    def _publish(
        self,
        rule_id: str,
        tracker: Tracker,
        found: Iterable[Finding] = (),
        quality: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        with self._lock:
            status = self.status[rule_id]
            status.quality = quality
            status.alerts = tuple(tracker.alerts)
            status.conditions = {finding.labels: finding.bad for finding in found}

    def _publish_watch(self, group: RuleGroup, slot: datetime) -> None:
        """Let the engine's own alerts about this group's rules take note of the evaluation."""
        errors = {rule.id: self.status[rule.id].error for rule in group.rules}
        over = {
            rule.id: self._budgets.why(
                rule, [alert.signal for alert in tracker.alerts if alert.over_budget and alert.firing]
            )
            for rule in group.rules
            if isinstance(rule, AlertingRule) and (tracker := self._trackers[rule.id])
        }
        for rule_id, changed in self._watch.update(group, errors, over, slot):
            self._publish(rule_id, self._watch.trackers[rule_id])
            self._tell(changed, slot)

    def _tell(self, changed: Iterable[tuple[Alert | None, Alert | None]], slot: datetime) -> None:
        for before, after in changed:
            alert = after or before
            assert alert is not None
            self._events.tell(
                slot,
                Kind.TRANSITION,
                alert.fingerprint,
                _why(before, after),
                alert=alert.name,
                labels=str(alert.labels),
                rule=alert.rule_id,
                before=before.state.value if before else "inactive",
                after=after.state.value if after else "inactive",
                value=f"{alert.value:g}",
                summary=alert.annotations.get("summary", ""),
                **({"late": "true"} if alert.late else {}),
            )

    def _failed(self, rule: Rule, error: str, slot: datetime) -> None:
        with self._lock:
            status = self.status[rule.id]
            news = status.error != error
            status.health, status.error, status.evaluated_at = Health.ERROR, error, slot
        self._events.tell(slot, Kind.EVALUATED, rule.id, error, health=Health.ERROR.value)
        if news:
            self._events.tell(slot, Kind.FAILED, rule.id, error)
        if isinstance(rule, AlertingRule) and rule.on_error is Absence.OK:
            tracker = self._trackers[rule.id]
            self._tell(tracker.update([], slot), slot)
            self._publish(rule.id, tracker)

    def _succeeded(self, rule: Rule, slot: datetime) -> None:
        with self._lock:
            status = self.status[rule.id]
            recovered = status.health is Health.ERROR
            status.health, status.error, status.evaluated_at = Health.OK, "", slot
        self._events.tell(slot, Kind.EVALUATED, rule.id, "", health=Health.OK.value)
        if recovered:
            self._events.tell(slot, Kind.RECOVERED, rule.id, "evaluates again")

    def _save(self, now: _Round) -> None:
        group, slot = now.group, now.slot
        self._slots[group.id] = slot
        memories = self._memories.due([rule.id for rule in group.rules], slot, now.changed)
        alerts = {rule.id: self.status[rule.id].alerts for rule in group.rules if rule.id in self.rules}
        alerts |= {rule_id: tuple(tracker.alerts) for rule_id, tracker in self._watch.trackers.items()}
        try:
            self._store.save_alerts(group.id, slot, alerts, memories)
        except StoreError as error:
            # The alerts live on in memory; a restart would forget what happened since the store failed.
            self._events.trouble(slot, "store", error, group=group.id)
        else:
            self._memories.saved(memories, slot)


def slots_between(group: RuleGroup, last: datetime, slot: datetime, at_most: timedelta) -> list[datetime]:
    """Return the slots after `last` and before `slot` that are to be caught up with, oldest first."""
    interval = interval_of(group)
    passed = max(0, round((slot - last) / interval) - 1)
    return [slot - step * interval for step in range(min(passed, at_most // interval), 0, -1)]


def _query(source: Source, expr: str, at: datetime) -> list[tuple[Labels, float]]:
    window = source.instant(expr, at)
    return [
        (labels, float(value))
        for labels, value, there in zip(window.labels, window.values[:, 0], window.present[:, 0], strict=True)
        if there
    ]


def _why(before: Alert | None, after: Alert | None) -> str:
    """Return why an alert's state changed, in words."""
    if after is None:
        return "the condition holds no more" if before and before.state is AlertState.PENDING else "forgotten"
    if after.state is AlertState.PENDING:
        return "the condition holds"
    if after.state is AlertState.FIRING:
        return f"the condition has held since {after.active_at:%H:%M:%S}"
    return f"the condition has not held since {(after.keep_firing_since or after.resolved_at):%H:%M:%S}"

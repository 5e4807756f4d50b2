"""The engine: three verbs, each told what time it is.

`tick` evaluates one group of rules at a slot: query, detect, alert.
`flush` tells people what there is to tell: group, inhibit, mute, dedup, enrich, notify.
`heal` plans remediation runs and advances each by at most one call.

`serve` calls them in real time and from several threads (one a group for `tick`, one for `flush`, one for
`heal`); `lab` calls the same in virtual time from one. They differ in what they are built with: the source,
the receivers, and how Ray is reached.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from engine.alert.render import Surroundings, findings
from engine.alert.tracker import Finding, Tracker
from engine.errors import DetectError, EngineError, StoreError
from engine.flow.clusters import Clusters
from engine.flow.dispatch import Dispatcher
from engine.flow.evaluate import evaluate
from engine.flow.events import Events
from engine.flow.evidence import EvidenceBox
from engine.flow.heal import Healer
from engine.model.alert import Alert, AlertState
from engine.model.event import Kind
from engine.model.labels import Labels
from engine.model.notification import Reason
from engine.model.playbook import Playbook, Run
from engine.model.ports import HISTORY, Observer, Source, Store
from engine.model.rule import AlertingRule, RecordingRule, RuleGroup
from engine.model.settings import Settings
from engine.route.inhibit import inhibitors


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
    alerts: tuple[Alert, ...] = ()
    conditions: Mapping[Labels, bool | None] = field(
        default_factory=dict
    )  # of the newest evaluation, by alert


class Engine:
    """Rules in, alerts and runs out."""

    def __init__(
        self,
        *,
        settings: Settings,
        groups: Sequence[RuleGroup],
        playbooks: Mapping[str, Playbook],
        source: Source,
        store: Store,
        clusters: Clusters,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.settings = settings
        self.groups = {group.id: group for group in groups}
        self.source = source
        self.store = store
        self.events = Events(store, observers)
        self.status = {rule.id: RuleStatus() for group in groups for rule in group.rules}
        self._rules = {
            rule.id: rule for group in groups for rule in group.rules if isinstance(rule, AlertingRule)
        }
        self._trackers = {id_: Tracker(rule, store.alerts(id_)) for id_, rule in self._rules.items()}
        for id_, tracker in self._trackers.items():
            self.status[id_].alerts = tuple(tracker.alerts)
        # Rules that went while the engine did not run: what they had firing is told as resolved.
        self._orphans = [alert for alert in store.forget_alerts_except(self._rules) if alert.firing]
        self._slots = {id_: store.last_slot(id_) for id_ in self.groups}
        self._lock = threading.Lock()  # guards `status` between the threads of `serve`
        self.evidence = EvidenceBox(source, clusters, self._rules.get, self.events)
        self.healer = Healer(
            playbooks=playbooks,
            mode=settings.remediation.mode,
            source=source,
            clusters=clusters,
            store=store,
            events=self.events,
        )
        self.dispatcher = Dispatcher(
            settings=settings,
            store=store,
            events=self.events,
            evidence=self.evidence,
            runs=lambda at: self.store.runs(since=at - HISTORY),
        )

    def tick(self, group_id: str, slot: datetime, *, late: bool = False) -> None:
        """Evaluate a group's rules, in order, for a slot. One rule's failure leaves its alerts as they are."""
        group = self.groups[group_id]
        for rule in group.rules:
            try:
                if isinstance(rule, AlertingRule):
                    self._evaluate(group, rule, slot, late=late)
                else:
                    self._record(group, rule, slot)
            except EngineError as error:
                self._failed(rule.id, str(error), slot)
            except Exception as error:  # noqa: BLE001  the door of one rule's evaluation: the others go on
                self.events.trouble(slot, "evaluation", error, rule=rule.id)
                self._failed(rule.id, f"{type(error).__name__}: {error}", slot)
            else:
                self._succeeded(rule.id, slot)
        self._save(group, slot)
        self._observe(group, slot)
        self.events.keep(slot)

    def alerts(self) -> list[Alert]:
        """Return every alert that is pending, firing or lately resolved."""
        with self._lock:
            return [alert for status in self.status.values() for alert in status.alerts]

    def last_slot(self, group_id: str) -> datetime | None:
        """Return the slot at which a group was last evaluated, before a restart included."""
        return self._slots[group_id]

    def flush(self, at: datetime) -> None:
        """Tell receivers what is due."""
        orphans, self._orphans = self._orphans, []
        self.dispatcher.flush([*self.alerts(), *orphans], at)
        for run, receiver, reason in self.healer.announcements():
            self._announce(run, receiver, reason, at)
        self.events.keep(at)

    def heal(self, at: datetime) -> None:
        """Begin the runs that firing alerts ask for, and advance each open one by at most one call."""
        alerts = self.alerts()
        inhibited = inhibitors(self.settings.routing.inhibit_rules, alerts)
        firing = [alert for alert in alerts if alert.firing]
        self.healer.forget(firing)
        for alert in firing:
            rule = self._rules.get(alert.rule_id)
            if rule is None or rule.remediate is None or alert.fingerprint in inhibited:
                continue
            if not self._judged(rule.id):
                continue  # as it was before a restart, or before Prometheus went away
            try:
                self.evidence.of(alert, at)  # before anything is healed away
                self.healer.consider(alert, rule, at)
            except StoreError as error:
                self.events.trouble(at, "store", error, alert=alert.fingerprint)
        self.healer.step(self._alert_of, self._judged, at)
        self.events.keep(at)

    def _announce(self, run: Run, receiver: str, reason: Reason, at: datetime) -> None:
        alert = self._alert_of(run)
        if alert is None:
            return
        try:
            self.dispatcher.announce(run, alert, receiver, reason, at)
        except StoreError as error:
            self.events.trouble(at, "store", error, run=run.id)

    def _evaluate(self, group: RuleGroup, rule: AlertingRule, slot: datetime, *, late: bool) -> None:
        outcome = evaluate(rule, self.source, slot, group.query_offset)
        around = Surroundings(
            external_labels=self.settings.external_labels,
            external_url=self.settings.external_url,
            query=lambda expr: self._query(expr, slot),
            now=slot.timestamp(),
        )
        found = findings(rule, outcome.verdicts, around)
        tracker = self._trackers[rule.id]
        bad = sum(finding.bad is True for finding in found)
        if group.limit and bad > group.limit:
            tracker.clear()
            self._publish(rule.id, tracker, found)
            raise DetectError(
                f"{rule.origin}: {rule.alert}: {bad} alerts exceed the group's limit of {group.limit}"
            )
        changed = tracker.update(found, slot, late=late, warnings=outcome.warnings)
        self._publish(rule.id, tracker, found)
        for before, after in changed:
            self._transition(before, after, slot)

    def _record(self, group: RuleGroup, rule: RecordingRule, slot: datetime) -> None:
        """Leave recording rules to Prometheus, unless the source takes what they make (in tests it does)."""
        recorder = getattr(self.source, "record", None)
        if recorder is not None:
            recorder(rule, slot - group.query_offset)

    def _publish(self, rule_id: str, tracker: Tracker, found: Iterable[Finding]) -> None:
        with self._lock:
            status = self.status[rule_id]
            status.alerts = tuple(tracker.alerts)
            status.conditions = {finding.labels: finding.bad for finding in found}

    def _transition(self, before: Alert | None, after: Alert | None, slot: datetime) -> None:
        alert = after or before
        assert alert is not None
        was = before.state.value if before else "inactive"
        now = after.state.value if after else "inactive"
        self.events.tell(
            slot,
            Kind.TRANSITION,
            alert.fingerprint,
            _why(before, after),
            alert=alert.name,
            labels=str(alert.labels),
            rule=alert.rule_id,
            before=was,
            after=now,
            value=f"{alert.value:g}",
            summary=alert.annotations.get("summary", ""),
        )

    def _query(self, expr: str, slot: datetime) -> list[tuple[Labels, float]]:
        window = self.source.instant(expr, slot)
        return [
            (labels, float(value))
            for labels, value, there in zip(
                window.labels, window.values[:, 0], window.present[:, 0], strict=True
            )
            if there
        ]

    def _failed(self, rule_id: str, error: str, slot: datetime) -> None:
        with self._lock:
            status = self.status[rule_id]
            news = status.error != error
            status.health, status.error, status.evaluated_at = Health.ERROR, error, slot
        self.events.tell(slot, Kind.EVALUATED, rule_id, error, health=Health.ERROR.value)
        if news:
            self.events.tell(slot, Kind.FAILED, rule_id, error)

    def _succeeded(self, rule_id: str, slot: datetime) -> None:
        with self._lock:
            status = self.status[rule_id]
            recovered = status.health is Health.ERROR
            status.health, status.error, status.evaluated_at = Health.OK, "", slot
        self.events.tell(slot, Kind.EVALUATED, rule_id, "", health=Health.OK.value)
        if recovered:
            self.events.tell(slot, Kind.RECOVERED, rule_id, "evaluates again")

    def _save(self, group: RuleGroup, slot: datetime) -> None:
        self._slots[group.id] = slot
        alerts = {rule.id: self.status[rule.id].alerts for rule in group.rules if rule.id in self._rules}
        try:
            self.store.save_alerts(group.id, slot, alerts)
        except StoreError as error:
            # The alerts live on in memory; a restart would forget what happened since the store failed.
            self.events.trouble(slot, "store", error, group=group.id)

    def _observe(self, group: RuleGroup, slot: datetime) -> None:
        """Tell runs under verification how their rule judged, where it could be evaluated at all."""
        with self._lock:
            fresh = frozenset(
                rule.id
                for rule in group.rules
                if self.status[rule.id].health is Health.OK and rule.id in self._rules
            )
            conditions = {rule_id: self.status[rule_id].conditions for rule_id in fresh}
        self.healer.observe(lambda run: conditions[run.rule_id].get(run.labels, False), fresh, slot)

    def _judged(self, rule_id: str) -> bool:
        """Tell whether a rule's alerts are as this engine's newest evaluation found them, or the rule is gone."""
        with self._lock:
            status = self.status.get(rule_id)
            return status is None or status.health is Health.OK

    def _alert_of(self, run: Run) -> Alert | None:
        with self._lock:
            alerts = self.status[run.rule_id].alerts if run.rule_id in self.status else ()
        return next((alert for alert in alerts if alert.labels == run.labels), None)


def _why(before: Alert | None, after: Alert | None) -> str:
    """Return why an alert's state changed, in words."""
    if after is None:
        return "the condition holds no more" if before and before.state is AlertState.PENDING else "forgotten"
    if after.state is AlertState.PENDING:
        return "the condition holds"
    if after.state is AlertState.FIRING:
        return f"the condition has held since {after.active_at:%H:%M:%S}"
    return f"the condition has not held since {(after.keep_firing_since or after.resolved_at):%H:%M:%S}"

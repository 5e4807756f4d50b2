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
from collections.abc import Mapping, Sequence
from datetime import datetime

from engine.clients.aside import Aside
from engine.errors import StoreError
from engine.flow.clusters import Clusters
from engine.flow.dispatch import Dispatcher
from engine.flow.evaluator import Evaluator
from engine.flow.events import Events
from engine.flow.evidence import EvidenceBox
from engine.flow.heal import Healer
from engine.model.alert import Alert
from engine.model.notification import Reason
from engine.model.playbook import Playbook, Run
from engine.model.ports import HISTORY, Observer, Source, Store, Writer
from engine.model.rule import RuleGroup
from engine.model.settings import Settings
from engine.route.inhibit import inhibitors


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
        writer: Writer | None = None,
        history: Source | None = None,
        aside: Aside | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.source = source
        self.events = Events(store, observers)
        self.evaluator = Evaluator(
            settings=settings,
            groups=groups,
            source=source,
            store=store,
            events=self.events,
            writer=writer,
            history=history,
            aside=aside,
        )
        self.groups = self.evaluator.groups
        self.status = self.evaluator.status
        self._rules = self.evaluator.rules
        self._orphans = self.evaluator.orphans
        self._halt = threading.Event()
        self.evidence = EvidenceBox(source, clusters, self._rules.get, self.events, self._halt.is_set)
        self.healer = Healer(
            playbooks=playbooks,
            mode=settings.remediation.mode,
            source=source,
            clusters=clusters,
            store=store,
            events=self.events,
            halted=self._halt.is_set,
        )
        self.dispatcher = Dispatcher(
            settings=settings,
            store=store,
            events=self.events,
            evidence=self.evidence,
            runs=lambda at: self.store.runs(since=at - HISTORY),
            halted=self._halt.is_set,
        )

    def halt(self) -> None:
        """Let a `flush` and a `heal` that are under way end soon; what they leave undone is due again later."""
        self._halt.set()

    def resume(self) -> None:
        """Go on after a `halt`."""
        self._halt.clear()

    @property
    def halted(self) -> bool:
        """Whether it was told to let things end."""
        return self._halt.is_set()

    def tick(self, group_id: str, slot: datetime) -> None:
        """Evaluate a group's rules, in order, for a slot."""
        self.evaluator.tick(group_id, slot)
        self._observe(group_id, slot)
        self.events.keep(slot)

    def catch_up(self, group_id: str, slots: Sequence[datetime]) -> int:
        """Evaluate slots that passed, each at its own instant; return how many could be. They heal nothing."""
        count = self.evaluator.catch_up(group_id, slots)
        self.events.keep(slots[-1])
        return count

    def alerts(self) -> list[Alert]:
        """Return every alert that is pending, firing or lately resolved."""
        return self.evaluator.alerts()

    def last_slot(self, group_id: str) -> datetime | None:
        """Return the slot at which a group was last evaluated, before a restart included."""
        return self.evaluator.last_slot(group_id)

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
            held_back = alert.over_budget or alert.fingerprint in inhibited
            if rule is None or rule.remediate is None or held_back:
                continue
            if self._halt.is_set():
                break
            if not self.evaluator.judged(rule.id):
                continue  # as it was before a restart, or before Prometheus went away
            try:
                self.evidence.of(alert, at)  # before anything is healed away
                self.healer.consider(alert, rule, at)
            except StoreError as error:
                self.events.trouble(at, "store", error, alert=alert.fingerprint)
        self.healer.step(self._alert_of, self.evaluator.judged, at)
        self.events.keep(at)

    def _announce(self, run: Run, receiver: str, reason: Reason, at: datetime) -> None:
        alert = self._alert_of(run)
        if alert is None:
            return
        try:
            self.dispatcher.announce(run, alert, receiver, reason, at)
        except StoreError as error:
            self.events.trouble(at, "store", error, run=run.id)

    def _observe(self, group_id: str, slot: datetime) -> None:
        """Tell runs under verification how their rule judged, where it could be evaluated at all."""
        conditions = self.evaluator.conditions(group_id)
        self.healer.observe(
            lambda run: conditions[run.rule_id].get(run.labels, False), frozenset(conditions), slot
        )

    def _alert_of(self, run: Run) -> Alert | None:
        return self.evaluator.alert_of(run.rule_id, run.labels)

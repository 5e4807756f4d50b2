"""The life of an alert: pending, firing, resolved.

The rules are Prometheus' own (`rules/alerting.go`), so that a rule behaves here
as it does there:

* a bad verdict starts a pending alert; it fires once it has been bad for the rule's `for`;
* a pending alert that turns good is forgotten; nobody was told;
* a firing alert that turns good keeps firing for `keep_firing_for`, then resolves;
* a resolved alert is remembered for a while, so that the resolution is delivered;
* value and annotations are refreshed at every evaluation, labels never change.

One addition: a series about which the detector has too little to say leaves its alert as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from engine.model.alert import Alert, AlertState
from engine.model.labels import Labels
from engine.model.rule import AlertingRule

REMEMBER_RESOLVED = timedelta(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One verdict with everything that an alert made of it needs. `bad` None: too little to say.

    Details and annotations are those of a bad one; others may have none.
    """

    labels: Labels
    signal: Labels
    bad: bool | None
    value: float
    details: Mapping[str, float]
    annotations: Mapping[str, str]


class Tracker:
    """All the alerts of one rule."""

    def __init__(self, rule: AlertingRule, alerts: Iterable[Alert] = ()) -> None:
        self._rule = rule
        self._alerts = {alert.labels: alert for alert in alerts}

    @property
    def alerts(self) -> Sequence[Alert]:
        """Every alert that is pending, firing or lately resolved."""
        return tuple(self._alerts.values())

    @property
    def idle(self) -> bool:
        """Whether there are none."""
        return not self._alerts

    def update(
        self, findings: Iterable[Finding], at: datetime, *, late: bool = False, warnings: tuple[str, ...] = ()
    ) -> list[tuple[Alert | None, Alert | None]]:
        """Take the findings of one evaluation; return (before, after) of each alert whose state changed."""
        changed = []
        found = {finding.labels: finding for finding in findings}
        for labels in [*self._alerts, *(labels for labels in found if labels not in self._alerts)]:
            before = self._alerts.get(labels)
            after = self._next(before, found.get(labels), at)
            if after is None:
                self._alerts.pop(labels, None)
            else:
                # Late is what no evaluation in time has confirmed.
                late_now = late if after is not before else after.late
                if (after.late, after.warnings) != (late_now, warnings):
                    after = replace(after, late=late_now, warnings=warnings)
                self._alerts[labels] = after
            if (before and before.state) is not (after and after.state):
                changed.append((before, after))
        return changed

    def hold_back(self, labels: Labels) -> None:
        """Note of an alert that it is beyond its rule's budget, for as long as it lasts."""
        self._alerts[labels] = replace(self._alerts[labels], over_budget=True)

    def clear(self) -> None:
        """Forget every alert, as Prometheus does when a rule returns more than its group's `limit`."""
        self._alerts.clear()

    def _next(self, alert: Alert | None, finding: Finding | None, at: datetime) -> Alert | None:
        if finding is not None and finding.bad is None:
            return alert
        if finding is not None and finding.bad:
            return self._bad(alert, finding, at)
        return None if alert is None else self._good(alert, at)

    def _bad(self, alert: Alert | None, finding: Finding, at: datetime) -> Alert:
        if alert is None or alert.state is AlertState.RESOLVED:
            alert = Alert(
                rule_id=self._rule.id,
                labels=finding.labels,
                signal=finding.signal,
                state=AlertState.PENDING,
                value=finding.value,
                active_at=at,
            )
        alert = replace(
            alert,
            value=finding.value,
            details=finding.details,
            annotations=finding.annotations,
            keep_firing_since=None,
            seen_at=at,
        )
        if at < alert.active_at:  # the clock went back: what fires goes on, the rest is counted from now on
            alert = replace(alert, active_at=at - self._rule.hold if alert.firing else at)
        # A `for` that was raised by a reload takes a firing alert back to pending, as in Prometheus.
        fires = at - alert.active_at >= self._rule.hold
        if fires is alert.firing and fires is (alert.fired_at is not None):
            return alert
        state = AlertState.FIRING if fires else AlertState.PENDING
        return replace(alert, state=state, fired_at=(alert.fired_at or at) if fires else None)

    def _good(self, alert: Alert, at: datetime) -> Alert | None:
        if alert.state is AlertState.PENDING:
            return None
        if alert.state is AlertState.FIRING:
            since = min(alert.keep_firing_since or at, at)  # the clock may have gone back
            if at - since < self._rule.keep_firing_for:
                return replace(alert, keep_firing_since=since)
            return replace(alert, state=AlertState.RESOLVED, keep_firing_since=since, resolved_at=at)
        assert alert.resolved_at is not None
        if at < alert.resolved_at:
            return replace(alert, resolved_at=at)
        return None if at - alert.resolved_at > REMEMBER_RESOLVED else alert

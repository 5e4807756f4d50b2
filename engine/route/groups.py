"""Aggregation groups on virtual time: which alerts are told together, and when it is time to look again.

Alertmanager's clockwork: a new group waits `group_wait`, then is looked at every `group_interval`. What an
integration is then told, and why, is decided in `engine.route.dedup`.

One pass of a caller::

    groups.update(alerts, at)
    for group in groups.due(at):
        ...                       # plan and make a delivery to each integration, keep its entry of the log
        groups.settle(group, at, entries=entries)

An object is used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.notification import Sent
from engine.model.route import Route
from engine.route.tree import ResolvedRoute, receivers_of

FIRST_RETRY = Duration(seconds=10)
LONGEST_RETRY = Duration(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A view of one aggregation group at one instant."""

    id: str  # identity: the route's, and the group labels
    key: str  # as Alertmanager prints it: `{}/{severity="page"}:{alertname="X"}`
    route: ResolvedRoute
    labels: Labels
    alerts: tuple[Alert, ...]  # firing ones first, oldest first

    def log_key(self, integration: str) -> str:
        """Return the key of the notification log for one integration of the receiver, such as `slack/0`."""
        return f"{self.route.receiver}/{integration}:{self.id}"


@dataclass(slots=True)
class _Member:
    """What is known of one group between two looks."""

    route: ResolvedRoute
    labels: Labels
    due: datetime
    alerts: dict[str, Alert] = field(default_factory=dict)  # by fingerprint
    looked_at: bool = False
    failures: int = 0  # successive looks at which a delivery failed
    progress: str = ""

    def view(self, identity: str) -> Group:
        def rank(alert: Alert) -> tuple[bool, datetime, str]:
            return not alert.firing, alert.fired_at or alert.active_at, alert.fingerprint

        alerts = tuple(sorted(self.alerts.values(), key=rank))
        key = f"{self.route.key}:{self.labels}"
        return Group(id=identity, key=key, route=self.route, labels=self.labels, alerts=alerts)


class Groups:
    """All aggregation groups of a routing tree."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._members: dict[str, _Member] = {}
        self._routes: dict[Labels, tuple[ResolvedRoute, ...]] = {}  # of the alerts at hand
        self._settled: set[tuple[str, str]] = set()  # (group, episode) of resolved alerts that are done with

    def __len__(self) -> int:
        return len(self._members)

    def held(self) -> list[Alert]:
        """Return every alert of every group, to be handed to the `Groups` of a new routing tree."""
        held = (alert for member in self._members.values() for alert in member.alerts.values())
        return list({alert.fingerprint: alert for alert in held}.values())

    def update(self, alerts: Iterable[Alert], at: datetime) -> None:
        """Take over all alerts that fire, and those that resolved lately; pending ones are passed over.

        A firing alert that is missing here has lost its rule, so it resolves now. A resolved one that is
        missing stays until it is told.
        """
        # Of two alerts with the same labels the firing one counts, so it comes last.
        awake = (alert for alert in alerts if alert.state is not AlertState.PENDING)
        here = {alert.labels: alert for alert in sorted(awake, key=lambda alert: alert.firing)}
        known = self._routes
        self._routes = {labels: known.get(labels) or receivers_of(self._route, labels) for labels in here}
        episodes = {alert.episode for alert in here.values()}
        self._settled = {(group, episode) for group, episode in self._settled if episode in episodes}
        self._resolve_missing({labels.fingerprint for labels in here}, at)
        for labels, alert in here.items():
            for route in self._routes[labels]:
                self._insert(route, alert, at)

    def _resolve_missing(self, present: Collection[str], at: datetime) -> None:
        for member in self._members.values():
            for fingerprint, alert in member.alerts.items():
                if alert.firing and fingerprint not in present:
                    member.alerts[fingerprint] = replace(alert, state=AlertState.RESOLVED, resolved_at=at)

    def _insert(self, route: ResolvedRoute, alert: Alert, at: datetime) -> None:
        labels = route.group_labels(alert.labels)
        identity = f"{route.id}:{labels}"
        if not alert.firing and (identity, alert.episode) in self._settled:
            return
        member = self._members.get(identity)
        if member is None:
            member = self._members[identity] = _Member(route, labels, due=at + route.group_wait)
        member.alerts[alert.fingerprint] = alert
        # An engine that was restarted does not make a long known alert wait again.
        if not member.looked_at and (alert.fired_at or at) + route.group_wait <= at:
            member.due = at

    def due(self, at: datetime) -> list[Group]:
        """Return the groups to look at now, the longest waiting first; they stay due until settled."""
        ready = sorted((member.due, id_) for id_, member in self._members.items() if member.due <= at)
        return [self._members[identity].view(identity) for _, identity in ready]

    def next_due(self) -> datetime | None:
        """Return when the next group is due, None if there is no group."""
        return min((member.due for member in self._members.values()), default=None)

    def settle(
        self,
        group: Group,
        at: datetime,
        *,
        entries: Iterable[Sent | None],
        busy: Collection[str] = (),
        progress: str = "",
        failed: bool = False,
        not_before: datetime | None = None,
    ) -> None:
        """Note that `group` was looked at.

        `entries` are what the log now holds for each integration of the receiver. Resolved alerts go when no
        entry counts them as firing or owed, and no remediation is at work on them (`busy`: fingerprints); a
        group goes with its last alert. If a delivery `failed`, and may succeed later, the next look comes
        sooner than `group_interval`, though not before `not_before`.
        """
        member = self._members.get(group.id)
        if member is None:
            return
        member.looked_at = True
        member.progress = progress
        member.failures = member.failures + 1 if failed else 0
        member.due = at + group.route.group_interval
        if failed:
            wait = min(FIRST_RETRY * 2 ** min(member.failures - 1, 8), LONGEST_RETRY)
            member.due = min(member.due, max(at + wait, not_before or at))
        untold = frozenset[str]().union(*(entry.firing | entry.owed for entry in entries if entry))
        self._prune(member, group, untold.union(busy))

    def _prune(self, member: _Member, group: Group, wanted: Collection[str]) -> None:
        for seen in group.alerts:
            now = member.alerts.get(seen.fingerprint)
            # What has fired anew since the look was taken, or resolved only since, is not settled by it.
            same = now is not None and now.episode == seen.episode and not now.firing and not seen.firing
            if same and seen.fingerprint not in wanted:
                del member.alerts[seen.fingerprint]
                self._settled.add((group.id, seen.episode))
        if not member.alerts:
            del self._members[group.id]

    def progressed(self, progress_of: Callable[[Group], str]) -> list[Group]:
        """Return the groups whose runs' digest differs from the one they were last settled or marked with.

        They are to be planned with `early=True`, and then to be marked.
        """
        looked_at = [(member, member.view(id_)) for id_, member in self._members.items() if member.looked_at]
        return [group for member, group in looked_at if progress_of(group) != member.progress]

    def mark(self, group: Group, progress: str) -> None:
        """Note the digest that was told out of turn; the timer goes on as it was."""
        if (member := self._members.get(group.id)) is not None:
            member.progress = progress

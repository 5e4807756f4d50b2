"""Tell each integration of each receiver what there is to tell: group, inhibit, mute, dedup, deliver, note.

A delivery that fails for a while is owed, not lost: the group stays due, its next message is made from how
things are then, and an alert that fired meanwhile is told even if it has resolved. An integration that does
not answer is left alone for a while, so that it cannot hold up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from engine.errors import NotifyError, StoreError
from engine.flow.events import Events
from engine.flow.evidence import EvidenceBox
from engine.model.alert import Alert
from engine.model.event import Kind
from engine.model.labels import Labels
from engine.model.notification import Notification, Reason, Receipt, Sent
from engine.model.playbook import Run
from engine.model.ports import Notifier, Store
from engine.model.settings import Settings
from engine.route.dedup import Delivery, Integration, plan, progress_of
from engine.route.groups import Group, Groups
from engine.route.inhibit import inhibitors
from engine.route.intervals import mute_reason

_LONGEST_ASKED = 3600.0  # seconds that the other side may ask to be left alone
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=2), timedelta(minutes=1)


class Dispatcher:
    """Who has been told what, and who is still to be told."""

    def __init__(
        self,
        *,
        settings: Settings,
        store: Store,
        events: Events,
        evidence: EvidenceBox,
        runs: Callable[[datetime], Sequence[Run]],  # those of late, newest first
        halted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._halted = halted
        self._routing = settings.routing
        self._external_url = settings.external_url
        self._store = store
        self._events = events
        self._evidence = evidence
        self._runs = runs
        self._groups = Groups(settings.routing.route)
        self._inhibited: Mapping[str, str] = {}  # by fingerprint: why it is not told
        self._calendar: dict[tuple[str, str], str] = {}  # by group and episode: why the calendar mutes it
        # By receiver and integration: until when it is left alone, and how long that is.
        self._pauses: dict[str, tuple[datetime, timedelta]] = {}
        self._unsaved: dict[str, Sent] = {}  # entries of the log that the store has not taken yet

    @property
    def waiting(self) -> int:
        """How many integrations are left alone because they did not take their last delivery."""
        return len(self._pauses)

    def held(self) -> list[Alert]:
        """Return every alert that has been or is to be told, for the dispatcher of a reloaded engine."""
        return self._groups.held()

    def carry(self, alerts: Sequence[Alert], at: datetime) -> None:
        """Take over what another dispatcher held, so that alerts whose rule is gone are told as resolved."""
        self._groups.update(alerts, at)

    def flush(self, alerts: Sequence[Alert], at: datetime) -> None:
        """Deliver what is due."""
        for entry in tuple(self._unsaved.values()):
            if not self._save(entry, at):
                break
        self._inhibit(alerts, at)
        self._groups.update(alerts, at)
        try:
            runs = self._runs(at) if len(self._groups) else ()
        except StoreError as error:
            # Without the log nobody knows who was told what: better late than twice.
            self._events.trouble(at, "store", error)
            return
        for group in self._groups.due(at):
            self._try_group(self._look, group, runs, at)
        for group in self._groups.progressed(lambda group: progress_of(_runs_of(group, runs))):
            self._try_group(self._progress, group, runs, at)

    def _try_group(
        self,
        tell: Callable[[Group, Sequence[Run], datetime], None],
        group: Group,
        runs: Sequence[Run],
        at: datetime,
    ) -> None:
        """Tell one group; a fault, or a log that cannot be read, must not cost the other groups."""
        if self._halted():
            return
        try:
            tell(group, runs, at)
        except Exception as error:  # noqa: BLE001  the door of one group
            part = "store" if isinstance(error, StoreError) else "notifications"
            self._events.trouble(at, part, error, group=group.key)

    def _inhibit(self, alerts: Sequence[Alert], at: datetime) -> None:
        before = self._inhibited
        found = inhibitors(self._routing.inhibit_rules, alerts)
        self._inhibited = {
            **{alert.fingerprint: "its rule's budget is spent" for alert in alerts if alert.over_budget},
            **{fingerprint: f"inhibited by {source.labels}" for fingerprint, source in found.items()},
        }
        for fingerprint, why in self._inhibited.items():
            if fingerprint not in before:
                self._events.tell(at, Kind.MUTED, fingerprint, why)

    def _look(self, group: Group, runs: Sequence[Run], at: datetime) -> None:
        """Tell every integration of a due group's receiver what it has not been told yet."""
        mine = _runs_of(group, runs)
        digest, muted = progress_of(mine), self._muted(group, at)
        entries: list[Sent | None] = []
        failed, not_before = False, None
        for word, notifier, to in self._integrations(group):
            entry, until = to.entry, None
            delivery = plan(group, to, at, muted=muted, progress=digest)
            if delivery is not None:
                entry, until = self._try(group, word, notifier, delivery, mine, at)
            entries.append(entry)
            if until is not None:
                failed, not_before = True, min(until, not_before or until)
        busy = {run.fingerprint for run in mine if not run.state.terminal}
        self._groups.settle(
            group, at, entries=entries, busy=busy, progress=digest, failed=failed, not_before=not_before
        )

    def _progress(self, group: Group, runs: Sequence[Run], at: datetime) -> None:
        """Show how far remediation is, where a message can be updated in place."""
        mine = _runs_of(group, runs)
        digest, muted = progress_of(mine), self._muted(group, at)
        told = True
        for word, notifier, to in self._integrations(group):
            delivery = plan(group, to, at, muted=muted, progress=digest, early=True)
            if delivery is not None:
                told = self._try(group, word, notifier, delivery, mine, at)[1] is None and told
        if told:
            self._groups.mark(group, digest)

    def _integrations(self, group: Group) -> Iterable[tuple[str, Notifier, Integration]]:
        receiver = self._routing.receivers[group.route.receiver]
        for index, (word, notifier) in enumerate(receiver.integrations):
            key = group.log_key(f"{word}/{index}")
            yield (
                word,
                notifier,
                Integration(
                    key=key,
                    entry=self._entry(key),
                    send_resolved=notifier.send_resolved,
                    updates_in_place=notifier.updates_in_place,
                ),
            )

    def _entry(self, key: str) -> Sent | None:
        return self._unsaved.get(key) or self._store.sent(key)

    def _save(self, entry: Sent, at: datetime) -> bool:
        """Note who was told what; what the store does not take is kept here, or it were told at every flush."""
        try:
            self._store.save_sent(entry)
        except StoreError as error:
            self._unsaved[entry.key] = entry
            self._events.trouble(at, "store", error, group=entry.key)
            return False
        self._unsaved.pop(entry.key, None)
        return True

    def _muted(self, group: Group, at: datetime) -> frozenset[str]:
        why = mute_reason(group.route, self._routing.time_intervals, at)
        if why is not None:
            for alert in group.alerts:
                if self._calendar.get((group.id, alert.episode)) != why:
                    self._events.tell(at, Kind.MUTED, alert.fingerprint, why, receiver=group.route.receiver)
            others = {key: said for key, said in self._calendar.items() if key[0] != group.id}
            self._calendar = others | {(group.id, alert.episode): why for alert in group.alerts}
            return frozenset(alert.fingerprint for alert in group.alerts)
        self._calendar = {key: said for key, said in self._calendar.items() if key[0] != group.id}
        return frozenset(alert.fingerprint for alert in group.alerts if alert.fingerprint in self._inhibited)

    def _try(
        self,
        group: Group,
        word: str,
        notifier: Notifier,
        delivery: Delivery,
        runs: Sequence[Run],
        at: datetime,
    ) -> tuple[Sent, datetime | None]:
        """Make one delivery and note it. Return the log's entry, and until when to wait if it failed."""
        place = f"{group.route.receiver}/{word}"
        paused = self._pauses.get(place)
        if paused is not None and at < paused[0]:
            self._save(delivery.failed, at)
            return delivery.failed, paused[0]
        try:
            receipt = self._tell(group, notifier, delivery, runs, at) if delivery.alerts else None
        except NotifyError as error:
            until = self._pause(place, error, at)
            self._not_told(group, word, delivery, error, at)
            self._save(delivery.failed, at)
            return delivery.failed, until
        self._pauses.pop(place, None)
        entry = delivery.done(receipt)
        self._save(entry, at)
        if delivery.alerts:
            self._told(group, word, delivery, at)
        return entry, None

    def _tell(
        self, group: Group, notifier: Notifier, delivery: Delivery, runs: Sequence[Run], at: datetime
    ) -> Receipt:
        notification = Notification(
            receiver=group.route.receiver,
            group_key=group.key,
            group_labels=group.labels,
            alerts=delivery.alerts,
            evidence={alert.fingerprint: self._evidence.of(alert, at) for alert in delivery.alerts[:20]},
            runs=tuple(runs),
            reason=delivery.reason,
            at=at,
            external_url=self._external_url,
        )
        return self._deliver(notifier, notification, delivery.previous)

    def _deliver(self, notifier: Notifier, notification: Notification, previous: Receipt | None) -> Receipt:
        """Hand over one notification; whatever goes wrong comes back as a NotifyError."""
        try:
            return notifier.notify(notification, previous)
        except NotifyError:
            raise
        except Exception as error:  # the door of one delivery: a fault in a notifier must not cost the others
            self._events.trouble(notification.at, "notifier", error, receiver=notification.receiver)
            raise NotifyError(
                f"{type(error).__name__}: {error}", retryable=True, reason="internal"
            ) from error

    def _pause(self, place: str, error: NotifyError, at: datetime) -> datetime:
        """Leave an integration alone: as long as it asked for, else twice as long as the last time."""
        last = self._pauses.get(place)
        pause = _FIRST_PAUSE if last is None else min(2 * last[1], _LONGEST_PAUSE)
        if not error.retryable:
            pause = _LONGEST_PAUSE  # it takes a person; until then ask rarely
        asked = min(error.retry_after or 0.0, _LONGEST_ASKED)
        until = at + max(pause, timedelta(seconds=asked))
        self._pauses[place] = (until, pause)
        return until

    def _told(self, group: Group, word: str, delivery: Delivery, at: datetime) -> None:
        for alert in delivery.alerts:
            self._events.tell(
                at,
                Kind.NOTIFIED,
                alert.fingerprint,
                delivery.reason.value,
                receiver=group.route.receiver,
                integration=word,
                group=group.key,
                state=alert.state.value,
            )

    def _not_told(
        self, group: Group, word: str, delivery: Delivery, error: NotifyError, at: datetime
    ) -> None:
        for alert in delivery.alerts:
            self._events.tell(
                at,
                Kind.NOT_NOTIFIED,
                alert.fingerprint,
                str(error),
                receiver=group.route.receiver,
                integration=word,
                why=error.reason,
                group=group.key,
            )

    def announce(self, run: Run, alert: Alert, name: str, reason: Reason, at: datetime) -> None:
        """Tell a receiver, once, that a run needs a person. A failed delivery is tried again at the next flush."""
        key = announcement_key(run, reason)
        if self._entry(key) is not None:
            return
        receiver = self._routing.receivers.get(name)
        places = receiver.integrations if receiver is not None else ()
        notification = Notification(
            receiver=name,
            group_key=key,
            group_labels=Labels({"playbook": run.playbook}),
            alerts=(alert,),
            evidence={alert.fingerprint: self._evidence.of(alert, at)},
            runs=(run,),
            reason=reason,
            at=at,
            external_url=self._external_url,
        )
        told = [self._announce_to(word, notifier, notification, run) for word, notifier in places]
        if any(told) or not places:
            self._save(Sent(key=key, at=at), at)

    def _announce_to(self, word: str, notifier: Notifier, notification: Notification, run: Run) -> bool:
        at, place = notification.at, f"{notification.receiver}/{word}"
        if place in self._pauses and at < self._pauses[place][0]:
            return False
        data = {"receiver": notification.receiver, "integration": word}
        try:
            self._deliver(notifier, notification, None)
        except NotifyError as error:
            self._pause(place, error, at)
            self._events.tell(at, Kind.NOT_NOTIFIED, run.id, str(error), why=error.reason, **data)
            return False
        self._pauses.pop(place, None)
        self._events.tell(at, Kind.NOTIFIED, run.id, notification.reason.value, **data)
        return True


def announcement_key(run: Run, reason: Reason) -> str:
    """Return the notification log's key of a run's escalation, or of its request for approval."""
    return f"{reason.name.lower()}:{run.id}"


def _runs_of(group: Group, runs: Sequence[Run]) -> list[Run]:
    """Return the newest run of each playbook for each alert's present episode, oldest first."""
    episodes = {(alert.fingerprint, alert.fired_at) for alert in group.alerts}
    newest: dict[tuple[str, str], Run] = {}
    for run in runs:  # newest first
        if (run.fingerprint, run.fired_at) in episodes:
            newest.setdefault((run.fingerprint, run.playbook), run)
    return sorted(newest.values(), key=lambda run: (run.created_at, run.id))

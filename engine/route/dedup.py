"""What an integration is told about a group, and why: Alertmanager's reasons, and one of our own.

Alertmanager forgets an alert that fires and resolves while a receiver cannot be reached, and the end of one
that resolves while it is muted. Here the log owes both: `Sent.owed` are firing alerts whose delivery failed,
and what was told as firing stays so in the log until the receiver has been told otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256

from engine.model.alert import Alert
from engine.model.notification import Reason, Receipt, Sent
from engine.model.playbook import Run
from engine.route.groups import Group


def decide(
    *,
    firing: frozenset[str],
    resolved: frozenset[str],
    entry: Sent | None,
    repeat_interval: timedelta,
    send_resolved: bool,
    at: datetime,
    progress: str = "",
    updates_in_place: bool = False,
) -> Reason | None:
    """Return why a group with these fingerprints is to be told to the integration of `entry`, None if not.

    `ALL_RESOLVED` is returned whatever `send_resolved` says, so that the log forgets what fired.
    """
    if entry is None:
        return Reason.FIRST if firing else None
    if not firing <= entry.firing or entry.owed & (firing | resolved):
        return Reason.NEW_ALERTS if entry.firing else Reason.FIRST
    if entry.firing and not firing:
        return Reason.ALL_RESOLVED
    if firing and send_resolved and not resolved <= entry.resolved:
        return Reason.RESOLVED
    if firing and entry.at < at - repeat_interval:
        return Reason.REPEAT
    return Reason.PROGRESS if updates_in_place and _progressed(entry, progress) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """One place of a receiver: how it wants to be told, and what it was told last."""

    key: str  # of the notification log
    entry: Sent | None  # what the log has under that key
    send_resolved: bool
    updates_in_place: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What one integration is to be told, and what the log is to hold afterwards."""

    reason: Reason
    alerts: tuple[Alert, ...]  # firing ones first; none: send nothing, and keep `done()` all the same
    previous: Receipt | None  # of the message that this one continues
    told: Sent  # the entry if it succeeds, less its receipt
    failed: Sent  # the entry if it fails

    def done(self, receipt: Receipt | None = None) -> Sent:
        """Return the entry of a delivery that succeeded."""
        return self.told if receipt is None else replace(self.told, receipt=receipt)


def plan(
    group: Group,
    to: Integration,
    at: datetime,
    *,
    muted: Collection[str] = (),
    progress: str = "",
    early: bool = False,
) -> Delivery | None:
    """Return what to tell one integration about a group, None if there is nothing to tell.

    `muted` are fingerprints that are not to be spoken of now. `early`: the group is not due, so only the
    progress of remediation may be told.
    """
    audible = tuple(alert for alert in group.alerts if alert.fingerprint not in muted)
    if early:
        return _update(audible, to, progress)
    firing = frozenset(alert.fingerprint for alert in audible if alert.firing)
    resolved = frozenset(
        alert.fingerprint for alert in audible if not alert.firing and _counts(alert, to.entry)
    )
    reason = decide(
        firing=firing,
        resolved=resolved,
        entry=replace(to.entry, firing=to.entry.firing.difference(muted)) if to.entry else None,
        repeat_interval=group.route.repeat_interval,
        send_resolved=to.send_resolved,
        at=at,
        progress=progress,
        updates_in_place=to.updates_in_place,
    )
    if reason is None:
        return None
    if reason is Reason.PROGRESS:
        return _update(audible, to, progress)
    known = to.entry or Sent(key=to.key, at=at)
    spoken = firing | _spoken_resolved(resolved, known, to)
    told = Sent(
        key=to.key,
        # What is muted now was told as firing all the same, unless everything is said to have resolved.
        firing=firing | known.firing.intersection(muted) if firing else firing,
        resolved=resolved,
        progress=progress,
        at=at,
        receipt={} if reason is Reason.FIRST else known.receipt,
        owed=known.owed.intersection(muted),
    )
    return Delivery(
        reason=reason,
        alerts=tuple(alert for alert in audible if alert.fingerprint in spoken),
        previous=told.receipt or None,
        told=told,
        failed=replace(known, owed=known.owed | firing - known.firing),
    )


def progress_of(runs: Iterable[Run]) -> str:
    """Return a digest of what can be seen of remediation runs; empty if there are none.

    Runs that have ended belong to it while their alerts are in the group, or their end is never told.
    """
    seen = sorted((run.id, run.state.value, run.reason, *_steps(run)) for run in runs)
    return sha256(repr(seen).encode(errors="backslashreplace")).hexdigest()[:16] if seen else ""


def _steps(run: Run) -> Iterable[tuple[str, str, int, str]]:
    return ((step.name, step.state.value, step.attempt, step.message) for step in run.steps)


def _progressed(entry: Sent, progress: str) -> bool:
    # No digest means no run at hand, and then there is nothing to show.
    return progress not in ("", entry.progress)


def _update(audible: Iterable[Alert], to: Integration, progress: str) -> Delivery | None:
    """Return the last message with new progress: no alert is told in passing, and none is forgotten."""
    entry = to.entry
    if entry is None or not to.updates_in_place or not _progressed(entry, progress):
        return None
    known = entry.firing | entry.resolved
    alerts = tuple(
        alert for alert in audible if alert.fingerprint in (entry.firing if alert.firing else known)
    )
    told = replace(entry, progress=progress)
    if not alerts:
        return None
    return Delivery(
        reason=Reason.PROGRESS, alerts=alerts, previous=entry.receipt or None, told=told, failed=entry
    )


def _counts(alert: Alert, entry: Sent | None) -> bool:
    """Tell whether a resolved alert matters to an integration.

    After a restart the tracker still shows alerts that were told as resolved, and that the log, which holds
    the newest message only, has forgotten since.
    """
    if entry is None or alert.fingerprint in entry.firing | entry.owed | entry.resolved:
        return True
    return alert.resolved_at is not None and alert.resolved_at > entry.at


def _spoken_resolved(resolved: frozenset[str], known: Sent, to: Integration) -> frozenset[str]:
    """Return which resolved alerts the message shows."""
    if not to.send_resolved:
        return resolved & known.owed  # else nobody would ever hear that it fired
    if to.updates_in_place:
        return resolved
    return resolved - (known.resolved - known.owed)

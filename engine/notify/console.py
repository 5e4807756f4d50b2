"""Tells the terminal: one compact block of text a notification; the receiver of those who configured none."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, TextIO

from engine.lang.readable import Telling, clock, columns, cut, number, one_line, plural, span
from engine.model.alert import Alert, Picture, Table
from engine.model.notification import Notification, Receipt
from engine.model.playbook import Run
from engine.registry import notifier

_SHOWN = 20  # alerts and lines of evidence
_RED, _YELLOW, _GREEN, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[0m"


@notifier("console")
@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """Plain text on standard output, in colour on a terminal."""

    send_resolved: bool = True

    updates_in_place: ClassVar[bool] = False

    def notify(self, notification: Notification, previous: Receipt | None) -> Receipt:
        out = sys.stdout
        lines = render(notification)
        if out.isatty():
            lines = [_coloured(lines[0], notification), *lines[1:]]
        _write(out, "\n".join([*lines, ""]))
        return {}


def _write(out: TextIO, text: str) -> None:
    # One write, so that the blocks of two threads do not mix; what the terminal cannot show is replaced.
    encoding = out.encoding or "utf-8"
    out.write(text.encode(encoding, "replace").decode(encoding))
    out.flush()


def _coloured(line: str, notification: Notification) -> str:
    critical = any(alert.labels.get("severity") == "critical" for alert in notification.firing)
    colour = (_RED if critical else _YELLOW) if notification.firing else _GREEN
    return f"{colour}{line}{_PLAIN}"


def render(notification: Notification) -> list[str]:
    """Return the lines of a notification: what, one line an alert, what was done, and the evidence."""
    at, firing = notification.at, notification.firing
    names = ", ".join(dict.fromkeys(alert.name for alert in notification.alerts))
    state = f"FIRING {len(firing)}" if firing else "RESOLVED"
    lines = [one_line(f"[{state}] {names} -> {notification.receiver}: {notification.reason}, {clock(at)}")]
    telling = Telling.of(notification.alerts)
    if telling.shared:
        lines.append(f"  {one_line(str(telling.shared))}")
    lines += [f"  {_alert(alert, telling, at)}" for alert in notification.alerts[:_SHOWN]]
    if (more := len(notification.alerts) - _SHOWN) > 0:
        lines.append(f"  … and {more:,} more")
    for run in notification.runs[:_SHOWN]:
        lines += [f"  {line}" for line in _run(run)]
    for alert in notification.alerts[:_SHOWN]:
        lines += [f"    {line}" for line in _evidence(notification, alert)]
    return lines


def _alert(alert: Alert, telling: Telling, at: datetime) -> str:
    who = f"{alert.name} {telling.apart(alert)}".replace(" {}", "")
    began = alert.fired_at or alert.active_at
    if not alert.firing:
        end = alert.resolved_at or at
        return one_line(f"- {who}: resolved {clock(end, at)} after {span((end - began).total_seconds())}")
    what = alert.annotations.get("summary") or f"value {number(alert.value)}"
    return one_line(f"* {who}: {what} (since {clock(began, at)}, {span((at - began).total_seconds())})")


def _run(run: Run) -> Iterable[str]:
    why = run.refusal.reason if run.refusal else run.reason
    yield one_line(f"> {run.playbook} on {run.target}: {run.mode}, {run.state}" + (f", {why}" if why else ""))
    for step in run.steps:
        said = step.impossible or step.message or step.description
        yield one_line(f"  {step.state}: {step.name}" + (f" [{step.job}]" if step.job else "") + f": {said}")


def _evidence(notification: Notification, alert: Alert) -> Iterable[str]:
    for item in notification.evidence.get(alert.fingerprint, ()):
        yield one_line(f"{item.title}:")
        if isinstance(item, Picture):
            yield f"  {one_line(item.alt)} ({plural(len(item.png), 'byte')} of PNG)"
            continue
        lines = columns(item.columns, item.rows) if isinstance(item, Table) else item.text.splitlines()
        yield from (f"  {_aligned(line)}" for line in lines[:_SHOWN])
        if len(lines) > _SHOWN:
            yield f"  … and {len(lines) - _SHOWN:,} more"
        if isinstance(item, Table) and item.note:
            yield f"  {one_line(item.note)}"


def _aligned(line: str) -> str:
    """Return a line of evidence with its alignment, and without what could steer the terminal."""
    return cut("".join(char if char.isprintable() else " " for char in line), 160)

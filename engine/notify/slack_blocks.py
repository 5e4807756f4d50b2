"""A notification as a Slack message: Block Kit blocks, and the text that a phone's lock screen shows.

Pure, and safe on any input. Three things are kept here and nowhere else:

* nothing that a label, an annotation or an answer of Ray contains can become a mention, a link or markup;
* every limit that Slack publishes, and one it does not: about 10,000 characters over all blocks and the text;
* the order in which a person who was just woken reads: what, since when, how bad, how long until it is worse,
  what was or would be done, and only then the evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from engine.lang.mrkdwn import block, code, fallback, fit, link, words
from engine.lang.readable import Telling, clock, columns, cut, number, one_line, plural, size, size_rate, span
from engine.model.alert import Alert, Evidence, Picture, Table, Text
from engine.model.labels import ALERT_NAME, Labels
from engine.model.notification import Notification
from engine.model.playbook import Mode, PlannedStep, Run, RunState, StepState

Block = dict[str, Any]

MAX_CHARTS = 3
_SHOWN_WITH_EVIDENCE = 3  # alerts; the others' evidence is on the engine's own page
_SHOWN_RUNS = 3
_SHOWN_ALERTS = 15
_IN_BYTES = re.compile(r"(\d+(?:\.\d+)?) ?([KMGTP])iB(/s)?")
_YEAR = 365 * 86_400.0  # seconds
# Shares of the characters, in escaped form. They add up to less than Slack takes in one message.
_SUMMARY, _DESCRIPTION, _LABELS, _ALERTS = 500, 600, 900, 1900
_RUNS, _EVIDENCE, _LINKS, _FALLBACK = 1800, 2400, 1000, 600

_DOTS = {"critical": "🔴", "page": "🔴", "error": "🔴", "info": "🔵", "none": "🔵"}
_DOT, _DOT_RESOLVED = "🟠", "🟢"
_MODES = {
    Mode.OFF: "off",
    Mode.DRY_RUN: "dry run",
    Mode.APPROVE: "needs approval",
    Mode.AUTO: "automatic",
}
_MARKS = {
    StepState.PLANNED: "○",
    StepState.INTENDED: "▶",
    StepState.RUNNING: "▶",
    StepState.SUCCEEDED: "✓",
    StepState.FAILED: "✗",
    StepState.SKIPPED: "-",
}


@dataclass(frozen=True, slots=True)
class Message:
    """What Slack is sent."""

    text: str
    blocks: list[Block]


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture of the notification; `key` is the same at every notification of the incident."""

    key: str
    picture: Picture


def charts_of(notification: Notification) -> list[Chart]:
    """Return the pictures that belong into the message, at most MAX_CHARTS."""
    found = (
        Chart(f"chart {alert.episode} {picture.title}", picture)
        for alert in notification.alerts[:_SHOWN_WITH_EVIDENCE]
        for picture in notification.evidence.get(alert.fingerprint, ())
        if isinstance(picture, Picture)
    )
    return list({chart.key: chart for chart in found}.values())[:MAX_CHARTS]


def compose(notification: Notification, files: Mapping[str, str] | None = None) -> Message:
    """Return the message; `files` are the Slack file ids of the charts already uploaded, by chart key."""
    blocks = [
        _header(_headline(notification)),
        _context(_status(notification)),
        *(_one(notification) if len(notification.alerts) == 1 else _many(notification)),
        *_pictures(notification, files or {}),
        *_remedies(notification),
        *_evidence(notification),
        *_links(notification),
    ]
    return Message(_fallback(notification), blocks)


# What and since when.


def _headline(notification: Notification) -> str:
    alerts = notification.alerts
    names = ", ".join(dict.fromkeys(alert.name for alert in alerts))
    what = names if len(alerts) == 1 else f"{plural(len(alerts), 'alert')}: {names}"
    return one_line(f"{_dot(notification)} {what}", 140)


def _dot(notification: Notification) -> str:
    if not notification.firing:
        return _DOT_RESOLVED
    dots = {_DOTS.get(alert.labels.get("severity", ""), _DOT) for alert in notification.firing}
    return next(dot for dot in ("🔴", _DOT, "🔵") if dot in dots)


def _status(notification: Notification) -> str:
    at, firing, resolved = notification.at, notification.firing, notification.resolved
    severities = sorted({alert.labels.get("severity", "") for alert in firing or resolved} - {""})
    if firing:
        count = f" {len(firing):,}" if len(notification.alerts) > 1 else ""
        began = min(alert.fired_at or alert.active_at for alert in firing)
        state = [f"*Firing{count}*", *([f"{len(resolved):,} resolved"] if resolved else [])]
        more = [f"since {_since(began, at)}"]
    else:
        state, more = [f"*Resolved*{_ended(resolved, at)}"], [_outcome(notification.runs)]
    if any(alert.late for alert in firing):
        more.append("found late, so never healed")
    return " · ".join([*state, *map(words, severities[:3]), *more, words(notification.reason.value)])


def _since(began: datetime, at: datetime) -> str:
    return f"{clock(began, at)} ({span((at - began).total_seconds())})"


def _ended(resolved: Sequence[Alert], at: datetime) -> str:
    if not resolved:
        return ""
    end = max(alert.resolved_at or at for alert in resolved)
    began = min(alert.fired_at or alert.active_at for alert in resolved)
    return f" at {clock(end, at)} after {span((end - began).total_seconds())}"


def _outcome(runs: Sequence[Run]) -> str:
    acted = [run for run in runs if run.acted]
    if not acted:
        return "no remedy acted"
    helped = [run for run in acted if run.state is RunState.HELPED]
    return f"{'helped by' if helped else 'after'} {code((helped or acted)[-1].playbook)}"


# How bad, and when it will be worse.


def _one(notification: Notification) -> Iterable[Block]:
    alert, at = notification.alerts[0], notification.at
    was = "" if alert.firing else "Was: "  # a summary speaks of now, which has passed
    for name, limit in (("summary", _SUMMARY), ("description", _DESCRIPTION)):
        if text := one_line(alert.annotations.get(name, ""), limit):
            yield _plain(was + text)
    yield _fields(_figures(alert, at))
    yield from _labels(alert.labels.without(ALERT_NAME, "severity"))
    for warning in alert.warnings[:2]:
        yield _context(f"⚠ {words(warning)}")


def _figures(alert: Alert, at: datetime) -> list[tuple[str, str]]:
    """Return names and values, at most ten."""
    details, show = alert.details, _reader(alert)
    value = show(alert.value)
    if (bound := details.get("bound")) is not None:
        value += f", limit {show(bound)}"
    if (expected := details.get("expected")) is not None:
        value += f", expected {show(expected)}"
        if "low" in details and "high" in details:
            value += f" ({show(details['low'])} to {show(details['high'])})"
    found = [("Value" if alert.firing else "Last value", value)]
    if alert.firing and (eta := details.get("eta")) is not None:
        found.append(("Limit reached in", _reached(eta, details, at)))
    if alert.firing and (slope := details.get("slope_per_hour")) is not None:
        found.append(("Trend", f"{'+' if slope > 0 else ''}{show(slope)} an hour"))
    return [
        *found,
        ("Condition holds since" if alert.firing else "Condition held since", clock(alert.active_at, at)),
    ]


def _reader(alert: Alert) -> Callable[[float], str]:
    """Return how to write the alert's figures: in bytes, if its annotations print its very value in bytes."""
    for text in alert.annotations.values():
        for figure, power, rate in _IN_BYTES.findall(text):
            printed = float(figure) * 1024.0 ** ("KMGTP".index(power) + 1)
            if abs(printed - alert.value) <= 0.01 * abs(alert.value):
                return size_rate if rate else size
    return number


def _reached(eta: float, details: Mapping[str, float], at: datetime) -> str:
    if eta <= 0:
        return "*reached*"
    if eta > _YEAR:
        return "more than a year"
    text = f"*{span(eta)}*, at {clock(at + timedelta(seconds=eta), at)}"
    earliest, latest = details.get("eta_earliest"), details.get("eta_latest")
    if earliest is not None:
        text += f"\nearliest {span(max(earliest, 0))}"
        text += f", latest {span(latest)}" if latest is not None and latest <= _YEAR else ", perhaps never"
    if (probability := details.get("probability")) is not None:
        text += (
            f", {probability:.0%} likely within the horizon"
            if earliest is None
            else f" ({probability:.0%} sure)"
        )
    return text


def _labels(labels: Labels) -> Iterable[Block]:
    if labels:
        pairs = [code(f"{name}={value}") for name, value in labels.items()]
        yield _context(fit(pairs, _LABELS, " "))


def _many(notification: Notification) -> Iterable[Block]:
    telling = Telling.of(notification.alerts)
    names = len({alert.name for alert in notification.alerts}) > 1
    yield from _labels(telling.shared.without("severity"))
    lines = [
        _line(alert, telling, notification.at, name=names) for alert in notification.alerts[:_SHOWN_ALERTS]
    ]
    if lines:
        yield _section(fit(lines, _ALERTS, of=len(notification.alerts)))


def _line(alert: Alert, telling: Telling, at: datetime, *, name: bool) -> str:
    # A single telling label needs no name: the eye finds "n17" sooner than "instance=n17".
    bare = len(telling.names) == 1
    pairs = [value if bare else f"{key}={value}" for key, value in telling.apart(alert).items()]
    who = [*([f"*{words(alert.name, 60)}*"] if name else []), *(code(pair, 60) for pair in pairs[:4])]
    if not alert.firing:
        return f"✓ {' '.join(who)} resolved{_ended([alert], at)}"
    what = words(alert.annotations.get("summary", ""), 160) or number(alert.value)
    return f"• {' '.join(who)} {what} · {_since(alert.fired_at or alert.active_at, at)}"


def _pictures(notification: Notification, files: Mapping[str, str]) -> Iterable[Block]:
    for chart in charts_of(notification):
        if chart.key in files:
            yield {
                "type": "image",
                "slack_file": {"id": files[chart.key]},
                "alt_text": one_line(chart.picture.alt, 1000) or "chart",
                "title": _plain_text(one_line(chart.picture.title, 200) or "chart"),
            }


# What was or would be done.


def _remedies(notification: Notification) -> Iterable[Block]:
    runs = sorted(notification.runs, key=lambda run: run.updated_at, reverse=True)
    for run in runs[:_SHOWN_RUNS]:
        why = [] if run.refusal is not None else [words(run.reason)]
        lines = [line for line in (_remedy(run, notification.at), *_steps(run), *why) if line]
        yield _section(fit(lines, _RUNS // min(len(runs), _SHOWN_RUNS)))
    if len(runs) > _SHOWN_RUNS:
        yield _context(f"… and {plural(len(runs) - _SHOWN_RUNS, 'more run')}")


def _remedy(run: Run, at: datetime) -> str:
    what = f"*Remedy* {code(run.playbook)} on {code(run.target)}"
    return f"{what} · {_MODES[run.mode]} · {_state(run, at)}"


def _state(run: Run, at: datetime) -> str:
    if run.refusal is not None:
        again = f", not before {clock(run.refusal.until, at)}" if run.refusal.until else ""
        return f"*refused* by {code(run.refusal.guardrail)}: {words(run.refusal.reason)}{again}"
    if run.mode is Mode.DRY_RUN and not run.acted:
        return "*nothing was done*; it would"
    match run.state:
        case RunState.WAITING:
            until = f" until {clock(run.approve_until, at)}" if run.approve_until else ""
            return f"*waiting for approval*{until}, run {code(run.id)}"
        case RunState.VERIFYING:
            until = f" until {clock(run.verify_until, at)}" if run.verify_until else ""
            return f"*verifying*{until}, condition false at {run.good_evaluations} of 2 evaluations"
        case RunState.DID_NOT_HELP | RunState.ESCALATED:
            return "*did not help*" + (", escalated" if run.state is RunState.ESCALATED else "")
    approved = f", approved by {words(run.approved_by)}" if run.approved_by else ""
    return f"*{words(run.state.value)}*{approved}"


def _steps(run: Run) -> list[str]:
    return [_step(step, would=run.mode is Mode.DRY_RUN and not run.acted) for step in run.steps]


def _step(step: PlannedStep, *, would: bool) -> str:
    said = step.impossible or step.message or (step.description if step.state is StepState.PLANNED else "")
    job = f" {code(step.job)}" if step.job and not would else ""
    tries = f" (attempt {step.attempt} of {step.attempts})" if step.attempt > 1 else ""
    mark = "→" if would and not step.impossible else _MARKS[step.state]
    return f"{mark} {words(step.name)}{job}{tries}" + (f": {words(said, 200)}" if said else "")


# Evidence and links.


def _evidence(notification: Notification) -> Iterable[Block]:
    telling = Telling.of(notification.alerts)
    told, more = notification.alerts[:_SHOWN_WITH_EVIDENCE], notification.alerts[_SHOWN_WITH_EVIDENCE:]
    shown = [
        (alert, item)
        for alert in told
        for item in notification.evidence.get(alert.fingerprint, ())
        if not isinstance(item, Picture)
    ][:6]
    for alert, item in shown:
        whose = code(", ".join(telling.apart(alert).values()), 80) if telling.names else ""
        title = f"*{words(item.title, 120) or 'Evidence'}* {whose}".rstrip()
        yield _section(f"{title}\n{block(_lines_of(item), _EVIDENCE // len(shown) - len(title))}")
        if isinstance(item, Table) and (note := words(item.note)):
            yield _context(note)
    if hidden := sum(1 for alert in more if notification.evidence.get(alert.fingerprint)):
        yield _context(f"… and evidence of {plural(hidden, 'more alert')}")


def _lines_of(item: Evidence) -> list[str]:
    if isinstance(item, Table):
        return columns(item.columns, item.rows)
    return [cut(line.expandtabs(4), 160) for line in item.text.splitlines()] if isinstance(item, Text) else []


def _links(notification: Notification) -> Iterable[Block]:
    single = len(notification.alerts) == 1
    runbooks = {
        alert.annotations.get("runbook_url", ""): "Runbook" if single else f"Runbook of {alert.name}"
        for alert in notification.alerts
    }
    links = [link(url, title) for url, title in list(runbooks.items())[:3]]
    links.append(link(notification.external_url, "Engine"))
    if any(links):
        yield _context(fit([each for each in links if each], _LINKS, " · "))


def _fallback(notification: Notification) -> str:
    count = f" {len(notification.firing):,}" if len(notification.alerts) > 1 and notification.firing else ""
    what = f"[{'FIRING' if notification.firing else 'RESOLVED'}{count}] {_headline(notification)}"
    summaries = (alert.annotations.get("summary", "") for alert in notification.alerts)
    summary = next(filter(None, summaries), "")
    return fallback(f"{what}: {summary}" if summary else what, _FALLBACK)


# Blocks.


def _header(text: str) -> Block:
    return {"type": "header", "text": _plain_text(text)}


def _plain(text: str) -> Block:
    return {"type": "section", "text": _plain_text(text)}


def _section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(text)}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [_mrkdwn(text)]}


def _fields(pairs: Sequence[tuple[str, str]]) -> Block:
    return {"type": "section", "fields": [_mrkdwn(f"*{name}*\n{value}") for name, value in pairs[:10]]}


def _plain_text(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}


def _mrkdwn(text: str) -> Block:
    # verbatim: Slack must not make links and mentions of what merely looks like one.
    return {"type": "mrkdwn", "text": text, "verbatim": True}

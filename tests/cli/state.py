"""The state that stories about runs and decisions find: one alert, and what was done about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from engine.model.event import Event, Kind
from engine.model.labels import Labels
from engine.model.playbook import Mode, PlannedStep, Refusal, Run, RunState, StepState
from engine.store.sql import open_store

T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)
FAR = datetime(2999, 1, 1, tzinfo=UTC)
HOT = Labels(alertname="Hot", instance="n1:8080", severity="page")

_GC = PlannedStep(
    name="free unreferenced objects",
    action="ray_job",
    params={},
    description="submit a Ray job: python -m ray_ops.global_gc",
    timeout=120,
    attempts=2,
    backoff=30,
    wait=0,
)
_STOP = PlannedStep(
    name="stop the owner",
    action="ray_stop_job",
    params={"job": "hog"},
    description="stop Ray job hog; its objects are freed, its owner has to submit it again",
    timeout=60,
    attempts=1,
    backoff=10,
    wait=45,
)
_WAITING = Run(
    id="waiting1",
    playbook="relieve",
    rule_id="rules.yaml;g;Hot",
    labels=HOT,
    signal=Labels(instance="n1:8080"),
    fired_at=T0,
    target="prod/n1",
    mode=Mode.APPROVE,
    state=RunState.WAITING,
    steps=(_GC, _STOP),
    created_at=T0 + timedelta(minutes=5),
    updated_at=T0 + timedelta(minutes=5),
    approve_until=FAR,
    reason="waiting for approval",
)
_HELPED = replace(
    _WAITING,
    id="helped1",
    state=RunState.HELPED,
    created_at=T0,
    approve_until=None,
    approved_by="ada",
    steps=(
        replace(
            _GC,
            state=StepState.FAILED,
            attempt=2,
            key="engine-0123",
            message="the job FAILED: out of memory",
        ),
        replace(
            _STOP, state=StepState.SUCCEEDED, attempt=1, key="engine-4567", message="Ray job hog is STOPPED"
        ),
    ),
    reason="the rule's condition was false at 2 successive evaluations",
)
_RUNS = (
    _WAITING,
    replace(_WAITING, id="waiting2", target="prod/n2", created_at=T0 + timedelta(minutes=6)),
    replace(_WAITING, id="tooold", created_at=T0 - timedelta(hours=2), approve_until=T0),
    _HELPED,
    replace(
        _WAITING,
        id="refused1",
        state=RunState.REFUSED,
        created_at=T0 - timedelta(hours=1),
        refusal=Refusal(guardrail="mode", reason="mode is dry_run"),
        reason="mode: mode is dry_run: this is what would have been done",
    ),
)


def _event(minute: float, kind: Kind, subject: str, reason: str, **data: str) -> Event:
    return Event(at=T0 + timedelta(minutes=minute), kind=kind, subject=subject, reason=reason, data=data)


def _transition(minute: float, labels: Labels, before: str, after: str, reason: str) -> Event:
    return _event(
        minute,
        Kind.TRANSITION,
        labels.fingerprint,
        reason,
        alert=labels["alertname"],
        labels=str(labels),
        rule=f"rules.yaml;g;{labels['alertname']}",
        before=before,
        after=after,
        value="60",
        summary="",
    )


_COLD = Labels(alertname="Cold", instance="n2")
_EVENTS = (
    _transition(-2, HOT, "inactive", "pending", "the condition holds"),
    _transition(-1, _COLD, "inactive", "firing", "the condition has held since 11:59:00"),
    _transition(0, HOT, "pending", "firing", "the condition has held since 11:58:00"),
    _event(0, Kind.MUTED, HOT.fingerprint, 'inhibited by {alertname="Cold"}'),
    _event(
        1,
        Kind.NOT_NOTIFIED,
        HOT.fingerprint,
        "HTTP 500",
        receiver="oncall",
        integration="slack",
        why="server_error",
        group="{}",
    ),
    _event(
        2,
        Kind.NOTIFIED,
        HOT.fingerprint,
        "first notification",
        receiver="oncall",
        integration="slack",
        group="{}",
        state="firing",
    ),
    _event(
        3,
        Kind.NOTIFIED,
        _COLD.fingerprint,
        "first notification",
        receiver="oncall",
        integration="slack",
        group="{}",
        state="firing",
    ),
    _event(
        5,
        Kind.RUN,
        "waiting1",
        "waiting for approval",
        state="waiting",
        playbook="relieve",
        target="prod/n1",
        fingerprint=HOT.fingerprint,
    ),
    _event(6, Kind.STEP, "waiting1", "put off: Prometheus is away", playbook="relieve"),
    _event(7, Kind.FAILED, "rules.yaml;g;Hot", "prometheus:9090: connection refused"),
    _event(8, Kind.TROUBLE, "enricher", "TypeError: x", enricher="graph", alert=HOT.fingerprint),
)


def write_state(path: Path) -> None:
    """Make a store at `path` that holds all of this."""
    store = open_store(f"sqlite:///{path}")
    for run in _RUNS:
        store.add_run(run)
    store.add_events(_EVENTS)
    store.close()

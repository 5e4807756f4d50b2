"""Alerts, runs and notifications to tell."""

from datetime import UTC, datetime, timedelta

from engine.model.alert import Alert, AlertState
from engine.model.labels import Labels
from engine.model.notification import Notification, Reason
from engine.model.playbook import Mode, PlannedStep, Run, RunState, StepState

AT = datetime(2026, 8, 19, 14, 28, tzinfo=UTC)
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


def alert(instance="n1", *, state=AlertState.FIRING, name="Full", annotations=None, details=None, **labels):
    signal = Labels(instance=instance)
    return Alert(
        rule_id="rules;store;Full",
        labels=Labels({"alertname": name, "severity": "warning", **signal, **labels}),
        signal=signal,
        annotations=annotations or {},
        state=state,
        value=7.75e9,
        details=details or {},
        active_at=AT - timedelta(minutes=25),
        fired_at=AT - timedelta(minutes=12),
        resolved_at=AT if state is AlertState.RESOLVED else None,
    )


def notification(*alerts, reason=Reason.FIRST, evidence=None, runs=(), external_url=""):
    return Notification(
        receiver="oncall",
        group_key="g",
        group_labels=Labels(alertname="Full"),
        alerts=alerts,
        evidence=evidence or {},
        runs=runs,
        reason=reason,
        at=AT,
        external_url=external_url,
    )


def step(name="free objects", **more):
    planned = {"params": {}, "timeout": 60.0, "attempts": 2, "backoff": 10.0, "wait": 0.0}
    return PlannedStep(name=name, action="ray_job", description=f"would {name}", **{**planned, **more})


def run(*steps, mode=Mode.AUTO, state=RunState.ACTING, **more):
    about = alert()
    return Run(
        id="run-1",
        playbook="relieve",
        rule_id=about.rule_id,
        labels=about.labels,
        signal=about.signal,
        fired_at=about.fired_at,
        target="prod/n1",
        mode=mode,
        state=state,
        steps=steps or (step(state=StepState.RUNNING, attempt=1, key="engine-abc"),),
        created_at=AT,
        updated_at=AT,
        **more,
    )

"""Turn a playbook and an alert into a run: every template filled in, every fact looked up.

What was shown is what runs: after planning nothing is rendered again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.errors import ActionError, TemplateError
from engine.lang.promql import shape
from engine.lang.template import parse, variables
from engine.model.alert import Alert
from engine.model.labels import quote
from engine.model.playbook import Mode, PlannedStep, Playbook, Run, RunState, Step
from engine.model.ports import Action, RayApi
from engine.ray.identity import node_of
from engine.registry import action
from engine.remediate.facts import Fact, gather

Fill = Callable[[str], str]
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?|[-+]?Inf|NaN", re.ASCII)


def plan(
    playbook: Playbook,
    alert: Alert,
    *,
    cluster: str,
    ray: RayApi | None,
    mode: Mode,
    number: int,
    at: datetime,
    missing: str = "no cluster fits",  # why there is no `ray`
) -> Run:
    """Return a run that nobody has said yes or no to. ActionError or ClusterError if it cannot be planned."""
    assert alert.fired_at is not None
    names = [chain[1] for chain in _variables(playbook) if chain[0] == "plan" and len(chain) > 1]
    if names and ray is None:
        raise ActionError(f"{playbook.name} needs Ray's APIs: {missing}: {alert.labels}")
    facts = gather(names, alert, ray) if ray is not None else {}
    data = _data(alert, cluster, facts)
    fill, fill_promql = _filler(data), _filler_of_promql(data)
    folder = str(Path(playbook.origin.file).parent)
    verify = playbook.verify
    return Run(
        id=run_id(alert, playbook.name, number),
        playbook=playbook.name,
        rule_id=alert.rule_id,
        labels=alert.labels,
        signal=alert.signal,
        fired_at=alert.fired_at,
        target=fill(playbook.target),
        mode=mode,
        state=RunState.PLANNED,
        steps=tuple(_step(step, fill, fill_promql, folder) for step in playbook.steps),
        verify_resolved=verify is None or verify.resolved,
        verify_expr=fill_promql(verify.expr) if verify is not None and verify.expr else None,
        created_at=at,
        updated_at=at,
        reason="planned",
    )


def run_id(alert: Alert, playbook: str, number: int) -> str:
    """Return the id of the `number`-th run of a playbook in one episode of an alert, the same for all who ask."""
    text = "\n".join([alert.episode, playbook, str(number)])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def second_signal(text: str, alert: Alert, *, cluster: str) -> str:
    """Return the PromQL that has to confirm an alert before anything is done. TemplateError, ActionError."""
    return _filler_of_promql(_data(alert, cluster, {}))(text)


def target_of(playbook: Playbook, alert: Alert, *, cluster: str) -> str:
    """Return the unit that guardrails count. TemplateError where that takes facts that only the cluster knows."""
    return _filler(_data(alert, cluster, {}))(playbook.target)


def step_key(run: Run, index: int, attempt: int) -> str:
    """Return the idempotency key of one attempt at one step; for Ray jobs it is the submission_id."""
    step = run.steps[index]
    fired_at = f"{run.fired_at.timestamp():.3f}"
    text = "\n".join(
        [run.fingerprint, fired_at, run.id, run.playbook, str(index), step.name, run.target, str(attempt)]
    )
    return f"engine-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def rebuild(step: PlannedStep) -> Action:
    """Return the action of a planned step, with the parameters it was planned with."""
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in step.params.items()}
    built: Action = action.get(step.action)(**fields)
    return built


def _data(alert: Alert, cluster: str, facts: Mapping[str, Fact]) -> dict[str, Any]:
    return {
        "labels": alert.labels,
        "value": alert.value,
        "detect": alert.details,
        "identity": {"cluster": cluster, "node": node_of(alert.labels)},
        "plan": facts,
    }


def _filler(data: Mapping[str, Any]) -> Fill:
    return lambda text: parse(text).render(data)


def _filler_of_promql(data: Mapping[str, Any]) -> Fill:
    """Return what fills in PromQL: what an alert carries becomes part of a string, or a number, and no code."""

    def fill(text: str) -> str:
        template = parse(text)
        filled = template.render(data, escape=lambda value: quote(value)[1:-1])
        harmless = template.render(data, escape=lambda value: value if _NUMBER.fullmatch(value) else "x")
        if shape(filled) != shape(harmless):
            raise ActionError(f"in double quotes a value cannot change the query, but here it does: {filled}")
        return filled

    return fill


def _step(step: Step, fill: Fill, fill_promql: Fill, folder: str) -> PlannedStep:
    impossible, act = "", step.act
    try:
        act = _filled(step.act, fill).fix(folder)
        description = _visible(act.describe())
    except TemplateError as error:
        # A fact that the cluster does not have, such as the submission id of a job that has none.
        impossible, description = f"{error}", f"{action.name_of(step.act)}, which cannot be done: {error}"
    return PlannedStep(
        name=step.name,
        action=action.name_of(step.act),
        params={field.name: getattr(act, field.name) for field in dataclasses.fields(act)},  # type: ignore[arg-type]
        description=description,
        timeout=step.timeout.total_seconds(),
        attempts=step.retry.attempts,
        backoff=step.retry.backoff.total_seconds(),
        wait=step.wait.total_seconds(),
        unless=fill_promql(step.unless) if step.unless else None,
        on_failure=step.on_failure,
        impossible=impossible,
    )


def _visible(text: str) -> str:
    """Return `text` as one line, in which what cannot be printed is written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _filled(act: Action, fill: Fill) -> Action:
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(act):  # type: ignore[arg-type]
        value = getattr(act, field.name)
        if isinstance(value, str):
            changes[field.name] = fill(value)
        elif isinstance(value, tuple):
            changes[field.name] = tuple(fill(item) if isinstance(item, str) else item for item in value)
    filled: Action = dataclasses.replace(act, **changes)  # type: ignore[type-var]
    return filled


def _variables(playbook: Playbook) -> Iterator[tuple[str, ...]]:
    for text in _texts(playbook):
        yield from variables(text)


def _texts(playbook: Playbook) -> Iterator[str]:
    yield playbook.target
    if playbook.verify is not None and playbook.verify.expr:
        yield playbook.verify.expr
    for step in playbook.steps:
        if step.unless:
            yield step.unless
        for field in dataclasses.fields(step.act):  # type: ignore[arg-type]
            yield from _strings(getattr(step.act, field.name))


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, tuple) else ()

"""Advance a run by at most one call.

The intent is saved before an effect, and its result after it. A crash in between leaves a step INTENDED
with its key: the same call is then made again under the same key, which the other side knows, so that it
has its effect once. A new attempt, with a new key, is made only after a terminal answer to the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from engine.errors import ActionError, ActionTimeout, ClusterError
from engine.model.playbook import OnFailure, PlannedStep, Playbook, Refusal, Run, RunState, StepState, Verify
from engine.model.ports import Answer, Progress, RayApi
from engine.remediate.plan import rebuild, step_key
from engine.remediate.verify import GOOD_EVALUATIONS

T = TypeVar("T")

_ENDED = (StepState.SUCCEEDED, StepState.FAILED, StepState.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a run needs of the outside."""

    ray: RayApi | None
    returns_anything: Callable[[str], bool]  # whether PromQL returns anything now; raises QueryError
    firing: bool | None  # whether the alert still fires; None: nobody can say at present
    save: Callable[[Run], None]  # raises StoreError: then nothing is done
    halted: str = ""  # why no further call may be begun, whatever the alert does


def advance(run: Run, playbook: Playbook, world: World, at: datetime) -> Run:
    """Return the run one step further, saved; the same run if there is nothing to do yet."""
    if run.state is RunState.ACTING:
        after = _act(run, playbook, world, at)
    elif run.state is RunState.VERIFYING:
        after = _verify(run, world, at)
    else:
        return run
    if after is not run:
        after = replace(after, updated_at=at)
        world.save(after)
    return after


def _act(run: Run, playbook: Playbook, world: World, at: datetime) -> Run:
    index = next((i for i, step in enumerate(run.steps) if step.state not in _ENDED), None)
    if index is None or _stopped(run):
        return _start_verifying(run, playbook, at) if run.acted else _end_idle(run, world)
    step = run.steps[index]
    if step.state is StepState.PLANNED:
        return _begin(run, index, world, at)
    if step.state is StepState.INTENDED:
        return _call(run, index, world, at)
    return _follow(run, index, world, at)


def _begin(run: Run, index: int, world: World, at: datetime) -> Run:
    """Decide whether a step is to be taken, or tried again, once what came before has had time to show."""
    step = run.steps[index]
    if not _rested(run, index, at):
        return run
    why_not = world.halted or _not_needed(step, world)
    if why_not:
        said = f"{step.message}; not tried again: {why_not}" if step.attempt else why_not
        return _with(run, index, at, state=StepState.SKIPPED, ended_at=at, message=said)
    # A stored alert may be from before a restart, or from before Prometheus went away.
    return run if world.firing is None else _call(run, index, world, at)


def _rested(run: Run, index: int, at: datetime) -> bool:
    step = run.steps[index]
    if step.attempt:
        return _waited(step, step.backoff, at)
    return index == 0 or _waited(run.steps[index - 1], step.wait, at)


def _not_needed(step: PlannedStep, world: World) -> str:
    if world.firing is False:
        return "the alert fires no more"
    if step.impossible:
        return step.impossible
    if step.unless is not None and world.returns_anything(step.unless):
        return "not needed: `unless` holds"
    return ""


def _call(run: Run, index: int, world: World, at: datetime) -> Run:
    """Make the call of a step's present attempt, or make the same call again after a crash."""
    step = run.steps[index]
    if step.state is not StepState.INTENDED:
        attempt = step.attempt + 1
        key = step_key(run, index, attempt)
        run = _with(
            run, index, at, state=StepState.INTENDED, attempt=attempt, key=key, started_at=at, ended_at=None
        )
        world.save(run)
        step = run.steps[index]
    try:
        answer = _asked(lambda: rebuild(step).start(_ray(world), step.key))
    except (ActionTimeout, ClusterError) as error:
        # Nobody knows whether it was accepted: stay INTENDED, and ask again under the same key.
        return _unanswered(run, index, at, str(error))
    except ActionError as error:
        answer = Answer(progress=Progress.FAILED, message=str(error))
    return _take(run, index, answer, at)


def _follow(run: Run, index: int, world: World, at: datetime) -> Run:
    step = run.steps[index]
    try:
        answer = _asked(lambda: rebuild(step).poll(_ray(world), step.key))
    except (ActionError, ClusterError) as error:
        return _unanswered(run, index, at, str(error))
    if answer.progress is Progress.RUNNING and _waited_since_start(step, step.timeout, at):
        return _time_out(run, index, world, at)
    return _take(run, index, answer, at)


def _time_out(run: Run, index: int, world: World, at: datetime) -> Run:
    """Ask a call that took too long to end; give it as long again to say that it did."""
    step = run.steps[index]
    if _waited_since_start(step, 2 * step.timeout, at):
        said = f"no terminal answer after {2 * step.timeout:.0f} s; not tried again"
        return _with(run, index, at, state=StepState.FAILED, ended_at=at, message=said)
    said = f"took longer than {step.timeout:.0f} s; asked to end"
    if step.message == said:
        return run
    try:
        _asked(lambda: rebuild(step).cancel(_ray(world), step.key))
    except (ActionError, ClusterError) as error:
        said = f"took longer than {step.timeout:.0f} s; cannot be ended: {error}"
    return run if step.message == said else _with(run, index, at, message=said)


def _take(run: Run, index: int, answer: Answer, at: datetime) -> Run:
    step = run.steps[index]
    if answer.progress is Progress.RUNNING:
        if step.state is StepState.RUNNING and step.message == answer.message:
            return run
        return _with(run, index, at, state=StepState.RUNNING, message=answer.message)
    if answer.progress is Progress.SUCCEEDED:
        return _with(run, index, at, state=StepState.SUCCEEDED, ended_at=at, message=answer.message)
    if step.attempt < step.attempts:
        return _with(run, index, at, state=StepState.PLANNED, ended_at=at, message=answer.message)
    return _with(run, index, at, state=StepState.FAILED, ended_at=at, message=answer.message)


def _unanswered(run: Run, index: int, at: datetime, said: str) -> Run:
    """Keep a step whose call got no answer; give up only long after its timeout, and never start another."""
    step = run.steps[index]
    if _waited_since_start(step, 2 * step.timeout, at):
        said = f"no terminal answer after {2 * step.timeout:.0f} s, the last was: {said}; not tried again"
        return _with(run, index, at, state=StepState.FAILED, ended_at=at, message=said)
    return run if step.message == said else _with(run, index, at, message=said)


def _asked(call: Callable[[], T]) -> T:
    """Make one call of an action. Whatever is wrong with its code, whether it took effect is not known."""
    try:
        return call()
    except (ActionError, ClusterError):
        raise
    except Exception as error:
        raise ActionTimeout(f"{type(error).__name__}: {error}") from error


def _end_idle(run: Run, world: World) -> Run:
    """End a run that made no call at all: its steps were not needed, or could not be done."""
    said = "nothing was done: " + "; ".join(dict.fromkeys(step.message for step in run.steps))
    if world.firing is False or world.halted:
        refusal = Refusal(guardrail="steps", reason=said)
        return replace(run, state=RunState.REFUSED, refusal=refusal, reason=said)
    return replace(run, state=RunState.DID_NOT_HELP, reason=said)


def _start_verifying(run: Run, playbook: Playbook, at: datetime) -> Run:
    verify = playbook.verify or Verify()
    return replace(
        run,
        state=RunState.VERIFYING,
        acted_at=at,
        verify_until=at + verify.within,
        reason="waiting for the rule's condition",
    )


def _verify(run: Run, world: World, at: datetime) -> Run:
    assert run.verify_until is not None
    good = not run.verify_resolved or run.good_evaluations >= GOOD_EVALUATIONS
    if good and (run.verify_expr is None or world.returns_anything(run.verify_expr)):
        said = f"the rule's condition was false at {run.good_evaluations} successive evaluations"
        if not run.verify_resolved:
            said = f"`{run.verify_expr}` returns something"
        return replace(run, state=RunState.HELPED, reason=said)
    if at > run.verify_until:
        return replace(run, state=RunState.DID_NOT_HELP, reason=_why_not(run))
    return run


def _why_not(run: Run) -> str:
    if not run.verify_resolved:
        return f"`{run.verify_expr}` returns nothing"
    if run.judged_at is None:
        return "nobody can say whether it helped: the rule was not evaluated since"
    if run.good_evaluations == 0:
        return "the rule's condition still holds"
    if run.good_evaluations < GOOD_EVALUATIONS:
        return f"the rule's condition was false at the last evaluation alone; it takes {GOOD_EVALUATIONS} in a row"
    return f"`{run.verify_expr}` returns nothing"


def _ray(world: World) -> RayApi:
    if world.ray is None:
        raise ActionError("no entry of ray.clusters in engine.yaml fits the alert's labels")
    return world.ray


def _stopped(run: Run) -> bool:
    return any(step.state is StepState.FAILED and step.on_failure is OnFailure.STOP for step in run.steps)


def _waited(step: PlannedStep, seconds: float, at: datetime) -> bool:
    ended = step.ended_at
    # An end that lies ahead is from before the clock was set back: nothing is to be waited for till then.
    return ended is None or not ended <= at < ended + timedelta(seconds=seconds)


def _waited_since_start(step: PlannedStep, seconds: float, at: datetime) -> bool:
    return step.started_at is not None and at > step.started_at + timedelta(seconds=seconds)


def _with(run: Run, index: int, at: datetime, **changes: Any) -> Run:
    step = replace(run.steps[index], **changes)
    steps = (*run.steps[:index], step, *run.steps[index + 1 :])
    return replace(run, steps=steps, updated_at=at, reason=f"{step.name}: {step.message or step.state}")

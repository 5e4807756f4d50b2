"""Playbooks and runs: a remedy, and one execution of it.

A run is a persisted state machine:
planned → (waiting) → acting → verifying → helped | did_not_help → (escalated), or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from engine.model.duration import Duration
from engine.model.labels import Labels, Matchers
from engine.model.ports import Action, Guardrail
from engine.model.rule import Origin


class Mode(StrEnum):
    """How far a playbook may go by itself; of two, the stricter wins."""

    OFF = "off"
    DRY_RUN = "dry_run"
    APPROVE = "approve"
    AUTO = "auto"

    @staticmethod
    def stricter(one: Mode, other: Mode) -> Mode:
        """Return the stricter of two modes."""
        order = list(Mode)
        return min(one, other, key=order.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often a step may be tried in all, and how long to wait between tries."""

    attempts: int = 1
    backoff: Duration = Duration(seconds=10)


class OnFailure(StrEnum):
    """What a failed step means for those after it."""

    STOP = "stop"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One part of a playbook. `act` is what it calls, its text fields templates until a run is planned."""

    name: str
    act: Action = field(metadata={"key": None})  # decoded from `action:` and `with:`
    timeout: Duration = Duration(minutes=2)
    retry: Retry = Retry()
    wait: Duration = Duration()  # after the step before, so that metrics can show what it did
    unless: str | None = None  # PromQL template; the step is left out when it returns anything
    on_failure: OnFailure = OnFailure.STOP
    origin: Origin = field(default=Origin("", 1, 1), metadata={"key": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Who is asked in mode `approve`, and how long an answer may take. No answer is a refusal."""

    receiver: str | None = None
    timeout: Duration = Duration(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    """How to know that it helped: the rule's condition is false at two successive evaluations after the last step."""

    resolved: bool = True
    expr: str | None = None  # PromQL template that must return something; asked beside `resolved`
    within: Duration = Duration(minutes=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """A remedy: whom it serves, what may say no, what it does, how it is known to have helped."""

    playbook: str
    description: str = ""
    match: tuple[Matchers, ...]  # alerts that may ask for it: any of these; all others are refused
    target: str = "{{ $labels.instance }}"  # template; the unit that guardrails count
    mode: Mode = Mode.DRY_RUN
    approval: Approval = field(default=Approval(), metadata={"key": None})  # decoded from guardrails.approval
    guardrails: tuple[Guardrail, ...] = ()
    steps: tuple[Step, ...]
    verify: Verify | None = None
    escalate: str | None = None  # a receiver
    origin: Origin = field(default=Origin("", 1, 1), metadata={"key": None})

    @property
    def name(self) -> str:
        """The playbook's name."""
        return self.playbook


class RunState(StrEnum):
    """Where a run is."""

    PLANNED = "planned"
    WAITING = "waiting"
    ACTING = "acting"
    VERIFYING = "verifying"
    HELPED = "helped"
    DID_NOT_HELP = "did_not_help"
    REFUSED = "refused"
    ESCALATED = "escalated"

    @property
    def terminal(self) -> bool:
        """Whether the run is over."""
        return self in (RunState.HELPED, RunState.REFUSED, RunState.ESCALATED)


class StepState(StrEnum):
    """Where one step of a run is."""

    PLANNED = "planned"
    INTENDED = "intended"  # the call is about to be made, or was made and its answer not yet recorded
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step with everything filled in. What was shown is what runs: `params` never change after planning."""

    name: str
    action: str
    params: Mapping[str, object]
    description: str  # what it will do, in words
    timeout: float  # seconds
    attempts: int
    backoff: float  # seconds
    wait: float  # seconds
    unless: str | None = None
    on_failure: OnFailure = OnFailure.STOP
    impossible: str = ""  # why it cannot be done; such a step is skipped with this reason
    state: StepState = StepState.PLANNED
    attempt: int = 0
    key: str = ""  # the idempotency key of the attempt; for Ray jobs the submission_id
    started_at: datetime | None = None
    ended_at: datetime | None = None
    message: str = ""

    @property
    def job(self) -> str:
        """The submission id of the Ray job that it started; "" if it started none."""
        return self.key if self.action == "ray_job" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A guardrail's no: which one, why, and when it may be asked again (None: not in this episode)."""

    guardrail: str
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a playbook for one episode of an alert."""

    id: str
    playbook: str
    rule_id: str
    labels: Labels  # of the alert
    signal: Labels
    fired_at: datetime
    target: str
    mode: Mode
    state: RunState
    steps: tuple[PlannedStep, ...]
    created_at: datetime
    updated_at: datetime
    verify_resolved: bool = True
    verify_expr: str | None = None
    verify_until: datetime | None = None
    acted_at: datetime | None = None  # end of the last step
    good_evaluations: int = 0  # successive ones after `acted_at` at which the rule's condition was false
    judged_at: datetime | None = None  # the newest of them
    refusal: Refusal | None = None
    approve_until: datetime | None = None
    approved_by: str | None = None
    reason: str = ""  # of the present state, in words

    @property
    def fingerprint(self) -> str:
        """The alert's fingerprint."""
        return self.labels.fingerprint

    @property
    def acted(self) -> bool:
        """Whether any call was made or intended."""
        return any(step.attempt > 0 for step in self.steps)

    @property
    def let_through(self) -> bool:
        """Whether guardrails count it: it has acted, or they have let it through and it is about to."""
        return self.acted or self.state is RunState.ACTING

"""Remediation from the asking alert to the verified end, on virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.errors import ClusterError, NotifyError, QueryUnavailable
from engine.model.event import Kind
from engine.model.playbook import RunState, StepState
from tests.flow.stage import ROUTES, RULES, Stage, playbook_of

ASKING = RULES + b"        remediate: {playbook: cool, after: 10s}\n"
COOL = """
playbook: cool
match: [alertname="Hot"]
target: "{{ $identity.cluster }}/{{ $identity.node }}"
mode: auto
guardrails: {cooldown: 5m}
steps:
  - {name: collect garbage, action: ray_job, with: {entrypoint: [python, -m, ray_ops.global_gc]}, timeout: 30s}
  - {name: stop the owner, action: ray_stop_job, with: {job: "{{ $plan.largest_owner.submission_id }}"}, wait: 5s}
verify: {within: 1m}
escalate: boss
"""


def asking(playbook: str = COOL, settings: str = ROUTES) -> Stage:
    stage = Stage(rules=ASKING, settings=settings, playbooks=playbook_of(playbook))
    stage.hot("n1:8080")
    return stage


def test_an_alert_is_healed_verified_and_resolves() -> None:
    stage = asking()
    stage.run(29)
    assert stage.runs == [], "`after` counts from firing"
    stage.run(10)
    (run,) = stage.runs
    assert run.target == "c/n1", "the node without its port"
    assert [step.state for step in run.steps] == [StepState.SUCCEEDED, StepState.SUCCEEDED]
    assert stage.ray.statuses["test-job"] == "STOPPED"
    assert run.state is RunState.VERIFYING
    stage.hot()
    stage.run(40)
    assert stage.runs[0].state is RunState.HELPED
    assert len(stage.runs) == 1
    assert stage.states == {"n1:8080": "resolved"}
    final = stage.r.sent[-1]
    assert final.reason.name in ("ALL_RESOLVED", "PROGRESS")
    assert final.runs[0].state is RunState.HELPED
    assert stage.boss.sent == []


def test_progress_updates_the_message_as_it_happens() -> None:
    stage = asking()
    stage.run(45)
    progress = [one for one in stage.r.sent if one.reason.name == "PROGRESS"]
    assert [one.runs[0].state for one in progress][-1] is RunState.VERIFYING


def test_what_does_not_help_is_passed_on_to_a_person_once() -> None:
    stage = asking()
    stage.boss.failures.append(NotifyError("HTTP 500", retryable=True, reason="server_error"))
    stage.run(200)
    assert stage.runs[0].state is RunState.ESCALATED
    assert [one.reason.name for one in stage.boss.sent] == ["ESCALATION"]
    assert len(stage.runs) == 1, "nothing more is tried in this episode"


def test_a_dry_run_says_what_would_be_done_and_calls_nothing() -> None:
    stage = asking(settings=ROUTES.replace("mode: auto", "mode: dry_run"))
    stage.run(60)
    (run,) = stage.runs
    assert run.state is RunState.REFUSED
    assert run.refusal is not None
    assert run.refusal.guardrail == "mode"
    assert [step.description for step in run.steps] == [
        "submit a Ray job: python -m ray_ops.global_gc",
        "stop Ray job test-job; its objects are freed, its owner has to submit it again",
    ]
    assert set(stage.ray.statuses) == {"test-job"}


@pytest.mark.parametrize(
    ("ours", "theirs", "planned"), [("off", "auto", 0), ("auto", "off", 0), ("dry_run", "auto", 1)]
)
def test_the_stricter_mode_wins(ours: str, theirs: str, planned: int) -> None:
    stage = asking(
        COOL.replace("mode: auto", f"mode: {ours}"), ROUTES.replace("mode: auto", f"mode: {theirs}")
    )
    stage.run(60)
    assert len(stage.runs) == planned
    assert set(stage.ray.statuses) == {"test-job"}


APPROVE = COOL.replace("mode: auto", "mode: approve").replace(
    "{cooldown: 5m}", "{cooldown: 5m, approval: {timeout: 1m}}"
)


def test_a_run_waits_for_a_person_and_goes_on_when_approved() -> None:
    stage = asking(APPROVE)
    stage.run(35)
    (run,) = stage.runs
    assert run.state is RunState.WAITING
    stage.store.decide(run.id, approve=True, by="ada", at=stage.at)
    stage.run(20)
    assert stage.runs[0].approved_by == "ada"
    assert stage.ray.statuses["test-job"] == "STOPPED"


def test_a_run_that_nobody_approves_is_refused() -> None:
    stage = asking(APPROVE)
    stage.run(35)
    stage.run(65)
    assert stage.runs[0].state is RunState.REFUSED
    assert "nobody answered" in stage.runs[0].reason
    assert len(stage.runs) == 1
    assert set(stage.ray.statuses) == {"test-job"}


def test_a_run_that_is_rejected_says_by_whom() -> None:
    stage = asking(APPROVE)
    stage.run(35)
    stage.store.decide(stage.runs[0].id, approve=False, by="ada", at=stage.at)
    stage.run(2)
    assert stage.runs[0].reason == "rejected by ada"


def test_an_approval_comes_too_late_once_the_alert_is_gone() -> None:
    stage = asking(APPROVE)
    stage.run(35)
    stage.hot()
    stage.run(30)
    assert stage.runs[0].state is RunState.REFUSED
    assert stage.runs[0].reason == "the alert fires no more"


def test_an_alert_found_late_is_told_but_never_healed() -> None:
    stage = asking()
    stage.run(60, late=True)
    assert len(stage.r.sent) >= 1
    assert set(stage.ray.statuses) == {"test-job"}
    assert stage.runs[0].refusal is not None
    assert stage.runs[0].refusal.guardrail == "late"


def test_a_playbook_refuses_alerts_that_it_does_not_serve() -> None:
    stage = asking(COOL.replace('alertname="Hot"', 'alertname="Cold"'))
    stage.run(60)
    assert stage.runs[0].refusal is not None
    assert stage.runs[0].refusal.guardrail == "match"
    assert set(stage.ray.statuses) == {"test-job"}


def test_the_cooldown_holds_over_episodes_and_restarts_and_then_ends() -> None:
    stage = asking()
    stage.run(45)
    stage.hot()
    stage.run(60)
    stage.hot("n1:8080")
    stage.restart()
    stage.run(60)
    assert [run.state for run in stage.runs] == [RunState.HELPED, RunState.REFUSED]
    assert "cooldown is 5m" in stage.runs[1].reason
    stage.ray.statuses["test-job"] = "RUNNING"
    stage.run(300)
    assert stage.runs[2].state in (RunState.VERIFYING, RunState.ESCALATED, RunState.DID_NOT_HELP)


def test_a_restart_in_the_middle_of_a_run_goes_on_with_it() -> None:
    stage = asking()
    stage.run(32)
    before = dict(stage.ray.statuses)
    assert stage.runs[0].state is RunState.ACTING
    stage.restart()
    stage.run(15)
    assert stage.runs[0].state is RunState.VERIFYING
    assert len(stage.ray.statuses) == len(before), "no second job"


def test_ray_that_is_down_delays_the_plan() -> None:
    stage = asking()
    objects = stage.ray.objects

    def down() -> list[dict[str, object]]:
        raise ClusterError("http://ray: connection refused")

    stage.ray.objects = down  # type: ignore[method-assign]
    stage.run(60)
    assert stage.runs == []
    assert [reason for reason in stage.reasons(Kind.RUN) if "cannot plan" in reason] == [
        "cannot plan: http://ray: connection refused"
    ], "said once"
    stage.ray.objects = objects  # type: ignore[method-assign]
    stage.run(30)
    assert len(stage.runs) == 1


def test_a_job_without_a_submission_id_cannot_be_stopped_and_that_is_said() -> None:
    stage = asking()
    stage.ray.jobs = list  # type: ignore[method-assign]
    stage.run(60)
    assert stage.runs[0].steps[1].state is StepState.SKIPPED
    assert "submission_id" in stage.runs[0].steps[1].message


def test_verification_waits_while_prometheus_is_away() -> None:
    stage = asking()
    stage.run(45)
    assert stage.runs[0].state is RunState.VERIFYING
    stage.source.error = QueryUnavailable("down")
    stage.run(20)
    assert stage.runs[0].state is RunState.VERIFYING
    stage.source.error = None
    stage.hot()
    stage.run(30)
    assert stage.runs[0].state is RunState.HELPED


def test_a_run_that_could_not_be_verified_says_that_and_not_that_it_failed() -> None:
    stage = asking()
    stage.run(40)
    assert stage.runs[0].state is RunState.VERIFYING
    stage.source.error = QueryUnavailable("down")
    stage.run(100)
    assert stage.runs[0].state is RunState.ESCALATED
    assert "nobody can say whether it helped" in stage.runs[0].reason


def test_a_run_is_the_same_for_every_engine_that_plans_it() -> None:
    one, other = asking(), asking()
    one.run(40)
    other.run(40)
    assert one.runs[0].id == other.runs[0].id
    assert [step.key for step in one.runs[0].steps] == [step.key for step in other.runs[0].steps]
    later = asking()
    later.at += timedelta(minutes=10)
    later.run(40)
    assert later.runs[0].id != one.runs[0].id

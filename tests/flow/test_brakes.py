"""What must not act does not, and what fails is done once, whatever fails around it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from engine.errors import NotifyError, QueryUnavailable, StoreError
from engine.model.event import Kind
from engine.model.labels import Labels
from engine.model.playbook import Run, RunState, StepState
from tests.flow.stage import ROUTES, RULES, Script, Stage, playbook_of
from tests.flow.test_healing import APPROVE, ASKING, COOL, asking


def acted(stage: Stage) -> int:
    return sum(run.acted for run in stage.runs)


@pytest.mark.parametrize(
    "playbook",
    [
        COOL.replace("{cooldown: 5m}", "{max_per_hour: 1}"),
        COOL.replace("{{ $identity.cluster }}/{{ $identity.node }}", "one target"),
    ],
)
def test_alerts_that_fire_at_the_same_instant_count_for_each_other(playbook: str) -> None:
    stage = asking(playbook)
    stage.hot("n1:1", "n2:1", "n3:1")
    stage.run(45)
    assert len(stage.runs) == 3
    assert acted(stage) == 1


def test_an_approval_that_is_found_after_its_time_does_not_act() -> None:
    stage = asking(APPROVE)
    stage.run(35)
    stage.at += timedelta(minutes=5)
    stage.store.decide(stage.runs[0].id, approve=True, by="ada", at=stage.at)
    stage.run(3)
    assert stage.runs[0].state is RunState.REFUSED
    assert acted(stage) == 0


def test_nothing_is_healed_on_the_word_of_an_alert_from_before_a_restart() -> None:
    stage = asking()
    stage.run(28)
    stage.at += timedelta(hours=3)
    stage.restart()
    stage.engine.heal(stage.at)
    assert stage.states == {"n1:8080": "firing"}
    assert stage.runs == []


def test_a_step_is_not_begun_on_the_word_of_an_alert_from_before_a_restart() -> None:
    stage = asking(COOL.replace("wait: 5s", "wait: 0s"))
    stage.run(32)
    assert stage.runs[0].steps[0].state is StepState.SUCCEEDED
    stage.at += timedelta(hours=3)
    stage.restart()
    stage.run(8)
    assert stage.runs[0].steps[1].state is StepState.PLANNED
    stage.run(3)
    assert stage.runs[0].steps[1].state is StepState.SUCCEEDED, (
        "the first evaluation said that it still fires"
    )


def test_a_mode_that_is_made_stricter_holds_up_what_is_under_way() -> None:
    stage = asking(COOL.replace("wait: 5s", "wait: 15s"))
    stage.run(33)
    stage._settings = ROUTES.replace("mode: auto", "mode: off")
    stage.restart()
    stage.run(30)
    assert stage.runs[0].steps[1].message == "mode is off by now"
    assert stage.ray.statuses["test-job"] == "RUNNING"


def test_a_run_that_nobody_could_be_told_of_ends_with_its_alert() -> None:
    stage = asking()
    stage.boss.failures.extend([NotifyError("down", retryable=True, reason="server_error")] * 1000)
    stage.run(150)
    assert stage.runs[0].state is RunState.DID_NOT_HELP
    stage.hot()
    stage.run(1200)
    assert stage.states == {}
    assert stage.runs[0].state is RunState.ESCALATED
    assert "was not told" in stage.runs[0].reason


def test_a_store_that_is_busy_once_delays_a_run_and_does_not_lose_it() -> None:
    stage = asking()
    add, failures = stage.store.add_run, [StoreError("busy")]

    def busy_once(run: Run) -> bool:
        if failures:
            raise failures.pop()
        return add(run)

    stage.store.add_run = busy_once  # type: ignore[method-assign]
    stage.run(45)
    assert acted(stage) == 1


def test_what_is_told_is_told_once_although_the_log_takes_nothing() -> None:
    stage = Stage()
    stage.hot("n1")

    def full(*_args: object) -> None:
        raise StoreError("disk full")

    save, stage.store.save_sent = stage.store.save_sent, full  # type: ignore[method-assign]
    stage.run(60)
    assert stage.r.told == [("FIRST", ["n1"], [])]
    stage.store.save_sent = save  # type: ignore[method-assign]
    stage.run(1)
    stage.restart()
    stage.run(30)
    assert stage.r.told == [("FIRST", ["n1"], [])], "it was noted as soon as it could be"


def test_a_fault_in_one_run_stops_no_other() -> None:
    stage = asking()
    stage.hot("n1:1", "n2:1")
    submit, broken = stage.ray.submit, list[str]()

    def faulty(submission_id: str, entrypoint: str, **options: Any) -> None:
        if not broken:
            broken.append(submission_id)
        if submission_id in broken:
            raise ValueError("boom")
        submit(submission_id, entrypoint, **options)

    stage.ray.submit = faulty  # type: ignore[method-assign]
    stage.run(120)
    by_key = {run.steps[0].key: run for run in stage.runs}
    assert by_key.pop(broken[0]).steps[0].state is StepState.FAILED
    assert [run.steps[0].state for run in by_key.values()] == [StepState.SUCCEEDED]


def test_why_a_run_is_put_off_is_said_once() -> None:
    stage = asking(COOL.replace("wait: 5s", "wait: 5s, unless: temperature"))
    stage.run(33)
    stage.query_fails(QueryUnavailable("down"))
    stage.run(120)
    assert stage.reasons(Kind.STEP) == ["put off: down"]


def test_a_failed_step_is_not_tried_again_once_the_alert_is_gone() -> None:
    stage = asking(COOL.replace("timeout: 30s", "timeout: 30s, retry: {attempts: 3, backoff: 20s}"))
    stage.ray.submit = lambda id_, _entrypoint, **_options: stage.ray.statuses.update({id_: "FAILED"})  # type: ignore[method-assign]
    stage.run(33)
    stage.hot()
    stage.run(60)
    assert stage.runs[0].steps[0].attempt == 1
    assert "not tried again: the alert fires no more" in stage.runs[0].steps[0].message


def test_what_was_settled_in_an_episode_is_forgotten_with_it() -> None:
    stage = asking(COOL.replace("mode: auto", "mode: off"))
    stage.run(45)
    assert len(stage.engine.healer._settled) == 1
    stage.hot()
    stage.run(60)
    assert stage.engine.healer._settled == {}


CONFIRMED = ASKING.replace(
    b"after: 10s}", b"after: 10s, confirm: 'disk_full{instance=\"{{ $labels.instance }}\"}'}"
)


def test_nothing_is_done_before_the_second_signal_agrees() -> None:
    stage = Stage(rules=CONFIRMED, settings=ROUTES, playbooks=playbook_of(COOL))
    stage.hot("n1:1", 'n2"} or vector(1)')
    stage.run(60)
    assert stage.runs == []
    said = [reason for reason in stage.reasons(Kind.RUN) if "not confirmed" in reason]
    assert said == [
        'not confirmed: no series for disk_full{instance="n1:1"}',
        'not confirmed: no series for disk_full{instance="n2\\"} or vector(1)"}',
    ], "once each, and a label's value stays a string"
    stage.source.by_expr['disk_full{instance="n1:1"}'] = {Labels(): 1.0}
    stage.run(15)
    assert [run.signal["instance"] for run in stage.runs] == ["n1:1"]


def test_a_second_signal_that_cannot_be_asked_is_none() -> None:
    stage = Stage(rules=CONFIRMED, settings=ROUTES, playbooks=playbook_of(COOL))
    stage.hot("n1:1")
    stage.run(25)

    def fails(expr: str, at: object) -> object:
        if expr.startswith("disk_full"):
            raise QueryUnavailable("away")
        return Script.instant(stage.source, expr, at)  # type: ignore[arg-type]

    stage.source.instant = fails  # type: ignore[assignment,method-assign]
    stage.run(30)
    assert stage.runs == []
    assert "cannot be confirmed: away" in stage.reasons(Kind.RUN)


BUDGET = RULES + b"        budget: {alerts: 2, per: 1h}\n        remediate: {playbook: cool, after: 10s}\n"
EACH = ROUTES.replace("group_by: [alertname]", "group_by: [alertname, instance]")


def test_alerts_beyond_the_budget_are_held_back_and_one_alert_tells_of_them() -> None:
    stage = Stage(rules=BUDGET, settings=EACH, playbooks=playbook_of(COOL))
    stage.hot("n1:1", "n2:1", "n3:1", "n4:1")
    stage.run(45)
    firing = {alert.labels["instance"] for alert in stage.alerts if alert.firing and alert.name == "Hot"}
    assert firing == {"n1:1", "n2:1", "n3:1", "n4:1"}
    told = {alert.labels["instance"] for one in stage.r.sent for alert in one.alerts if alert.name == "Hot"}
    assert told == {"n1:1", "n2:1"}
    assert {run.signal["instance"] for run in stage.runs} <= told
    (over,) = [alert for alert in stage.alerts if alert.name == "EngineRuleOverBudget"]
    assert over.annotations["description"] == (
        "4 of its alerts began to fire within 1h, and its budget is 2; 2 firing now are neither told nor healed: "
        '{instance="n3:1"}, {instance="n4:1"}'
    )
    assert "its rule's budget is spent" in stage.reasons(Kind.MUTED)


def test_a_budget_is_remembered_over_a_restart_and_frees_itself() -> None:
    stage = Stage(rules=BUDGET, settings=EACH)
    stage.hot("n1:1", "n2:1")
    stage.run(45)
    stage.restart()
    stage.hot("n1:1", "n2:1", "n3:1")
    stage.run(40)
    assert [alert.labels["instance"] for alert in stage.alerts if alert.over_budget] == ["n3:1"]
    stage.hot()
    stage.run(60)
    assert not any(alert.firing for alert in stage.alerts)
    stage.at += timedelta(hours=1)
    stage.hot("n3:1")
    stage.run(45)
    assert [alert.over_budget for alert in stage.alerts if alert.firing] == [False]

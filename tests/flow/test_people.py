"""People are asked and told once, muted aloud, and never left with an alert whose rule is gone."""

from __future__ import annotations

import pytest

from engine.errors import NotifyError
from engine.model.event import Kind
from engine.model.labels import Labels
from engine.model.playbook import RunState
from tests.flow.stage import ROUTES, RULES, Stage
from tests.flow.test_healing import APPROVE, COOL, asking


def test_whoever_is_to_approve_is_asked_once() -> None:
    stage = asking(APPROVE.replace("approval: {timeout: 1m}", "approval: {timeout: 1m, receiver: boss}"))
    stage.boss.failures.append(NotifyError("HTTP 500", retryable=True, reason="server_error"))
    stage.run(60)
    (asked,) = stage.boss.sent
    assert asked.reason.name == "APPROVAL"
    assert asked.runs[0].state is RunState.WAITING


def test_a_playbook_may_be_verified_by_an_expression_alone() -> None:
    playbook = COOL.replace("verify: {within: 1m}", "verify: {resolved: false, expr: cool, within: 1m}")
    stage = asking(playbook)
    stage.run(60)
    assert stage.runs[0].state is RunState.VERIFYING
    stage.source.by_expr["cool"] = {Labels(room="1"): 1.0}
    stage.run(5)
    assert stage.runs[0].state is RunState.HELPED
    assert stage.runs[0].reason == "`cool` returns something"
    assert stage.states == {"n1:8080": "firing"}


def test_a_run_that_could_do_nothing_is_passed_on() -> None:
    playbook = COOL.replace("  - {name: collect garbage", "  # - {name: collect garbage")
    stage = asking(playbook)
    stage.ray.jobs = list  # type: ignore[method-assign]
    stage.run(60)
    assert stage.runs[0].state is RunState.ESCALATED
    assert stage.runs[0].reason.startswith("nothing was done: ")
    assert len(stage.boss.sent) == 1


NIGHTS = (
    ROUTES.replace(
        "group_interval: 10s}", "group_interval: 10s, routes: [{receiver: r, mute_time_intervals: [always]}]}"
    )
    + "time_intervals: [{name: always, time_intervals: [{times: [{start_time: '00:00', end_time: '24:00'}]}]}]\n"
)


def test_an_alert_muted_by_the_calendar_is_on_record_once() -> None:
    stage = Stage(settings=NIGHTS)
    stage.hot("n1")
    stage.run(120)
    assert stage.r.sent == []
    assert stage.reasons(Kind.MUTED) == ["inside mute time interval 'always'"]


@pytest.mark.parametrize("state", ["firing", "pending"])
def test_what_fired_when_its_rule_went_is_told_as_resolved(state: str) -> None:
    stage = Stage()
    stage.hot("n1")
    stage.run(25 if state == "firing" else 11)
    stage._rules = RULES.replace(b"alert: Hot", b"alert: Warm").replace(b"> 50", b"> 5000")
    stage.hot()
    stage.restart()
    stage.run(40)
    assert stage.r.told == (
        [("FIRST", ["n1"], []), ("ALL_RESOLVED", [], ["n1"])] if state == "firing" else []
    )
    stage._rules = RULES
    stage.restart()
    assert stage.states == {}, "a rule that comes back does not bring its old alerts"

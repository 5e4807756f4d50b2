"""What may say no says it with its reason, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.load.playbooks import read_playbook
from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels, Matcher, Matchers, MatchOp
from engine.model.playbook import Mode, PlannedStep, Playbook, Refusal, Run, RunState, Step
from engine.model.ports import Case, Guardrail
from engine.remediate.actions.ray_stop_job import RayStopJob
from engine.remediate.guard import refusals
from engine.remediate.guardrails.breaker import Breaker
from engine.remediate.guardrails.cooldown import Cooldown
from engine.remediate.guardrails.max_per_hour import MaxPerHour

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
HOT = Labels(alertname="Hot", instance="n1", severity="page")
ALERT = Alert(
    rule_id="f;g;Hot",
    labels=HOT,
    signal=Labels(instance="n1"),
    state=AlertState.FIRING,
    value=60,
    active_at=NOW - HOUR,
    fired_at=NOW - HOUR,
)
PLAYBOOK = Playbook(
    playbook="cool",
    match=(Matchers([Matcher("alertname", MatchOp.EQUAL, "Hot")]),),
    steps=(Step(name="stop", act=RayStopJob(job="x")),),
)


def a_run(
    ago: timedelta = timedelta(),
    *,
    state: RunState = RunState.HELPED,
    acted: bool = True,
    target: str = "c/n1",
    playbook: str = "cool",
    took: timedelta = timedelta(),
) -> Run:
    """A run that was planned some time ago, and whose last step ended `took` later."""
    step = PlannedStep(
        name="stop",
        action="ray_stop_job",
        params={"job": "x"},
        description="stop x",
        timeout=60,
        attempts=1,
        backoff=10,
        wait=0,
        attempt=1 if acted else 0,
    )
    return Run(
        id=f"r{int(ago.total_seconds())}",
        playbook=playbook,
        rule_id="f;g;Hot",
        labels=HOT,
        signal=Labels(),
        fired_at=NOW - ago,
        target=target,
        mode=Mode.AUTO,
        state=state,
        steps=(step,),
        created_at=NOW - ago,
        updated_at=NOW - ago + took,
        acted_at=NOW - ago + took if acted else None,
    )


def case(*history: Run, mode: Mode = Mode.AUTO, playbook: Playbook = PLAYBOOK, alert: Alert = ALERT) -> Case:
    present = a_run(state=RunState.PLANNED, acted=False)
    newest_first = sorted(history, key=lambda run: run.created_at, reverse=True)
    return Case(playbook=playbook, run=present, alert=alert, mode=mode, history=newest_first, at=NOW)


COOLDOWN = Cooldown(per_target=Duration(minutes=30))


@pytest.mark.parametrize(
    ("run", "until"),
    [
        (a_run(10 * MINUTE), NOW + 20 * MINUTE),
        (a_run(31 * MINUTE), None),
        (a_run(30 * MINUTE), None),  # the end is exclusive
        (a_run(31 * MINUTE, took=5 * MINUTE), NOW + 4 * MINUTE),  # counted from the last step
        (a_run(10 * MINUTE, target="c/n2"), None),
        (a_run(10 * MINUTE, playbook="warm"), None),
        (a_run(10 * MINUTE, acted=False, state=RunState.REFUSED), None),  # what did not act does not count
        (a_run(10 * MINUTE, state=RunState.ESCALATED), NOW + 20 * MINUTE),
        (a_run(2 * HOUR, state=RunState.VERIFYING), NOW + 30 * MINUTE),  # it is not over yet
        (a_run(2 * HOUR, state=RunState.DID_NOT_HELP), None),  # it is, though nobody has been told
        (
            a_run(state=RunState.ACTING, acted=False),
            NOW + 30 * MINUTE,
        ),  # it was let through and is about to act
    ],
)
def test_a_target_is_left_alone_for_the_cooldown(run: Run, until: datetime | None) -> None:
    refusal = COOLDOWN.check(case(run))
    assert (refusal and refusal.until) == until
    if refusal is not None:
        assert run.id in refusal.reason
        assert "cooldown is 30m" in refusal.reason


def test_the_newest_run_on_the_target_sets_the_cooldown() -> None:
    refusal = COOLDOWN.check(case(a_run(25 * MINUTE), a_run(5 * MINUTE), a_run(MINUTE, target="c/n2")))
    assert refusal is not None
    assert refusal.until == NOW + 25 * MINUTE


@pytest.mark.parametrize(
    ("ages", "until"),
    [
        ([], None),
        ([10], None),
        ([10, 20], NOW + 40 * MINUTE),  # when the older of the two is an hour old
        ([10, 59], NOW + MINUTE),
        ([10, 60], None),
        ([10, 20, 30], NOW + 40 * MINUTE),  # when only one is left within the hour
    ],
)
def test_a_playbook_acts_at_most_so_often_an_hour(ages: list[int], until: datetime | None) -> None:
    history = [a_run(age * MINUTE, target=f"c/n{age}") for age in ages]
    refusal = MaxPerHour(runs=2).check(case(*history))
    assert (refusal and refusal.until) == until
    if refusal is not None:
        assert f"{len(ages)} runs of cool acted within the last hour; at most 2 may" in refusal.reason


def test_what_did_not_act_and_other_playbooks_do_not_count_for_the_hour() -> None:
    history = [
        a_run(MINUTE, acted=False, state=RunState.REFUSED),
        a_run(2 * MINUTE, playbook="warm"),
        a_run(3 * MINUTE),
    ]
    assert MaxPerHour(runs=2).check(case(*history)) is None


@given(st.lists(st.integers(0, 90), max_size=12), st.integers(1, 5))
def test_once_the_hour_says_yes_again_it_does(ages: list[int], runs: int) -> None:
    rail, now = MaxPerHour(runs=runs), case(*[a_run(age * MINUTE) for age in ages])
    refusal = rail.check(now)
    assert (refusal is None) is (sum(age < 60 for age in ages) < runs)
    if refusal is not None:
        assert refusal.until is not None
        assert rail.check(replace(now, at=refusal.until)) is None
        assert rail.check(replace(now, at=refusal.until - timedelta(seconds=1))) is not None


F, H, E = RunState.DID_NOT_HELP, RunState.HELPED, RunState.ESCALATED
BREAKER = Breaker(failures=2, open_for=Duration(hours=6))


@pytest.mark.parametrize(
    ("states", "opens"),
    [
        ([], False),
        ([F], False),
        ([F, F], True),
        ([E, F], True),
        ([E, E, E], True),
        ([F, H, F], False),  # newest first: what helps closes it
        ([H, F, F], False),
        ([F, F, H], True),
        ([F, RunState.VERIFYING, F], True),  # what is not over says nothing
    ],
)
def test_the_breaker_opens_after_so_many_failures_in_a_row(states: Sequence[RunState], opens: bool) -> None:
    history = [a_run((10 + age) * MINUTE, state=state) for age, state in enumerate(states)]
    refusal = BREAKER.check(case(*history))
    assert (refusal is not None) is opens
    if refusal is not None:
        assert refusal.until == NOW - 10 * MINUTE + 6 * HOUR, "counted from the newest failure"
        assert "runs of cool did not help; open until 2026-01-01 17:50 UTC" in refusal.reason


def test_the_breaker_lets_one_try_when_its_time_is_over_and_opens_again_if_that_fails() -> None:
    old = [a_run(7 * HOUR, state=E), a_run(8 * HOUR, state=E)]
    assert BREAKER.check(case(*old)) is None
    assert BREAKER.check(case(*old, a_run(MINUTE, state=F))) is not None
    assert BREAKER.check(case(*old, a_run(MINUTE, state=H))) is None


def test_the_breaker_counts_only_what_acted_and_only_its_own_playbook() -> None:
    history = [
        a_run(MINUTE, state=F),
        a_run(2 * MINUTE, state=E, acted=False),
        a_run(3 * MINUTE, state=F, playbook="warm"),
    ]
    assert BREAKER.check(case(*history)) is None


@pytest.mark.parametrize("make", [lambda: Breaker(failures=0), lambda: MaxPerHour(runs=0)])
def test_a_guardrail_that_could_never_say_yes_is_refused(make: type[Guardrail]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make()


def test_guardrails_are_read_from_a_playbook() -> None:
    problems: list[object] = []
    content = b"""
playbook: cool
match: [alertname="Hot"]
guardrails: {cooldown: 30m, max_per_hour: 4, breaker: {failures: 3, open_for: 1h}}
steps: [{name: stop, action: ray_stop_job, with: {job: x}}]
"""
    playbook = read_playbook("p.yaml", content, problems)  # type: ignore[arg-type]
    assert problems == []
    assert playbook is not None
    assert playbook.guardrails == (
        Cooldown(per_target=Duration(minutes=30)),
        MaxPerHour(runs=4),
        Breaker(failures=3, open_for=Duration(hours=1)),
    )


def said(found: Case) -> list[str]:
    return [refusal.guardrail for refusal in refusals(found)]


class Never:
    def check(self, case: Case) -> Refusal | None:
        return Refusal(guardrail="never", reason="no")


class Always:
    def check(self, case: Case) -> Refusal | None:
        return None


def test_a_run_may_act_when_nobody_says_no() -> None:
    assert said(case()) == []
    assert said(case(mode=Mode.APPROVE)) == [], "the question to a person comes after the guardrails"


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.DRY_RUN])
def test_a_mode_that_does_not_act_is_a_refusal(mode: Mode) -> None:
    (refusal,) = refusals(case(mode=mode))
    assert refusal.guardrail == "mode"
    assert mode.value in refusal.reason
    assert refusal.until is None


def test_an_alert_that_the_playbook_does_not_serve_is_refused_with_whom_it_serves() -> None:
    (refusal,) = refusals(case(alert=replace(ALERT, labels=Labels(alertname="Cold"))))
    assert refusal.guardrail == "match"
    assert refusal.reason == 'cool serves {alertname="Hot"}; this alert is {alertname="Cold"}'


def test_any_of_the_matchers_is_enough_and_none_is_none() -> None:
    cold = Matchers([Matcher("alertname", MatchOp.EQUAL, "Cold")])
    assert said(case(playbook=replace(PLAYBOOK, match=(cold, *PLAYBOOK.match)))) == []
    assert said(case(playbook=replace(PLAYBOOK, match=(cold,)))) == ["match"]
    assert said(case(playbook=replace(PLAYBOOK, match=()))) == ["match"]


def test_everything_that_says_no_is_heard_in_order() -> None:
    playbook = replace(PLAYBOOK, match=(), guardrails=(Always(), Never(), COOLDOWN))
    alert = replace(ALERT, late=True)
    found = case(a_run(MINUTE), mode=Mode.DRY_RUN, playbook=playbook, alert=alert)
    assert said(found) == ["match", "late", "mode", "never", "cooldown"]

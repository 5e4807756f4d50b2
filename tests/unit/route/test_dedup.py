"""Why an integration is told, or not: Alertmanager's table of cases, and what the log owes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.model.alert import Alert, AlertState
from engine.model.labels import Labels
from engine.model.notification import Reason, Sent
from engine.model.playbook import Mode, PlannedStep, Run, RunState, StepState
from engine.route.dedup import Delivery, Integration, decide, plan, progress_of
from engine.route.groups import Group
from engine.route.tree import ResolvedRoute

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ROUTE = ResolvedRoute(key="{}", id="{}", receiver="team")


def entry(
    firing: str = "", resolved: str = "", owed: str = "", age: timedelta = timedelta(), progress: str = ""
) -> Sent:
    """An entry whose fingerprints are single letters."""
    return Sent(
        key="k",
        firing=frozenset(firing),
        resolved=frozenset(resolved),
        owed=frozenset(owed),
        at=AT - age,
        progress=progress,
    )


@pytest.mark.parametrize(
    ("firing", "resolved", "known", "send_resolved", "reason"),
    [
        ("a", "", None, True, Reason.FIRST),
        ("", "a", None, True, None),
        ("", "", None, True, None),
        ("a", "", entry("a"), True, None),
        ("a", "", entry("ab"), True, None),
        ("ab", "", entry("a"), True, Reason.NEW_ALERTS),
        ("ab", "", entry("a"), False, Reason.NEW_ALERTS),
        ("a", "", entry("", "a"), True, Reason.FIRST),
        ("a", "b", entry("ab"), True, Reason.RESOLVED),
        ("a", "b", entry("ab"), False, None),
        ("a", "b", entry("a", "b"), True, None),
        ("ac", "b", entry("ab"), True, Reason.NEW_ALERTS),
        ("", "a", entry("a"), True, Reason.ALL_RESOLVED),
        ("", "a", entry("a"), False, Reason.ALL_RESOLVED),
        ("", "a", entry("", "a"), True, None),
        ("", "b", entry("", "a"), True, None),
        ("a", "", entry("a", age=HOUR), True, None),
        ("a", "", entry("a", age=HOUR + timedelta(microseconds=1)), True, Reason.REPEAT),
        ("", "a", entry("", "a", age=9 * HOUR), True, None),
        # What follows is not Alertmanager's.
        ("", "a", entry(owed="a"), True, Reason.FIRST),
        ("", "a", entry(owed="a"), False, Reason.FIRST),
        ("b", "a", entry("b", owed="a"), False, Reason.NEW_ALERTS),
        ("a", "", entry("", owed="a"), True, Reason.FIRST),
        ("b", "", entry("b", owed="a"), True, None),
    ],
)
def test_reasons_come_in_alertmanagers_order(
    firing: str, resolved: str, known: Sent | None, send_resolved: bool, reason: Reason | None
) -> None:
    found = decide(
        firing=frozenset(firing),
        resolved=frozenset(resolved),
        entry=known,
        repeat_interval=HOUR,
        send_resolved=send_resolved,
        at=AT,
    )
    assert found is reason


@pytest.mark.parametrize(
    ("firing", "known", "progress", "in_place", "reason"),
    [
        ("a", entry("a", progress="1"), "2", True, Reason.PROGRESS),
        ("a", entry("a", progress="1"), "2", False, None),
        ("a", entry("a", progress="1"), "1", True, None),
        ("a", entry("a", progress="1"), "", True, None),
        ("", entry("", "a", progress="1"), "2", True, Reason.PROGRESS),
        ("a", entry("a", progress="1", age=2 * HOUR), "2", True, Reason.REPEAT),
        ("a", entry("", progress="1"), "2", True, Reason.FIRST),
        ("a", None, "2", True, Reason.FIRST),
        ("", None, "2", True, None),
    ],
)
def test_progress_is_the_last_reason_and_only_for_updates_in_place(
    firing: str, known: Sent | None, progress: str, in_place: bool, reason: Reason | None
) -> None:
    found = decide(
        firing=frozenset(firing),
        resolved=frozenset("a") - frozenset(firing),
        entry=known,
        repeat_interval=HOUR,
        send_resolved=True,
        at=AT,
        progress=progress,
        updates_in_place=in_place,
    )
    assert found is reason


def alert(name: str, *, resolved: timedelta | None = None) -> Alert:
    """An alert; `resolved` is how long ago."""
    return Alert(
        rule_id="r",
        labels=Labels(alertname=name),
        signal=Labels(),
        state=AlertState.FIRING if resolved is None else AlertState.RESOLVED,
        value=1.0,
        active_at=AT - 9 * HOUR,
        fired_at=AT - 9 * HOUR,
        resolved_at=None if resolved is None else AT - resolved,
    )


def group(*alerts: Alert) -> Group:
    return Group(id="{}:{}", key="{}:{}", route=ROUTE, labels=Labels(), alerts=alerts)


def told(
    known: Sent | None, *alerts: Alert, send_resolved: bool = True, in_place: bool = False, **more: object
) -> Delivery | None:
    to = Integration(key="k", entry=known, send_resolved=send_resolved, updates_in_place=in_place)
    return plan(group(*alerts), to, AT, **more)  # type: ignore[arg-type]


A, B, C = (alert(name) for name in "ABC")
B_ENDED = alert("B", resolved=timedelta(minutes=1))
PRINTS = {name: alert(name).fingerprint for name in "ABC"}


def prints(names: str) -> frozenset[str]:
    return frozenset(PRINTS[name] for name in names)


def known_by(firing: str = "", resolved: str = "", owed: str = "", **fields: object) -> Sent:
    by_name = Sent(
        key="k",
        firing=prints(firing),
        resolved=prints(resolved),
        owed=prints(owed),
        at=AT - HOUR,
        receipt={"ts": "1"},
    )
    return replace(by_name, **fields)  # type: ignore[arg-type]


def test_a_first_notification_begins_a_new_message() -> None:
    delivery = told(known_by(resolved="A"), A, B)
    assert delivery is not None
    assert (delivery.reason, delivery.alerts, delivery.previous) == (Reason.FIRST, (A, B), None)
    assert delivery.done({"ts": "2"}) == Sent(key="k", firing=prints("AB"), at=AT, receipt={"ts": "2"})
    assert delivery.failed == known_by(resolved="A", owed="AB")


def test_a_later_notification_continues_the_message() -> None:
    delivery = told(known_by("A"), A, B, progress="p")
    assert delivery is not None
    assert (delivery.reason, delivery.previous) == (Reason.NEW_ALERTS, {"ts": "1"})
    assert delivery.done() == Sent(key="k", firing=prints("AB"), at=AT, receipt={"ts": "1"}, progress="p")
    assert delivery.failed == known_by("A", owed="B")


def test_a_resolution_that_could_not_be_told_stays_to_be_told() -> None:
    delivery = told(known_by("AB"), A, B_ENDED)
    assert delivery is not None
    assert (delivery.reason, delivery.alerts) == (Reason.RESOLVED, (A, B_ENDED))
    assert delivery.failed == known_by("AB")


def test_without_send_resolved_the_end_is_noted_and_not_told() -> None:
    delivery = told(known_by("B"), B_ENDED, send_resolved=False)
    assert delivery is not None
    assert (delivery.reason, delivery.alerts) == (Reason.ALL_RESOLVED, ())
    assert delivery.done() == known_by("", "B", at=AT)


def test_an_owed_alert_is_told_though_it_has_resolved() -> None:
    for send_resolved in (True, False):
        delivery = told(known_by(owed="B"), B_ENDED, send_resolved=send_resolved)
        assert delivery is not None
        assert (delivery.reason, delivery.alerts) == (Reason.FIRST, (B_ENDED,))
        assert delivery.done({}).owed == frozenset()
        assert delivery.failed == known_by(owed="B")


def test_what_was_told_as_resolved_is_shown_again_only_where_the_message_is_updated() -> None:
    once = told(known_by("A", "B"), A, B_ENDED, C)
    again = told(known_by("A", "B"), A, B_ENDED, C, in_place=True)
    assert once is not None
    assert again is not None
    assert once.alerts == (A, C)
    assert again.alerts == (A, B_ENDED, C)


def test_what_the_log_has_forgotten_is_not_told_as_resolved_again() -> None:
    told_long_ago = alert("B", resolved=2 * HOUR)
    assert told(known_by("A"), A, told_long_ago) is None
    delivery = told(known_by("A"), A, told_long_ago, C)
    assert delivery is not None
    assert delivery.alerts == (A, C)


def test_a_muted_alert_is_not_spoken_of() -> None:
    assert told(None, A, muted=prints("A")) is None
    assert told(known_by("A"), A, muted=prints("A")) is None
    delivery = told(None, A, B, muted=prints("A"))
    assert delivery is not None
    assert delivery.alerts == (B,)


def test_a_muted_alert_that_was_told_stays_told() -> None:
    delivery = told(known_by("AB"), A, B_ENDED, C, muted=prints("A"))
    assert delivery is not None
    assert delivery.alerts == (B_ENDED, C)
    assert delivery.told.firing == prints("AC")
    assert told(delivery.done(), A, C) is None


def test_a_muted_alert_does_not_keep_the_others_from_being_over() -> None:
    delivery = told(known_by("AB"), A, B_ENDED, muted=prints("A"))
    assert delivery is not None
    assert delivery.reason is Reason.ALL_RESOLVED
    again = told(delivery.done(), A)
    assert again is not None
    assert again.reason is Reason.FIRST


def test_an_owed_alert_stays_owed_while_it_is_muted() -> None:
    delivery = told(known_by(owed="B"), A, B_ENDED, muted=prints("B"))
    assert delivery is not None
    assert delivery.alerts == (A,)
    assert delivery.told.owed == prints("B")


@pytest.mark.parametrize("early", [False, True])
def test_progress_changes_neither_what_was_told_nor_when(early: bool) -> None:
    known = known_by("A", "C", progress="1")
    delivery = told(known, A, in_place=True, progress="2", early=early)
    assert delivery is not None
    assert (delivery.reason, delivery.alerts, delivery.previous) == (Reason.PROGRESS, (A,), {"ts": "1"})
    assert delivery.done({"ts": "2"}) == replace(known, progress="2", receipt={"ts": "2"})
    assert delivery.failed == known


def test_early_progress_does_not_let_new_alerts_pass_unnoticed() -> None:
    delivery = told(known_by("A", progress="1"), A, B, in_place=True, progress="2", early=True)
    assert delivery is not None
    assert delivery.alerts == (A,)
    later = told(delivery.done(), A, B, in_place=True, progress="2")
    assert later is not None
    assert later.reason is Reason.NEW_ALERTS


@pytest.mark.parametrize(
    "known",
    [None, known_by("A", progress="2"), known_by("A", progress="1", receipt={})],
)
def test_early_there_is_nothing_but_progress(known: Sent | None) -> None:
    in_place = known is None or known.progress == "2"
    assert told(known, A, B, in_place=in_place, progress="2", early=True) is None


def test_early_progress_does_not_let_an_alert_that_fires_anew_pass_unnoticed() -> None:
    delivery = told(known_by("A", "B", progress="1"), A, B, in_place=True, progress="2", early=True)
    assert delivery is not None
    assert delivery.alerts == (A,)


def test_progress_of_alerts_that_were_never_told_is_not_told() -> None:
    assert (
        told(known_by(resolved="A", progress="1"), B_ENDED, in_place=True, progress="2", early=True) is None
    )


def a_run(**fields: object) -> Run:
    step = PlannedStep(
        name="s", action="a", params={}, description="d", timeout=1.0, attempts=1, backoff=1.0, wait=0.0
    )
    run = Run(
        id="1",
        playbook="p",
        rule_id="r",
        labels=Labels(),
        signal=Labels(),
        fired_at=AT,
        target="t",
        mode=Mode.AUTO,
        state=RunState.PLANNED,
        steps=(step,),
        created_at=AT,
        updated_at=AT,
    )
    return replace(run, **fields)  # type: ignore[arg-type]


def test_the_digest_of_runs_changes_with_what_can_be_seen_of_them() -> None:
    (step,) = a_run().steps
    seen = [
        [],
        [a_run()],
        [a_run(state=RunState.ACTING)],
        [a_run(reason="because")],
        [a_run(steps=(replace(step, state=StepState.RUNNING),))],
        [a_run(steps=(replace(step, message="half way"),))],
        [a_run(), a_run(id="2")],
    ]
    assert len({progress_of(runs) for runs in seen}) == len(seen)
    assert progress_of([]) == ""
    assert progress_of([a_run(), a_run(id="2")]) == progress_of([a_run(id="2"), a_run()])
    assert progress_of([a_run(updated_at=AT + HOUR, good_evaluations=1)]) == progress_of([a_run()])

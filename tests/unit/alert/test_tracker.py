"""The life of an alert is Prometheus': pending, firing, resolved, and nothing told twice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.alert.tracker import REMEMBER_RESOLVED, Finding, Tracker
from engine.detect.present import Present
from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.rule import AlertingRule

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LABELS = Labels(alertname="Hot", room="a")
SIGNS = {"pending": "p", "firing": "F", "resolved": "r"}
VERDICTS = {"x": True, ".": False, "?": None}


def a_rule(hold: str = "0s", keep: str = "0s") -> AlertingRule:
    return AlertingRule(
        alert="Hot",
        expr="temperature > 50",
        hold=Duration.parse(hold),
        keep_firing_for=Duration.parse(keep),
        detect=Present(),
        id="f;g;Hot",
    )


def finding(bad: bool | None, *, value: float = 60.0, labels: Labels = LABELS, summary: str = "") -> Finding:
    return Finding(
        labels=labels,
        signal=labels.without("alertname"),
        bad=bad,
        value=value,
        details={"eta": value},
        annotations={"summary": summary},
    )


def only(tracker: Tracker) -> Alert:
    (alert,) = tracker.alerts
    return alert


def life(rule: AlertingRule, verdicts: str) -> str:
    """What becomes of an alert at one verdict a minute: x bad, . good, ? too little to say, - not in the result."""
    tracker, signs = Tracker(rule), []
    for minute, sign in enumerate(verdicts):
        found = [] if sign == "-" else [finding(VERDICTS[sign])]
        tracker.update(found, T0 + minute * MINUTE)
        signs.append("".join(SIGNS[alert.state] for alert in tracker.alerts) or ".")
    return "".join(signs)


@pytest.mark.parametrize(
    ("hold", "keep", "verdicts", "states"),
    [
        ("0s", "0s", "xx.x", "FFrF"),  # without `for` it fires at once
        ("2m", "0s", "xxxx", "ppFF"),
        ("90s", "0s", "xxxx", "ppFF"),  # at the first evaluation that is late enough
        ("30s", "0s", "xx", "pF"),  # shorter than the interval: the second one
        ("2m", "0s", "xx.xxx", "pp.ppF"),  # a pending alert that turns good is forgotten, and begins anew
        ("2m", "0s", "xx-xxx", "pp.ppF"),  # so it is when the series is gone
        ("0s", "2m", "x...", "FFFr"),
        ("0s", "2m", "x.x...", "FFFFFr"),  # what turns bad again keeps firing, and is held again in full
        ("0s", "30s", "x..", "FFr"),
        ("0s", "2m", "x---", "FFFr"),
        ("1m", "1m", "xx..", "pFFr"),
        ("2m", "0s", "x?x", "ppF"),  # what cannot be judged stays as it is
        ("2m", "0s", "xx???x", "pppppF"),
        ("0s", "0s", "x??.", "FFFr"),
        ("0s", "3m", "x.??..", "FFFFrr"),  # time goes on meanwhile
        ("0s", "0s", "??", ".."),  # and starts nothing
        ("0s", "0s", "x.?x", "FrrF"),
        ("2m", "0s", "xxx.xxx", "ppFrppF"),  # the next episode waits its time, too
        ("0s", "0s", "....", "...."),
    ],
)
def test_an_alert_lives_as_in_prometheus(hold: str, keep: str, verdicts: str, states: str) -> None:
    assert life(a_rule(hold, keep), verdicts) == states


def test_a_resolved_alert_is_remembered_for_fifteen_minutes() -> None:
    assert timedelta(minutes=15) == REMEMBER_RESOLVED
    assert life(a_rule(), "x." + "-" * 18) == "Fr" + "r" * 15 + "...", "so that the resolution is delivered"


def test_value_details_and_annotations_are_those_of_the_newest_evaluation() -> None:
    tracker = Tracker(a_rule())
    tracker.update([finding(True, value=60, summary="60")], T0)
    tracker.update([finding(True, value=70, summary="70")], T0 + MINUTE, warnings=("partial",))
    alert = only(tracker)
    assert (alert.value, alert.details, alert.annotations) == (70, {"eta": 70}, {"summary": "70"})
    assert alert.warnings == ("partial",)
    assert alert.seen_at == T0 + MINUTE
    assert alert.fired_at == alert.active_at == T0


def test_what_was_last_seen_is_kept_while_an_alert_is_held_and_once_it_has_resolved() -> None:
    tracker = Tracker(a_rule(keep="1m"))
    tracker.update([finding(True, value=60, summary="60")], T0)
    tracker.update([finding(False, value=3, summary="")], T0 + MINUTE)
    assert (only(tracker).value, only(tracker).annotations) == (60, {"summary": "60"})
    tracker.update([], T0 + 2 * MINUTE)
    assert only(tracker).state is AlertState.RESOLVED
    assert (only(tracker).value, only(tracker).annotations) == (60, {"summary": "60"})


def test_every_change_of_state_is_reported_with_what_was_before() -> None:
    tracker = Tracker(a_rule("1m", "1m"))
    changes = [
        [(before and before.state.value, after and after.state.value) for before, after in changed]
        for changed in (
            tracker.update([finding(verdict)] if verdict is not None else [], T0 + minute * MINUTE)
            for minute, verdict in enumerate([True, True, True, False, False, *[None] * 17, True, False])
        )
    ]
    assert [change for change in changes if change] == [
        [(None, "pending")],
        [("pending", "firing")],
        [("firing", "resolved")],
        [("resolved", None)],
        [(None, "pending")],
        [("pending", None)],
    ]


def test_an_episode_has_its_own_instants() -> None:
    tracker = Tracker(a_rule("1m"))
    for minute, bad in enumerate([True, True, False, True, True]):
        tracker.update([finding(bad)], T0 + minute * MINUTE)
        if minute == 1:
            first = only(tracker)
        if minute == 2:
            assert only(tracker).resolved_at == T0 + 2 * MINUTE
            assert only(tracker).episode == first.episode
    second = only(tracker)
    assert (first.active_at, first.fired_at) == (T0, T0 + MINUTE)
    assert (second.active_at, second.fired_at) == (T0 + 3 * MINUTE, T0 + 4 * MINUTE)
    assert second.resolved_at is None
    assert second.keep_firing_since is None
    assert first.episode != second.episode


def test_alerts_of_one_rule_do_not_touch_each_other() -> None:
    one, other = Labels(alertname="Hot", room="a"), Labels(alertname="Hot", room="b")
    tracker = Tracker(a_rule("1m"))
    tracker.update([finding(True, labels=one)], T0)
    tracker.update([finding(True, labels=one), finding(True, labels=other)], T0 + MINUTE)
    tracker.update([finding(True, labels=other)], T0 + 2 * MINUTE)
    states = {alert.labels["room"]: alert.state.value for alert in tracker.alerts}
    assert states == {"a": "resolved", "b": "firing"}


def test_a_for_that_a_reload_raises_takes_a_firing_alert_back_to_pending() -> None:
    before = Tracker(a_rule("1m"))
    before.update([finding(True)], T0)
    before.update([finding(True)], T0 + MINUTE)
    assert only(before).state is AlertState.FIRING
    after = Tracker(a_rule("5m"), before.alerts)
    ((was, now),) = after.update([finding(True)], T0 + 2 * MINUTE)
    assert was is not None
    assert now is not None
    assert (was.state.value, now.state.value, now.fired_at) == ("firing", "pending", None)
    after.update([finding(True)], T0 + 5 * MINUTE)
    assert only(after).state is AlertState.FIRING
    assert only(after).fired_at == T0 + 5 * MINUTE, "a new episode"
    assert only(after).active_at == T0


def test_a_for_that_a_reload_lowers_fires_at_the_next_evaluation() -> None:
    before = Tracker(a_rule("10m"))
    before.update([finding(True)], T0)
    after = Tracker(a_rule("1m"), before.alerts)
    after.update([finding(True)], T0 + MINUTE)
    assert only(after).state is AlertState.FIRING


def test_an_alert_taken_from_the_store_goes_on_as_it_was() -> None:
    before = Tracker(a_rule("2m", "2m"))
    for minute, bad in enumerate([True, True, True, False]):
        before.update([finding(bad)], T0 + minute * MINUTE)
    after = Tracker(a_rule("2m", "2m"), before.alerts)
    assert after.update([finding(False)], T0 + 4 * MINUTE) == []
    ((_, now),) = after.update([finding(False)], T0 + 5 * MINUTE)
    assert now is not None
    assert now.state is AlertState.RESOLVED


def test_what_fires_goes_on_firing_when_the_clock_goes_back() -> None:
    tracker = Tracker(a_rule("5m"))
    for minute in range(6):
        tracker.update([finding(True)], T0 + minute * MINUTE)
    fired_at = only(tracker).fired_at
    an_hour_ago = T0 - timedelta(hours=1)
    assert tracker.update([finding(True)], an_hour_ago) == []
    assert tracker.update([finding(True)], an_hour_ago + MINUTE) == []
    assert only(tracker).fired_at == fired_at, "it is the same episode"


def test_what_is_pending_is_counted_from_now_on_when_the_clock_goes_back() -> None:
    tracker = Tracker(a_rule("2m"))
    tracker.update([finding(True)], T0)
    for minute, state in enumerate(["pending", "pending", "firing"]):
        tracker.update([finding(True)], T0 - timedelta(hours=1) + minute * MINUTE)
        assert only(tracker).state.value == state


@pytest.mark.parametrize("setback", [timedelta(minutes=2), timedelta(hours=1)])
def test_what_keeps_firing_resolves_in_its_time_when_the_clock_goes_back(setback: timedelta) -> None:
    tracker = Tracker(a_rule(keep="5m"))
    tracker.update([finding(True)], T0)
    tracker.update([], T0 + MINUTE)
    back = T0 + MINUTE - setback
    for minute in range(5):
        assert tracker.update([], back + minute * MINUTE) == []
    assert [after and after.state.value for _, after in tracker.update([], back + 5 * MINUTE)] == ["resolved"]


def test_what_has_resolved_is_forgotten_in_its_time_when_the_clock_goes_back() -> None:
    tracker = Tracker(a_rule())
    tracker.update([finding(True)], T0)
    tracker.update([], T0 + MINUTE)
    back = T0 - timedelta(days=1)
    tracker.update([], back)
    tracker.update([], back + REMEMBER_RESOLVED + MINUTE)
    assert tracker.alerts == ()


def test_an_alert_found_late_is_late_until_an_evaluation_in_time_confirms_it() -> None:
    tracker = Tracker(a_rule(keep="5m"))
    seen = []
    for minute, (bad, late) in enumerate(
        [(True, True), (True, True), (None, False), (True, False), (None, True), (False, False), (True, True)]
    ):
        tracker.update([finding(bad)], T0 + minute * MINUTE, late=late)
        seen.append(only(tracker).late)
    assert seen == [True, True, True, False, False, False, True], "what cannot be judged confirms nothing"
    assert only(tracker).fired_at == T0


def test_a_rule_beyond_its_limit_forgets_everything() -> None:
    tracker = Tracker(a_rule())
    tracker.update([finding(True)], T0)
    tracker.clear()
    assert tracker.alerts == ()
    tracker.update([finding(True)], T0 + MINUTE)
    assert only(tracker).fired_at == T0 + MINUTE


LENGTHS = st.integers(0, 8).map(lambda minutes: f"{minutes}m")
VERDICT_SEQUENCES = st.lists(
    st.tuples(st.sampled_from("xxx..?-"), st.integers(1, 4)), min_size=1, max_size=40
)


@given(LENGTHS, LENGTHS, VERDICT_SEQUENCES)
def test_it_never_fires_before_for_and_resolves_exactly_once(
    hold: str, keep: str, verdicts: list[tuple[str, int]]
) -> None:
    rule, at = a_rule(hold, keep), T0
    tracker = Tracker(rule)
    bad_since: datetime | None = None  # since when no verdict but bad or none was given
    resolved: list[str] = []
    fired: list[str] = []
    for sign, minutes in verdicts:
        at += minutes * MINUTE
        if sign == "x":
            bad_since = bad_since or at
        for before, after in tracker.update([] if sign == "-" else [finding(VERDICTS[sign])], at):
            if after is not None and after.state is AlertState.FIRING:
                assert before is None or before.state is not AlertState.FIRING
                assert bad_since is not None
                assert at - bad_since >= rule.hold, "it was bad all the time of `for`"
                assert sign == "x"
                fired.append(after.episode)
            if after is not None and after.state is AlertState.RESOLVED:
                assert before is not None
                assert before.state is AlertState.FIRING
                assert after.keep_firing_since is not None
                assert at - after.keep_firing_since >= rule.keep_firing_for
                resolved.append(after.episode)
            if after is None:
                assert before is not None
                assert before.state is not AlertState.FIRING, (
                    "an alert that fired is not forgotten in silence"
                )
        if sign in ".-":
            bad_since = None
    still = [alert.episode for alert in tracker.alerts if alert.firing]
    assert fired == [*resolved, *still], "what fired has resolved once, or fires still"
    assert len(set(fired)) == len(fired)


@given(VERDICT_SEQUENCES, LENGTHS, LENGTHS)
def test_a_restart_at_any_time_changes_nothing(verdicts: list[tuple[str, int]], hold: str, keep: str) -> None:
    rule, at = a_rule(hold, keep), T0
    steady, restarted = Tracker(rule), Tracker(rule)
    for sign, minutes in verdicts:
        at += minutes * MINUTE
        found = [] if sign == "-" else [finding(VERDICTS[sign])]
        restarted = Tracker(rule, restarted.alerts)
        assert steady.update(found, at) == restarted.update(found, at)
        assert steady.alerts == restarted.alerts


def test_the_newest_verdict_for_labels_counts_whatever_the_order() -> None:
    labels = [Labels(alertname="Hot", room=room) for room in "ab"]
    one, other = Tracker(a_rule()), Tracker(a_rule())
    found = [finding(True, labels=each) for each in labels]
    one.update(found, T0)
    other.update(found[::-1], T0)
    key = lambda alert: str(alert.labels)  # noqa: E731
    assert sorted(one.alerts, key=key) == sorted(other.alerts, key=key)
    assert replace(one.alerts[0], value=0) != one.alerts[0]

"""The grouping clockwork, on virtual time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels, Matcher, Matchers, MatchOp
from engine.model.notification import Sent
from engine.model.route import Route
from engine.route.groups import Groups

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
BY_NAME = Route(receiver="team", group_by=("alertname",))


def after(text: str) -> datetime:
    return AT + Duration.parse(text)


def alert(name: str = "X", *, fired: str = "0s", resolved: str | None = None, **labels: str) -> Alert:
    """An alert that began to fire, and resolved, that long after the start."""
    return Alert(
        rule_id="r",
        labels=Labels(alertname=name, **labels),
        signal=Labels(),
        state=AlertState.FIRING if resolved is None else AlertState.RESOLVED,
        value=1.0,
        active_at=after(fired),
        fired_at=after(fired),
        resolved_at=None if resolved is None else after(resolved),
    )


def log(*firing: Alert, owed: tuple[Alert, ...] = ()) -> Sent:
    return Sent(
        key="k",
        at=AT,
        firing=frozenset(one.fingerprint for one in firing),
        owed=frozenset(one.fingerprint for one in owed),
    )


def keys_due(groups: Groups, at: datetime) -> list[str]:
    return [group.key for group in groups.due(at)]


def test_a_new_group_waits_group_wait_once_and_then_group_interval() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert()], AT)
    assert groups.next_due() == after("30s")
    assert groups.due(after("29s")) == []
    (group,) = groups.due(after("30s"))
    assert group.alerts == (alert(),)
    assert groups.due(after("30s")) == [group]  # until it is settled
    groups.settle(group, after("30s"), entries=[log(alert())])
    assert groups.next_due() == after("5m30s")
    assert groups.due(after("5m29s")) == []
    assert keys_due(groups, after("5m30s")) == ['{}:{alertname="X"}']


def test_no_groups_are_never_due() -> None:
    groups = Groups(BY_NAME)
    assert groups.next_due() is None
    groups.update([replace(alert(), state=AlertState.PENDING)], AT)
    assert groups.next_due() is None


def test_an_alert_that_fires_longer_than_group_wait_is_due_at_once() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert(fired="0s")], after("10m"))
    assert groups.next_due() == after("10m")


def test_a_long_firing_alert_that_joins_a_waiting_group_makes_it_due() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert(fired="10m", i="new")], after("10m"))
    groups.update([alert(fired="10m", i="new"), alert(fired="0s", i="old")], after("10m1s"))
    assert groups.next_due() == after("10m1s")


def test_a_new_alert_does_not_hasten_a_group_that_was_looked_at() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert(i="1")], AT)
    (group,) = groups.due(after("30s"))
    groups.settle(group, after("30s"), entries=[log(alert(i="1"))])
    groups.update([alert(i="1"), alert(i="2")], after("2m"))
    assert groups.next_due() == after("5m30s")
    assert len(groups.due(after("5m30s"))[0].alerts) == 2


def test_alerts_are_grouped_by_the_labels_of_their_route() -> None:
    page = Matchers([Matcher("severity", MatchOp.EQUAL, "page")])
    pager = Route(
        receiver="pager", matchers=page, continue_=True, group_by=(), group_wait=Duration(seconds=1)
    )
    rest = Route(receiver="rest", group_by=("...",))
    groups = Groups(Route(receiver="team", routes=(pager, rest)))
    groups.update([alert("X", severity="page"), alert("Y", severity="page"), alert("Z")], after("1h"))
    assert {group.key: len(group.alerts) for group in groups.due(after("1h"))} == {
        '{}/{severity="page"}:{}': 2,
        '{}/{}:{alertname="X", severity="page"}': 1,
        '{}/{}:{alertname="Y", severity="page"}': 1,
        '{}/{}:{alertname="Z"}': 1,
    }
    assert {group.route.receiver for group in groups.due(after("1h"))} == {"pager", "rest"}


def test_groups_come_longest_waiting_first() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert("B")], AT)
    groups.update([alert("B"), alert("A", fired="10s")], after("10s"))
    assert keys_due(groups, after("1m")) == ['{}:{alertname="B"}', '{}:{alertname="A"}']


def test_alerts_of_a_group_come_firing_first_and_oldest_first() -> None:
    groups = Groups(Route(receiver="team"))
    given = [
        alert("A", fired="1s", resolved="2s"),
        alert("B", fired="3s"),
        alert("C", fired="2s"),
        alert("D", fired="0s", resolved="5s"),
    ]
    groups.update(given, after("1m"))
    (group,) = groups.due(after("1m"))
    assert [one.name for one in group.alerts] == ["C", "B", "D", "A"]


def test_the_key_of_the_log_tells_receivers_integrations_and_groups_apart() -> None:
    twin = Route(
        receiver="team", matchers=Matchers([Matcher("alertname", MatchOp.EQUAL, "X")]), continue_=True
    )
    groups = Groups(Route(receiver="team", routes=(twin, twin)))
    groups.update([alert()], after("1m"))
    one, other = groups.due(after("1m"))
    assert one.key == other.key
    assert len({one.log_key("slack/0"), other.log_key("slack/0"), one.log_key("slack/1")}) == 3


def test_a_group_goes_with_its_last_alert_once_that_is_told() -> None:
    groups = Groups(BY_NAME)
    ended = alert(resolved="1m")
    groups.update([ended], after("1m"))
    (group,) = groups.due(after("1m"))
    groups.settle(
        group, after("1m"), entries=[log(ended), None]
    )  # one integration still believes that it fires
    assert len(groups) == 1
    (group,) = groups.due(after("6m"))
    groups.settle(group, after("6m"), entries=[log(), log()])
    assert len(groups) == 0
    assert groups.next_due() is None


@pytest.mark.parametrize("kept", ["firing", "owed", "busy"])
def test_a_resolved_alert_stays_while_anybody_waits_for_it(kept: str) -> None:
    groups = Groups(BY_NAME)
    ended = alert(resolved="1m")
    groups.update([ended], after("1m"))
    (group,) = groups.due(after("1m"))
    entries = [log(*[ended][: kept == "firing"], owed=(ended,) if kept == "owed" else ())]
    groups.settle(group, after("1m"), entries=entries, busy={ended.fingerprint} if kept == "busy" else ())
    assert groups.held() == [ended]


def test_an_alert_that_was_settled_does_not_come_back_while_the_tracker_shows_it() -> None:
    groups = Groups(BY_NAME)
    ended = alert(resolved="1m")
    groups.update([ended], after("1m"))
    (group,) = groups.due(after("1m"))
    groups.settle(group, after("1m"), entries=[None])
    groups.update([ended], after("2m"))
    assert len(groups) == 0
    groups.update([alert(fired="3m")], after("3m"))
    assert groups.next_due() == after("3m30s")
    groups.update([alert(fired="3m", resolved="4m")], after("4m"))
    assert len(groups) == 1


def test_an_alert_that_fires_anew_between_look_and_settlement_stays() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert(resolved="1m")], after("1m"))
    (group,) = groups.due(after("1m"))
    again = alert(fired="2m")
    groups.update([again], after("2m"))
    groups.settle(group, after("2m"), entries=[log()])
    assert groups.held() == [again]


def test_an_alert_that_resolves_between_look_and_settlement_stays() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert()], after("1m"))
    (group,) = groups.due(after("1m"))
    groups.update([alert(resolved="2m")], after("2m"))
    groups.settle(group, after("2m"), entries=[log()])
    assert groups.held() == [alert(resolved="2m")]


def test_a_firing_alert_whose_rule_is_gone_resolves() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert()], AT)
    groups.update([], after("1m"))
    assert groups.held() == [alert(resolved="1m")]
    groups.update([], after("2m"))
    assert groups.held() == [alert(resolved="1m")]


def test_of_two_alerts_with_the_same_labels_the_firing_one_counts() -> None:
    for order in (1, -1):
        groups = Groups(BY_NAME)
        groups.update([alert(), alert(resolved="1m")][::order], after("1m"))
        assert groups.held() == [alert()]


def test_held_alerts_move_to_the_groups_of_a_new_tree() -> None:
    old = Groups(BY_NAME)
    old.update([alert("X"), alert("Y", resolved="1m")], after("1m"))
    new = Groups(Route(receiver="team"))
    new.update(old.held(), after("2m"))
    assert {one.name for one in new.due(after("2m"))[0].alerts} == {"X", "Y"}


def test_a_failed_delivery_is_tried_again_soon_and_then_less_often() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert()], AT)
    at, waits = after("30s"), []
    for _ in range(5):
        (group,) = groups.due(at)
        groups.settle(group, at, entries=[log(owed=(alert(),))], failed=True)
        due = groups.next_due()
        assert due is not None
        waits.append((due - at).total_seconds())
        at = due
    assert waits == [10, 20, 40, 60, 60]
    groups.settle(group, at, entries=[log(alert())])
    assert groups.next_due() == at + timedelta(minutes=5)
    groups.settle(group, at, entries=[log(alert())], failed=True)
    assert groups.next_due() == at + timedelta(seconds=10)


@pytest.mark.parametrize(("not_before", "due"), [("1s", "10s"), ("3m", "3m"), ("1h", "5m")])
def test_a_retry_heeds_the_other_side_but_no_longer_than_group_interval(not_before: str, due: str) -> None:
    groups = Groups(BY_NAME)
    groups.update([alert()], after("0s"))
    (group,) = groups.due(after("30s"))
    groups.settle(group, AT, entries=[None], failed=True, not_before=after(not_before))
    assert groups.next_due() == after(due)


def test_progress_is_asked_of_groups_that_were_looked_at() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert("X"), alert("Y")], AT)
    assert groups.progressed(lambda _: "1") == []
    for group in groups.due(after("30s")):
        groups.settle(group, after("30s"), entries=[None], progress="1")
    assert groups.progressed(lambda _: "1") == []
    (changed,) = groups.progressed(lambda group: "2" if group.labels["alertname"] == "Y" else "1")
    assert changed.labels == {"alertname": "Y"}
    groups.mark(changed, "2")
    assert groups.progressed(lambda group: "2" if group.labels["alertname"] == "Y" else "1") == []
    assert groups.next_due() == after("5m30s")


def test_settling_and_marking_a_group_that_is_gone_does_nothing() -> None:
    groups = Groups(BY_NAME)
    groups.update([alert(resolved="1m")], after("1m"))
    (group,) = groups.due(after("1m"))
    groups.settle(group, after("1m"), entries=[None])
    groups.settle(group, after("2m"), entries=[None])
    groups.mark(group, "p")
    assert len(groups) == 0

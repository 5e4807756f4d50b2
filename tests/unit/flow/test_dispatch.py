"""Who is told what, when deliveries fail, when people are muted, and after a reload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from engine.errors import NotifyError
from engine.flow.clusters import Clusters
from engine.flow.dispatch import Dispatcher
from engine.flow.events import Events
from engine.flow.evidence import EvidenceBox
from engine.lang.promql import Storage
from engine.load.settings import read_settings
from engine.model.alert import Alert, AlertState
from engine.model.event import Event, Kind
from engine.model.labels import Labels
from engine.model.notification import Notification, Reason, Receipt
from engine.model.playbook import Mode, Run, RunState
from engine.model.ports import Store
from engine.query.embedded import EmbeddedSource
from engine.store.memory import MemoryStore

T0 = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday
SECOND = timedelta(seconds=1)
ROUTES = """
external_url: http://engine
route: {receiver: r, group_by: [alertname], group_wait: 0s, group_interval: 10s, repeat_interval: 1h}
receivers: [{name: r}]
"""


@dataclass(frozen=True, eq=False)
class Place:
    """An integration that remembers what it was told, and fails while it has errors left."""

    updates_in_place: ClassVar[bool] = True
    send_resolved: bool = True
    errors: list[Exception] = field(default_factory=list)
    sent: list[Notification] = field(default_factory=list)
    tried: list[datetime] = field(default_factory=list)
    previous: list[Receipt | None] = field(default_factory=list)

    def notify(self, notification: Notification, previous: Receipt | None) -> Receipt:
        self.tried.append(notification.at)
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(notification)
        self.previous.append(previous)
        return {"ts": str(len(self.sent))}

    @property
    def told(self) -> list[tuple[str, int]]:
        """Reason and second of each notification."""
        return [(one.reason.name, (one.at - T0) // SECOND) for one in self.sent]


class Plain(Place):
    """One that cannot change what it has said."""

    updates_in_place: ClassVar[bool] = False


def busy(retry_after: float | None = None) -> NotifyError:
    return NotifyError("HTTP 500", retryable=True, reason="server_error", retry_after=retry_after)


def wrong() -> NotifyError:
    return NotifyError("channel_not_found", retryable=False, reason="rejected")


class Desk:
    """A dispatcher on virtual time."""

    def __init__(
        self, settings: str = ROUTES, store: Store | None = None, /, **places: Sequence[Place]
    ) -> None:
        self.store = store or MemoryStore()
        self.events: list[Event] = []
        self.alerts: list[Alert] = []
        self.runs: list[Run] = []
        self.at = T0
        self._settings, self._places = settings, places
        self.dispatcher = self.build()

    def build(self) -> Dispatcher:
        problems: list[Any] = []
        settings = read_settings("engine.yaml", self._settings.encode(), problems)
        assert problems == []
        assert settings is not None
        receivers = {
            name: replace(
                receiver,
                integrations=tuple(
                    (f"place{i}", place) for i, place in enumerate(self._places.get(name, ()))
                ),
            )
            for name, receiver in settings.routing.receivers.items()
        }
        events = Events(self.store, [self.events.append])
        source = EmbeddedSource(Storage())
        return Dispatcher(
            settings=replace(settings, routing=replace(settings.routing, receivers=receivers)),
            store=self.store,
            events=events,
            evidence=EvidenceBox(
                source, Clusters([], lambda *_: pytest.fail("no cluster")), lambda _id: None, events
            ),
            runs=lambda _at: self.runs,
        )

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.dispatcher.flush(self.alerts, self.at)
            self.at += SECOND

    def fire(self, *rooms: str, name: str = "Hot") -> None:
        """Let these alerts fire from now on, beside the others."""
        self.alerts += [
            Alert(
                rule_id="f;g;r",
                labels=Labels(alertname=name, room=room),
                signal=Labels(room=room),
                state=AlertState.FIRING,
                value=60,
                active_at=self.at,
                fired_at=self.at,
            )
            for room in rooms
        ]

    def resolve(self) -> None:
        self.alerts = [
            replace(alert, state=AlertState.RESOLVED, resolved_at=self.at) if alert.firing else alert
            for alert in self.alerts
        ]


def test_a_notification_has_all_that_a_place_may_want() -> None:
    place = Place()
    desk = Desk(r=[place])
    desk.fire("a", "b")
    desk.run(1)
    (one,) = place.sent
    assert (one.receiver, one.external_url, one.group_labels) == ("r", "http://engine", {"alertname": "Hot"})
    assert (one.reason, one.at, [alert.labels["room"] for alert in one.alerts]) == (
        Reason.FIRST,
        T0,
        ["a", "b"],
    )
    assert one.group_key == '{}:{alertname="Hot"}'
    assert place.previous == [None]


def test_a_place_finds_its_message_again_until_all_is_over() -> None:
    place = Place()
    desk = Desk(r=[place])
    desk.fire("a")
    desk.run(5)
    desk.fire("b")
    desk.run(10)
    desk.resolve()
    desk.run(10)
    desk.alerts = []
    desk.run(20)
    desk.fire("c")
    desk.run(5)
    assert place.told == [("FIRST", 0), ("NEW_ALERTS", 10), ("ALL_RESOLVED", 20), ("FIRST", 45)]
    assert place.previous == [None, {"ts": "1"}, {"ts": "2"}, None], "a new incident has a message of its own"


SELDOM = ROUTES.replace("group_interval: 10s", "group_interval: 5m")


def test_an_unanswered_place_is_tried_at_growing_pauses_up_to_a_minute() -> None:
    place = Place(errors=[busy() for _ in range(5)])
    desk = Desk(SELDOM, r=[place])
    desk.fire("a")
    desk.run(260)
    seconds = [(at - T0) // SECOND for at in place.tried]
    assert seconds == [0, 10, 30, 70, 130, 190]
    assert place.told == [("FIRST", 190)]
    failed = [event for event in desk.events if event.kind is Kind.NOT_NOTIFIED]
    assert len(failed) == 5
    assert {(event.reason, event.data["why"]) for event in failed} == {("HTTP 500", "server_error")}


def test_after_a_success_the_pauses_begin_anew() -> None:
    place = Place(errors=[busy(), busy(), busy()])
    desk = Desk(SELDOM, r=[place])
    desk.fire("a")
    desk.run(80)
    assert place.told == [("FIRST", 70)]
    assert desk.dispatcher.waiting == 0
    place.errors.append(busy())
    desk.fire("b")
    desk.run(310)
    assert place.told[1:] == [("NEW_ALERTS", 380)], "ten seconds after the one that failed at 370"


@pytest.mark.parametrize(
    ("error", "pause"), [(busy(), 10), (busy(1), 10), (busy(30), 30), (busy(600), 600), (wrong(), 60)]
)
def test_a_place_is_left_alone_as_long_as_it_asks_or_until_a_person_may_have_looked(
    error: NotifyError, pause: int
) -> None:
    place = Place(errors=[error])
    desk = Desk(SELDOM, r=[place])
    desk.fire("a")
    desk.run(1)
    assert desk.dispatcher.waiting == 1
    desk.run(pause + 1)
    assert [(at - T0) // SECOND for at in place.tried] == [0, pause]
    assert desk.dispatcher.waiting == 0


def test_a_place_that_fails_holds_up_no_other_of_its_receiver() -> None:
    broken, fine = Place(errors=[busy() for _ in range(5)]), Place()
    desk = Desk(r=[broken, fine])
    desk.fire("a")
    desk.run(40)
    assert fine.told == [("FIRST", 0)], "and it is not told again when the other is"
    assert broken.told == []


def test_a_place_that_fails_is_spared_the_other_groups_meanwhile() -> None:
    place = Place(errors=[busy(30)])
    desk = Desk(r=[place])
    desk.fire("a")
    desk.fire("a", name="Cold")
    desk.run(29)
    assert len(place.tried) == 1
    desk.run(20)
    assert sorted(one.alerts[0].name for one in place.sent) == ["Cold", "Hot"], "neither is forgotten"


def test_what_fires_and_resolves_while_a_place_is_left_alone_is_told() -> None:
    place = Place(errors=[busy(60)])
    desk = Desk(r=[place])
    desk.fire("a")
    desk.run(20)
    desk.fire("b")
    desk.run(10)
    desk.resolve()
    desk.run(40)
    (one,) = place.sent
    assert sorted(alert.labels["room"] for alert in one.alerts) == ["a", "b"]
    assert {alert.state for alert in one.alerts} == {AlertState.RESOLVED}


def test_a_fault_in_a_place_is_a_failed_delivery_with_its_traceback() -> None:
    place = Place(errors=[KeyError("oops")])
    desk = Desk(r=[place])
    desk.fire("a")
    desk.run(15)
    assert place.told == [("FIRST", 10)]
    (trouble,) = [event for event in desk.events if event.kind is Kind.TROUBLE]
    assert trouble.subject == "notifier"
    assert "KeyError" in trouble.data["traceback"]
    (failed,) = [event for event in desk.events if event.kind is Kind.NOT_NOTIFIED]
    assert failed.data["why"] == "internal"


def test_a_place_that_does_not_want_to_hear_of_ends_hears_of_none() -> None:
    quiet, other = Place(send_resolved=False), Place()
    desk = Desk(r=[quiet, other])
    desk.fire("a")
    desk.run(5)
    desk.resolve()
    desk.run(20)
    assert quiet.told == [("FIRST", 0)]
    assert other.told == [("FIRST", 0), ("ALL_RESOLVED", 10)]


TWO = ROUTES.replace(
    "repeat_interval: 1h}",
    "repeat_interval: 1h, routes: [{receiver: boss, matchers: [room='a'], continue: true}, {receiver: r}]}",
).replace("[{name: r}]", "[{name: r}, {name: boss}]")


def test_an_alert_of_two_routes_is_told_to_both() -> None:
    mine, bosses = Place(), Place()
    desk = Desk(TWO, r=[mine], boss=[bosses])
    desk.fire("a", "b")
    desk.run(5)
    assert [alert.labels["room"] for alert in mine.sent[0].alerts] == ["a", "b"]
    assert [alert.labels["room"] for alert in bosses.sent[0].alerts] == ["a"]


def test_a_receiver_without_places_is_told_nothing_and_troubles_nobody() -> None:
    desk = Desk()
    desk.fire("a")
    desk.run(20)
    assert [event for event in desk.events if event.kind is not Kind.MUTED] == []


MUTED = ROUTES.replace(
    "repeat_interval: 1h}", "repeat_interval: 1h, routes: [{receiver: r, mute_time_intervals: [early]}]}"
)
MUTED += (
    "time_intervals: [{name: early, time_intervals: [{times: [{start_time: '00:00', end_time: '00:01'}]}]}]\n"
)


def test_what_the_calendar_mutes_is_told_when_it_ends() -> None:
    place = Place()
    desk = Desk(MUTED, r=[place])
    desk.fire("a")
    desk.run(59)
    assert place.sent == []
    desk.run(15)
    assert [reason for reason, _ in place.told] == ["FIRST"]
    assert len([event for event in desk.events if event.kind is Kind.MUTED]) == 1


def a_run(alert: Alert, state: RunState, reason: str = "", number: int = 0) -> Run:
    return Run(
        id=f"run{number}",
        playbook="cool",
        rule_id=alert.rule_id,
        labels=alert.labels,
        signal=alert.signal,
        fired_at=alert.fired_at or T0,
        target="x",
        mode=Mode.AUTO,
        state=state,
        steps=(),
        created_at=T0 + number * SECOND,
        updated_at=T0,
        reason=reason,
    )


def test_progress_is_shown_at_once_where_a_message_can_change_and_nowhere_else() -> None:
    board, paper = Place(), Plain()
    desk = Desk(r=[board, paper])
    desk.fire("a")
    desk.run(3)
    desk.runs = [a_run(desk.alerts[0], RunState.ACTING, "step 1")]
    desk.run(1)
    desk.runs = [a_run(desk.alerts[0], RunState.VERIFYING, "waiting")]
    desk.run(4)
    assert board.told == [("FIRST", 0), ("PROGRESS", 3), ("PROGRESS", 4)]
    assert [run.state for run in board.sent[-1].runs] == [RunState.VERIFYING]
    assert paper.told == [("FIRST", 0)]


def test_only_the_newest_run_of_a_playbook_in_this_episode_is_shown() -> None:
    place = Place()
    desk = Desk(r=[place])
    desk.fire("a")
    alert = desk.alerts[0]
    older = replace(a_run(alert, RunState.HELPED), id="of another episode", fired_at=T0 - timedelta(hours=1))
    desk.runs = [a_run(alert, RunState.ACTING, number=1), a_run(alert, RunState.REFUSED), older]
    desk.run(1)
    assert [run.id for run in place.sent[0].runs] == ["run1"]


def test_after_a_reload_what_was_told_is_not_told_again_and_what_is_gone_is_told_as_resolved() -> None:
    place = Place()
    desk = Desk(r=[place])
    desk.fire("a", "b")
    desk.run(5)
    held = desk.dispatcher.held()
    assert {alert.labels["room"] for alert in held} == {"a", "b"}
    desk.alerts = desk.alerts[:1]  # the rule of the other is gone
    desk.dispatcher = desk.build()
    desk.dispatcher.carry(held, desk.at)
    desk.run(20)
    assert [reason for reason, _ in place.told] == ["FIRST", "RESOLVED"]
    assert [alert.labels["room"] for alert in place.sent[1].resolved] == ["b"]


def test_a_person_is_told_once_that_a_run_needs_one() -> None:
    boss = Place(errors=[busy()])
    desk = Desk(TWO, boss=[boss])
    desk.fire("a")
    alert = desk.alerts[0]
    run = a_run(alert, RunState.DID_NOT_HELP)
    for _ in range(6):
        desk.dispatcher.announce(run, alert, "boss", Reason.ESCALATION, desk.at)
        desk.at += SECOND
    assert [(at - T0) // SECOND for at in boss.tried] == [0, 2], "again after its pause, and then no more"
    (one,) = boss.sent
    assert (one.reason, one.runs, one.alerts, one.group_labels) == (
        Reason.ESCALATION,
        (run,),
        (alert,),
        {"playbook": "cool"},
    )
    desk.dispatcher.announce(run, alert, "boss", Reason.APPROVAL, desk.at)
    assert len(boss.sent) == 2, "another reason is another announcement"


@pytest.mark.parametrize("name", ["r", "nobody"])
def test_an_announcement_to_nobody_is_made_once(name: str) -> None:
    desk = Desk()
    desk.fire("a")
    run = a_run(desk.alerts[0], RunState.DID_NOT_HELP)
    desk.dispatcher.announce(run, desk.alerts[0], name, Reason.ESCALATION, desk.at)
    assert desk.store.sent("escalation:run0") is not None, "so that the run can end"

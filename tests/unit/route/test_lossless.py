"""Over any history of alerts, mutes, failures and restarts nothing is lost, and nothing told twice without reason."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.notification import Reason, Sent
from engine.model.route import Route
from engine.route.dedup import Delivery, Integration, plan
from engine.route.groups import Group, Groups

START = datetime(2024, 5, 1, 12, tzinfo=UTC)
TICK = timedelta(seconds=15)
REPEAT = timedelta(minutes=2)
NAMES = "abc"
ROUTES = [
    Route(
        receiver="team",
        group_by=group_by,
        group_wait=Duration(seconds=15),
        group_interval=Duration(seconds=30),
        repeat_interval=Duration.of(REPEAT),
    )
    for group_by in ((), ("alertname",))
]


@dataclass
class Place:
    """An integration, and what the people there have heard."""

    name: str
    send_resolved: bool
    in_place: bool = False
    log: dict[str, Sent] = field(default_factory=dict)
    believed: dict[str, set[str]] = field(default_factory=dict)  # by group: what they believe to be firing
    ended: set[str] = field(default_factory=set)  # episodes they know to be over
    heard: dict[str, datetime] = field(default_factory=dict)  # when an alert was last spoken of
    last: dict[str, datetime] = field(default_factory=dict)  # when a group was last told, progress aside
    due: list[tuple[str, datetime]] = field(default_factory=list)  # what they ought to hear, and since when

    def hear(self, group: Group, delivery: Delivery, at: datetime) -> None:
        """Check that the message is worth hearing."""
        believed = self.believed.setdefault(group.id, set())
        news = [alert for alert in delivery.alerts if self._is_news(alert, believed)]
        if delivery.reason is Reason.PROGRESS:
            assert self.in_place
            assert not {alert.fingerprint for alert in delivery.alerts if alert.firing} - believed
            return
        if delivery.reason is Reason.REPEAT:
            assert at - self.last[group.id] > REPEAT
        else:
            assert news, delivery
        if not self.in_place:
            assert not {alert.episode for alert in delivery.alerts} & self.ended
        for alert in delivery.alerts:
            (believed.add if alert.firing else believed.discard)(alert.fingerprint)
            if not alert.firing:
                self.ended.add(alert.episode)
            self.heard[alert.fingerprint] = at
        if delivery.reason is Reason.ALL_RESOLVED:
            believed.clear()
        if not self.send_resolved:  # who is not told of ends goes by the newest message
            believed.intersection_update(delivery.told.firing)
        self.last[group.id] = at

    def _is_news(self, alert: Alert, believed: set[str]) -> bool:
        if alert.firing:
            return alert.fingerprint not in believed
        return alert.episode not in self.ended


class World:
    """Rules that fire, an engine that may be restarted, and places that may be out of reach."""

    def __init__(self, route: Route) -> None:
        self.at = START
        self.route = route
        self.groups = Groups(route)
        self.alerts: dict[str, Alert] = {}
        self.muted: set[str] = set()
        self.progress = ""
        self.places = [Place("pager", True), Place("chat", True, in_place=True), Place("quiet", False)]

    def toggle(self, name: str) -> None:
        """Make an alert fire, or resolve."""
        known = self.alerts.get(name)
        if known is not None and known.firing:
            self.alerts[name] = replace(known, state=AlertState.RESOLVED, resolved_at=self.at)
            return
        labels = Labels(alertname=name)
        state = AlertState.FIRING
        self.alerts[name] = Alert(
            rule_id="r",
            labels=labels,
            signal=Labels(),
            state=state,
            value=1.0,
            active_at=self.at,
            fired_at=self.at,
        )

    def tick(self, unreachable: frozenset[str] = frozenset()) -> None:
        """Let a quarter of a minute pass."""
        self.groups.update(self.alerts.values(), self.at)
        for group in self.groups.progressed(lambda _: self.progress):
            for place in self.places:
                self._tell(group, place, early=True, reachable=place.name not in unreachable)
            self.groups.mark(group, self.progress)
        for group in self.groups.due(self.at):
            failed = [
                not self._tell(group, place, early=False, reachable=place.name not in unreachable)
                for place in self.places
            ]
            self.groups.settle(
                group,
                self.at,
                entries=[place.log.get(group.log_key(place.name)) for place in self.places],
                progress=self.progress,
                failed=any(failed),
            )
        self.at += TICK

    def _tell(self, group: Group, place: Place, *, early: bool, reachable: bool) -> bool:
        """Tell one place if there is a reason to; False if that failed."""
        key = group.log_key(place.name)
        to = Integration(
            key=key,
            entry=place.log.get(key),
            send_resolved=place.send_resolved,
            updates_in_place=place.in_place,
        )
        muted = {Labels(alertname=name).fingerprint for name in self.muted}
        delivery = plan(group, to, self.at, muted=muted, progress=self.progress, early=early)
        if not early:
            believed = place.believed.get(group.id, set())
            firing = {alert.fingerprint for alert in group.alerts if alert.firing}
            place.due += [(unheard, self.at) for unheard in firing - believed - muted]
        if delivery is None:
            return True
        assert not {alert.fingerprint for alert in delivery.alerts} & muted
        if not delivery.alerts:
            place.log[key] = delivery.done()
            place.believed.setdefault(group.id, set()).clear()
        elif reachable:
            place.hear(group, delivery, self.at)
            place.log[key] = delivery.done({"message": str(self.at)})
        else:
            place.log[key] = delivery.failed
        return reachable or not delivery.alerts


toggles = st.sampled_from(NAMES).map(lambda name: ("toggle", name))
mutes = st.sampled_from(NAMES).map(lambda name: ("mute", name))
progress = st.sampled_from(["", "1", "2"]).map(lambda word: ("progress", word))
restarts = st.just(("restart", ""))
ticks = st.frozensets(st.sampled_from(["pager", "chat", "quiet"])).map(lambda names: ("tick", names))
quiet_ticks = st.integers(2, 10).map(lambda count: ("ticks", count))
histories = st.lists(
    toggles | toggles | mutes | progress | restarts | ticks | ticks | quiet_ticks, max_size=50
)


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(ROUTES), histories)
def test_no_alert_is_lost_and_none_told_twice_without_a_reason(
    route: Route, history: list[tuple[str, object]]
) -> None:
    world = World(route)
    for what, value in history:
        if what == "toggle":
            world.toggle(str(value))
        elif what == "mute":
            world.muted ^= {str(value)}
        elif what == "progress":
            world.progress = str(value)
        elif what == "restart":
            world.groups = Groups(route)
        elif what == "tick":
            world.tick(frozenset(value))  # type: ignore[call-overload]
        else:
            for _ in range(int(str(value))):
                world.tick()
    _let_everything_end(world)
    for place in world.places:
        for fingerprint, since in place.due:
            assert place.heard[fingerprint] >= since, (place.name, fingerprint, since)
        assert not any(place.believed.values()), place.name
        assert not any(entry.firing or entry.owed for entry in place.log.values())
    assert len(world.groups) == 0


def _let_everything_end(world: World) -> None:
    """Unmute and resolve all, with every place within reach, for as long as any timer may take."""
    world.muted.clear()
    for name, alert in world.alerts.items():
        if alert.firing:
            world.toggle(name)
    for _ in range(12):
        world.tick()

"""An engine on virtual time, with a scripted source, a scripted Ray and receivers that remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

from engine.errors import NotifyError, QueryError
from engine.flow.clusters import Clusters
from engine.flow.engine import Engine
from engine.lab.cluster import LabRay
from engine.load.playbooks import read_playbook
from engine.load.rules import read_rules
from engine.load.settings import read_settings
from engine.model.alert import Alert
from engine.model.event import Event, Kind
from engine.model.labels import Labels
from engine.model.notification import Notification, Receipt
from engine.model.playbook import Playbook, Run
from engine.model.ports import RayApi, Store
from engine.model.rule import RuleGroup
from engine.model.series import Window
from engine.model.settings import RayCluster, Settings
from engine.store.memory import MemoryStore

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PLAYBOOKS = Path(__file__).parents[2] / "playbooks"

RULES = b"""
groups:
  - name: g
    interval: 10s
    rules:
      - alert: Hot
        expr: temperature > 50
        for: 20s
        keep_firing_for: 10s
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.instance }} is at {{ $value }}"}
"""


ROUTES = """
route: {receiver: r, group_by: [alertname], group_wait: 0s, group_interval: 10s}
receivers: [{name: r}, {name: boss}]
remediation: {mode: auto}
engine_alerts: {rule_failing_for: 0s, rule_no_data_for: 0s}
"""


@dataclass(eq=False)
class Script:
    """A source whose answers are set by the test: value by labels, or an error."""

    values: dict[Labels, float] = field(default_factory=dict)
    error: Exception | None = None
    by_expr: dict[str, dict[Labels, float]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def instant(self, expr: str, at: datetime) -> Window:
        self.asked.append(expr)
        if self.error is not None:
            raise self.error
        values = self.by_expr.get(expr, self.values if "temperature" in expr else {})
        return Window.of(list(values), [at.timestamp()], [[value] for value in values.values()])

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        count = (end - start) // step + 1
        now = self.instant(expr, start)
        times = [(start + index * step).timestamp() for index in range(count)]
        return Window.of(now.labels, times, [[float(value)] * count for value in now.last()])


@dataclass(frozen=True, eq=False)
class Recorder:
    """A receiver's integration that remembers what it was told, and fails when it is told to."""

    sent: list[Notification] = field(default_factory=list)
    failures: list[NotifyError] = field(default_factory=list)
    send_resolved: bool = True
    updates_in_place: ClassVar[bool] = True

    def notify(self, notification: Notification, previous: Receipt | None) -> Receipt:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append(notification)
        return {"ts": (previous or {}).get("ts", str(len(self.sent)))}

    @property
    def told(self) -> list[tuple[str, list[str], list[str]]]:
        """Reason, firing and resolved instances of each notification."""
        return [
            (
                one.reason.name,
                sorted(alert.labels.get("instance", "") for alert in one.firing),
                sorted(alert.labels.get("instance", "") for alert in one.resolved),
            )
            for one in self.sent
        ]


def settings_of(text: str) -> Settings:
    problems: list[Any] = []
    settings = read_settings("engine.yaml", text.encode(), problems)
    assert problems == []
    assert settings is not None
    return settings


def groups_of(content: bytes = RULES) -> tuple[RuleGroup, ...]:
    problems: list[Any] = []
    groups = read_rules("rules.yaml", content, problems).groups
    assert problems == []
    return groups


def playbook_of(content: str) -> dict[str, Playbook]:
    problems: list[Any] = []
    playbook = read_playbook(str(PLAYBOOKS / "test.yaml"), content.encode(), problems)
    assert problems == []
    assert playbook is not None
    return {playbook.name: playbook}


class Stage:
    """Drives an engine second by second; `restart` builds a new one on the same store."""

    def __init__(
        self,
        *,
        rules: bytes = RULES,
        settings: str = ROUTES,
        playbooks: Mapping[str, Playbook] | None = None,
        store: Store | None = None,
    ) -> None:
        self.source = Script()
        self.ray = LabRay()
        self.r, self.boss = Recorder(), Recorder()
        self.store = store or MemoryStore()
        self.events: list[Event] = []
        self.at = T0
        self._rules, self._settings, self._playbooks = rules, settings, dict(playbooks or {})
        self.engine = self._build()

    def _build(self) -> Engine:
        settings = settings_of(self._settings)
        receivers = dict(settings.routing.receivers)
        for name, recorder in (("r", self.r), ("boss", self.boss)):
            if name in receivers:
                receivers[name] = replace(receivers[name], integrations=(("recorder", recorder),))
        connect: Callable[[RayCluster, str], RayApi] = lambda _entry, _address: self.ray  # noqa: E731
        return Engine(
            settings=replace(settings, routing=replace(settings.routing, receivers=receivers)),
            groups=groups_of(self._rules),
            playbooks=self._playbooks,
            source=self.source,
            store=self.store,
            clusters=Clusters([RayCluster(name="c", address="http://ray")], connect),
            observers=[self.events.append],
        )

    def restart(self) -> None:
        self.engine = self._build()

    def hot(self, *instances: str) -> None:
        """Make the condition true for these instances, and for no other."""
        self.source.values = {Labels(instance=name): 60.0 for name in instances}

    def run(self, seconds: int, *, late: bool = False) -> None:
        """Let time pass: evaluate every ten seconds, flush and heal every second."""
        for _ in range(seconds):
            if (self.at - T0).seconds % 10 == 0:
                group = next(iter(self.engine.groups))
                if late:
                    self.engine.catch_up(group, [self.at])
                else:
                    self.engine.tick(group, self.at)
            self.engine.flush(self.at)
            self.engine.heal(self.at)
            self.at += timedelta(seconds=1)

    @property
    def states(self) -> dict[str, str]:
        """State of each alert by instance."""
        return {alert.labels["instance"]: alert.state.value for alert in self.alerts}

    @property
    def alerts(self) -> Sequence[Alert]:
        return self.engine.alerts()

    @property
    def runs(self) -> Sequence[Run]:
        """Oldest first."""
        return list(reversed(self.store.runs()))

    def reasons(self, kind: Kind) -> list[str]:
        return [event.reason for event in self.events if event.kind is kind]

    def query_fails(self, error: QueryError | None) -> None:
        self.source.error = error

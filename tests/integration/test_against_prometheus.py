"""A real Prometheus and the engine tell the same story of the same rules and series.

Prometheus evaluates in real time, is restarted in the middle, and sends to an Alertmanager that keeps everything.
The engine is then driven over exactly the instants that Prometheus evaluated, and restarted where Prometheus was.
All samples were written ahead of their time, so both have seen the same at each instant.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from deploy.demo.prometheus import Prometheus
from engine.flow.build import Loaded, build
from engine.flow.engine import Engine
from engine.flow.evaluator import Health
from engine.load.rules import load_rules
from engine.load.settings import load_settings
from engine.model.alert import Alert, AlertState
from engine.model.labels import METRIC_NAME, Labels
from engine.model.rule import AlertingRule, RuleGroup
from engine.model.settings import PrometheusSettings
from engine.notify.alertmanager import graph_link, needs_sending, payload
from engine.query.prometheus import PrometheusSource
from engine.store.memory import MemoryStore
from tests.integration.remote_write import write

RULES = """
groups:
  - name: story
    interval: 1s
    labels: {tier: test}
    rules:
      - {record: "slot:story", expr: vector(1)}
      - {alert: For, expr: 'for > 50', for: 3s, annotations: {value: "{{ $value }}"}}
      - {alert: Short, expr: short > 50, for: 3s}
      - {alert: Keep, expr: keep > 50, keep_firing_for: 3s, annotations: {value: "{{ $value }}"}}
      - {alert: KeepLong, expr: keep_long > 50, keep_firing_for: 5m}
      - {alert: Long, expr: long > 50, for: 10s}
      - {alert: Flap, expr: flap > 50}
      - alert: Templates
        expr: templates > 50
        labels: {severity: "{{ if gt $value 70.0 }}critical{{ else }}warning{{ end }}", room: "{{ $labels.room | toUpper }}"}
        annotations:
          summary: 'Room {{ $labels.room }} of {{ $externalLabels.cluster }} has {{ $value | humanize }} °C & "more" <b>'
          asked: '{{ query "sum(two)" | first | value }} in {{ len (query "two") }}'
          link: "{{ $externalURL }}"
          fails: '{{ query "nothing_there" | first | value }}'
          empty: ""
      - {alert: Two, expr: 'two>50', for: 1s, annotations: {i: "{{ $labels.i }}: {{ $value }}"}}
      - {alert: Broken, expr: left > on() right}
      - {alert: Same, expr: same > 50, labels: {i: ""}}
  - name: limited
    interval: 1s
    limit: 1
    rules:
      - {record: "slot:limited", expr: vector(1)}
      - {alert: Limited, expr: limited > 50, for: 2s}
"""

# What changes at which second: the value from then on, None where the series ends.
Changes = Mapping[int, float | None]
BEFORE: dict[tuple[str, str], Changes] = {
    ("for", ""): {2: 60, 9: 40, 11: 61},  # fires from 14 on, over the restart
    ("short", ""): {3: 60, 5: 40, 8: 60, 10: None},  # pending twice, and never fires
    ("keep", ""): {3: 60, 6: 40, 8: 65, 10: 40},  # held at 6, taken up again at 8, resolved at 13
    ("keep_long", ""): {3: 60, 13: 40},
    ("long", ""): {14: 60},  # pending over the restart
    ("flap", ""): {2: 60, 4: 40, 6: 60, 8: 40, 10: 60, 12: 40, 14: 60, 16: 40},
    ("templates", "lab"): {3: 60.5, 5: 61.25, 7: 80, 12: 40},  # another severity is another alert
    ("two", "1"): {2: 60, 6: 61, 12: 40},
    ("two", "2"): {4: 70, 9: None},
    ("left", ""): {2: 60, 13: 40},
    ("right", "1"): {1: 50},
    ("right", "2"): {7: 50, 10: None},  # the rule cannot be evaluated while there are two
    ("same", "1"): {2: 60, 12: 40},
    ("same", "2"): {6: 60, 9: None},  # two results with the same labels
    ("limited", "1"): {2: 60, 13: 40},
    ("limited", "2"): {6: 60, 9: 40},  # one more than allowed: all are forgotten, and begin anew
}
AFTER: dict[tuple[str, str], Changes] = {
    ("for", ""): {1: 40, 3: 70},
    ("short", ""): {2: 60, 4: 40},
    ("keep", ""): {1: 60, 4: 40},
    ("flap", ""): {1: 60, 3: 40, 5: 60, 7: 40},
    ("templates", "lab"): {2: 55},
    ("two", "1"): {2: 60},
    ("two", "2"): {3: 70, 8: None},
    ("left", ""): {1: 60, 8: 40},
    ("right", "2"): {4: 50, 6: None},
    ("same", "1"): {1: 60, 8: 40},
    ("limited", "1"): {1: 60, 9: 40},
}
SECONDS_BEFORE, SECONDS_AFTER = 17, 11
LEAD = 7  # seconds: Prometheus looks for its Alertmanagers 5 s after its start, and sends nothing before
SPANNING = {"For", "KeepLong", "Long"}  # pending or firing while Prometheus was restarted

INTERVAL = timedelta(seconds=1)
RESEND_DELAY = timedelta(seconds=3)
EXTERNAL = {"cluster": "demo", "tier": "external", "room": "external"}
EXTERNAL_URL = "http://prometheus.example"
FLAGS = [
    f"--web.external-url={EXTERNAL_URL}/",
    "--rules.alert.resend-delay=3s",
    "--rules.alert.for-grace-period=2s",  # a `for` that is shorter is not restored
]

State = tuple[Labels, str]

# A template that fails says why. Where, it says in Go's words there, and by line and column here.
_PLACE = re.compile(r"(<error expanding template: ).*(?=error calling)")


class Message(NamedTuple):
    """One alert in the body of a request to an Alertmanager."""

    labels: Labels
    annotations: tuple[tuple[str, str], ...]
    starts_at: str
    ends_at: str
    link: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Message:
        texts = body.get("annotations", {}).items()
        annotations = tuple(sorted((name, _PLACE.sub(r"\1", text)) for name, text in texts))
        return cls(
            Labels(body["labels"]), annotations, body["startsAt"], body["endsAt"], body["generatorURL"]
        )

    @property
    def name(self) -> str:
        return self.labels["alertname"]


@dataclass
class Side:
    """What one of the two made of the story: before and after the restart."""

    states: list[dict[int, set[State]]] = field(default_factory=list)  # by slot, in milliseconds
    messages: list[list[Message]] = field(default_factory=list)  # in the order in which they were sent
    failing: dict[int, set[str]] = field(default_factory=dict)  # the rules that could not be evaluated
    kinds: set[tuple[str, ...]] = field(default_factory=set)  # the keys of what was sent


class Story(NamedTuple):
    """The same story, told by both."""

    theirs: Side
    ours: Side
    slots: tuple[dict[str, list[int]], dict[str, list[int]]]  # of each group, before and after the restart


class AlertmanagerStub:
    """Takes alerts, and keeps what was said."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # noqa: N802
                assert self.path == "/api/v2/alerts"
                stub.bodies += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


# ── Prometheus ───────────────────────────────────────────────────────────────


def tell(server: Prometheus, story: Mapping[tuple[str, str], Changes], seconds: int) -> None:
    """Write a part of the story ahead of its time, and wait until it is over."""
    start = time.time() + LEAD
    series = []
    for (name, which), changes in story.items():
        label = {"room": which} if name == "templates" else {"i": which} if which else {}
        samples = [(int((start + second) * 1000), value) for second, value in changes.items()]
        series.append(({METRIC_NAME: name, **label}, samples))
    write(server.url, series)
    time.sleep(start + seconds - time.time())


def states_of(server: Prometheus) -> dict[int, set[State]]:
    """What is pending and firing at each slot that was evaluated, as `ALERTS` says."""
    found: dict[int, set[State]] = {slot: set() for slot in slots_of(server, "story")}
    for series in server.query("ALERTS[5m]"):
        labels = Labels(series["metric"])
        for seconds, _ in series["values"]:
            state = (labels.without(METRIC_NAME, "alertstate"), labels["alertstate"])
            found.setdefault(round(float(seconds) * 1000), set()).add(state)
    return found


def slots_of(server: Prometheus, group: str) -> list[int]:
    """The instants at which a group was evaluated: one of its rules is true at all of them."""
    (series,) = server.query(f"slot:{group}[5m]")
    return [round(float(seconds) * 1000) for seconds, _ in series["values"]]


# ── The engine ───────────────────────────────────────────────────────────────


class Driver:
    """Drives an engine over given instants, and sends as Prometheus sends."""

    def __init__(self, rules: Path, url: str) -> None:
        settings = replace(load_settings(None), external_labels=EXTERNAL, external_url=EXTERNAL_URL)
        self._loaded = Loaded(settings=settings, groups=load_rules([rules]).groups, playbooks={})
        self._source = PrometheusSource(PrometheusSettings(url=url))
        self._store = MemoryStore()
        self._engine = self._build()
        self._last_sent: dict[str, datetime] = {}
        self.side = Side()
        self.restart()

    def _build(self) -> Engine:
        return build(self._loaded, source=self._source, store=self._store)

    def restart(self) -> None:
        """Begin anew with what the store remembers; nobody remembers what was sent."""
        self._engine = self._build()
        self._last_sent = {}
        self.side.states.append({})
        self.side.messages.append([])

    def close(self) -> None:
        self._source.close()

    @property
    def groups(self) -> dict[str, RuleGroup]:
        return {group.name: group for group in self._loaded.groups}

    def tick(self, group: RuleGroup, slot: int) -> None:
        at = datetime.fromtimestamp(slot / 1000, UTC)
        self._engine.tick(group.id, at)
        status = self._engine.status
        rules = [rule for rule in group.rules if isinstance(rule, AlertingRule)]
        failing = {rule.alert for rule in rules if status[rule.id].health is Health.ERROR}
        self.side.failing.setdefault(slot, set()).update(failing)
        now = self.side.states[-1].setdefault(slot, set())
        for rule in rules:
            alerts = status[rule.id].alerts
            now.update(
                (alert.labels, alert.state.value)
                for alert in alerts
                if alert.state is not AlertState.RESOLVED
            )
            if rule.alert not in failing:
                self._send(rule, alerts, at)

    def _send(self, rule: AlertingRule, alerts: Iterable[Alert], at: datetime) -> None:
        due = [alert for alert in alerts if self._is_due(alert, at)]
        self._last_sent.update((alert.episode, at) for alert in due)
        bodies = payload(
            due,
            at=at,
            interval=INTERVAL,
            resend_delay=RESEND_DELAY,
            generator_url=lambda _: graph_link(EXTERNAL_URL, rule.expr),
            external_labels=EXTERNAL,
        )
        self.side.messages[-1] += map(Message.of, bodies)
        self.side.kinds |= {tuple(sorted(body)) for body in bodies}

    def _is_due(self, alert: Alert, at: datetime) -> bool:
        last = self._last_sent.get(alert.episode)
        return needs_sending(alert, last_sent=last, at=at, resend_delay=RESEND_DELAY)


@pytest.fixture(scope="module")
def story(prometheus_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("story")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    alertmanager = AlertmanagerStub()
    theirs = Side()
    server = Prometheus(
        folder / "prometheus",
        programs=prometheus_bin,
        rule_files=[rules],
        alertmanagers=[alertmanager.address],
        external_labels=EXTERNAL,
        flags=FLAGS,
    )
    with server:
        tell(server, BEFORE, SECONDS_BEFORE)
        server.stop()
        stopped_at = int(time.time() * 1000)
        count = len(alertmanager.bodies)
        server.start()
        tell(server, AFTER, SECONDS_AFTER)
        server.wait_for('ALERTS{alertname="Long",alertstate="firing"}', within=20)
        everything = states_of(server)
        slots = {group: slots_of(server, group) for group in ("story", "limited")}
        end = max(everything)
        ours = drive(rules, server.url, slots, stopped_at, end)
    alertmanager.close()
    for before in (True, False):
        theirs.states.append({at: found for at, found in everything.items() if (at < stopped_at) is before})
    theirs.messages = [
        list(map(Message.of, part)) for part in (alertmanager.bodies[:count], alertmanager.bodies[count:])
    ]
    theirs.kinds = {tuple(sorted(body)) for body in alertmanager.bodies}
    halves = (
        {group: [slot for slot in found if slot < stopped_at] for group, found in slots.items()},
        {group: [slot for slot in found if stopped_at < slot <= end] for group, found in slots.items()},
    )
    yield Story(theirs, ours, halves)


def drive(rules: Path, url: str, slots: Mapping[str, list[int]], stopped_at: int, end: int) -> Side:
    """The engine's side of the story, at the same instants."""
    driver = Driver(rules, url)
    moments = sorted((slot, group) for group, found in slots.items() for slot in found if slot <= end)
    restarted = False
    for slot, group in moments:
        if slot > stopped_at and not restarted:
            driver.restart()
            restarted = True
        driver.tick(driver.groups[group], slot)
    driver.close()
    return driver.side


# ── States ───────────────────────────────────────────────────────────────────


def names(states: Iterable[State]) -> set[str]:
    return {labels["alertname"] for labels, _ in states}


def without(states: Iterable[State], names: Iterable[str]) -> set[State]:
    return {state for state in states if state[0]["alertname"] not in names}


def only(states: Iterable[State], name: str) -> set[State]:
    return {state for state in states if state[0]["alertname"] == name}


def test_until_the_restart_the_same_alerts_are_in_the_same_state_at_every_evaluation(story: Story) -> None:
    theirs, ours = story.theirs.states[0], story.ours.states[0]
    assert len(ours) > 2 * SECONDS_BEFORE
    for slot, states in ours.items():
        # Of a rule that fails Prometheus writes no samples; what became of its alerts shows at the next evaluation.
        failing = story.ours.failing[slot]
        assert theirs.get(slot, set()) == without(states, failing)


def test_a_rule_that_cannot_be_evaluated_leaves_its_alerts_as_they_are(story: Story) -> None:
    for name in ("Broken", "Same"):
        pairs = list(pairwise(story.slots[0]["story"]))
        failing = [(before, slot) for before, slot in pairs if name in story.ours.failing[slot]]
        assert len(failing) >= 3
        for before, slot in failing:
            found = only(story.ours.states[0][slot], name)
            assert [state for _, state in found] == ["firing"]
            assert found == only(story.ours.states[0][before], name)


def test_more_alerts_than_the_limit_are_all_forgotten(story: Story) -> None:
    slots = [slot for slot, failing in story.ours.failing.items() if "Limited" in failing]
    assert slots
    for slot in slots:
        assert not only(story.ours.states[0][slot], "Limited")


def test_the_story_has_everything_in_it(story: Story) -> None:
    told = {
        (labels["alertname"], state) for states in story.theirs.states[0].values() for labels, state in states
    }
    assert {("Short", "pending"), ("For", "pending"), ("For", "firing"), ("Long", "pending")} <= told
    assert ("Short", "firing") not in told
    assert {name for name, state in told if state == "firing"} == {
        "For", "Keep", "KeepLong", "Flap", "Templates", "Two", "Broken", "Same", "Limited",
    }  # fmt: skip
    severities = {labels["severity"] for labels, _ in states_named(story.theirs, "Templates")}
    assert severities == {"warning", "critical"}


def states_named(side: Side, name: str) -> list[State]:
    return [state for part in side.states for states in part.values() for state in only(states, name)]


def test_prometheus_writes_alerts_only_from_the_third_evaluation_after_a_restart_on(story: Story) -> None:
    """It restores what it knew after the second; the engine goes on with what the store remembers at the first."""
    for slots in story.slots[1].values():
        for slot in slots[:2]:
            assert story.theirs.states[1].get(slot, set()) == set()
    first = story.ours.states[1][story.slots[1]["story"][0]]
    assert {(labels["alertname"], state) for labels, state in first} == {
        ("For", "firing"),
        ("KeepLong", "firing"),
        ("Long", "pending"),
    }


def test_from_then_on_they_agree_but_for_what_prometheus_forgot(story: Story) -> None:
    for slots in story.slots[1].values():
        for slot in slots[2:]:
            states, failing = story.ours.states[1][slot], story.ours.failing[slot]
            expected = without(states, failing | {"KeepLong", "Long"})
            assert without(story.theirs.states[1].get(slot, set()), {"Long"}) == expected


def test_prometheus_forgets_an_alert_that_was_only_kept_firing(story: Story) -> None:
    """It restores alerts whose condition holds, so `keep_firing_for` ends with a restart; the engine's goes on."""
    assert not any(only(states, "KeepLong") for states in story.theirs.states[1].values())
    ours = [only(story.ours.states[1][slot], "KeepLong") for slot in story.slots[1]["story"]]
    assert all(state == "firing" for states in ours for _, state in states)
    assert all(ours)


def test_prometheus_does_not_count_the_down_time_towards_for_and_the_engine_does(story: Story) -> None:
    """The condition held before and after; the engine takes it for having held in between."""
    active_at = min(slot for slot in story.slots[0]["story"] if only(story.ours.states[0][slot], "Long"))
    theirs, ours = (
        [
            slot
            for slot in story.slots[1]["story"]
            if "firing" in dict(only(side.states[1][slot], "Long")).values()
        ]
        for side in (story.theirs, story.ours)
    )
    assert ours[0] == min(slot for slot in story.slots[1]["story"] if slot >= active_at + 10_000)
    assert theirs[0] > ours[0]


# ── Messages ─────────────────────────────────────────────────────────────────


def by_alert(messages: Iterable[Message]) -> dict[Labels, list[Message]]:
    found: dict[Labels, list[Message]] = {}
    for message in messages:
        found.setdefault(message.labels, []).append(message)
    return found


def in_rule_order(messages: Iterable[Message]) -> list[list[Message]]:
    """Messages in runs of one rule's; within a run they come from a Go map, in any order."""
    return [sorted(run, key=str) for _, run in groupby(messages, key=lambda message: message.name)]


def test_until_the_restart_the_same_is_sent_as_often_and_in_the_same_order(story: Story) -> None:
    theirs, ours = story.theirs.messages[0], story.ours.messages[0]
    assert len(ours) > 40
    assert by_alert(ours) == by_alert(theirs)
    assert in_rule_order(ours) == in_rule_order(theirs)
    assert story.ours.kinds == story.theirs.kinds


def test_an_alert_that_resolves_is_told_at_once_and_then_again_and_again(story: Story) -> None:
    (warning,) = (
        messages
        for labels, messages in by_alert(story.ours.messages[0]).items()
        if labels["alertname"] == "Templates" and labels["severity"] == "warning"
    )
    resolved = [message for message in warning if message.ends_at == warning[-1].ends_at]
    assert len(resolved) >= 2
    assert {message.starts_at for message in warning} == {warning[0].starts_at}


def test_external_labels_lie_under_the_alerts_own(story: Story) -> None:
    for message in (*story.theirs.messages[0], *story.ours.messages[0]):
        assert message.labels["cluster"] == "demo"
        assert message.labels["tier"] == ("external" if message.name == "Limited" else "test")
        assert message.labels["room"] == ("LAB" if message.name == "Templates" else "external")


def test_after_the_restart_the_same_is_sent_of_what_began_after_it(story: Story) -> None:
    restart = instant(min(story.ours.states[1]))
    theirs, ours = (
        by_alert(m for m in side.messages[1] if m.name not in SPANNING and m.starts_at >= restart)
        for side in (story.theirs, story.ours)
    )
    assert theirs.keys() == ours.keys()
    assert {labels["alertname"] for labels in ours} == {
        "Keep",
        "Flap",
        "Templates",
        "Two",
        "Broken",
        "Same",
        "Limited",
    }
    end = instant(max(story.ours.states[1]) + 4 * int(RESEND_DELAY.total_seconds()) * 1000)
    for labels, messages in ours.items():
        told, more = theirs[labels][: len(messages)], theirs[labels][len(messages) :]
        assert told == messages
        # Prometheus went on for a moment after the last evaluation that was compared.
        assert all(message.ends_at > end or message == messages[-1] for message in more)


def instant(slot: int) -> str:
    return (
        datetime.fromtimestamp(slot / 1000, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    )


def test_the_engine_tells_again_what_resolved_before_the_restart(story: Story) -> None:
    """Prometheus has forgotten it. An Alertmanager that missed it hears of it from the engine."""
    restart = instant(min(story.ours.states[1]))
    again = {m for m in story.ours.messages[1] if m.ends_at < restart}
    assert {m.name for m in again} >= {"Keep", "Flap", "Templates", "Two"}
    assert again <= set(story.ours.messages[0])
    assert not [m for m in story.theirs.messages[1] if m.ends_at < restart]


def test_the_engine_remembers_since_when_an_alert_fires_and_prometheus_begins_anew(story: Story) -> None:
    before, theirs, ours = (
        [message for message in part if message.name == "For"]
        for part in (story.ours.messages[0], story.theirs.messages[1], story.ours.messages[1])
    )
    since = before[-1].starts_at
    still = [message for message in ours if message.starts_at == since]
    anew = [message for message in theirs if message.starts_at == theirs[0].starts_at]
    assert anew[0].starts_at == instant(story.slots[1]["story"][2])
    assert still[-1].ends_at == anew[-1].ends_at, "both tell the same end"

"""One story of rules and series, as a real Prometheus and as the engine tell it.

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

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
            def do_POST(self) -> None:
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


def told_by_both(programs: Path, folder: Path) -> Story:
    """Let Prometheus live through the story, which takes 40 s, and the engine after it."""
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    alertmanager = AlertmanagerStub()
    theirs = Side()
    server = Prometheus(
        folder / "prometheus",
        programs=programs,
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
    return Story(theirs, ours, halves)


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

"""What the engine answers about rules and alerts is what a real Prometheus answers about the same rules and series."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import ports
from deploy.demo.prometheus import Prometheus
from engine.flow.build import Loaded, build
from engine.flow.engine import Engine
from engine.load.rules import load_rules
from engine.load.settings import load_settings
from engine.model.settings import PrometheusSettings
from engine.query.prometheus import PrometheusSource
from engine.serve.http import Checks, HttpServer, application
from engine.store.memory import MemoryStore
from tests.integration.remote_write import write

RULES = {
    # Later in the alphabet, first in the configuration: both sort by file, then by name.
    "z.yaml": """
groups:
  - name: two
    interval: 1s
    limit: 2
    labels: {team: core, page: "no"}
    rules:
      - {record: "slot:two", expr: "vector( 1 )"}
      - record: temperature:max
        expr: max by(room) (temperature)
        labels: {unit: celsius, page: "yes"}
      - {alert: Everything, expr: temperature}
      - {alert: Huge, expr: 'huge>0', labels: {page: "yes"}}
  - name: one
    interval: 1s
    rules:
      - {record: "slot:one", expr: vector(1)}
      - alert: Hot
        expr: temperature>50
        for: 2s
        keep_firing_for: 1h30m
        labels: {severity: 'x{{ $value | printf "%.0f" }}', team: "{{ $labels.room }}"}
        annotations: {summary: 'Room {{ $labels.room }} has {{ $value | humanize }} °C & <more>', empty: ""}
      - {alert: Cold, expr: "45 > temperature", for: 1h}
      - {alert: Blip, expr: blip == 1, keep_firing_for: 1h}
      - {alert: Silent, expr: "absent(temperature)"}
      - alert: Broken
        expr: temperature * on() group_left(room) (temperature or temperature)
""",
    "a.yaml": """
groups:
  - name: hourly
    interval: 1h
    rules:
      - {record: "slot:hourly", expr: sum without () (up), labels: {team: core}}
      - alert: Later
        expr: 'sum by(a,b)(rate(x{z="b",c=~"d.*"}[5m]))/on(a) group_left  y > bool 3 and on(instance) (up{job="a job with a long name"} == 0)'
        for: 2h
        labels: {team: core}
""",
}
EVALUATED = {"one", "two"}
ADDED = ("fingerprint", "details", "detect")
OWN_ALERTS = ("EngineRuleFailing", "EngineRuleNoData")
TIMINGS = ("evaluationTime", "lastEvaluation")

QUESTIONS = [
    "rules",
    "rules?type=alert",
    "rules?type=RECORD",
    "rules?type=alert&exclude_alerts=true",
    "rules?exclude_alerts=F",
    "rules?rule_name[]=Hot&rule_name[]=Cold",
    "rules?rule_name[]=Hot&rule_group[]=two",
    "rules?rule_group[]=two&rule_group[]=hourly",
    "rules?file[]={folder}/z.yaml",
    "rules?file[]=z.yaml",
    'rules?match[]={{team="core"}}',
    'rules?match[]={{team="core",page="no"}}&match[]={{severity=~"x.*value.*"}}',
    'rules?match[]={{team=~"c|cor"}}',
    'rules?match[]={{team!~"c.*",team!=""}}',
    'rules?match[]=Hot&match[]={{__name__="Hot"}}',
    "rules?group_limit=1",
    "rules?group_limit=2&type=alert&group_next_token={token}",
    "rules?group_limit=1&rule_group[]=two&group_next_token={token}",
    "rules?group_limit=3",
    "rules?nonsense=1",
    "alerts",
]
REFUSED = [
    "rules?type=recording",
    "rules?exclude_alerts=maybe",
    "rules?exclude_alerts=YES",
    "rules?group_limit=x",
    "rules?group_limit=",
    "rules?group_limit=0",
    "rules?group_limit=-1",
    "rules?group_limit=99999999999",
    "rules?group_limit=1_0",
    "rules?group_next_token=abc",
    "rules?group_limit=1&group_next_token=abc",
    "rules?type=x&group_limit=0",
]
UNREADABLE = [
    "rules?match[]={{",
    "rules?match[]={{}}",
    'rules?match[]={{team=""}}',
    "rules?match[]=up[5m]",
    "rules?match[]=up offset 5m",
    "rules?match[]=up %2B 1",
    'rules?match[]={{a=~"("}}',
    "rules?match[]={{&type=nonsense",
]


class Pair:
    """A Prometheus and an engine that serve the same rules, both at rest."""

    def __init__(self, theirs: str, ours: str, folder: Path) -> None:
        self._theirs, self._ours = theirs, ours
        token = get(f"{theirs}/api/v1/rules?group_limit=1")[1]["data"]["groupNextToken"]
        self._words = {"folder": str(folder), "token": token}

    def ask(self, question: str) -> tuple[tuple[int, Any], tuple[int, Any]]:
        """Their answer, and ours: status and body."""
        path = question.format(**self._words).replace(" ", "%20")
        return get(f"{self._theirs}/api/v1/{path}"), get(f"{self._ours}/api/v1/{path}")


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture(scope="module")
def pair(prometheus_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("rules")
    for name, text in RULES.items():
        (folder / name).write_text(text)
    files = [folder / name for name in RULES]
    with Prometheus(
        folder / "prometheus", programs=prometheus_bin, rule_files=files, evaluation_interval="7s"
    ) as server:
        tell_story(server)
        engine = evaluated_like(server, files)
        with served(engine) as url:
            yield Pair(server.url, url, folder)


def tell_story(server: Prometheus) -> None:
    """Write series that come to rest in a state that has everything to show, and wait for it."""
    start = int(time.time() * 1000) + 1000  # later than anything that is evaluated by now
    constant = {
        ("temperature", "a"): 60.5,
        ("temperature", "b"): 40.0,
        ("temperature", "c"): float("inf"),
        ("huge", "a"): 1.5e21,
    }
    series: list[Any] = [
        ({"__name__": name, "room": room}, [(start, value)]) for (name, room), value in constant.items()
    ]
    write(server.url, [*series, ({"__name__": "blip"}, [(start, 1.0), (start + 3000, None)])])
    server.wait_for('ALERTS{alertname="Hot",alertstate="firing"}', within=30)

    def rests() -> bool:
        alerts = get(f"{server.url}/api/v1/alerts")[1]["data"]["alerts"]
        return any("keepFiringSince" in alert for alert in alerts) and len(alerts) == 5

    wait_until(rests, within=30)


def evaluated_like(server: Prometheus, files: list[Path]) -> Engine:
    """An engine that has evaluated every slot that the server has."""
    loaded = Loaded(settings=load_settings(None), groups=load_rules(files).groups, playbooks={})
    source = PrometheusSource(PrometheusSettings(url=server.url))
    engine = build(loaded, source=source, store=MemoryStore())
    for group in loaded.groups:
        if group.name in EVALUATED:
            (slots,) = server.query(f"slot:{group.name}[2m]")
            assert len(slots["values"]) > 3
            for seconds, _ in slots["values"]:
                engine.tick(group.id, datetime.fromtimestamp(float(seconds), UTC))
    source.close()
    return engine


@contextmanager
def served(engine: Engine) -> Iterator[str]:
    checks = Checks(healthy=str, ready=str, reload=lambda: None, metrics=bytes, engine=lambda: engine)
    port = ports.free_port()
    http = HttpServer(application(checks), "127.0.0.1", port)
    http.start()
    wait_until(lambda: http.started, within=10)
    yield f"http://127.0.0.1:{port}"
    http.stop()


def wait_until(holds: Callable[[], bool], *, within: float) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.1)


def comparable(value: Any) -> Any:
    """An answer less its timings and the engine's additions; instants to the millisecond, which is what samples have."""
    if isinstance(value, list):
        return [comparable(each) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {name: comparable(each) for name, each in value.items() if name not in (*TIMINGS, *ADDED)}
    for name in ("activeAt", "keepFiringSince"):
        if name in kept:
            whole, _, fraction = kept[name].removesuffix("Z").partition(".")
            kept[name] = f"{whole}.{fraction[:3]:0<3}"
    if isinstance(kept.get("alerts"), list):  # they come from a Go map
        prometheus = [alert for alert in kept["alerts"] if alert["labels"]["alertname"] not in OWN_ALERTS]
        kept["alerts"] = sorted(prometheus, key=lambda alert: json.dumps(alert["labels"]))
    return kept


def rules_of(body: Any) -> dict[str, Any]:
    return {rule["name"]: rule for group in body["data"]["groups"] for rule in group["rules"]}


def take_errors(body: Any) -> dict[str, str]:
    """Remove the errors of rules from an answer, and return them."""
    groups = body["data"].get("groups", ())
    return {rule["name"]: rule.pop("lastError", "") for group in groups for rule in group["rules"]}


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_question_is_answered_as_by_prometheus(pair: Pair, question: str) -> None:
    (their_status, theirs), (our_status, ours) = pair.ask(question)
    assert our_status == their_status == 200
    their_errors, our_errors = take_errors(theirs), take_errors(ours)
    assert comparable(ours) == comparable(theirs)
    assert our_errors.keys() == their_errors.keys()
    for name, error in their_errors.items():
        # The engine says beside the reason who gave it: the server that was asked, or the line of the rule.
        assert bool(our_errors[name]) == bool(error)
        if name == "Broken":
            assert error in our_errors[name]


@pytest.mark.parametrize("question", REFUSED)
def test_every_wrong_question_is_refused_in_the_same_words(pair: Pair, question: str) -> None:
    theirs, ours = pair.ask(question)
    if theirs[0] == 200:
        assert question == "rules?group_limit="
        assert ours[0] == 200
    else:
        assert ours == theirs


@pytest.mark.parametrize("question", UNREADABLE)
def test_matchers_that_are_none_are_refused_in_the_parsers_own_words(pair: Pair, question: str) -> None:
    theirs, ours = pair.ask(question)
    assert theirs[0] == ours[0] == 400
    assert theirs[1]["errorType"] == ours[1]["errorType"] == "bad_data"
    assert ours[1]["error"]


def test_the_story_shows_everything_that_there_is_to_compare(pair: Pair) -> None:
    rules = rules_of(pair.ask("rules")[0][1])
    assert {rule.get("state") for rule in rules.values()} == {None, "firing", "pending", "inactive"}
    assert {rule["health"] for rule in rules.values()} == {"ok", "err", "unknown"}
    values = {alert["value"] for alert in pair.ask("alerts")[0][1]["data"]["alerts"]}
    assert values == {"6.05e+01", "+Inf", "4e+01", "1.5e+21", "1e+00"}
    assert rules["Everything"]["lastError"]  # more than its group's limit


def test_the_engine_adds_what_leads_to_more(pair: Pair) -> None:
    ours = rules_of(pair.ask("rules")[1][1])
    (blip,) = ours["Blip"]["alerts"]
    assert re.fullmatch("[0-9a-f]{16}", blip["fingerprint"])
    assert ours["Blip"]["detect"] == "present"
    assert ours["Blip"]["evaluationTime"] > 0
    assert "detect" not in ours["slot:one"]
    alerts = pair.ask("alerts")[1][1]["data"]["alerts"]
    failing = {alert["labels"]["rule"] for alert in alerts if alert["labels"]["alertname"] in OWN_ALERTS}
    assert "Broken" in failing


def test_timings_are_of_the_form_that_prometheus_gives_them(pair: Pair) -> None:
    form = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
    for _, body in pair.ask("rules"):
        for group in body["data"]["groups"]:
            for each in (group, *group["rules"]):
                assert form.fullmatch(each["lastEvaluation"])
                assert each["evaluationTime"] >= 0
                assert (each["lastEvaluation"] == "0001-01-01T00:00:00Z") is (group["name"] == "hourly")


def test_grafana_learns_that_it_asks_a_plain_prometheus(pair: Pair) -> None:
    (_, theirs), (status, ours) = pair.ask("status/buildinfo")
    assert status == 200
    assert ours["data"].keys() == theirs["data"].keys()
    assert ours["data"]["version"]

"""Rules over the history of a real Prometheus, held against what the server itself, promtool and test-rule say."""

from __future__ import annotations

import json
import subprocess
from contextlib import chdir
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from engine.flow.slots import interval_of
from engine.lab.backtest import first_slot
from engine.load.rules import load_rules
from engine.model.settings import PrometheusSettings
from engine.query.prometheus import PrometheusSource
from tests.cli.test_transcripts import run
from tests.integration.remote_write import write

END = datetime(2026, 1, 31, tzinfo=UTC)
START = END - timedelta(days=3)
MINUTE = timedelta(minutes=1)
COUNT = 3 * 24 * 60
OUT_OF_ORDER = {"storage": {"tsdb": {"out_of_order_time_window": "20y"}}}

RULES = """
groups:
  - name: history
    interval: 1m
    rules:
      - alert: Hot
        expr: temperature > 50
        for: 5m
        keep_firing_for: 3m
        labels: {severity: page}
        annotations: {summary: "{{ $labels.node }} is at {{ $value }}"}
"""
FORECAST = """
groups:
  - name: store
    interval: 1m
    rules:
      - alert: Full
        expr: used
        for: 5m
        detect: {forecast: {bound: 100, horizon: 2h, lookback: 2h}}
        annotations: {summary: "full in {{ $detect.eta | humanizeDuration }}"}
"""
INCIDENTS = """
incidents:
  - {name: the store was full, start: 2026-01-29T23:50:00Z, end: 2026-01-29T23:59:00Z, alertname: Full}
  - {name: nobody saw it, start: 2026-01-29T20:00:00Z, end: 2026-01-29T20:05:00Z, matchers: node="b", early: 1m}
  - {name: before history, start: 2026-01-28T03:00:00Z, end: 2026-01-28T03:10:00Z, early: 1h}
"""


def history():
    """Node a has all three days; node b begins six hours late and has a gap of five; a store fills up and is emptied."""
    rng = np.random.default_rng(11)
    minutes = np.arange(COUNT)
    walk = 45 + 4 * np.sin(minutes / 50) + np.cumsum(rng.normal(0, 0.3, COUNT)) * 0.3
    for node, there in (
        ("a", minutes >= 0),
        ("b", (minutes >= 360) & ~((minutes >= 2000) & (minutes < 2300))),
    ):
        yield {"__name__": "temperature", "node": node}, samples(walk + rng.normal(0, 2, COUNT), there)
    used = 30 + (minutes % 960) / 960 * 70 + rng.normal(0, 0.3, COUNT)
    yield (
        {"__name__": "used", "node": "a"},
        samples(used, (minutes >= 360) & ~((minutes >= 2000) & (minutes < 2300))),
    )


def samples(values, there):
    """Samples a second after the full minute, and a marker where the series ends for a while."""
    begin = round(START.timestamp() * 1000) + 1000
    found = []
    for minute in range(COUNT):
        if there[minute]:
            found.append((begin + 60_000 * minute, float(values[minute])))
        elif minute and there[minute - 1]:
            found.append((begin + 60_000 * minute, None))
    return found


@pytest.fixture
def server(prometheus_server, tmp_path):
    started = prometheus_server(config=OUT_OF_ORDER)
    write(started.url, history())
    (tmp_path / "hot.yaml").write_text(RULES)
    (tmp_path / "full.yaml").write_text(FORECAST)
    (tmp_path / "incidents.yaml").write_text(INCIDENTS)
    with chdir(tmp_path):
        yield started


def backtest(server, *arguments):
    words = f"engine backtest {' '.join(arguments)} --prometheus {server.url} --format json"
    text, code = run(f"{words} --from {START:%Y-%m-%dT%H:%M:%SZ} --to {END:%Y-%m-%dT%H:%M:%SZ}")
    return json.loads(text), code


def as_the_server_says(url):
    """When each node's alert fires and ends, worked out from one answer of the server's at every slot."""
    (group,) = load_rules(["hot.yaml"]).groups
    first = first_slot(group, START)
    source = PrometheusSource(PrometheusSettings(url=url))
    window = source.range("temperature > 50", first, END, interval_of(group))
    source.close()
    found = []
    for row, labels in enumerate(window.labels):
        active = fired = over = None
        for seconds, there in zip(window.times.tolist(), window.present[row].tolist(), strict=True):
            if there:
                active = seconds if active is None else active
                over = None
                fired = seconds if fired is None and seconds - active >= 300 else fired
                continue
            over = seconds if over is None else over
            if fired is not None and seconds - over < 180:
                continue  # it keeps firing
            if fired is not None:
                found.append((labels["node"], fired, seconds))
            active = fired = over = None
        if fired is not None:
            found.append((labels["node"], fired, None))
    return sorted(found, key=lambda each: each[:2])


def seconds_of(text):
    return None if text is None else datetime.fromisoformat(text).timestamp()


def test_a_plain_rule_fires_where_the_server_says_that_its_condition_held(server, prometheus_bin):
    found, code = backtest(server, "hot.yaml", "--save-fixture", "hot.test.yaml")
    assert code == 0
    (rule,) = found["rules"]
    alerts = [
        (each["labels"]["node"], seconds_of(each["fired_at"]), seconds_of(each["resolved_at"]))
        for each in rule["alerts"]
    ]
    wanted = as_the_server_says(server.url)
    assert len(wanted) > 5
    assert sorted(alerts, key=lambda each: each[:2]) == wanted
    assert found["queries"] < 10
    assert "moments came out as in history" in found["notes"][0]
    text, code = run("engine test-rule hot.test.yaml")
    assert (code, " 0 failed" in text) == (0, True)
    promtool = [prometheus_bin / "promtool", "test", "rules", "hot.test.yaml"]
    done = subprocess.run(promtool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_forecast_of_history_is_what_test_rule_makes_of_the_same_series(server):
    found, code = backtest(
        server,
        "full.yaml",
        "--incidents",
        "incidents.yaml",
        "--save-fixture",
        "full.test.yaml",
        "--chart-dir",
        "png",
    )
    (rule,) = found["rules"]
    assert code == 1  # an incident was missed
    assert {each["name"]: each["outcome"] for each in rule["incidents"]} == {
        "the store was full": "seen",
        "nobody saw it": "missed",
        "before history": "not judged",
    }
    (lead,) = [each["lead"] for each in rule["incidents"] if each["outcome"] == "seen"]
    assert 0.5 * 3600 < lead < 3 * 3600
    head = found["notes"][0]
    shown, most = (int(word) for word in head.split("; ")[1].split()[:3:2])
    assert shown == most > 3
    text, code = run("engine test-rule full.test.yaml")
    assert (code, " 0 failed" in text) == (0, True)
    assert len(list(server.folder.parent.glob("png/Full-*.png"))) == len(rule["alerts"])
    assert rule["data"]["first"].startswith("2026-01-28T06:0")
    (gap,) = rule["data"]["gaps"]
    lasted = seconds_of(gap["to"]) - seconds_of(gap["from"])
    assert abs(lasted - 5 * 3600) <= 60
    assert abs(rule["data"]["share"] - (1 - 660 / COUNT)) < 0.001


def test_a_sweep_is_as_if_the_rule_were_written_so(server):
    swept, _ = backtest(server, "hot.yaml", "--sweep", "for=0s,20m")
    for each in swept["sweep"]:
        hold = each["values"]["for"]
        (server.folder.parent / "other.yaml").write_text(RULES.replace("for: 5m", f"for: {hold}"))
        # Slots lie where the group's file and name put them; so the name of the file matters to the second.
        alone, _ = backtest(server, "other.yaml")
        assert abs(each["fires"] - alone["rules"][0]["fires"]) <= 1
        assert each["fires"] != swept["rules"][0]["fires"]


def test_query_says_what_stands_in_the_way(server):
    text, code = run(
        f"engine query Full full.yaml --prometheus {server.url} --at 2026-01-29T23:00:00Z --format json"
    )
    found = json.loads(text)
    assert code == 0
    (series,) = found["series"]
    assert series["state"] == "firing"
    assert 0 < series["details"]["eta"] < 2 * 3600
    assert series["why"][0].startswith("since ")
    text, code = run(
        f"engine query Full full.yaml --prometheus {server.url} --at 2026-01-28T06:15:00Z --format json"
    )
    (series,) = json.loads(text)["series"]
    assert series["state"] == "unknown"
    assert series["why"] == ["cannot say: 15 of 121 samples in the last 2h"]
    text, code = run(f"engine query Hot hot.yaml --prometheus {server.url} --at 2026-01-29T15:00:00Z")
    assert code == 0
    assert "not > 50" in text
    text, code = run(f"engine query Hot hot.yaml --prometheus {server.url} --at 2020-01-29T15:00:00Z")
    assert (code, text.splitlines()[-1]) == (5, "no series")

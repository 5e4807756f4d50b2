"""Prometheus, Ray or Slack gone, slow or wrong: the engine goes on, says so, and catches up."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from deploy.demo import ports, web
from deploy.demo.engine_process import EngineProcess, Line
from deploy.demo.prometheus import Prometheus
from deploy.demo.slack_stub import Failure, SlackStub
from tests.integration.forwarder import Forwarder
from tests.integration.remote_write import write

CONFIG = Path(__file__).parent / "degraded.yaml"
RULES = """
groups:
  - name: g
    interval: 1s
    rules:
      - alert: Hot
        expr: temperature > 50
        annotations: {summary: "{{ $labels.instance }} is hot"}
        enrich: [ray_objects, {graph: {range: 1m}}]
        remediate: {playbook: cool}
"""
PLAYBOOK = """
playbook: cool
match: [alertname=~"Hot.*"]
mode: auto
steps:
  - {name: stop the owner, action: ray_stop_job, with: {job: "{{ $plan.largest_owner.submission_id }}"}}
verify: {within: 1m}
"""


@pytest.fixture
def slack(tmp_path: Path) -> Iterator[SlackStub]:
    (tmp_path / "slack-token").write_text("xoxb-1")
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "playbook.yaml").write_text(PLAYBOOK)
    with SlackStub(token="xoxb-1") as stub:
        yield stub


@pytest.fixture
def prometheus(prometheus_server: Callable[..., Prometheus]) -> Prometheus:
    return prometheus_server()


def engine_on(
    folder: Path, prometheus_url: str, slack: SlackStub, ray_url: str | None = None
) -> EngineProcess:
    return EngineProcess(
        folder,
        prometheus_url=prometheus_url,
        ray_url=ray_url or f"http://127.0.0.1:{ports.free_port()}",
        slack_url=slack.url,
        config=CONFIG,
    )


def say(prometheus: Prometheus, value: float) -> None:
    """Write one sample of now."""
    write(
        prometheus.url, [({"__name__": "temperature", "instance": "n1"}, [(int(time.time() * 1000), value)])]
    )


def happened(event: str, **data: str) -> Callable[[Line], bool]:
    return lambda line: (
        line["event"] == event and all(line.get(name) == value for name, value in data.items())
    )


FIRING, RESOLVED = happened("transition", after="firing"), happened("transition", after="resolved")


def test_prometheus_that_goes_away_resolves_nothing_and_is_missed_aloud(
    tmp_path: Path, prometheus: Prometheus, slack: SlackStub
) -> None:
    say(prometheus, 60)
    with engine_on(tmp_path, prometheus.url, slack) as engine:
        engine.wait_for(FIRING, within=20)
        engine.wait_for(happened("notified"), within=20)
        prometheus.stop()
        failed = engine.wait_for(happened("evaluation_failed"), within=20)
        assert f"127.0.0.1:{prometheus.port}" in failed["reason"]
        metrics = engine.metrics()
        assert 'engine_alerts{alertname="Hot",state="firing"} 1.0' in metrics
        assert f'engine_rule_healthy{{rule="{tmp_path}/rules.yaml;g;Hot"}} 0.0' in metrics
        assert web.answers(f"{engine.url}/-/healthy")
        prometheus.start()
        say(prometheus, 60)
        engine.wait_for(happened("evaluation_recovered"), within=20)
        assert not [line for line in engine.lines() if RESOLVED(line)]
        say(prometheus, 10)
        engine.wait_for(RESOLVED, within=20)
        wait_until(lambda: "Resolved" in str(slack.messages[0].blocks), within=20)


@pytest.mark.parametrize("status", [400, 503])
def test_prometheus_that_refuses_is_quoted(
    tmp_path: Path, prometheus: Prometheus, slack: SlackStub, status: int
) -> None:
    say(prometheus, 60)
    with Forwarder(prometheus.url) as line, engine_on(tmp_path, line.url, slack) as engine:
        engine.wait_for(FIRING, within=20)
        line.broken = status
        failed = engine.wait_for(happened("evaluation_failed"), within=20)
        assert str(status) in failed["reason"]
        line.broken = None
        engine.wait_for(happened("evaluation_recovered"), within=20)
        assert not [line for line in engine.lines() if RESOLVED(line)]


@contextlib.contextmanager
def speaking(answer: bytes | None) -> Iterator[str]:
    """A server that says `answer` to everything; None: it takes connections and never says a word."""
    server = socket.create_server(("127.0.0.1", 0))
    held: list[socket.socket] = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                held.append(connection)
                if answer is not None:
                    connection.recv(65536)
                    connection.sendall(answer)
                    connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in held:
            connection.close()
        thread.join(5)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<garbage>",
        b"\x00\xff not HTTP at all",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",
    ],
    ids=["hangs", "garbage", "not HTTP", "cut short"],
)
def test_prometheus_that_talks_nonsense_or_hangs_stops_nothing(
    tmp_path: Path, slack: SlackStub, answer: bytes | None
) -> None:
    with speaking(answer) as url, engine_on(tmp_path, url, slack) as engine:
        engine.wait_for(happened("evaluation_failed"), within=20)
        assert web.answers(f"{engine.url}/-/healthy")
        wait_until(lambda: metric(engine, "engine_rule_evaluation_failures_total") >= 2, within=20)


def test_ray_that_is_gone_costs_evidence_and_remediation_but_no_alert(
    tmp_path: Path, prometheus: Prometheus, slack: SlackStub
) -> None:
    say(prometheus, 60)
    with engine_on(tmp_path, prometheus.url, slack) as engine:
        engine.wait_for(happened("notified"), within=20)
        said = engine.wait_for(lambda line: line["event"] == "run", within=20)
        assert "cannot plan" in said["reason"]
        wait_until(lambda: "not available" in str(slack.messages[0].blocks), within=10)


@pytest.mark.parametrize(
    "failure",
    [Failure(status=500), Failure(status=429, retry_after=2), Failure(hang=30.0)],
    ids=["500", "429", "hangs"],
)
def test_slack_that_fails_gets_what_was_waiting_when_it_comes_back(
    tmp_path: Path, prometheus: Prometheus, slack: SlackStub, failure: Failure
) -> None:
    slack.fail("*", failure, times=2)
    say(prometheus, 60)
    with engine_on(tmp_path, prometheus.url, slack) as engine:
        engine.wait_for(happened("notification_failed"), within=40)
        assert metric(engine, "engine_notifications_failed_total") >= 1
        say(prometheus, 10)
        engine.wait_for(RESOLVED, within=20)
        engine.wait_for(happened("notified"), within=90)
    starts = [message for message in slack.messages if not message.thread_ts]
    assert len(starts) == 1
    assert "Hot" in str(starts[0].blocks)


def test_the_latest_past_slot_is_evaluated_at_once_and_idle_memory_is_small(
    tmp_path: Path, prometheus: Prometheus, slack: SlackStub
) -> None:
    say(prometheus, 60)
    (tmp_path / "rules.yaml").write_text(RULES.replace("interval: 1s", "interval: 1h"))
    with engine_on(tmp_path, prometheus.url, slack) as engine:
        # Ready means evaluated; the next slot is up to an hour away.
        assert metric(engine, "engine_rule_evaluations_total") == 1
        assert psutil.Process(engine.pid).memory_info().rss < 200e6


def test_a_reload_is_all_or_nothing_and_keeps_the_alerts(
    tmp_path: Path, prometheus: Prometheus, slack: SlackStub
) -> None:
    say(prometheus, 60)
    with engine_on(tmp_path, prometheus.url, slack) as engine:
        engine.wait_for(happened("notified"), within=20)
        (tmp_path / "rules.yaml").write_text(RULES.replace("expr", "exp"))
        with pytest.raises(
            web.HttpFailure,
            match=r"rules\.yaml:7:9: unknown field 'exp' in an alerting rule; did you mean 'expr'",
        ):
            web.fetch(f"{engine.url}/-/reload", {}, timeout=20)
        assert metric(engine, "engine_alerts") == 1
        (tmp_path / "rules.yaml").write_text(
            RULES + RULES[RULES.index("      - alert") :].replace("Hot", "Hot2")
        )
        web.fetch(f"{engine.url}/-/reload", {}, timeout=20)
        engine.wait_for(happened("transition", after="firing", alert="Hot2"), within=20)
        fired = [line for line in engine.lines() if FIRING(line) and line["alert"] == "Hot"]
        assert len(fired) == 1, "the alert that was firing did not fire anew"


def test_what_rules_make_is_written_back_and_outlives_an_outage(
    tmp_path: Path, prometheus: Prometheus, slack: SlackStub
) -> None:
    config = tmp_path / "engine.yaml"
    config.write_text(
        CONFIG.read_text() + 'remote_write: [{url: "${DEMO_PROMETHEUS_URL}/api/v1/write", timeout: 2s}]\n'
    )
    (tmp_path / "rules.yaml").write_text(
        RULES.replace("      - alert", "      - {record: heat, expr: temperature * 2}\n      - alert")
    )
    say(prometheus, 60)
    with EngineProcess(
        tmp_path, prometheus_url=prometheus.url, ray_url=prometheus.url, slack_url=slack.url, config=config
    ) as engine:
        prometheus.wait_for('ALERTS{alertname="Hot",alertstate="firing",instance="n1"} == 1', within=20)
        assert float(prometheus.wait_for("heat", within=5)[0]["value"][1]) == 120
        written = metric(engine, "engine_remote_write_samples_total")
        prometheus.stop()
        engine.wait_for(happened("evaluation_failed"), within=20)
        prometheus.start()
        say(prometheus, 60)
        wait_until(lambda: metric(engine, "engine_remote_write_samples_total") > written, within=40)
        assert metric(engine, "engine_remote_write_dropped_total") == 0


def metric(engine: EngineProcess, name: str) -> float:
    """The sum of a metric's series."""
    lines = [line for line in engine.metrics().splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def wait_until(holds: Callable[[], bool], *, within: float) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.1)

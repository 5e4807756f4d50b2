"""What Prometheus' questions are answered where a real one has no counterpart; the rest is held against it."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import timedelta
from typing import Any

import httpx
import pytest

from engine.clients.write_queue import Fate, WriteQueue
from engine.flow.engine import Engine
from engine.model.labels import Labels
from engine.model.ports import Point
from engine.serve import api
from engine.serve.http import Checks, application
from engine.serve.metrics import Metrics, State
from tests.flow.stage import T0, Stage

FORECAST = b"""
groups:
  - name: g
    interval: 10s
    rules:
      - alert: Filling
        expr: temperature
        detect: {forecast: {bound: 100, horizon: 1h}}
      - {alert: Odd, expr: "limitk(1,temperature)"}
"""

POINTS = [Point(Labels(__name__="m"), T0, value) for value in (1.0, 2.0, 3.0)]


def ask(engine: Engine | None, path: str) -> tuple[int, Any]:
    """One request, straight to the application."""
    checks = Checks(healthy=str, ready=str, reload=lambda: None, metrics=bytes, engine=lambda: engine)

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(application(checks))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return await client.get(path)

    answer = asyncio.run(request())
    return answer.status_code, json.loads(answer.content)


def only_rule(engine: Engine) -> Any:
    (group,) = api.rules(engine, {})["groups"]
    (rule,) = group["rules"]
    return rule


@pytest.mark.parametrize("path", ["rules", "alerts", "status/buildinfo"])
def test_while_the_engine_starts_it_is_unavailable(path: str) -> None:
    status, body = ask(None, f"/api/v1/{path}")
    assert (status, body["status"], body["errorType"]) == (503, "error", "unavailable")


def test_an_alert_shows_since_when_it_is_only_kept_firing_and_is_gone_once_resolved() -> None:
    stage = Stage()
    stage.hot("a")
    stage.run(30)
    (alert,) = only_rule(stage.engine)["alerts"]
    assert (alert["state"], alert["activeAt"]) == ("firing", "2026-01-01T00:00:00Z")
    assert "keepFiringSince" not in alert
    stage.hot()
    stage.run(10)
    (alert,) = only_rule(stage.engine)["alerts"]
    assert alert["keepFiringSince"] == "2026-01-01T00:00:30Z"
    stage.run(10)
    assert [found.state.value for found in stage.alerts] == ["resolved"]
    assert only_rule(stage.engine)["alerts"] == []
    assert only_rule(stage.engine)["state"] == "inactive"
    assert api.alerts(stage.engine) == {"alerts": []}


def test_before_the_first_evaluation_after_a_restart_alerts_are_shown_as_they_were() -> None:
    stage = Stage()
    stage.hot("a")
    stage.run(30)
    stage.restart()
    rule = only_rule(stage.engine)
    assert (rule["health"], rule["state"], rule["lastEvaluation"]) == (
        "unknown",
        "firing",
        "0001-01-01T00:00:00Z",
    )


def test_a_rule_with_a_detector_says_which_and_an_expression_that_is_not_known_stays() -> None:
    (group,) = api.rules(Stage(rules=FORECAST).engine, {})["groups"]
    assert [(rule["detect"], rule["query"]) for rule in group["rules"]] == [
        ("forecast", "temperature"),
        ("present", "limitk(1,temperature)"),
    ]


def test_an_answer_can_be_had_while_the_engine_evaluates() -> None:
    """Readers take no lock over a whole answer: whatever they see is a state that was."""
    stage, done = Stage(), threading.Event()

    def evaluate() -> None:
        for step in range(300):
            stage.hot(*(f"i{number}" for number in range(step % 7)))
            stage.engine.tick(next(iter(stage.engine.groups)), T0 + step * timedelta(seconds=10))
        done.set()

    thread = threading.Thread(target=evaluate)
    thread.start()
    while not done.is_set():
        status, body = ask(stage.engine, "/api/v1/rules")
        assert status == 200
        assert len(body["data"]["groups"][0]["rules"]) == 1
    thread.join()


def test_what_becomes_of_samples_that_are_written_remotely_is_counted_and_what_waits_is_shown() -> None:
    metrics = Metrics()
    queue = WriteQueue(Nowhere(), name="here/api/v1/write", count=metrics.count_written, capacity=2)
    metrics.registry.register(State(lambda: Stage().engine, lambda: 0, lambda: [queue]))
    metrics.count_written("here/api/v1/write", Fate.FAILED, 7)
    queue.put(POINTS)
    assert samples(metrics) == {"failed_total": 7, "dropped_total": 1, "pending": 2}
    queue.flush(T0)
    assert samples(metrics) == {"samples_total": 2, "failed_total": 7, "dropped_total": 1, "pending": 0}


class Nowhere:
    """Takes everything."""

    def write(self, points: object) -> None:
        pass


def samples(metrics: Metrics) -> dict[str, float]:
    """The metrics about remote writes, less the beginning of their names and the receiver."""
    lines = [
        line for line in metrics.render().decode().splitlines() if line.startswith("engine_remote_write_")
    ]
    label = '{receiver="here/api/v1/write"}'
    assert all(label in line for line in lines)
    found = {
        line.removeprefix("engine_remote_write_").partition("{")[0]: float(line.split()[-1]) for line in lines
    }
    return {name: value for name, value in found.items() if not name.endswith("_created")}

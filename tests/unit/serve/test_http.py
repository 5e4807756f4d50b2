"""The engine's door over HTTP."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from engine.errors import EngineError, LoadError, Problem, StoreError
from engine.serve.http import Checks, HttpServer, application
from engine.serve.metrics import Metrics


class Service:
    """What the door asks, and what it is answered."""

    def __init__(self) -> None:
        self.unhealthy = self.unready = ""
        self.reloads = 0
        self.error: EngineError | None = None

    def reload(self) -> None:
        self.reloads += 1
        if self.error is not None:
            raise self.error


def a_door(service: Service) -> Starlette:
    checks = Checks(
        healthy=lambda: service.unhealthy,
        ready=lambda: service.unready,
        reload=service.reload,
        metrics=Metrics().render,
    )
    return application(checks)


def ask(door: Starlette, method: str, path: str) -> httpx.Response:
    """One request, straight to the application."""

    async def request() -> httpx.Response:
        transport = httpx.ASGITransport(door)
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
            return await client.request(method, path)

    return asyncio.run(request())


@pytest.mark.parametrize(
    ("path", "field", "word"), [("/-/healthy", "unhealthy", "healthy"), ("/-/ready", "unready", "ready")]
)
def test_health_is_a_word_or_503_with_the_reason(path: str, field: str, word: str) -> None:
    service = Service()
    door = a_door(service)
    fine = ask(door, "GET", path)
    assert (fine.status_code, fine.text) == (200, word)
    setattr(service, field, "the scheduler does not run")
    bad = ask(door, "GET", path)
    assert (bad.status_code, bad.text) == (503, "the scheduler does not run")
    assert ask(door, "HEAD", path).status_code == 503


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_reload_is_asked_for_by_post_or_put(method: str) -> None:
    service = Service()
    answer = ask(a_door(service), method, "/-/reload")
    assert (answer.status_code, answer.text, service.reloads) == (200, "reloaded\n", 1)


def test_looking_at_the_reload_reloads_nothing() -> None:
    service = Service()
    assert ask(a_door(service), "GET", "/-/reload").status_code == 405
    assert service.reloads == 0


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (
            LoadError([Problem("rules.yaml", 3, 9, "no"), Problem("rules.yaml", 7, 9, "neither")]),
            400,
            "nothing was changed:\nrules.yaml:3:9: no\nrules.yaml:7:9: neither\n",
        ),
        (StoreError("disk full"), 500, "nothing was changed: disk full\n"),
    ],
)
def test_a_reload_that_fails_says_all_that_is_wrong(error: EngineError, status: int, text: str) -> None:
    service = Service()
    service.error = error
    answer = ask(a_door(service), "POST", "/-/reload")
    assert (answer.status_code, answer.text) == (status, text)


def test_metrics_are_in_prometheus_text_format() -> None:
    answer = ask(a_door(Service()), "GET", "/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert "engine_rule_evaluations" in names


def test_what_is_not_there_is_404() -> None:
    assert ask(a_door(Service()), "GET", "/-/nothing").status_code == 404


def test_a_port_that_is_taken_is_told() -> None:
    checks = Checks(healthy=str, ready=str, reload=lambda: None, metrics=bytes)
    first = HttpServer(application(checks), "127.0.0.1", 0)
    first.start()
    while not first.started:
        assert first.alive
    port = first._server.servers[0].sockets[0].getsockname()[1]
    second = HttpServer(application(checks), "127.0.0.1", port)
    second.start()
    second._thread.join(timeout=20)
    assert not second.alive
    assert not second.started
    assert second.failed is not None
    first.stop()
    assert not first.alive

"""The engine's HTTP door: health, readiness, reload, metrics, and Prometheus' questions about rules and alerts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from engine.errors import EngineError, LoadError
from engine.flow.engine import Engine
from engine.serve import api

_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class Checks:
    """What the door asks the service."""

    def __init__(
        self,
        *,
        healthy: Callable[[], str],
        ready: Callable[[], str],
        reload: Callable[[], None],
        metrics: Callable[[], bytes],
        probes: Callable[[], bytes] = lambda: b"",
        engine: Callable[[], Engine | None] = lambda: None,
    ) -> None:
        self.healthy = healthy  # "" if so, else why not
        self.ready = ready
        self.reload = reload  # raises LoadError; nothing was changed then
        self.metrics = metrics
        self.probes = probes  # readings of the Ray clusters, as metrics
        self.engine = engine  # the present one; None while it starts


def application(checks: Checks) -> Starlette:
    """Return the ASGI application."""

    def healthy(_: Request) -> Response:
        why_not = checks.healthy()
        return PlainTextResponse(why_not or "healthy", 503 if why_not else 200)

    def ready(_: Request) -> Response:
        why_not = checks.ready()
        return PlainTextResponse(why_not or "ready", 503 if why_not else 200)

    def reload(_: Request) -> Response:
        try:
            checks.reload()
        except LoadError as error:
            return PlainTextResponse(f"nothing was changed:\n{error}\n", 400)
        except EngineError as error:
            return PlainTextResponse(f"nothing was changed: {error}\n", 500)
        return PlainTextResponse("reloaded\n")

    def metrics(_: Request) -> Response:
        return Response(checks.metrics(), headers={"content-type": _METRICS})

    def probes(_: Request) -> Response:
        return Response(checks.probes(), headers={"content-type": _METRICS})

    return Starlette(
        routes=[
            Route("/-/healthy", healthy),
            Route("/-/ready", ready),
            Route("/-/reload", reload, methods=["POST", "PUT"]),
            Route("/metrics", metrics),
            Route("/metrics/ray", probes),
            Route("/api/v1/rules", _answer(checks, api.rules)),
            Route("/api/v1/alerts", _answer(checks, lambda engine, _: api.alerts(engine))),
            Route("/api/v1/status/buildinfo", _answer(checks, lambda *_: api.buildinfo())),
        ]
    )


def _answer(
    checks: Checks, question: Callable[[Engine, api.Params], api.Json]
) -> Callable[[Request], Response]:
    """Return the endpoint of one of Prometheus' questions, which answers in Prometheus' frame."""

    def endpoint(request: Request) -> Response:
        engine = checks.engine()
        if engine is None:
            return _error(503, "unavailable", "the engine is only starting")
        given = request.query_params
        try:
            data = question(engine, {name: given.getlist(name) for name in given})
        except api.BadData as error:
            return _error(400, "bad_data", str(error))
        return JSONResponse({"status": "success", "data": data})

    return endpoint


def _error(status: int, kind: str, message: str) -> Response:
    return JSONResponse({"status": "error", "errorType": kind, "error": message}, status)


class HttpServer:
    """The application served by uvicorn on a thread of its own."""

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        config = uvicorn.Config(app, host=host, port=port, log_config=None, access_log=False, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="http", daemon=True)
        self.failed: BaseException | None = None

    def _serve(self) -> None:
        try:
            self._server.run()
        except (OSError, SystemExit) as error:  # uvicorn exits when the port is taken
            self.failed = error

    def start(self) -> None:
        """Begin to serve; `failed` is set if it cannot."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether it answers."""
        return self._server.started

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End serving."""
        self._server.should_exit = True
        self._thread.join(timeout=5)

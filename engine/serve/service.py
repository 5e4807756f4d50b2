"""`engine run`: the engine as a service, from start to a clean stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from datetime import timedelta

import structlog

from engine.clock import Stopwatch, SystemClock
from engine.errors import EngineError, LoadError
from engine.flow.build import Loaded, build, load
from engine.flow.engine import Engine
from engine.model.alert import Alert
from engine.model.event import Kind
from engine.model.ports import Observer, Store
from engine.query.prometheus import PrometheusSource
from engine.serve.http import Checks, HttpServer, application
from engine.serve.log import log_event
from engine.serve.metrics import Metrics, State
from engine.serve.scheduler import Scheduler
from engine.store.sql import open_store

PULSE = timedelta(seconds=1)
LARGEST_SLEW = 5.0  # seconds by which the wall clock may drift from the steady one before it counts as set
_log = structlog.get_logger("engine")


class Service:
    """A running engine that can be reloaded. Constructing it starts nothing."""

    def __init__(
        self, settings_file: str | None, *, host: str, port: int, observers: Sequence[Observer] = ()
    ) -> None:
        self._file = settings_file
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._observers = (self._metrics.observe, log_event, *observers)
        self._stop = threading.Event()
        self._reload_lock = threading.Lock()
        self._store: Store | None = None
        self._source: PrometheusSource | None = None
        self._engine: Engine | None = None
        self._scheduler: Scheduler | None = None
        checks = Checks(
            healthy=self._healthy,
            ready=self._ready,
            reload=self.reload,
            metrics=self._metrics.render,
            engine=lambda: self._engine,
        )
        self._http = HttpServer(application(checks), host, port)
        self._address = f"{host}:{port}"

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP reloads. LoadError, StoreError or EngineError if it cannot begin."""
        loaded = load(self._file)
        self._store = open_store(loaded.settings.state.url)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=self._reload_by_signal).start())
        self._serve_http()
        try:
            self._begin(loaded)
            self._metrics.registry.register(State(self._present, lambda: len(self._overdue())))
            self._watch()
        finally:
            self._end()

    def _watch(self) -> None:
        """Wait for the end; meanwhile notice an HTTP server that ended, and a clock that was set."""
        watch, began = Stopwatch(), self._clock.now()
        while not self._stop.wait(1):
            if not self._http.alive:
                raise EngineError(f"the HTTP server on {self._address} ended: {self._http.failed!r}")
            jump = (self._clock.now() - began).total_seconds() - watch.seconds()
            if abs(jump) > LARGEST_SLEW:
                watch, began = Stopwatch(), self._clock.now()
                with self._reload_lock:
                    self._present().events.tell(
                        began,
                        Kind.TROUBLE,
                        "clock",
                        f"the clock was set by {jump:+.0f} s; evaluations are realigned",
                    )
                    assert self._scheduler is not None
                    self._scheduler.realign()

    def reload(self) -> None:
        """Take over the files as they are now, all or nothing; alerts keep their state by rule identity."""
        with self._reload_lock:
            if self._engine is None or self._scheduler is None or self._stop.is_set():
                raise EngineError("the engine is only starting, or stopping already")
            loaded = load(self._file)  # raises before anything is touched
            before, source = self._engine, self._source
            if loaded.settings.state != before.settings.state:
                raise EngineError("state.url cannot be changed by a reload: restart the engine")
            self._scheduler.stop()
            try:
                self._begin(loaded, held=before.dispatcher.held())
            except BaseException:
                self._drive(before)  # such as when the store does not answer: go on as before
                raise
            if source is not None:
                source.close()
            _log.info("reloaded", rules=len(self._present().status))

    def _begin(self, loaded: Loaded, held: Sequence[Alert] = ()) -> None:
        assert self._store is not None
        source = PrometheusSource(loaded.settings.prometheus)
        engine = build(loaded, source=source, store=self._store, observers=self._observers)
        engine.dispatcher.carry(held, self._clock.now())
        self._drive(engine)
        self._source = source
        _log.info(
            "started",
            groups=len(engine.groups),
            rules=len(engine.status),
            prometheus=loaded.settings.prometheus.url,
            remediation=loaded.settings.remediation.mode.value,
            listen=self._address,
        )

    def _drive(self, engine: Engine) -> None:
        """Let an engine be the present one, and wake it from now on."""
        scheduler = Scheduler(engine, self._clock, pulse=PULSE, count=self._metrics.count_job)
        self._engine, self._scheduler = engine, scheduler
        scheduler.start()

    def _serve_http(self) -> None:
        self._http.start()
        for _ in range(100):
            if self._http.started or not self._http.alive:
                break
            self._stop.wait(0.05)
        if not self._http.started:
            raise EngineError(
                f"cannot listen on {self._address}: is another engine running? Choose another place with --listen"
            )

    def _end(self) -> None:
        self._stop.set()
        with self._reload_lock:  # a reload that is under way ends first, and no other begins
            if self._scheduler is not None and self._scheduler.running:
                self._scheduler.stop()
        self._http.stop()
        if self._source is not None:
            self._source.close()
        if self._store is not None:
            self._store.close()
        _log.info("stopped")

    def _present(self) -> Engine:
        assert self._engine is not None
        return self._engine

    def _overdue(self) -> Sequence[str]:
        return self._scheduler.overdue() if self._scheduler is not None and self._scheduler.running else ()

    def _healthy(self) -> str:
        # A reload waits for the work at hand; nobody is to take the engine for dead meanwhile.
        fine = self._scheduler is None or self._scheduler.running or self._reload_lock.locked()
        return "" if fine else "the scheduler does not run"

    def _ready(self) -> str:
        if self._engine is None or self._scheduler is None or not self._scheduler.running:
            return "starting"
        waiting = [id_ for id_ in self._engine.groups if self._engine.last_slot(id_) is None]
        if waiting:
            return f"not evaluated yet: {', '.join(waiting)}"
        overdue = self._overdue()
        return f"not evaluated for three intervals: {', '.join(overdue)}" if overdue else ""

    def _reload_by_signal(self) -> None:
        try:
            self.reload()
        except LoadError as error:
            for problem in error.problems:
                _log.error("not_reloaded", problem=str(problem))
        except EngineError as error:
            _log.error("not_reloaded", error=str(error))

"""`engine run`: the engine as a service, from start to a clean stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import structlog

from engine.clients.aside import Aside
from engine.clients.write_queue import FanOut
from engine.clock import Stopwatch, SystemClock
from engine.errors import EngineError, LoadError, Problem
from engine.flow.build import Loaded, build, load
from engine.flow.engine import Engine
from engine.model.alert import Alert
from engine.model.event import Kind
from engine.model.ports import Observer
from engine.query.prometheus import PrometheusSource
from engine.serve.http import Checks, HttpServer, application
from engine.serve.log import log_event
from engine.serve.metrics import Metrics, State
from engine.serve.probes import Probes
from engine.serve.scheduler import Scheduler
from engine.store.sql import SqlStore, open_store

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
        self._loaded: Loaded | None = None
        self._written = FanOut(())
        self._lost = ""  # what is wrong with the place of the state, if anything
        self._store: SqlStore | None = None
        self._source: PrometheusSource | None = None
        self._aside: Aside | None = None
        self._engine: Engine | None = None
        self._scheduler: Scheduler | None = None
        self._probes = Probes(self._present)
        checks = Checks(
            healthy=self._healthy,
            ready=self._ready,
            reload=self.reload,
            metrics=self._metrics.render,
            probes=self._probes.render,
            engine=lambda: self._engine,
        )
        self._http = HttpServer(application(checks), host, port)
        self._address = f"{host}:{port}"

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT; SIGHUP reloads. LoadError, StoreError or EngineError if it cannot begin."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=self._reload_by_signal).start())
        loaded = load(self._file)
        self._store = open_store(loaded.settings.state.url)
        self._serve_http()
        try:
            self._begin(loaded)
            self._metrics.registry.register(
                State(self._present, lambda: len(self._overdue()), lambda: self._written.queues)
            )
            self._watch()
        finally:
            self._end()

    def _watch(self) -> None:
        """Wait for the end; meanwhile notice an HTTP server that ended, and a clock that was set."""
        store = self._store
        assert store is not None
        watch, began = Stopwatch(), self._clock.now()
        while not self._stop.wait(1):
            if not self._http.alive:
                raise EngineError(f"the HTTP server on {self._address} ended: {self._http.failed!r}")
            jump = (self._clock.now() - began).total_seconds() - watch.seconds()
            if abs(jump) > LARGEST_SLEW:
                watch, began = Stopwatch(), self._clock.now()
                self._begin_anew(jump)
            if (lost := store.lost()) and not self._lost:
                self._present().events.tell(self._clock.now(), Kind.TROUBLE, "store", lost)
            self._lost = lost

    def _begin_anew(self, jump: float) -> None:
        """Replace the engine after the clock was set: timers that lie in the other time would wait for it."""
        with self._reload_lock:
            before, loaded = self._present(), self._loaded
            assert loaded is not None
            said = f"the clock was set by {jump:+.0f} s; all timers begin anew"
            before.events.tell(self._clock.now(), Kind.TROUBLE, "clock", said)
            self._replace(loaded)

    def reload(self) -> None:
        """Take over the files as they are now, all or nothing; alerts keep their state by rule identity."""
        with self._reload_lock:
            if self._engine is None or self._scheduler is None or self._stop.is_set():
                raise EngineError("the engine is only starting, or stopping already")
            loaded = load(self._file)  # raises before anything is touched
            if loaded.settings.state != self._engine.settings.state:
                problem = "state.url cannot be changed by a reload; restart the engine"
                raise LoadError([Problem(loaded.settings.file or "engine.yaml", 1, 1, problem)])
            self._replace(loaded)
            _log.info("reloaded")

    def _replace(self, loaded: Loaded) -> None:
        """Stop the present engine and begin another, or go on with the present one if that cannot begin."""
        before, source, aside = self._present(), self._source, self._aside
        assert self._scheduler is not None
        self._scheduler.stop()
        try:
            self._begin(loaded, held=before.dispatcher.held())
        except Exception as error:
            before.resume()
            self._drive(before)  # such as when the store does not answer: go on as before
            if isinstance(error, EngineError):
                raise
            raise EngineError(f"the new settings do not work: {type(error).__name__}: {error}") from error
        if source is not None:
            source.close()
        if aside is not None:
            aside.close()

    def _begin(self, loaded: Loaded, held: Sequence[Alert] = ()) -> None:
        assert self._store is not None
        source = PrometheusSource(loaded.settings.prometheus)
        if self._loaded is None or self._loaded.settings.remote_write != loaded.settings.remote_write:
            self._written = FanOut.of(loaded.settings.remote_write, self._metrics.count_written)
        writer = self._written if self._written.queues else None
        aside = Aside()
        engine = build(
            loaded,
            source=source,
            store=self._store,
            observers=self._observers,
            writer=writer,
            aside=aside,
        )
        engine.dispatcher.carry(held, self._clock.now())
        self._probes.set(loaded.settings.ray.clusters)
        self._drive(engine)
        self._source, self._aside, self._loaded = source, aside, loaded
        for receiver in loaded.settings.routing.receivers.values():
            for word, notifier in receiver.integrations:
                token_file = getattr(notifier, "token_file", None)
                if token_file is not None and not Path(token_file).is_file():
                    _log.warning(
                        "cannot_notify_yet", receiver=receiver.name, integration=word, missing=token_file
                    )
        _log.info(
            "started",
            groups=len(engine.groups),
            rules=sum(len(group.rules) for group in engine.groups.values()),
            prometheus=loaded.settings.prometheus.url,
            remediation=loaded.settings.remediation.mode.value,
            listen=self._address,
        )

    def _drive(self, engine: Engine) -> None:
        """Let an engine be the present one, and wake it from now on."""
        scheduler = Scheduler(
            engine,
            self._clock,
            pulse=PULSE,
            count=self._metrics.count_job,
            more={
                **{f"remote_write {queue.name}": queue.flush for queue in self._written.queues},
                **self._probes.jobs(),
            },
        )
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
        if self._aside is not None:
            self._aside.close()
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
        if self._lost:
            return self._lost
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

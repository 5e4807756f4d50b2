"""A real Prometheus that lives as long as one test: it begins empty, and takes samples of any age.

A server costs less than a tenth of a second. It cannot be shared between tests: samples that were deleted
cannot be written anew, and any label that would keep tests apart would change what they see.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.clients.remote_write import RemoteWriter
from engine.clock import Stopwatch, SystemClock
from engine.errors import QueryUnavailable
from engine.model.duration import Duration
from engine.model.ports import Point
from engine.model.series import Window
from engine.model.settings import PrometheusSettings, RemoteWrite
from engine.query.prometheus import PrometheusSource

OLDEST = 3  # since then ranges are open on the left, as the embedded evaluator has them
_WAY_OUT = "name a Prometheus 3 with --engine prometheus=/path/to/prometheus, or use --engine embedded"
_PATIENCE = timedelta(seconds=20)
_PAUSE = timedelta(milliseconds=4)
_BATCH = 50_000  # samples of one request
_MOST_SAMPLES = 20_000_000


@lru_cache
def find_program(path: str | None) -> Path:
    """Return the program at `path`, else the one in PATH, or raise QueryUnavailable with the way out."""
    found = shutil.which(path or "prometheus")
    if found is None:
        where = f"{path} is no program" if path else "no prometheus is in PATH"
        raise QueryUnavailable(f"{where}; {_WAY_OUT}")
    program = Path(found).resolve()
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueryUnavailable(f"{program} cannot be run: {error}; {_WAY_OUT}") from error
    version = re.search(r"prometheus, version (\d+)\.(\d+\S*)", done.stdout + done.stderr)
    if version is None:
        raise QueryUnavailable(f"{program} does not say that it is Prometheus; {_WAY_OUT}")
    if int(version[1]) < OLDEST:
        raise QueryUnavailable(
            f"{program} is version {version[1]}.{version[2]}, which selects ranges otherwise; {_WAY_OUT}"
        )
    return program


class ManagedPrometheus:
    """A source over a Prometheus of its own, started on entering and gone on leaving.

    `evaluation_interval` is the step of subqueries that name none. Raises QueryUnavailable if it does not start.
    """

    def __init__(self, program: Path, evaluation_interval: timedelta) -> None:
        self._program = program
        self._interval = Duration.of(evaluation_interval)
        self._waiting: list[Point] = []  # nobody may ever ask for them

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="engine-test-", ignore_cleanup_errors=True)
        try:
            self._start(Path(self._folder.name))
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        died = self._process.poll() is not None
        self._source.close()
        self._end()
        log = self._log()
        self._folder.cleanup()
        if died and error is None:
            raise QueryUnavailable(f"{self._program} ended during the test: {log}")

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        self._settle()
        return self._source.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid."""
        self._settle()
        return self._source.range(expr, start, end, step)

    def add(self, points: Sequence[Point]) -> None:
        """Add samples."""
        self._waiting += points

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for start in range(0, len(waiting), _BATCH):
            self._writer.write(waiting[start : start + _BATCH])

    def _start(self, folder: Path) -> None:
        (folder / "prometheus.yml").write_text(
            f"global: {{evaluation_interval: {self._interval}}}\n"
            "storage: {tsdb: {out_of_order_time_window: 50y}}\n"
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        command = [
            str(self._program),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={address}",
            "--storage.tsdb.retention.time=100y",
            "--web.enable-remote-write-receiver",
            "--log.level=error",
        ]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603
        settings = PrometheusSettings(url=f"http://{address}", max_samples=_MOST_SAMPLES)
        self._source = PrometheusSource(settings)
        self._writer = RemoteWriter(RemoteWrite(url=f"http://{address}/api/v1/write"))
        self._wait(address)

    def _wait(self, address: str) -> None:
        """Return once it answers."""
        watch, clock = Stopwatch(), SystemClock()
        host, _, port = address.partition(":")
        while True:
            with suppress(OSError), socket.create_connection((host, int(port)), timeout=1) as probe:
                probe.sendall(b"GET /-/ready HTTP/1.0\r\n\r\n")
                if b" 200 " in probe.recv(64):
                    return
            if self._process.poll() is not None or watch.seconds() > _PATIENCE.total_seconds():
                self._end()
                raise QueryUnavailable(f"{self._program} does not start: {self._log()}; {_WAY_OUT}")
            clock.sleep(_PAUSE)

    def _end(self) -> None:
        """End the process; its data is of no further use."""
        self._process.kill()
        self._process.wait()

    def _log(self) -> str:
        with suppress(OSError):
            return (Path(self._folder.name) / "log").read_text(errors="replace").strip()[
                -500:
            ] or "it says nothing"
        return "it says nothing"

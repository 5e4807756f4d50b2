"""`engine run` as a child, with the demo's settings: what it decides is read from its own log."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.demo import ports, web
from deploy.demo.processes import Child, Running

HERE = Path(__file__).resolve().parent
Line = dict[str, Any]


class EngineProcess(Running):
    """The service with its state and log below one folder; both outlive a `stop` or a `kill`."""

    def __init__(
        self,
        folder: Path,
        *,
        prometheus_url: str,
        ray_url: str,
        slack_url: str,
        config: Path = HERE / "engine.yaml",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.log = folder / "engine.log"
        self._listen = f"127.0.0.1:{ports.free_port()}"
        self._env = {
            **os.environ,
            "DEMO_PROMETHEUS_URL": prometheus_url,
            "DEMO_RAY_URL": ray_url,
            "DEMO_SLACK_URL": slack_url,
            "DEMO_FOLDER": str(folder),
            **(env or {}),
        }
        self._command = [
            str(Path(sys.executable).parent / "engine"),
            *("run", "--config", str(config), "--listen", self._listen, "--log-format", "json"),
        ]
        self._child = self._new_child()

    def _new_child(self) -> Child:
        return Child("the engine", self._command, log=self.log, env=self._env)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self._listen}"

    @property
    def pid(self) -> int:
        """Its process."""
        return self._child.pid

    @property
    def is_running(self) -> bool:
        """Whether it runs."""
        return self._child.is_running

    def start(self) -> None:
        """Start it, and return once it says that it is ready."""
        self._child.start()
        self._child.wait_until(lambda: web.answers(f"{self.url}/-/ready"), within=30.0)

    def stop(self) -> None:
        """Ask it to end."""
        self._child.stop()

    def kill(self) -> None:
        """End it as `kill -9` does; it can be started again."""
        self._child.stop(grace=0)
        self._child = self._new_child()

    def metrics(self) -> str:
        """What it exports about itself."""
        return web.fetch(f"{self.url}/metrics").decode()

    def lines(self) -> list[Line]:
        """Every line of its log so far."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def wait_for(self, wanted: Callable[[Line], bool], *, within: float) -> Line:
        """The first line of the log that is wanted, as soon as there is one."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            for line in self.lines():
                if wanted(line):
                    return line
            time.sleep(0.2)
        last = "\n".join(str(line) for line in self.lines()[-30:])
        raise TimeoutError(f"not in the engine's log within {within:g} s; it ends:\n{last}")


def follow(log: Path, wanted: Callable[[], bool]) -> Iterator[Line]:
    """Yield the lines of a growing log for as long as they are wanted."""
    with log.open() as file:
        part = ""
        while wanted():
            part += file.readline()
            if not part.endswith("\n"):
                time.sleep(0.1)
                continue
            line, part = part, ""
            if line.startswith("{"):
                yield json.loads(line)

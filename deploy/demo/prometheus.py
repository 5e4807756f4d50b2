"""A Prometheus of our own on loopback: ready in well under a second, stopped and started again at will.

Its configuration is written as JSON, which is YAML too, so no library is needed.
"""

from __future__ import annotations

import json
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deploy.demo import parts, ports, web
from deploy.demo.processes import Child, Running


class Prometheus(Running):
    """A server with its configuration, data and log below one folder.

    `targets` and the targets of the service discovery file `file_sd` are scraped as the job `ray`,
    first after some 5 s: Prometheus itself delays its discovery so long. `scrape_configs` adds more
    jobs, `config` more top-level sections and `flags` more arguments. Port and data outlive a
    `stop`, as in a real outage.
    """

    def __init__(
        self,
        folder: Path,
        *,
        targets: Sequence[str] = (),
        file_sd: Path | None = None,
        scrape_configs: Sequence[Mapping[str, object]] = (),
        scrape_interval: str = "2s",
        evaluation_interval: str | None = None,
        rule_files: Sequence[Path] = (),
        alertmanagers: Sequence[str] = (),
        external_labels: Mapping[str, str] | None = None,
        remote_write_receiver: bool = True,
        config: Mapping[str, object] | None = None,
        flags: Sequence[str] = (),
        port: int | None = None,
        programs: Path | None = None,
    ) -> None:
        self.folder = folder
        self._scrapes = [*_ray_scrape(targets, file_sd), *scrape_configs]
        self._global = {
            "scrape_interval": scrape_interval,
            "scrape_timeout": scrape_interval,
            "evaluation_interval": evaluation_interval or scrape_interval,
            "external_labels": dict(external_labels or {}),
        }
        self._rule_files = [str(file.resolve()) for file in rule_files]
        self._alertmanagers = list(alertmanagers)
        self._config = dict(config or {})
        self._flags = ["--web.enable-remote-write-receiver"] * remote_write_receiver + list(flags)
        self._port = port
        self._programs = programs
        self._child: Child | None = None

    @property
    def port(self) -> int:
        """The port, which is chosen at the first question if none was given."""
        if self._port is None:
            self._port = ports.free_port()
        return self._port

    @property
    def url(self) -> str:
        """The base address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server and return once it is ready."""
        ports.require_free({"Prometheus": self.port})
        folder = self.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prometheus.yml").write_text(json.dumps(self._configuration(), indent=2))
        programs = self._programs or parts.part("prometheus")
        command = [
            str(programs / "prometheus"),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-lifecycle",
            "--log.level=warn",
            *self._flags,
        ]
        self._child = Child("Prometheus", command, log=folder / "prometheus.log")
        self._child.start()
        try:
            self._child.wait_until(lambda: web.answers(f"{self.url}/-/ready"), within=20.0)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server; its data stays."""
        if self._child is not None:
            self._child.stop()
            self._child = None

    def query(self, expr: str, *, at: float | None = None) -> list[dict[str, Any]]:
        """The samples of an instant query: dicts with `metric` and `value`."""
        question = {"query": expr} if at is None else {"query": expr, "time": f"{at:.3f}"}
        answer = web.fetch_json(f"{self.url}/api/v1/query?{urllib.parse.urlencode(question)}")
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def wait_for(self, expr: str, *, within: float) -> list[dict[str, Any]]:
        """The samples of the query, as soon as there are some."""
        deadline = time.monotonic() + within
        while not (found := self.query(expr)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {within:g} s there is still nothing to see of: {expr}")
            time.sleep(0.2)
        return found

    def _configuration(self) -> dict[str, object]:
        managers = [{"static_configs": [{"targets": self._alertmanagers}]}] if self._alertmanagers else []
        return {
            "global": self._global,
            "rule_files": self._rule_files,
            "alerting": {"alertmanagers": managers},
            "scrape_configs": self._scrapes,
            **self._config,
        }


def _ray_scrape(targets: Sequence[str], file_sd: Path | None) -> list[dict[str, object]]:
    """The job `ray`, if there is anything to scrape."""
    found: dict[str, object] = {}
    if targets:
        found["static_configs"] = [{"targets": list(targets)}]
    if file_sd is not None:
        found["file_sd_configs"] = [{"files": [str(file_sd)], "refresh_interval": "2s"}]
    return [{"job_name": "ray", **found}] if found else []

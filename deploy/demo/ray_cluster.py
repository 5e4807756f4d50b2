"""A real Ray cluster on one machine, isolated from every other.

The nodes have loopback addresses of their own: the head 127.0.0.2 (Ray rewrites 127.0.0.1 to the address of
the network card), the workers 127.0.0.3 and up. Every port is ours, HOME and the temporary folder too.
Metrics are reported every 2 s instead of every 10: a demo is short, and faster reports make gauges flicker.
The cluster is ended by pid, since `ray stop` would end every Ray on the machine.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deploy.demo import parts, web
from deploy.demo.ports import PortBlock
from deploy.demo.processes import Child, NotReady, Running, end_processes, strays_in, with_descendants

# A Unix socket's path has at most 107 bytes, and Ray adds this to its temporary folder:
# /session_2026-01-31_12-00-00_000000_4194304/sockets/dash_MetricsHead
LONGEST_TMPDIR = 107 - 69

REPORT_INTERVAL = {
    "RAY_metrics_report_interval_ms": "2000",
    "REPORTER_UPDATE_INTERVAL_MS": "2000",
    "METRICS_RECORD_INTERVAL_S": "1",
}
WORKER_PORTS = 100
FINISHED = ("SUCCEEDED", "FAILED", "STOPPED")


class JobFailed(RuntimeError):
    """A job ended otherwise than it was waited for."""


class RayCluster(Running):
    """A head and its workers, with one temporary folder; alive inside `with`."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 1,
        object_store_memory: int = 100_000_000,
        head_cpus: int = 2,
        worker_cpus: int = 1,
        dashboard_port: int | None = None,
        env: Mapping[str, str] | None = None,
        venv: Path | None = None,
        token: str = "",
    ) -> None:
        self.folder = folder
        self._workers = workers
        self._object_store_memory = object_store_memory
        self._cpus = [head_cpus] + [worker_cpus] * workers
        self._wanted_dashboard_port = dashboard_port
        self._more_env = dict(env or {})
        self._given_venv = venv
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._resources = ExitStack()
        self._nodes: list[Child] = []
        self._tmpdir: Path | None = None

    def start(self) -> None:
        """Start all nodes, and return once each is alive and jobs are taken."""
        try:
            self.prepare()
            self._start_node(0)
            self._nodes[0].wait_until(self._gcs_answers, within=60.0, every=0.1)
            for index in range(1, self._workers + 1):
                self._start_node(index)
                if index < self._workers:
                    # Each takes the next free socket names of the folder; two at once would take the same.
                    self._nodes[index].wait_until(self._has_sockets, within=90.0, every=0.1)
            for node in self._nodes:
                node.wait_until(self._is_complete, within=120.0, every=0.25)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the cluster, at once: there is nothing to save."""
        started = [node.pid for node in self._nodes]
        tmpdir = self._tmpdir
        if tmpdir is not None:
            end_processes(lambda: [*with_descendants(started), *strays_in(tmpdir)], grace=0)
        for node in self._nodes:
            node.stop(grace=0)
        self._nodes.clear()
        self._tmpdir = None
        self._resources.close()

    # --- what it is called

    @property
    def address(self) -> str:
        """The address for `ray.init`."""
        return f"{self.ip(0)}:{self._gcs_port}"

    @property
    def dashboard_url(self) -> str:
        """The base address of the dashboard, the Job API and the State API."""
        return f"http://127.0.0.1:{self._dashboard_port}"

    @property
    def metrics_targets(self) -> list[str]:
        """Where Prometheus scrapes: the agent of each node, then the head's autoscaler and dashboard."""
        agents = [f"{self.ip(index)}:{port}" for index, port in enumerate(self._export_ports)]
        return [*agents, *(f"{self.ip(0)}:{self.env[name]}" for name in _METRIC_PORTS)]

    @property
    def service_discovery_file(self) -> Path:
        """The file that Ray keeps for Prometheus: written every 5 s, without a dead node after some 17."""
        return self.tmpdir / "prom_metrics_service_discovery.json"

    @property
    def tmpdir(self) -> Path:
        """Ray's temporary folder: sessions, logs, sockets. Every process of the cluster has it open."""
        if self._tmpdir is None:
            raise NotReady("the cluster has no folder yet: call start() or prepare()")
        return self._tmpdir

    @staticmethod
    def ip(index: int) -> str:
        """The address of a node: 0 is the head."""
        return f"127.0.0.{2 + index}"

    # --- what it does

    def submit(
        self,
        entrypoint: str | Sequence[str],
        *,
        node: int | None = None,
        submission_id: str | None = None,
        metadata: Mapping[str, str] | None = None,
        **more: object,
    ) -> str:
        """Submit a job and return its id. It runs on the head, or on the given node; `more` is the Job API's.

        All nodes are on this machine, where a driver joins the head whatever node it was placed on, unless it
        is told otherwise: so the node's address is in DEMO_NODE_IP, for `ray.init(_node_ip_address=…)`.
        """
        command = entrypoint if isinstance(entrypoint, str) else shlex.join(entrypoint)
        request: dict[str, object] = {"entrypoint": command, "metadata": dict(metadata or {}), **more}
        if submission_id is not None:
            request["submission_id"] = submission_id
        if node is not None:
            request.setdefault("runtime_env", {"env_vars": {"DEMO_NODE_IP": self.ip(node)}})
            request["entrypoint_resources"] = {f"node:{self.ip(node)}": 0.001}
        answer = web.fetch_json(f"{self.dashboard_url}/api/jobs/", request, timeout=60.0)
        return str(answer["submission_id"])

    def job(self, submission_id: str) -> dict[str, Any]:
        """What the Job API says about a job."""
        found: dict[str, Any] = web.fetch_json(f"{self.dashboard_url}/api/jobs/{submission_id}")
        return found

    def job_logs(self, submission_id: str) -> str:
        """What the job has printed."""
        return str(web.fetch_json(f"{self.dashboard_url}/api/jobs/{submission_id}/logs")["logs"])

    def stop_job(self, submission_id: str, within: float = 30.0) -> None:
        """Stop a job and wait for its end."""
        web.fetch(f"{self.dashboard_url}/api/jobs/{submission_id}/stop", {}, timeout=30.0)
        self.wait_for_job(submission_id, *FINISHED, within=within)

    def wait_for_job(self, submission_id: str, *statuses: str, within: float = 60.0) -> str:
        """Wait until the job has one of the statuses (default: SUCCEEDED) and return it."""
        wanted = statuses or ("SUCCEEDED",)
        deadline = time.monotonic() + within
        while (status := str(self.job(submission_id)["status"])) not in wanted:
            if status in FINISHED or time.monotonic() > deadline:
                printed = self.job_logs(submission_id)
                raise JobFailed(
                    f"job {submission_id} is {status}, not {' or '.join(wanted)}; it printed:\n{printed}"
                )
            time.sleep(0.1)
        return status

    def run_python(
        self, script: Path, arguments: Sequence[str] = (), *, within: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as a driver with Ray's own Python, outside the Job API; the answer has its output."""
        command = [str(self._venv / "bin" / "python"), str(script), *arguments]
        env = {**self.env, "RAY_ADDRESS": self.address}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=within, check=True)

    def kill_node(self, index: int) -> None:
        """End a node without warning, as a lost machine does."""
        pid = self._nodes[index].pid
        end_processes(lambda: with_descendants([pid]), grace=0)

    # --- how it comes about

    def prepare(self) -> None:
        """Choose ports and folders, once: so targets are known and Prometheus can start first."""
        if self._tmpdir is not None:
            return
        folder = self.folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self._venv = (self._given_venv or parts.part("ray")).resolve()
        self._tmpdir = self._make_tmpdir(folder)
        self._blocks = [self._resources.enter_context(PortBlock()) for _ in self._cpus]
        head = self._blocks[0]
        self._gcs_port = head.take()[0]
        self._dashboard_port = self._wanted_dashboard_port or head.take()[0]
        self._export_ports = [block.take()[0] for block in self._blocks]
        (folder / "home").mkdir(exist_ok=True)
        self.env = {
            **_clean_environment(),
            **REPORT_INTERVAL,
            **{name: str(head.take()[0]) for name in _METRIC_PORTS},
            "HOME": str(folder / "home"),
            "PATH": f"{self._venv / 'bin'}:{os.environ.get('PATH', os.defpath)}",
            "RAY_TMPDIR": str(self._tmpdir),
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            **self._more_env,
        }

    def _make_tmpdir(self, folder: Path) -> Path:
        """A folder for Ray below ours, or a short one elsewhere if ours is too deep for Unix sockets."""
        tmpdir = folder / "ray"
        if len(os.fsencode(tmpdir)) > LONGEST_TMPDIR:
            tmpdir = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
            self._resources.callback(shutil.rmtree, tmpdir, ignore_errors=True)
            self._resources.callback(_keep_logs, tmpdir, folder / "ray-logs")
        tmpdir.mkdir(exist_ok=True)
        return tmpdir

    def _start_node(self, index: int) -> None:
        name = f"Ray node {self.ip(index)}"
        command = [str(self._venv / "bin" / "ray"), "start", "--block", *self._node_options(index)]
        node = Child(name, command, log=self.folder / f"node-{index}.log", env=self.env, folder=self.folder)
        node.start()
        self._nodes.append(node)

    def _node_options(self, index: int) -> list[str]:
        block = self._blocks[index]
        spill = self.folder.resolve() / "spilled"
        spill.mkdir(exist_ok=True)
        if index == 0:
            role = ["--head", f"--port={self._gcs_port}", f"--ray-client-server-port={block.take()[0]}"]
            role += [f"--temp-dir={self.tmpdir}"]
            role += ["--dashboard-host=127.0.0.1", f"--dashboard-port={self._dashboard_port}"]
            role += [f"--object-spilling-directory={spill}"]
        else:
            role = [f"--address={self.address}"]
        ports = [f"--{name}={block.take()[0]}" for name in _NODE_PORTS]
        workers = block.take(WORKER_PORTS)
        return [
            *role,
            *ports,
            f"--node-ip-address={self.ip(index)}",
            f"--metrics-export-port={self._export_ports[index]}",
            f"--min-worker-port={workers[0]}",
            f"--max-worker-port={workers[-1]}",
            f"--num-cpus={self._cpus[index]}",
            f"--object-store-memory={self._object_store_memory}",
            "--disable-usage-stats",
        ]

    def _gcs_answers(self) -> bool:
        try:
            socket.create_connection((self.ip(0), self._gcs_port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _has_sockets(self) -> bool:
        return len(list(self.tmpdir.glob("session_2*/sockets/raylet*"))) >= len(self._nodes)

    def _is_complete(self) -> bool:
        try:
            summary = web.fetch_json(
                f"{self.dashboard_url}/nodes?view=summary", timeout=5.0, headers=self._headers
            )
            nodes = summary["data"]["summary"]
            web.fetch(f"{self.dashboard_url}/api/jobs/", timeout=5.0, headers=self._headers)
        except (web.HttpFailure, KeyError, json.JSONDecodeError):
            return False
        alive = [node for node in nodes if node["raylet"].get("state") == "ALIVE"]
        return len(alive) == len(self._cpus)


_METRIC_PORTS = ("AUTOSCALER_METRIC_PORT", "DASHBOARD_METRIC_PORT")
_NODE_PORTS = (
    "object-manager-port",
    "node-manager-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
)


def _clean_environment() -> dict[str, str]:
    """Our environment without what leads Ray elsewhere: another cluster or Python, a proxy for gRPC."""
    foreign = (
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "GRPC_PROXY",
    )
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() not in foreign and not name.startswith("RAY_")
    }


def _keep_logs(tmpdir: Path, kept: Path) -> None:
    """Copy the logs of the session out of a folder that is about to go."""
    for logs in tmpdir.glob("session_2*/logs"):
        shutil.copytree(logs, kept, dirs_exist_ok=True, ignore_dangling_symlinks=True)

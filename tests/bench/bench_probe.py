"""What a look of the probe costs: a real Ray of two nodes with 60 actors, and an answer of 300 actors and 2,000 dead."""

import json
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil

from deploy.demo.processes import strays_in
from deploy.demo.ray_cluster import RayCluster
from engine.clients.ray import RayClient
from engine.model.duration import Duration
from engine.model.settings import ProbeSettings
from engine.probe.export import render
from engine.probe.probe import ClusterProbe

LOOKS = 60
INTERVAL = ProbeSettings().interval.total_seconds()
ACTORS = """
import time
import ray

ray.init(log_to_driver=False)


@ray.remote(num_cpus=0.001)
class Idle:
    def work(self):
        return 1


actors = [Idle.remote() for _ in range(60)]
ray.get([actor.work.remote() for actor in actors])
print("ready", flush=True)
time.sleep(600)
"""


def report() -> Iterator[str]:
    yield "the probe: share of a core, at one look in 15 s"
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        RayCluster(Path(folder), workers=1) as cluster,
    ):
        script = Path(folder) / "actors.py"
        script.write_text(ACTORS)
        job = cluster.submit(f"python {script}")
        while "ready" not in cluster.job_logs(job):
            time.sleep(1)
        probe = _probe(RayClient(cluster.dashboard_url, timeout=Duration(seconds=10)))
        idle = _idle_rate(cluster)
        began, head, own = time.monotonic(), _cpu(cluster), time.process_time()
        for index in range(LOOKS):
            probe.probe(datetime.now(UTC) + index * timedelta(minutes=2))
            render([probe])
        own = time.process_time() - own
        more = _cpu(cluster) - head - idle * (time.monotonic() - began)
        yield f"  60 real actors: head {_share(max(0.0, more))}, engine {_share(own)}"
        answer = RayClient(cluster.dashboard_url, timeout=Duration(seconds=10)).actors()
    alive = [row for row in answer if row["state"] == "ALIVE"]
    dead = {**alive[0], "state": "DEAD", "processStats": None}
    rows = [{**alive[i % len(alive)], "actorId": f"a{i}"} for i in range(300)]
    body = json.dumps([*rows, *({**dead, "actorId": f"d{i}"} for i in range(2000))])
    probe = _probe(_Replay(body))
    own = time.process_time()
    for index in range(LOOKS):
        probe.probe(datetime.now(UTC) + index * timedelta(minutes=2))
        render([probe])
    yield f"  300 actors and 2,000 dead ones, replayed: engine {_share(time.process_time() - own)}"


class _Replay:
    """A dashboard that answers the same each time; the text is parsed anew, as it would be."""

    def __init__(self, body: str) -> None:
        self._body = body

    def check_gcs(self):
        return None

    def version(self):
        return "2.60.0"

    def actors(self):
        return json.loads(self._body)

    def jobs(self):
        return []

    def objects(self):
        return []


def _probe(ray) -> ClusterProbe:
    return ClusterProbe("c", ray, ProbeSettings())


def _share(seconds: float) -> str:
    return f"{100 * seconds / LOOKS / INTERVAL:.2f} %"


def _cpu(cluster: RayCluster) -> float:
    """Seconds that the head's own processes have used: the dashboard, its modules, GCS, the agents."""
    total = 0.0
    for process in strays_in(cluster.tmpdir):
        try:
            if not process.name().startswith("ray::Idle"):
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _idle_rate(cluster: RayCluster, seconds: float = 20.0) -> float:
    """What they use a second while nobody probes."""
    before, began = _cpu(cluster), time.monotonic()
    time.sleep(seconds)
    return (_cpu(cluster) - before) / (time.monotonic() - began)

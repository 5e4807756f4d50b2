"""The probe and a real Ray: a leaking actor among its peers, a starved GCS, a cluster that wants a token."""

import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from deploy.demo.processes import strays_in
from deploy.demo.ray_cluster import RayCluster
from engine.clients.ray import RayClient
from engine.model.duration import Duration
from engine.model.settings import ProbeSettings
from engine.probe.probe import Api, ClusterProbe, Condition

ACTORS = """
import time
import ray

ray.init(log_to_driver=False)


@ray.remote(num_cpus=0.001)
class Keeper:
    def __init__(self):
        self.kept = []

    def work(self, megabytes):
        self.kept.append(bytearray(b"x" * (megabytes * 1_000_000)))


keepers = [Keeper.remote() for _ in range(10)]
ray.get([keeper.work.remote(0) for keeper in keepers])
print("leaking", keepers[3]._actor_id.hex(), flush=True)
while True:
    ray.get([keeper.work.remote(20 if index == 3 else 0) for index, keeper in enumerate(keepers)])
    time.sleep(1)
"""


def probe_of(cluster, *, token_file=None, **settings):
    wanted = ProbeSettings(interval=Duration(milliseconds=1), **settings)
    client = RayClient(cluster.dashboard_url, token_file=token_file, timeout=wanted.timeout)
    return ClusterProbe("c", client, wanted)


def look(probe, *, until, within=60.0):
    """Probe every other second until something holds, and return how many looks it took."""
    deadline = time.monotonic() + within
    for count in range(1, 1000):
        probe.probe(datetime.now(UTC))
        if until():
            return count
        assert time.monotonic() < deadline, {api: asked.error for api, asked in probe.asked.items()}
        time.sleep(2)
    raise AssertionError


@pytest.fixture
def leaker(ray_cluster, tmp_path):
    """The id of an actor that leaks among ten of its class."""
    script = tmp_path / "actors.py"
    script.write_text(ACTORS)
    job = ray_cluster.submit(f"python {script}")
    try:
        deadline = time.monotonic() + 90
        while (found := re.search(r"leaking (\w+)\n", log := ray_cluster.job_logs(job))) is None:
            assert time.monotonic() < deadline, log
            time.sleep(0.5)
        yield found[1]
    finally:
        ray_cluster.stop_job(job)


def test_a_leaking_actor_among_ten_of_its_class_is_told_by_its_id(ray_cluster, leaker):
    probe = probe_of(ray_cluster)
    sizes: list[dict[str, float]] = []

    def grown():
        rss = {
            use.labels["actor_id"]: use.rss
            for use in probe.readings.uses
            if use.labels.get("class_name") == "Keeper"
        }
        if len(rss) == 10:
            sizes.append(rss)
        return len(sizes) > 1 and max(sizes[-1][each] - sizes[0][each] for each in sizes[0]) > 100e6

    look(probe, until=grown)
    growth = {each: sizes[-1][each] - sizes[0][each] for each in sizes[0]}
    assert max(growth, key=growth.__getitem__) == leaker
    assert sorted(growth.values())[-2] < 20e6, "and of no other"

    def the_leaker():
        return next(use for use in probe.readings.uses if use.labels["actor_id"] == leaker)

    look(probe, until=lambda: the_leaker().tasks > 0)  # Ray refreshes the count every 15 s
    assert the_leaker().tasks < 5
    assert 0 <= the_leaker().cores < 2
    assert probe.readings.jobs is not None
    assert probe.readings.jobs["RUNNING"] >= 1
    assert probe.readings.version == "2.60.0"


@contextmanager
def stopped(process: psutil.Process, share: float) -> Iterator[None]:
    """Stop a process for this share of the time, in pulses of a second."""
    over = threading.Event()

    def pulse() -> None:
        while not over.is_set():
            process.send_signal(signal.SIGSTOP)
            over.wait(share)
            process.send_signal(signal.SIGCONT)
            over.wait(1 - share)

    thread = threading.Thread(target=pulse)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        process.send_signal(signal.SIGCONT)


def process_of(cluster, is_it):
    """The one process of a cluster that is meant; others come and go meanwhile."""
    found = []
    for process in strays_in(cluster.tmpdir):
        with suppress(psutil.NoSuchProcess):
            found += [process] if is_it(process) else []
    (process,) = found
    return process


@pytest.fixture
def gcs(ray_cluster):
    return process_of(ray_cluster, lambda each: each.name().startswith("gcs_server"))


def test_a_starved_gcs_is_seen_from_outside(ray_cluster, gcs):
    probe = probe_of(ray_cluster, timeout=Duration(seconds=3))
    look(probe, until=lambda: probe.asked[Api.GCS].condition is Condition.OK)
    healthy = probe.asked[Api.GCS].newest
    with stopped(gcs, 0.7):

        def starved():
            asked = probe.asked[Api.GCS]
            return asked.condition is not Condition.OK or asked.newest > 10 * healthy

        assert look(probe, until=starved) <= 3
    look(probe, until=lambda: probe.asked[Api.GCS].condition is Condition.OK)


def test_a_gcs_that_hangs_is_seen_at_the_first_look_while_the_dashboard_answers(ray_cluster, gcs):
    probe = probe_of(ray_cluster, timeout=Duration(seconds=3))
    look(probe, until=lambda: probe.asked[Api.GCS].condition is Condition.OK)
    gcs.send_signal(signal.SIGSTOP)
    try:
        time.sleep(0.5)
        assert look(probe, until=lambda: probe.asked[Api.GCS].condition is not Condition.OK) == 1
        assert probe.asked[Api.DASHBOARD].condition is Condition.OK
    finally:
        gcs.send_signal(signal.SIGCONT)
    look(probe, until=lambda: probe.asked[Api.GCS].condition is Condition.OK)


def test_a_dashboard_that_hangs_is_not_taken_for_a_gcs_that_does(ray_cluster):
    port = int(ray_cluster.dashboard_url.rpartition(":")[2])

    def listens(process):
        return any(
            each.laddr.port == port for each in process.net_connections("inet") if each.status == "LISTEN"
        )

    dashboard = process_of(ray_cluster, listens)
    probe = probe_of(ray_cluster, timeout=Duration(seconds=1))
    look(probe, until=lambda: probe.asked[Api.DASHBOARD].condition is Condition.OK)
    dashboard.send_signal(signal.SIGSTOP)
    try:
        assert look(probe, until=lambda: probe.asked[Api.DASHBOARD].condition is Condition.HUNG) == 1
    finally:
        dashboard.send_signal(signal.SIGCONT)
    look(probe, until=lambda: probe.asked[Api.DASHBOARD].condition is Condition.OK)


TOKEN = "a-token-of-at-least-so-many-characters-0123456789"


@pytest.fixture(scope="module")
def guarded(ray_venv):
    """A cluster that wants a token."""
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        RayCluster(Path(folder), workers=0, venv=ray_venv, env=env, token=TOKEN) as cluster,
    ):
        yield cluster


def test_a_cluster_that_wants_a_token_says_so_and_is_probed_with_one(guarded, tmp_path):
    for token, condition, way_out in (
        (None, Condition.UNAUTHORIZED, "set token_file below ray.clusters"),
        ("wrong-" + TOKEN, Condition.FORBIDDEN, "it does not take the token in"),
        (TOKEN, Condition.OK, ""),
    ):
        file = tmp_path / "token"
        if token is not None:
            file.write_text(token)
        probe = probe_of(guarded, token_file=None if token is None else str(file))
        probe.probe(datetime.now(UTC))
        assert probe.asked[Api.GCS].condition is Condition.OK, "it takes no token"
        for api in (Api.DASHBOARD, Api.ACTORS, Api.JOBS, Api.STATE):
            assert probe.asked[api].condition is condition, (api, probe.asked[api].error)
            assert way_out in probe.asked[api].error

"""A real fault in a real Ray cluster is seen, told and healed; and killed in the middle, it is healed once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import web
from deploy.demo.engine_process import EngineProcess, Line
from deploy.demo.prometheus import Prometheus
from deploy.demo.ray_cluster import FINISHED, RayCluster
from deploy.demo.slack_stub import SlackStub
from engine.model.playbook import Run, RunState
from engine.store.sql import open_store
from tests.integration.forwarder import Forwarder

FILL = Path(__file__).parents[2] / "deploy" / "demo" / "workloads" / "fill_store.py"
pytestmark = pytest.mark.timeout(400)


def is_run(state: str) -> Callable[[Line], bool]:
    return lambda line: line["event"] == "run" and line.get("state") == state


def is_alert(state: str, name: str = "RayObjectStoreExhaustion") -> Callable[[Line], bool]:
    return lambda line: line["event"] == "transition" and line["alert"] == name and line["after"] == state


def engine_jobs(ray: RayCluster) -> list[str]:
    jobs: list[dict[str, Any]] = web.fetch_json(f"{ray.dashboard_url}/api/jobs/")
    return [job["submission_id"] for job in jobs if str(job["submission_id"]).startswith("engine-")]


def recorded(folder: Path) -> list[Run]:
    store = open_store(f"sqlite:///{folder}/engine.db")
    runs = list(store.runs())
    store.close()
    return runs


@pytest.fixture
def slack(tmp_path: Path) -> Iterator[SlackStub]:
    (tmp_path / "slack-token").write_text("xoxb-1")
    with SlackStub(folder=tmp_path / "slack", token="xoxb-1") as stub:
        yield stub


@pytest.fixture
def prometheus(ray_cluster: RayCluster, prometheus_server: Callable[..., Prometheus]) -> Prometheus:
    server = prometheus_server(targets=ray_cluster.metrics_targets)
    server.wait_for("ray_object_store_available_memory", within=60)
    return server


@pytest.fixture
def greedy(ray_cluster: RayCluster) -> Iterator[Callable[[], str]]:
    """Submits a job that fills the worker's store until it spills, and holds on."""
    started: list[str] = []

    def start() -> str:
        job = f"greedy-{uuid.uuid4().hex[:8]}"
        started.append(job)
        options = ["--mb-per-put", "3", "--pause", "0.6", "--total-mb", "240"]
        return ray_cluster.submit(["python", str(FILL), *options], node=1, submission_id=job)

    yield start
    for job in started:
        if ray_cluster.job(job)["status"] not in FINISHED:
            ray_cluster.stop_job(job)


def test_a_spilling_cluster_is_seen_told_and_relieved(
    tmp_path: Path,
    ray_cluster: RayCluster,
    prometheus: Prometheus,
    slack: SlackStub,
    greedy: Callable[[], str],
) -> None:
    before = set(engine_jobs(ray_cluster))
    job = greedy()
    with EngineProcess(
        tmp_path, prometheus_url=prometheus.url, ray_url=ray_cluster.dashboard_url, slack_url=slack.url
    ) as engine:
        engine.wait_for(is_alert("firing"), within=90)
        engine.wait_for(is_alert("firing", "RayObjectSpillingHigh"), within=90)
        engine.wait_for(is_run("helped"), within=120)
        engine.wait_for(is_alert("resolved"), within=60)
        time.sleep(3)  # the last update of the message

    # Told: one message that was updated in place, with its chart, and no call that Slack refused.
    starts = [message for message in slack.messages if not message.thread_ts]
    assert len(starts) == 1, [message.text for message in starts]
    assert "RayObjectStoreExhaustion" in str(starts[0].blocks)
    assert "Resolved" in str(starts[0].blocks)
    assert len(starts[0].history) > 2, "it was updated as the run went on"
    (chart,) = slack.files.values()
    assert chart.content.startswith(b"\x89PNG")

    # Healed: the garbage collection was submitted once, then the greedy job was stopped, and the store is free.
    (gc_job,) = set(engine_jobs(ray_cluster)) - before
    assert ray_cluster.job(gc_job)["status"] == "SUCCEEDED"
    assert ray_cluster.job(job)["status"] == "STOPPED"
    held = prometheus.query('sum(ray_spill_manager_objects_bytes{State=~"Pinned|PendingSpill"})')
    assert float(held[0]["value"][1]) < 10e6

    # Recorded.
    (run,) = recorded(tmp_path)
    assert run.state is RunState.HELPED
    assert [step.state.value for step in run.steps] == ["succeeded", "succeeded"]
    assert run.steps[0].key == gc_job


def test_killed_between_submit_and_record_the_engine_does_not_submit_twice(
    tmp_path: Path,
    ray_cluster: RayCluster,
    prometheus: Prometheus,
    slack: SlackStub,
    greedy: Callable[[], str],
) -> None:
    before = set(engine_jobs(ray_cluster))
    job = greedy()
    with Forwarder(ray_cluster.dashboard_url) as line:
        engine = EngineProcess(tmp_path, prometheus_url=prometheus.url, ray_url=line.url, slack_url=slack.url)
        submitted: list[str] = []

        def kill_after_submit(method: str, path: str, status: int) -> None:
            if method == "POST" and path == "/api/jobs/":
                submitted.append(f"{status}")
                if len(submitted) == 1:
                    engine.kill()  # Ray has the job, the engine never hears of it

        line.after = kill_after_submit
        engine.start()
        try:
            wait_until(lambda: bool(submitted) and not engine.is_running, within=120)
            (interrupted,) = recorded(tmp_path)
            assert interrupted.steps[0].state.value == "intended"
            engine.start()
            engine.wait_for(is_run("helped"), within=120)
        finally:
            engine.stop()
    assert submitted == ["200"], "the job that was found again was not submitted again"
    assert set(engine_jobs(ray_cluster)) - before == {interrupted.steps[0].key}
    (run,) = recorded(tmp_path)
    assert run.state is RunState.HELPED
    assert run.steps[0].attempt == 1
    assert ray_cluster.job(job)["status"] == "STOPPED"


def wait_until(holds: Callable[[], bool], *, within: float) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.1)

"""The real parts do what the demo and the other integration tests take for granted."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deploy.demo import ports
from deploy.demo.processes import (
    Child,
    NotReady,
    adopt_orphans,
    end_processes,
    strays_in,
    users_of,
    with_descendants,
)
from deploy.demo.ray_cluster import RayCluster
from deploy.demo.web import HttpFailure

ROOT = Path(__file__).parents[2]
WORKLOADS = ROOT / "deploy" / "demo" / "workloads"

HELD_BYTES = (
    'sum(ray_spill_manager_objects_bytes{State=~"Pinned|PendingSpill"})'
    ' + sum(ray_object_store_memory{Location="SPILLED"})'
)


def test_a_job_fills_a_store_until_it_spills_and_stopping_it_frees_the_bytes(ray_cluster, prometheus_server):
    """Prometheus sees it all, on the node that the job was sent to."""
    prometheus = prometheus_server(targets=ray_cluster.metrics_targets)
    prometheus.wait_for("count(sum by (NodeAddress) (ray_object_store_memory)) == 2", within=60)
    prometheus.wait_for('count(ray_spill_manager_objects_bytes{State="Pinned"}) == 2', within=30)

    job = ray_cluster.submit(
        ["python", str(WORKLOADS / "fill_store.py"), "--pause=0.1", "--total-mb=200"],
        node=1,
        submission_id="fill-the-store",
        metadata={"owner": "tests"},
    )
    try:
        (spilled,) = prometheus.wait_for('ray_object_store_memory{Location="SPILLED"} > 0', within=60)
        assert spilled["metric"]["NodeAddress"] == "127.0.0.3"
        prometheus.wait_for(f"{HELD_BYTES} > 150e6", within=30)
        assert ray_cluster.job(job)["metadata"] == {"owner": "tests"}
        assert "filling the store of 127.0.0.3" in ray_cluster.job_logs(job)
    finally:
        ray_cluster.stop_job(job)
    prometheus.wait_for(f"{HELD_BYTES} < 1e6", within=30)


def test_a_global_gc_frees_what_reference_cycles_hold_and_nothing_else(ray_cluster, prometheus_server):
    """Ray may collect by itself before we ask, if an earlier test has filled a store: so only the end is sure."""
    prometheus = prometheus_server(targets=ray_cluster.metrics_targets)
    job = ray_cluster.submit(["python", str(WORKLOADS / "cycles.py"), "--pause=0", "--knots=10", "--live=4"])
    try:
        prometheus.wait_for(f"{HELD_BYTES} >= 8e6", within=60)
        collect = "import ray; from ray._private.internal_api import global_gc; ray.init(); global_gc()"
        ray_cluster.wait_for_job(ray_cluster.submit(["python", "-c", collect]))
        prometheus.wait_for(f"{HELD_BYTES} > 7e6 < 9e6", within=30)
        assert "knot 10: 20 MB out of reach" in ray_cluster.job_logs(job)
    finally:
        ray_cluster.stop_job(job)


def test_a_driver_outside_the_job_api_sees_every_node(ray_cluster, tmp_path):
    script = tmp_path / "count_nodes.py"
    script.write_text("import ray; ray.init(log_to_driver=False); print(len(ray.nodes()))")
    assert ray_cluster.run_python(script).stdout.split()[-1] == "2"


def test_ray_announces_the_very_targets_that_we_scrape(ray_cluster, prometheus_server):
    prometheus = prometheus_server(file_sd=ray_cluster.service_discovery_file)
    prometheus.wait_for("count(up == 1) == 4", within=60)
    targets = {sample["metric"]["instance"] for sample in prometheus.query("up")}
    assert targets == set(ray_cluster.metrics_targets)


def test_two_clusters_live_side_by_side_and_leave_nothing_behind(ray_cluster, ray_venv, tmp_path):
    """The folder is too deep for Ray's sockets, so Ray gets a short one; that goes, and its logs stay."""
    folder = tmp_path / "a-folder-that-is-too-deep-for-a-unix-socket"
    with RayCluster(folder, workers=0, venv=ray_venv) as other:
        tmpdir = other.tmpdir
        assert other.address != ray_cluster.address
        assert any("raylet" in process.name() for process in users_of(tmpdir))
    assert users_of(tmpdir) == []
    assert users_of(folder) == []
    assert not tmpdir.exists()
    assert (folder / "ray-logs" / "gcs_server.out").is_file()


def test_prometheus_keeps_port_and_data_over_an_outage(prometheus_server):
    port = ports.free_port()
    prometheus = prometheus_server(port=port, targets=[f"127.0.0.1:{port}"], scrape_interval="1s")
    (before,) = prometheus.wait_for("up", within=10)
    prometheus.stop()
    with pytest.raises(HttpFailure, match="refused"):
        prometheus.query("up")
    prometheus.start()
    assert prometheus.query("up", at=before["value"][0]) == [before]


def test_a_taken_port_is_named_with_its_holder():
    port = ports.free_port()
    program = (
        "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(port)])
    try:
        while ports.is_free(port):
            time.sleep(0.02)
        with pytest.raises(
            ports.PortTaken, match=rf"port {port} .*, wanted for the demo, .*kill {holder.pid}"
        ):
            ports.require_free({"the demo": port})
    finally:
        holder.kill()
        holder.wait()


def test_a_child_that_ignores_term_ends_with_its_grandchildren(tmp_path):
    grandchild = "trap '' TERM; sleep 60 & setsid sleep 60 & wait"
    child = Child(
        "stubborn", ["bash", "-c", f"trap '' TERM; bash -c \"{grandchild}\" & wait"], log=tmp_path / "log"
    )
    with child:
        child.wait_until(lambda: len(with_descendants([child.pid])) == 4, within=5)
        family = with_descendants([child.pid])
        child.stop(grace=0.2)
    assert [
        process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ] == []


def test_a_stray_is_found_by_the_folder_that_it_holds_open(tmp_path):
    """Ray's agents change parent, name and environment; a file in the session's folder stays open."""
    adopt_orphans()
    stray = f"exec 3>{tmp_path}/held; (cd /; exec -a harmless sleep 60) & exit 0"
    subprocess.run(["bash", "-c", stray], check=True, start_new_session=True)
    (found,) = strays_in(tmp_path)
    end_processes(lambda: strays_in(tmp_path), grace=1)
    assert not found.is_running()


def test_term_ends_what_was_started(tmp_path):
    program = (
        "import pathlib, sys, time; from deploy.demo.processes import Child, exit_on_signals; exit_on_signals()\n"
        "with Child('sleeper', ['sleep', '60'], log=pathlib.Path(sys.argv[1]) / 'log') as child:\n"
        "    print(child.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        sleeper = psutil.Process(int(demo.stdout.readline()))
        demo.terminate()
        assert demo.wait(timeout=10) == 128 + signal.SIGTERM
    assert not sleeper.is_running()


def test_the_end_of_the_log_tells_why_a_child_did_not_get_ready(tmp_path):
    child = Child("broken", ["bash", "-c", "echo no disk; exit 3"], log=tmp_path / "log")
    with pytest.raises(NotReady, match=r"(?s)broken ended before it was ready.*no disk"), child:
        child.wait_until(lambda: False, within=5)

"""The client and a real Ray."""

import io
import time
import uuid
import zipfile

import pytest

from engine.clients.ray import RayClient
from engine.errors import ClusterError
from engine.model.duration import Duration
from engine.ray.owners import owners

HOLD = """
import time
import ray

ray.init(log_to_driver=False)


@ray.remote(num_cpus=0.1)
def wait(held):
    time.sleep(600)


@ray.remote(num_gpus=1)
def never():
    pass


@ray.remote(num_cpus=0.1)
def fail():
    raise ValueError


held = [ray.put(bytes(2_000_000)) for _ in range(3)]
failed = fail.remote()
ray.wait([failed])
waiting = [wait.remote(held[0]), never.remote()]
print("holding", flush=True)
time.sleep(600)
"""


@pytest.fixture
def client(ray_cluster):
    return RayClient(ray_cluster.dashboard_url, timeout=Duration(seconds=60))


@pytest.fixture
def submission_id():
    return f"run-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def holder(ray_cluster, client, submission_id, tmp_path):
    """The id of a job that owns 6 MB, with one task running, one that never will, and one that has failed."""
    script = tmp_path / "hold.py"
    script.write_text(HOLD)
    client.submit(submission_id, f"python {script}", metadata={"by": "tests"}, entrypoint_num_cpus=0)
    try:
        for _ in wait_until(lambda: "holding" in client.logs(submission_id)):
            assert client.job(submission_id)["status"] in ("PENDING", "RUNNING"), client.logs(submission_id)
        yield submission_id
    finally:
        client.stop(submission_id)
        ray_cluster.wait_for_job(submission_id, "STOPPED")


def wait_until(holds):
    """Yield until it holds, for a minute and a half at most."""
    deadline = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        yield
        time.sleep(0.2)


def test_the_version_is_the_one_that_was_installed(client):
    assert client.version() == "2.60.0"


def test_nodes_say_their_state_and_address(client):
    assert {(node["node_ip"], node["state"]) for node in client.nodes()} == {
        ("127.0.0.2", "ALIVE"),
        ("127.0.0.3", "ALIVE"),
    }


def test_objects_belong_to_the_job_that_made_them(client, holder):
    owner = next(each for each in owners(client.objects(), client.jobs()) if each.submission_id == holder)
    assert 6_000_000 <= owner.bytes < 6_100_000
    assert owner.objects >= 3
    assert client.job(holder)["job_id"] == owner.job_id


def test_only_unfinished_tasks_are_listed(client, holder):
    job_id = client.job(holder)["job_id"]

    def states():
        return {task["name"]: task["state"] for task in client.tasks() if task["job_id"] == job_id}

    for _ in wait_until(lambda: states().get("wait") == "RUNNING"):
        pass
    assert states() == {"wait": "RUNNING", "never": "PENDING_NODE_ASSIGNMENT"}


def test_the_rows_of_the_state_api_have_the_fields_that_the_engine_reads(client, holder):
    fields = {"object_id", "object_size", "ip", "pid", "call_site", "type", "reference_type", "task_status"}
    assert all(fields <= row.keys() for row in client.objects())
    fields = {
        "task_id",
        "name",
        "state",
        "job_id",
        "actor_id",
        "node_id",
        "required_resources",
        "creation_time_ms",
    }
    assert all(fields <= row.keys() for row in client.tasks())


def test_submitting_twice_is_submitting_once(client, holder):
    client.submit(holder, "python -c 'print(1)'")
    assert sum(job["submission_id"] == holder for job in client.jobs()) == 1
    assert client.job(holder)["metadata"] == {"by": "tests"}


def test_an_id_of_a_job_that_has_failed_is_taken_too(ray_cluster, client, submission_id):
    client.submit(submission_id, "false", entrypoint_num_cpus=0)
    ray_cluster.wait_for_job(submission_id, "FAILED")
    client.submit(submission_id, "true", entrypoint_num_cpus=0)
    assert client.job(submission_id)["status"] == "FAILED"


def test_a_job_runs_the_code_of_a_package(ray_cluster, client, submission_id):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as package:
        package.writestr("job_of_ours.py", f"print('ran', '{submission_id}')")
    name = f"_ray_pkg_{submission_id}.zip"
    uri = client.ensure_package(name, content.getvalue())
    assert client.ensure_package(name, b"never sent") == uri == f"gcs://{name}"
    client.submit(
        submission_id, "python -m job_of_ours", runtime_env={"working_dir": uri}, entrypoint_num_cpus=0
    )
    ray_cluster.wait_for_job(submission_id, "SUCCEEDED")
    assert f"ran {submission_id}" in client.logs(submission_id)


@pytest.mark.parametrize("ask", ["logs", "stop"])
def test_a_job_that_is_not_there_is_said_not_to_be(client, ask):
    assert client.job("nobody") is None
    with pytest.raises(ClusterError, match="404: Job nobody does not exist") as caught:
        getattr(client, ask)("nobody")
    assert caught.value.status == 404


def test_ray_complains_in_one_line(client, submission_id):
    with pytest.raises(
        ClusterError, match=r"answered 400: TypeError: .*unexpected keyword argument 'nonsense'$"
    ):
        client.submit(submission_id, "true", nonsense=1)

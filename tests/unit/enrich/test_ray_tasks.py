import pytest

from engine.enrich.ray_tasks import RayTasks
from engine.errors import ClusterError
from engine.model.alert import Text
from engine.registry import enricher
from tests.unit.enrich.test_ray_objects import AT, JOBS, scene

NOW = AT.timestamp() * 1000


class Cluster:
    """Two nodes."""

    def __init__(self, tasks, jobs=JOBS):
        self._tasks, self._jobs = tasks, jobs

    def tasks(self):
        return self._tasks

    def nodes(self):
        return [{"node_id": "aa", "node_ip": "10.0.0.1"}, {"node_id": "bb", "node_ip": "10.0.0.2"}]

    def jobs(self):
        if isinstance(self._jobs, Exception):
            raise self._jobs
        return self._jobs


def task(name, seconds, *, state="RUNNING", node="aa", **more):
    begun = "start_time_ms" if state == "RUNNING" else "creation_time_ms"
    node_id = node if state == "RUNNING" else None
    return {
        "name": name,
        "state": state,
        "node_id": node_id,
        "job_id": "02000000",
        begun: NOW - seconds * 1000,
        **more,
    }


def collect(*tasks, instance="10.0.0.1:8080", jobs=JOBS, **fields):
    labels = {"instance": instance} if instance else {}
    return RayTasks(**fields).collect(scene(Cluster(list(tasks), jobs), **labels))


def test_it_is_called_ray_tasks():
    assert enricher.get("ray_tasks") is RayTasks


def test_tasks_are_grouped_by_name_and_state_the_longest_running_first():
    table = collect(
        task("short", 10),
        task("long", 700),
        task("long", 30),
        task("waits", 5000, state="PENDING_NODE_ASSIGNMENT"),
    )
    assert table.title == "Tasks, 10.0.0.1"
    assert table.rows == (
        ("11m 40s", "2", "RUNNING", "long", "etl"),
        ("10s", "1", "RUNNING", "short", "etl"),
        ("1h 23m", "1", "PENDING_NODE_ASSIGNMENT", "waits", "etl"),
    )
    assert table.note == "3 tasks running, 1 waiting"


def test_tasks_of_other_nodes_are_left_out():
    assert [line[3] for line in collect(task("here", 1), task("there", 1, node="bb")).rows] == ["here"]


@pytest.mark.parametrize(
    ("instance", "said"),
    [("", "the alert's labels name no node"), ("10.9.9.9:1", "Ray knows no node 10.9.9.9")],
)
def test_without_the_node_the_cluster_is_shown_and_that_is_said(instance, said):
    table = collect(task("here", 1), task("there", 1, node="bb"), instance=instance)
    assert table.title == "Tasks, whole cluster"
    assert len(table.rows) == 2
    assert said in table.note


def test_drivers_and_ended_tasks_are_no_tasks_that_run():
    evidence = collect(task("driver", 9, type="DRIVER_TASK"), task("done", 9, state="FINISHED"))
    assert evidence == Text("Tasks", "No task runs or waits")


def test_a_task_without_times_or_name_is_shown_all_the_same():
    assert collect({"state": "RUNNING"}, instance="").rows == (("", "1", "RUNNING", "unnamed", "unknown"),)


def test_a_clock_that_is_ahead_gives_no_negative_time():
    assert collect(task("new", -30)).rows[0][0] == "0s"


def test_jobs_that_cannot_be_had_leave_their_ids():
    assert collect(task("a", 1), jobs=ClusterError("no")).rows[0][4] == "02000000"


def test_what_is_left_out_is_counted():
    table = collect(*(task(f"t{index}", index + 1) for index in range(30)), top=10)
    assert len(table.rows) == 10
    assert "20 more rows not shown" in table.note


def test_an_answer_as_long_as_ray_ever_sends_is_partial():
    assert "partial" in collect(*[task("t", 1)] * 10_000).note


def test_no_cluster_is_said_in_words():
    assert isinstance(RayTasks().collect(scene(None)), Text)

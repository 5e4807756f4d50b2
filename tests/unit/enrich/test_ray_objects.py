import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.enrich.ray_objects import By, RayObjects
from engine.errors import ClusterError
from engine.model.alert import Alert, AlertState, Table, Text
from engine.model.labels import Labels
from engine.model.ports import Scene
from engine.registry import enricher

AT = datetime(2026, 8, 19, 14, 28, tzinfo=UTC)
FIXTURES = Path(__file__).parents[2] / "fixtures" / "ray"
GIB = 2**30


class Cluster:
    """Answers as Ray did."""

    def __init__(self, objects, jobs=()):
        self._objects, self._jobs = objects, jobs

    def objects(self):
        if isinstance(self._objects, Exception):
            raise self._objects
        return self._objects

    def jobs(self):
        if isinstance(self._jobs, Exception):
            raise self._jobs
        return list(self._jobs)


def row(
    index,
    size,
    *,
    job="02000000",
    ip="10.0.0.1",
    site="(put object)  | a.py:f:1 | b.py:g:2",
    kind="LOCAL_REFERENCE",
):
    return {
        "object_id": f"{1:016x}{'f' * 24}{job}{index:08x}",
        "object_size": size,
        "reference_type": kind,
        "call_site": site,
        "pid": 7,
        "ip": ip,
    }


JOBS = [{"job_id": "02000000", "submission_id": "etl", "entrypoint": "python etl.py"}]


def scene(ray, **labels):
    alert = Alert(
        rule_id="r",
        labels=Labels({"alertname": "A", **labels}),
        signal=Labels(),
        state=AlertState.FIRING,
        value=1.0,
        active_at=AT,
    )
    return Scene(alert=alert, rule=None, at=AT, source=None, ray=ray)


def collect(objects, jobs=JOBS, labels=None, **fields):
    labels = {"instance": "10.0.0.1:8080"} if labels is None else labels
    return RayObjects(**fields).collect(scene(Cluster(objects, jobs), **labels))


def test_it_is_called_ray_objects():
    assert enricher.get("ray_objects") is RayObjects


def test_the_largest_come_first_with_size_owner_process_and_call_site():
    table = collect([row(1, GIB), row(2, 5 * GIB)])
    assert table.columns == ("size", "owner", "pid", "call site")
    assert table.rows == (("5 GiB", "etl", "7", "a.py:f:1"), ("1 GiB", "etl", "7", "a.py:f:1"))
    assert table.note == "Total 6 GiB in 2 objects"


def test_an_object_counts_once_however_many_processes_hold_it():
    table = collect([row(1, GIB), row(1, GIB - 3, kind="PINNED_IN_MEMORY")])
    assert table.note == "Total 1 GiB in 1 object"


def test_only_what_processes_on_the_node_hold_is_shown():
    table = collect([row(1, GIB), row(2, 9 * GIB, ip="10.0.0.2")])
    assert table.title == "Largest objects, held at 10.0.0.1"
    assert [line[0] for line in table.rows] == ["1 GiB"]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({}, "the alert's labels name no node"),
        ({"instance": "10.9.9.9:8080"}, "Ray knows of no object held at 10.9.9.9"),
    ],
)
def test_without_the_node_the_cluster_is_shown_and_that_is_said(labels, said):
    table = collect([row(1, GIB)], labels=labels)
    assert table.title == "Largest objects, whole cluster"
    assert said in table.note


def test_what_is_left_out_is_counted():
    table = collect([row(index, GIB) for index in range(8)], top=5)
    assert len(table.rows) == 5
    assert table.note == "Total 8 GiB in 8 objects; 3 more rows not shown"


def test_bytes_are_added_up_by_call_site():
    table = collect(
        [row(1, GIB), row(2, GIB), row(3, 5 * GIB, site="(task call)  | c.py:h:9")], by=By.CALLSITE
    )
    assert table.columns == ("size", "objects", "owner", "call site")
    assert table.rows == (("5 GiB", "1", "etl", "c.py:h:9"), ("2 GiB", "2", "etl", "a.py:f:1"))


def test_bytes_are_added_up_by_job():
    table = collect([row(1, GIB), row(2, GIB), row(3, GIB, job="05000000")], by=By.JOB)
    assert table.rows == (("2 GiB", "2", "etl", "python etl.py"), ("1 GiB", "1", "job 05000000", ""))


def test_call_sites_that_ray_does_not_record_are_explained():
    assert "RAY_record_ref_creation_sites=1" in collect([row(1, GIB, site="disabled")], by=By.CALLSITE).note


def test_sizes_that_are_not_known_and_actor_handles_add_nothing():
    table = collect([row(1, GIB), row(2, -1), row(3, -1, kind="ACTOR_HANDLE"), {"object_size": None}])
    assert table.note == "Total 1 GiB in 2 objects"


def test_jobs_that_cannot_be_had_leave_their_ids():
    table = collect([row(1, GIB)], jobs=ClusterError("Ray at x: no answer"))
    assert table.rows[0][1] == "job 02000000"
    assert "jobs are shown by id: Ray at x: no answer" in table.note


def test_an_answer_as_long_as_ray_ever_sends_is_partial():
    table = collect([row(index, 1) for index in range(10_000)])
    assert "partial: Ray sends at most 10,000 references" in table.note
    assert len(table.rows) == 5


def test_a_cluster_that_does_not_answer_is_the_callers_to_report():
    with pytest.raises(ClusterError):
        collect(ClusterError("no answer"))


def test_no_cluster_and_no_objects_are_said_in_words():
    assert isinstance(RayObjects().collect(scene(None)), Text)
    assert isinstance(collect([]), Text)


@pytest.mark.parametrize("top", [0, 51])
def test_how_many_is_bounded(top):
    with pytest.raises(ValueError, match="from 1 to 50"):
        RayObjects(top=top)


@pytest.mark.parametrize("by", By)
def test_a_real_answer_of_ray_is_understood(by):
    objects = json.loads((FIXTURES / "objects_2.60.json").read_text())["data"]["result"]["result"]
    jobs = json.loads((FIXTURES / "jobs_2.60.json").read_text())
    table = collect(objects, jobs, {"instance": "127.0.0.2:8080"}, by=by)
    assert isinstance(table, Table)
    assert table.title.endswith("held at 127.0.0.2")
    assert table.note.startswith("Total 7.63 MiB in 8 objects")
    assert "hold-objects" in table.rows[0]

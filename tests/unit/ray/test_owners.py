"""Bytes by the job that owns them, from answers that a real Ray 2.60 gave."""

import json
from pathlib import Path

import pytest

from engine.ray.ids import job_of_object
from engine.ray.owners import Owner, owners

FIXTURES = Path(__file__).parents[2] / "fixtures" / "ray"
PUT = "00ffffffffffffffffffffffffffffffffffffff0200000001e1f505"


@pytest.mark.parametrize(
    ("object_id", "job_id"),
    [
        (PUT, "02000000"),
        ("64ac0404a8f0916f1b9201e9739b39a9a4fb9d1c0100000001000000", "01000000"),
        ("", ""),
        (PUT[:-1], ""),
    ],
)
def test_an_objects_id_tells_its_job(object_id, job_id):
    assert job_of_object(object_id) == job_id


def test_real_objects_are_counted_once_each_and_named_by_their_submission():
    objects = json.loads((FIXTURES / "objects_2.60.json").read_text())["data"]["result"]["result"]
    jobs = json.loads((FIXTURES / "jobs_2.60.json").read_text())
    assert owners(objects, jobs) == (
        Owner(
            job_id="02000000", submission_id="hold-objects", bytes=3 * 2_000_003 + 2 * 1_000_003, objects=7
        ),
        Owner(job_id="01000000", submission_id=None, bytes=15, objects=2),
    )


def row(index, size, job="02000000"):
    return {"object_id": f"{index:040x}{job}01000000", "object_size": size}


def test_the_largest_size_that_is_stated_counts_and_an_unknown_one_is_nothing():
    assert owners([row(1, -1), row(1, 10), row(1, 9), row(2, -1), row(3, None)], []) == (
        Owner(job_id="02000000", submission_id=None, bytes=10, objects=3),
    )


def test_owners_come_by_falling_bytes():
    found = owners([row(1, 1, "01000000"), row(2, 5, "03000000"), row(3, 5, "02000000")], [])
    assert [owner.job_id for owner in found] == ["02000000", "03000000", "01000000"]


def test_rows_without_an_objects_id_do_not_count():
    assert owners([{}, {"object_id": None, "object_size": 5}, {"object_id": "x", "object_size": 5}], []) == ()

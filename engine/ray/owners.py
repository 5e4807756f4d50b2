"""Who owns the objects in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.ray.ids import job_of_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A job, and what it owns. `submission_id` is None for a driver that the Job API did not start."""

    job_id: str
    submission_id: str | None
    bytes: int
    objects: int


def owners(objects: Iterable[Mapping[str, Any]], jobs: Iterable[Mapping[str, Any]]) -> tuple[Owner, ...]:
    """Return the owners of the State API's `objects`, by falling bytes, named by the Job API's `jobs`.

    The State API has a row for every process that refers to an object, so an object counts once, with the
    largest size that anybody states; -1 is a size that is not known, such as that of a task still to run.
    """
    sizes: dict[str, int] = {}
    for row in objects:
        object_id, size = str(row.get("object_id") or ""), int(row.get("object_size") or 0)
        if job_of_object(object_id):
            sizes[object_id] = max(sizes.get(object_id, 0), size)
    totals: dict[str, tuple[int, int]] = {}
    for object_id, size in sizes.items():
        total, count = totals.get(job_of_object(object_id), (0, 0))
        totals[job_of_object(object_id)] = (total + size, count + 1)
    names = {str(job.get("job_id")): job.get("submission_id") for job in jobs}
    found = (
        Owner(job_id=job_id, submission_id=names.get(job_id), bytes=total, objects=count)
        for job_id, (total, count) in totals.items()
    )
    return tuple(sorted(found, key=lambda owner: (-owner.bytes, owner.job_id)))

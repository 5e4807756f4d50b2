"""Who fills the object store: the largest objects, from Ray's State API.

The State API has a row for every process that refers to an object, and names the process's node, not the
node whose store holds the bytes. So an object counts once, and "of the node" means: held by a process there.
That is the question at hand anyway: an object lives for as long as somebody holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from engine.errors import ClusterError
from engine.lang.readable import one_line, plural, size
from engine.model.alert import Evidence, Table, Text
from engine.model.ports import RayApi, Scene
from engine.ray.identity import node_of
from engine.ray.ids import job_of_object
from engine.registry import enricher

_ROWS_OF_AN_ANSWER = 10_000  # Ray never sends more
_NO_SITE = "disabled"  # what Ray says for every call site unless it is told to record them
_SAYS_NOTHING = frozenset({"", _NO_SITE, "<unknown>"})
_NO_OBJECT = "ACTOR_HANDLE"  # a reference that the State API lists among those to objects


class By(StrEnum):
    """What the bytes are added up by."""

    OBJECT = "object"
    CALLSITE = "callsite"
    JOB = "job"


@enricher("ray_objects")
@dataclass(frozen=True, slots=True, kw_only=True)
class RayObjects:
    """The largest objects held by processes on the alert's node, or their sums by call site or job.

    The node is taken from the labels `ip`, `NodeAddress`, `node` or `instance`. Without one, or when Ray knows
    of no object there, the whole cluster is shown, and the evidence says so.
    """

    top: int = 5
    by: By = By.OBJECT

    def __post_init__(self) -> None:
        if not 1 <= self.top <= 50:
            raise ValueError(f"top must be from 1 to 50, not {self.top}")

    def collect(self, scene: Scene) -> Evidence:
        if scene.ray is None:
            return Text("Objects", "No Ray cluster in engine.yaml fits this alert's labels.")
        rows = scene.ray.objects()
        held, where, notes = _held_at(node_of(scene.alert.labels), list(_held(rows)))
        if not held:
            return Text("Objects", "Ray knows of no objects.")
        jobs, unnamed = _jobs(scene.ray)
        columns, lines = _TABLES[self.by](held, jobs)
        total = sum(each.bytes for each in held)
        notes = [f"Total {size(total)} in {plural(len(held), 'object')}", *notes, *unnamed]
        if len(lines) > self.top:
            notes.insert(1, f"{plural(len(lines) - self.top, 'more row')} not shown")
        if len(rows) >= _ROWS_OF_AN_ANSWER:
            notes.append(f"partial: Ray sends at most {_ROWS_OF_AN_ANSWER:,} references")
        if self.by is By.CALLSITE and any(each.site == _NO_SITE for each in held):
            notes.append("call sites are not recorded unless Ray runs with RAY_record_ref_creation_sites=1")
        what = {By.OBJECT: "Largest objects", By.CALLSITE: "Bytes by call site", By.JOB: "Bytes by job"}[
            self.by
        ]
        return Table(f"{what}, {where}", columns, tuple(lines[: self.top]), "; ".join(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """One object, and one of the processes that hold it."""

    id: str
    bytes: int
    nodes: frozenset[str]
    pid: str
    site: str
    kinds: frozenset[str] = field(default=frozenset())  # of reference

    @property
    def job(self) -> str:
        return job_of_object(self.id)


def _held(rows: Iterable[Mapping[str, Any]]) -> Iterable[_Held]:
    """Return the objects behind Ray's rows, largest first."""
    found: dict[str, _Held] = {}
    for row in rows:
        if row.get("reference_type") == _NO_OBJECT:
            continue
        one = _Held(
            id=str(row.get("object_id") or ""),
            bytes=max(_whole(row.get("object_size")), 0),  # -1 is a size that is not known
            nodes=frozenset({str(row.get("ip") or "")} - {""}),
            pid=str(row.get("pid") or ""),
            site=_site(row.get("call_site")),
            kinds=frozenset({str(row.get("reference_type") or "")} - {""}),
        )
        old = found.get(one.id, one)
        # Who put the object knows the call site; mere borrowers do not.
        told = one if old.site in _SAYS_NOTHING else old
        found[one.id] = replace(
            told, bytes=max(old.bytes, one.bytes), nodes=old.nodes | one.nodes, kinds=old.kinds | one.kinds
        )
    return sorted(found.values(), key=lambda each: (-each.bytes, each.id))


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _site(value: object) -> str:
    """Return the innermost frame of a call site, `(put object) | file:function:line | caller…`."""
    frames = [part.strip() for part in str(value or "").split("|")]
    return one_line(frames[1] if len(frames) > 1 and frames[0].startswith("(") else frames[0], 120)


def _held_at(node: str, held: list[_Held]) -> tuple[list[_Held], str, list[str]]:
    """Return the objects of the node, where that is in words, and what must be said about it."""
    if not node:
        return held, "whole cluster", ["the alert's labels name no node"]
    there = [each for each in held if node in each.nodes]
    if there:
        return there, f"held at {node}", []
    return held, "whole cluster", [f"Ray knows of no object held at {node}"]


def _jobs(ray: RayApi) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Return the jobs by their ids, and what must be said if they could not be had."""
    try:
        return {str(job["job_id"]): job for job in ray.jobs() if job.get("job_id")}, []
    except ClusterError as error:
        return {}, [f"jobs are shown by id: {one_line(str(error), 120)}"]


def _name(job_id: str, jobs: Mapping[str, Mapping[str, Any]]) -> str:
    return str(jobs.get(job_id, {}).get("submission_id") or (f"job {job_id}" if job_id else "unknown"))


Lines = tuple[tuple[str, ...], list[tuple[str, ...]]]


def _by_object(held: Sequence[_Held], jobs: Mapping[str, Mapping[str, Any]]) -> Lines:
    sites = any(each.site not in _SAYS_NOTHING for each in held)
    return (
        ("size", "owner", "pid", "call site" if sites else "held as"),
        [
            (
                size(each.bytes),
                _name(each.job, jobs),
                each.pid,
                each.site if sites else ", ".join(sorted(each.kinds)),
            )
            for each in held
        ],
    )


def _by_callsite(held: Sequence[_Held], jobs: Mapping[str, Mapping[str, Any]]) -> Lines:
    totals = _totals((each.site or _NO_SITE, _name(each.job, jobs), each.bytes) for each in held)
    return ("size", "objects", "owner", "call site"), [
        (size(total), f"{count:,}", job, site) for (site, job), (total, count) in totals
    ]


def _by_job(held: Sequence[_Held], jobs: Mapping[str, Mapping[str, Any]]) -> Lines:
    totals = _totals((each.job, "", each.bytes) for each in held)
    return ("size", "objects", "owner", "entrypoint"), [
        (
            size(total),
            f"{count:,}",
            _name(job, jobs),
            one_line(str(jobs.get(job, {}).get("entrypoint") or ""), 120),
        )
        for (job, _), (total, count) in totals
    ]


_TABLES = {By.OBJECT: _by_object, By.CALLSITE: _by_callsite, By.JOB: _by_job}


def _totals(parts: Iterable[tuple[str, str, int]]) -> list[tuple[tuple[str, str], tuple[int, int]]]:
    """Return bytes and counts by key, largest first."""
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for first, second, count in parts:
        total, number = totals.get((first, second), (0, 0))
        totals[first, second] = (total + count, number + 1)
    return sorted(totals.items(), key=lambda item: (-item[1][0], item[0]))

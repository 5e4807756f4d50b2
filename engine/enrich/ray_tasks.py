"""What runs and what waits: unfinished tasks, from Ray's State API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.errors import ClusterError
from engine.lang.readable import plural, span
from engine.model.alert import Evidence, Table, Text
from engine.model.ports import RayApi, Scene
from engine.ray.identity import node_of
from engine.registry import enricher

_ROWS_OF_AN_ANSWER = 10_000  # Ray never sends more
_ENDED = frozenset({"FINISHED", "FAILED"})
_RUNS = frozenset({"RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT"})


@enricher("ray_tasks")
@dataclass(frozen=True, slots=True, kw_only=True)
class RayTasks:
    """The running tasks of the alert's node and the tasks that wait for a node, by name and state.

    Those that run longest come first. A task that waits belongs to no node yet, so all of the cluster's are
    shown.
    """

    top: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.top <= 50:
            raise ValueError(f"top must be from 1 to 50, not {self.top}")

    def collect(self, scene: Scene) -> Evidence:
        if scene.ray is None:
            return Text("Tasks", "No Ray cluster in engine.yaml fits this alert's labels.")
        rows = scene.ray.tasks()
        tasks = [row for row in rows if row.get("state") not in _ENDED and row.get("type") != "DRIVER_TASK"]
        ids, notes = _node_ids(scene)
        tasks = [row for row in tasks if not ids or not row.get("node_id") or row["node_id"] in ids]
        if not tasks:
            return Text("Tasks", "; ".join(["No task runs or waits", *notes]))
        groups = sorted(_grouped(tasks, _submissions(scene.ray), scene.at), key=lambda group: group.order)
        waiting = sum(group.count for group in groups if not group.runs)
        notes.insert(0, f"{plural(len(tasks) - waiting, 'task')} running, {waiting:,} waiting")
        if len(groups) > self.top:
            notes.insert(1, f"{plural(len(groups) - self.top, 'more row')} not shown")
        if len(rows) >= _ROWS_OF_AN_ANSWER:
            notes.append(f"partial: Ray sends at most {_ROWS_OF_AN_ANSWER:,} tasks")
        where = node_of(scene.alert.labels) if ids else "whole cluster"
        lines = tuple(group.row for group in groups[: self.top])
        return Table(f"Tasks, {where}", ("longest", "tasks", "state", "name", "job"), lines, "; ".join(notes))


def _node_ids(scene: Scene) -> tuple[frozenset[str], list[str]]:
    """Return Ray's ids of the alert's node, none for all nodes, and what must be said about it."""
    node = node_of(scene.alert.labels)
    if not node:
        return frozenset(), ["the alert's labels name no node"]
    assert scene.ray is not None
    ids = frozenset(
        str(row["node_id"])
        for row in scene.ray.nodes()
        if row.get("node_id") and node in (row.get("node_ip"), row.get("node_name"))
    )
    return ids, [] if ids else [f"Ray knows no node {node}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Tasks of one name in one state."""

    name: str
    state: str
    jobs: frozenset[str]
    count: int
    longest: float | None  # seconds, None if Ray does not say

    @property
    def runs(self) -> bool:
        return self.state in _RUNS

    @property
    def order(self) -> tuple[bool, float, str, str]:
        return not self.runs, -(self.longest or 0.0), self.name, self.state

    @property
    def row(self) -> tuple[str, ...]:
        longest = "" if self.longest is None else span(self.longest)
        job = next(iter(self.jobs)) if len(self.jobs) == 1 else plural(len(self.jobs), "job")
        return longest, f"{self.count:,}", self.state, self.name, job


def _submissions(ray: RayApi) -> dict[str, str]:
    """Return the submission ids by job id; none if they cannot be had, and then the ids are shown."""
    try:
        return {str(job.get("job_id")): str(job.get("submission_id") or "") for job in ray.jobs()}
    except ClusterError:
        return {}


def _grouped(
    tasks: Iterable[Mapping[str, Any]], submissions: Mapping[str, str], at: datetime
) -> Iterable[_Group]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in tasks:
        name = str(row.get("name") or row.get("func_or_class_name") or "unnamed")
        groups.setdefault((name, str(row.get("state") or "unknown")), []).append(row)
    for (name, state), rows in groups.items():
        begun = [since for row in rows if (since := _since(row, runs=state in _RUNS)) is not None]
        jobs = {str(row.get("job_id") or "unknown") for row in rows}
        yield _Group(
            name=name,
            state=state,
            jobs=frozenset(submissions.get(job, "") or job for job in jobs),
            count=len(rows),
            # Ray's clock and the engine's differ; a task that starts in the future has just started.
            longest=max(at.timestamp() - min(begun), 0.0) if begun else None,
        )


def _since(row: Mapping[str, Any], *, runs: bool) -> float | None:
    """Return in Unix seconds when the task began to run, or to wait."""
    milliseconds = row.get("start_time_ms" if runs else "creation_time_ms")
    return milliseconds / 1000 if isinstance(milliseconds, int | float) and milliseconds > 0 else None

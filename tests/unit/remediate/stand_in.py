"""A Ray cluster of the Job API's rules, that can be told to misbehave."""

from __future__ import annotations

from typing import Any

from engine.errors import ActionTimeout, ClusterError


class StandInRay:
    """Keeps jobs as Ray does: an id is accepted once; a repeated submit of it changes nothing."""

    def __init__(self) -> None:
        self.statuses: dict[str, str] = {}
        self.submissions: list[str] = []  # every submit that was accepted as a new job
        self.stops: list[str] = []
        self.final = "SUCCEEDED"
        self.submit_times_out = False  # after the job was accepted
        self.down = False

    def job(self, submission_id: str) -> dict[str, Any] | None:
        self._reach()
        status = self.statuses.get(submission_id)
        return (
            None
            if status is None
            else {"submission_id": submission_id, "status": status, "message": "said Ray"}
        )

    def submit(self, submission_id: str, entrypoint: str, **options: Any) -> None:
        self._reach()
        if submission_id not in self.statuses:
            self.statuses[submission_id] = "PENDING"
            self.submissions.append(submission_id)
        if self.submit_times_out:
            self.submit_times_out = False
            raise ActionTimeout("no answer in 10 s")

    def finish(self, submission_id: str, status: str | None = None) -> None:
        self.statuses[submission_id] = status or self.final

    def stop(self, submission_id: str) -> None:
        self._reach()
        self.stops.append(submission_id)
        self.statuses[submission_id] = "STOPPED"

    def logs(self, submission_id: str) -> str:
        return "starting\nglobal gc: 80 MiB before, 10 MiB after\n"

    def ensure_package(self, name: str, content: bytes) -> str:
        self._reach()
        return f"gcs://{name}"

    def jobs(self) -> list[dict[str, Any]]:
        return [
            {"submission_id": id_, "status": status, "job_id": None} for id_, status in self.statuses.items()
        ]

    def objects(self) -> list[dict[str, Any]]:
        return []

    def nodes(self) -> list[dict[str, Any]]:
        return []

    def tasks(self) -> list[dict[str, Any]]:
        return []

    def _reach(self) -> None:
        if self.down:
            raise ClusterError("http://ray:8265: connection refused")

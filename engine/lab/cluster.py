"""A Ray cluster that exists only in a test: one job owns all objects, and every call succeeds."""

from __future__ import annotations

from typing import Any

OWNER_JOB, OWNER = "01000000", "test-job"
_OBJECT = "f" * 40 + OWNER_JOB + "01000000"


class LabRay:
    """Answers as Ray would about a cluster with one job; remembers what it was asked to do."""

    def __init__(self) -> None:
        self.statuses = {OWNER: "RUNNING"}

    def nodes(self) -> list[dict[str, Any]]:
        return []

    def objects(self) -> list[dict[str, Any]]:
        return [{"object_id": _OBJECT, "object_size": 1 << 30, "ip": "127.0.0.1", "pid": 1, "type": "DRIVER"}]

    def tasks(self) -> list[dict[str, Any]]:
        return []

    def jobs(self) -> list[dict[str, Any]]:
        return [
            {"submission_id": id_, "job_id": OWNER_JOB if id_ == OWNER else None, "status": status}
            for id_, status in self.statuses.items()
        ]

    def job(self, submission_id: str) -> dict[str, Any] | None:
        status = self.statuses.get(submission_id)
        return None if status is None else {"submission_id": submission_id, "status": status}

    def submit(self, submission_id: str, entrypoint: str, **options: Any) -> None:
        self.statuses[submission_id] = "SUCCEEDED"

    def stop(self, submission_id: str) -> None:
        self.statuses[submission_id] = "STOPPED"

    def logs(self, submission_id: str) -> str:
        return ""

    def ensure_package(self, name: str, content: bytes) -> str:
        return f"gcs://{name}"

"""Stop a Ray job through the Job API."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.ports import Answer, Progress, RayApi
from engine.registry import action

_OVER = ("SUCCEEDED", "FAILED", "STOPPED")


@action("ray_stop_job")
@dataclass(frozen=True, slots=True, kw_only=True)
class RayStopJob:
    """Stops the job with the submission id `job`, and waits until Ray says that it is over.

    Its objects are freed within seconds. Its detached actors stay. It cannot be undone: the owner has to
    submit the job again. A driver that was not submitted through the Job API has no submission id.
    """

    job: str

    def fix(self, folder: str) -> RayStopJob:
        return self

    def describe(self) -> str:
        return f"stop Ray job {self.job}; its objects are freed, its owner has to submit it again"

    def start(self, ray: RayApi, key: str) -> Answer:
        answer = self.poll(ray, key)
        if answer.progress is Progress.RUNNING:
            ray.stop(self.job)
        return answer

    def poll(self, ray: RayApi, key: str) -> Answer:
        job = ray.job(self.job)
        if job is None:
            return Answer(progress=Progress.FAILED, message=f"Ray knows no job {self.job}")
        status = str(job.get("status", ""))
        over = status in _OVER
        return Answer(
            progress=Progress.SUCCEEDED if over else Progress.RUNNING,
            message=f"Ray job {self.job} is {status}",
        )

    def cancel(self, ray: RayApi, key: str) -> None:
        """Do nothing: a stop that was asked for cannot be taken back."""

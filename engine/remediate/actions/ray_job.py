"""Run code of ours inside the cluster, as a Ray job."""

from __future__ import annotations

import hashlib
import io
import shlex
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.errors import ActionError
from engine.model.ports import Answer, Progress, RayApi
from engine.registry import action

_PROGRESS = {"SUCCEEDED": Progress.SUCCEEDED, "FAILED": Progress.FAILED, "STOPPED": Progress.FAILED}


@action("ray_job")
@dataclass(frozen=True, slots=True, kw_only=True)
class RayJob:
    """Submits a Ray job and follows it to its end.

    `entrypoint` is a list; each element reaches the program as one argument, whatever it holds. `code` is
    a folder of Python beside the playbook that travels with the job, so that nothing has to be installed
    in the cluster: `[python, -m, ray_ops.global_gc]` runs `ray_ops/global_gc.py`. The submission id is
    the idempotency key: Ray refuses to use one twice.
    """

    entrypoint: tuple[str, ...]
    num_cpus: float = 0
    code: str = "ray_ops"
    digest: str = field(default="", metadata={"key": None})  # of the code, noted while planning

    def fix(self, folder: str) -> RayJob:
        path = str((Path(folder) / self.code).resolve())
        return replace(self, code=path, digest=hashlib.sha256(_archive(path)).hexdigest())

    def describe(self) -> str:
        return f"submit a Ray job: {shlex.join(self.entrypoint)}"

    def start(self, ray: RayApi, key: str) -> Answer:
        if (job := ray.job(key)) is not None:
            return _answer(job, ray, key)
        content = _archive(self.code)
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.digest:
            raise ActionError(f"{self.code} was changed after this run was planned; a new run is needed")
        uri = ray.ensure_package(f"_ray_pkg_{digest[:32]}.zip", content)
        ray.submit(
            key,
            shlex.join(self.entrypoint),
            runtime_env={"working_dir": uri},
            entrypoint_num_cpus=self.num_cpus,
            metadata={"submitted_by": "ray-alert-engine"},
        )
        return Answer(progress=Progress.RUNNING, message=f"submitted Ray job {key}")

    def poll(self, ray: RayApi, key: str) -> Answer:
        job = ray.job(key)
        if job is None:
            return Answer(progress=Progress.FAILED, message=f"Ray knows no job {key} any more")
        return _answer(job, ray, key)

    def cancel(self, ray: RayApi, key: str) -> None:
        ray.stop(key)


def _answer(job: dict[str, Any], ray: RayApi, key: str) -> Answer:
    status = str(job.get("status", ""))
    progress = _PROGRESS.get(status, Progress.RUNNING)
    if progress is Progress.RUNNING:
        return Answer(progress=progress, message=f"the job is {status}")
    said = _last_line(ray.logs(key) if status == "SUCCEEDED" else str(job.get("message") or ""))
    return Answer(progress=progress, message=f"the job {status}" + (f": {said}" if said else ""))


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def _archive(folder: str) -> bytes:
    """Return the folder's Python as a zip that is the same, bit for bit, for the same code."""
    root = Path(folder)
    files = sorted(root.rglob("*.py"))
    if not files:
        raise ActionError(f"no Python code in {folder}; a ray_job's `code` is a folder beside its playbook")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file in files:
            archive.writestr(
                zipfile.ZipInfo(f"{root.name}/{file.relative_to(root).as_posix()}"), file.read_bytes()
            )
    return buffer.getvalue()

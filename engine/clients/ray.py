"""Ray's HTTP APIs: State, Job and packages, as the dashboard of a cluster serves them.

Ray itself is not imported, so the engine's versions of Python and Ray need not be the cluster's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from engine.clients.secret import SecretFile
from engine.clients.wording import hide, host_of, telling_line
from engine.errors import ActionTimeout, ClusterError
from engine.model.duration import Duration

MOST_ROWS = 10_000  # the State API refuses to be asked for more
MAX_BYTES = 64 * 1024 * 1024  # of an answer; 10,000 tasks in detail are about 15 MB

_UNFINISHED = [("filter_keys", "state"), ("filter_predicates", "!=")] * 2
_PASSED_ON = (502, 504)  # a proxy's answers when it does not know what became of the request


class RayClient:
    """The APIs of one cluster. Threads may share it; each call has a connection of its own.

    `address` is the dashboard's, such as http://10.0.0.1:8265. `timeout` holds for each whole answer.
    """

    def __init__(self, address: str, *, token_file: str | None = None, timeout: Duration) -> None:
        self._address = (address if "://" in address else f"http://{address}").rstrip("/")
        self._where = f"Ray at {host_of(self._address)}"
        self._token = SecretFile(token_file) if token_file else None
        self._timeout = timeout

    def version(self) -> str:
        """Return Ray's version."""
        return str(self._object("/api/version").get("ray_version", ""))

    def check_gcs(self) -> None:
        """Ask the dashboard whether GCS answers it; ClusterError if not. It takes no token."""
        self._call("GET", "/api/gcs_healthz")

    def actors(self) -> list[dict[str, Any]]:
        """Return the dashboard's actors, dead ones too, with what their processes use: `processStats`."""
        path = "/logical/actors"
        data = self._object(path).get("data")
        actors = data.get("actors") if isinstance(data, dict) else None
        return self._rows(path, list(actors.values()) if isinstance(actors, dict) else None)

    def nodes(self) -> list[dict[str, Any]]:
        return self._state("nodes")

    def objects(self) -> list[dict[str, Any]]:
        return self._state("objects")

    def tasks(self) -> list[dict[str, Any]]:
        values = [("filter_values", "FINISHED"), ("filter_values", "FAILED")]
        return self._state("tasks", [*_UNFINISHED, *values])

    def jobs(self) -> list[dict[str, Any]]:
        return self._rows("/api/jobs/", self._json("GET", "/api/jobs/"))

    def job(self, submission_id: str) -> dict[str, Any] | None:
        try:
            return self._object(_job_path(submission_id))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def submit(self, submission_id: str, entrypoint: str, **options: Any) -> None:
        from engine.clients.http import NoReply  # noqa: PLC0415 - httpx is slow to import

        body = json.dumps({**options, "entrypoint": entrypoint, "submission_id": submission_id}).encode()
        doubt = f"job {submission_id} may have been accepted"
        try:
            status, answer = self._exchange("POST", "/api/jobs/", content=body)
        except NoReply as error:
            if error.sent:
                raise ActionTimeout(f"{self._where} {error}; {doubt}") from error
            raise ClusterError(f"{self._where} {error}") from error
        if status in _PASSED_ON:
            raise ActionTimeout(f"{self._failure('POST', '/api/jobs/', status, answer)}; {doubt}")
        # Ray has no status of its own for this.
        if status == 500 and b"already exists" in answer and self.job(submission_id) is not None:
            return
        self._require_success("POST", "/api/jobs/", status, answer)

    def stop(self, submission_id: str) -> None:
        self._json("POST", f"{_job_path(submission_id)}/stop")

    def logs(self, submission_id: str) -> str:
        return str(self._object(f"{_job_path(submission_id)}/logs").get("logs", ""))

    def ensure_package(self, name: str, content: bytes) -> str:
        path = f"/api/packages/gcs/{quote(name, safe='')}"
        status, answer = self._reply("GET", path)
        if status == 404:
            self._call("PUT", path, content=content)
        else:
            self._require_success("GET", path, status, answer)
        return f"gcs://{name}"

    def _state(self, resource: str, filters: Iterable[tuple[str, str]] = ()) -> list[dict[str, Any]]:
        """Return the rows that the State API has of a resource."""
        path = f"/api/v0/{resource}"
        params = [("detail", "1"), ("limit", str(MOST_ROWS)), *filters]
        answer = self._json("GET", path, params)
        try:
            rows = answer["data"]["result"]["result"]
        except (KeyError, TypeError, IndexError):
            rows = None
        return self._rows(path, rows)

    def _rows(self, path: str, rows: Any) -> list[dict[str, Any]]:
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise self._strange(path, "no list of objects")
        return rows

    def _object(self, path: str) -> dict[str, Any]:
        answer = self._json("GET", path)
        if not isinstance(answer, dict):
            raise self._strange(path, "no object")
        return answer

    def _json(self, method: str, path: str, params: Iterable[tuple[str, str]] = ()) -> Any:
        body = self._call(method, path, params=params)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise self._strange(path, telling_line(body) or "nothing") from None

    def _strange(self, path: str, what: str) -> ClusterError:
        return ClusterError(
            f"{self._where}: {path} answered as no Ray does: {what}; is the address a dashboard's?"
        )

    def _call(
        self,
        method: str,
        path: str,
        *,
        params: Iterable[tuple[str, str]] = (),
        content: bytes | None = None,
    ) -> bytes:
        """Return the body of a successful answer."""
        status, body = self._reply(method, path, params=params, content=content)
        self._require_success(method, path, status, body)
        return body

    def _require_success(self, method: str, path: str, status: int, body: bytes) -> None:
        if not 200 <= status < 300:
            raise ClusterError(self._failure(method, path, status, body), status=status)

    def _failure(self, method: str, path: str, status: int, body: bytes) -> str:
        """Return in one line what Ray complains of."""
        words = _message(body) or "nothing more"
        if self._token is not None:
            words = hide(words, [self._token.read()])
        return f"{self._where}: {method} {path} answered {status}: {words}{self._way_out(status)}"

    def _way_out(self, status: int) -> str:
        if status not in (401, 403):
            return ""
        if self._token is None:
            return "; the cluster wants a token (RAY_AUTH_MODE=token): set token_file below ray.clusters"
        return f"; it does not take the token in {self._token.path} (RAY_AUTH_MODE=token there)"

    def _reply(self, method: str, path: str, **request: Any) -> tuple[int, bytes]:
        """Return status and body, whatever the status."""
        from engine.clients.http import NoReply  # noqa: PLC0415 - httpx is slow to import

        try:
            return self._exchange(method, path, **request)
        except NoReply as error:
            raise ClusterError(f"{self._where} {error} ({method} {path})", late=error.late) from error

    def _exchange(self, method: str, path: str, **request: Any) -> tuple[int, bytes]:
        """Return status and body; raises NoReply."""
        from engine.clients.http import ask  # noqa: PLC0415 - httpx is slow to import

        headers = {"Content-Type": "application/json"} if method == "POST" else {}
        if self._token is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token.read()}"
            except OSError as error:
                raise ClusterError(f"{self._where} was not asked: {error}") from None
        reply = ask(
            method,
            f"{self._address}{path}",
            headers=headers,
            seconds=self._timeout.total_seconds(),
            max_bytes=MAX_BYTES,
            **request,
        )
        return reply.status, reply.body


def _job_path(submission_id: str) -> str:
    return f"/api/jobs/{quote(submission_id, safe='')}"


def _message(body: bytes) -> str:
    """Return what an error's body says: the State API's `msg`, else the telling line."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    message = answer.get("msg") if isinstance(answer, dict) else None
    return (
        telling_line(message.encode("utf-8", "replace")) if isinstance(message, str) else telling_line(body)
    )

"""A proxy between the engine and a real server, in which a test can cut the line at a chosen moment."""

from __future__ import annotations

import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import Self

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Forwarder:
    """Hands requests on to `target`. `after` is called with method, path and status once it has answered.

    With `broken` set, requests are answered with that status and not handed on.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self.after: Callable[[str, str, int], None] = lambda *_: None
        self.broken: int | None = None
        forwarder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length) if length else None
                status, content = forwarder._ask(
                    self.command, self.path, body, self.headers.get("Content-Type")
                )
                forwarder.after(self.command, self.path, status)
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def _ask(self, method: str, path: str, body: bytes | None, kind: str | None) -> tuple[int, bytes]:
        if self.broken is not None:
            return self.broken, b"broken on purpose"
        request = urllib.request.Request(self.target + path, data=body, method=method)
        if kind:
            request.add_header("Content-Type", kind)
        try:
            with _OPENER.open(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

"""A stand-in for Slack's Web API on loopback, for the demo and for tests.

It keeps messages with their history and files in memory, and as files in a folder if one is named. It is
strict where Slack is: tokens, channel ids, block schemas, limits, files that were not shared. Told to, it
fails in Slack's ways. It knows one workspace, in which every channel exists unless channels are named.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import itertools
import json
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from deploy.demo.slack_schema import MAX_ALL_BLOCKS, MAX_TEXT, characters, problems

Json = dict[str, Any]


class ApiError(Exception):
    """A refusal, with Slack's word for it."""

    def __init__(self, word: str, **more: object) -> None:
        super().__init__(word)
        self.body: Json = {"ok": False, "error": word, **more}


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A way to fail: an HTTP status, a refusal in words, or no answer for `hang` seconds."""

    status: int = 200
    error: str = ""
    retry_after: int | None = None
    hang: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Version:
    """A message as it was before an update."""

    text: str
    blocks: list[Json]


@dataclass(frozen=True, kw_only=True)
class Message:
    """A message as it is now; `ts` is its time and its identity."""

    channel: str
    channel_name: str
    ts: str
    text: str
    blocks: list[Json] = field(default_factory=list)
    thread_ts: str | None = None
    broadcast: bool = False
    files: tuple[str, ...] = ()
    history: tuple[Version, ...] = ()


@dataclass(frozen=True, kw_only=True)
class File:
    """An upload; it can be seen in the channels it was shared with."""

    id: str
    name: str
    title: str
    content: bytes = b""
    channels: tuple[str, ...] = ()


class SlackStub:
    """Use as a context manager; `url` is what a client takes as the API's address."""

    def __init__(
        self,
        port: int = 0,
        folder: Path | None = None,
        *,
        token: str | None = None,
        channels: Iterable[str] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder, self._token, self._now = folder, token, now
        self._names = None if channels is None else {name.lstrip("#") for name in channels}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._serial = itertools.count(1)
        self._ids: dict[str, str] = {}
        self._messages: dict[tuple[str, str], Message] = {}
        self._files: dict[str, File] = {}
        self._failures: list[tuple[str, Failure]] = []
        self.calls: list[tuple[str, Json]] = []
        self._server = _Server(port, self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The API's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/api/"

    @property
    def messages(self) -> list[Message]:
        """Every message, oldest first; replies too."""
        with self._lock:
            return sorted(self._messages.values(), key=lambda message: message.ts)

    @property
    def files(self) -> dict[str, File]:
        """Every file, by its id."""
        with self._lock:
            return dict(self._files)

    def fail(self, method: str, failure: Failure, times: int = 1) -> None:
        """Make the next calls of a method fail; `upload` is the transfer of a file's bytes, `*` any call."""
        with self._lock:
            self._failures += [(method, failure)] * times

    def delete(self, message: Message) -> None:
        """Remove a message, as a person in the channel can."""
        with self._lock:
            del self._messages[message.channel, message.ts]

    # What requests come to.

    def take_failure(self, method: str) -> Failure | None:
        """Return the failure meant for this call, once."""
        with self._lock:
            for index, (meant, failure) in enumerate(self._failures):
                if meant in (method, "*"):
                    del self._failures[index]
                    return failure
        return None

    def hang(self, seconds: float) -> None:
        """Wait, but no longer than the stub lives."""
        self._stopping.wait(seconds)

    def answer(self, method: str, payload: Json, token: str) -> Json:
        """Return Slack's answer to a call."""
        with self._lock:
            self.calls.append((method, payload))
            try:
                self._authorize(token)
                return {"ok": True, **self._method(method)(payload)}
            except ApiError as error:
                return error.body

    def _authorize(self, token: str) -> None:
        if not token or (self._token is not None and token != self._token):
            raise ApiError("invalid_auth" if token else "not_authed")

    def _method(self, name: str) -> Callable[[Json], Json]:
        known: dict[str, Callable[[Json], Json]] = {
            "auth.test": self._auth_test,
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "files.getUploadURLExternal": self._upload_url,
            "files.completeUploadExternal": self._complete_upload,
        }
        if name not in known:
            raise ApiError("unknown_method", req_method=name)
        return known[name]

    def receive(self, file_id: str, content: bytes) -> bool:
        """Take the bytes of a file that was announced."""
        with self._lock:
            if file_id not in self._files:
                return False
            self._files[file_id] = replace(self._files[file_id], content=content)
            return True

    def _auth_test(self, payload: Json) -> Json:
        return {
            "url": self.url,
            "team": "demo",
            "user": "engine",
            "team_id": "T1",
            "user_id": "U1",
            "bot_id": "B1",
        }

    def _post(self, payload: Json) -> Json:
        channel = self._channel(payload.get("channel"))
        text, blocks = self._content(channel, payload)
        thread = payload.get("thread_ts")
        if thread is not None and (channel, thread) not in self._messages:
            raise ApiError("thread_not_found")
        broadcast = bool(payload.get("reply_broadcast"))
        message = self._add(channel, text, blocks, thread, broadcast=broadcast)
        return self._told(message)

    def _update(self, payload: Json) -> Json:
        channel, ts = str(payload.get("channel")), str(payload.get("ts"))
        if channel not in self._ids.values():
            raise ApiError("channel_not_found")  # a name will not do here
        old = self._messages.get((channel, ts))
        if old is None:
            raise ApiError("message_not_found")
        text, blocks = self._content(channel, payload)
        history = (*old.history, Version(text=old.text, blocks=old.blocks))
        return self._told(self._keep(replace(old, text=text, blocks=blocks, history=history)))

    def _upload_url(self, payload: Json) -> Json:
        name = payload.get("filename")
        if not name or not str(payload.get("length", "")).isdigit():
            raise ApiError(
                "invalid_arguments",
                response_metadata={"messages": ["[ERROR] missing required field: length"]},
            )
        file_id = f"F{next(self._serial):010d}"
        self._files[file_id] = File(id=file_id, name=str(name), title=str(name))
        return {"upload_url": f"{self.url.removesuffix('api/')}upload/v1/{file_id}", "file_id": file_id}

    def _complete_upload(self, payload: Json) -> Json:
        wanted = payload.get("files")
        if not isinstance(wanted, list) or not all(isinstance(each, dict) for each in wanted):
            raise ApiError("invalid_arguments")
        ids = [str(each.get("id")) for each in wanted]
        if not all(file_id in self._files and self._files[file_id].content for file_id in ids):
            raise ApiError("file_not_found")
        for each in wanted:
            kept = self._files[each["id"]]
            self._files[kept.id] = replace(kept, title=str(each.get("title") or kept.title))
        if (channel := payload.get("channel_id")) is not None:
            self._share(str(channel), payload, ids)
        return {"files": [self._described(self._files[file_id]) for file_id in ids]}

    def _share(self, channel: str, payload: Json, ids: list[str]) -> None:
        if channel not in self._ids.values():
            raise ApiError("channel_not_found")
        thread = payload.get("thread_ts")
        for file_id in ids:
            kept = self._files[file_id]
            self._files[file_id] = replace(kept, channels=(*kept.channels, channel))
            if self._folder is not None:
                self._write(f"{file_id}-{Path(kept.name).name}", kept.content)
        self._add(channel, str(payload.get("initial_comment") or ""), [], thread, files=tuple(ids))

    def _described(self, kept: File) -> Json:
        kind = "png" if kept.content.startswith(b"\x89PNG") else "text"
        return {
            "id": kept.id,
            "name": kept.name,
            "title": kept.title,
            "size": len(kept.content),
            "filetype": kind,
        }

    def _channel(self, given: object) -> str:
        """Return the id of a channel that is named by its name or by its id."""
        name = str(given or "").lstrip("#")
        if name in self._ids.values():
            return name
        if not name or (self._names is not None and name not in self._names):
            raise ApiError("channel_not_found")
        digest = base64.b32encode(hashlib.sha256(name.encode()).digest()).decode()
        return self._ids.setdefault(name, f"C{digest[:10]}")

    def _content(self, channel: str, payload: Json) -> tuple[str, list[Json]]:
        text, blocks = payload.get("text") or "", payload.get("blocks") or []
        if not text and not blocks:
            raise ApiError("no_text")
        if len(text) > MAX_TEXT:
            raise ApiError("msg_too_long")
        found = problems(blocks) or list(self._unseen_files(channel, blocks))
        if found:
            messages = [f"[ERROR] {problem}" for problem in found]
            raise ApiError("invalid_blocks", errors=found, response_metadata={"messages": messages})
        if characters(blocks) > MAX_ALL_BLOCKS:
            raise ApiError("msg_blocks_too_long")
        return str(text), blocks

    def _unseen_files(self, channel: str, blocks: list[Json]) -> Iterable[str]:
        for index, block in enumerate(blocks):
            file_id = block.get("slack_file", {}).get("id") if block["type"] == "image" else None
            if file_id is not None and channel not in getattr(self._files.get(file_id), "channels", ()):
                yield f"invalid slack file [json-pointer:/blocks/{index}/slack_file]"

    def _add(
        self,
        channel: str,
        text: str,
        blocks: list[Json],
        thread: str | None,
        *,
        broadcast: bool = False,
        files: tuple[str, ...] = (),
    ) -> Message:
        name = next(name for name, known in self._ids.items() if known == channel)
        ts = f"{int(self._now())}.{next(self._serial):06d}"
        return self._keep(
            Message(
                channel=channel,
                channel_name=name,
                ts=ts,
                text=text,
                blocks=blocks,
                thread_ts=thread,
                broadcast=broadcast,
                files=files,
            )
        )

    def _keep(self, message: Message) -> Message:
        self._messages[message.channel, message.ts] = message
        if self._folder is not None:
            content = json.dumps(asdict(message), indent=1, ensure_ascii=False).encode()
            self._write(f"{message.channel_name}-{message.ts}.json", content)
        return message

    def _write(self, name: str, content: bytes) -> None:
        assert self._folder is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / name).write_bytes(content)

    def _told(self, message: Message) -> Json:
        inner = {
            "type": "message",
            "text": message.text,
            "blocks": message.blocks,
            "bot_id": "B1",
            "ts": message.ts,
        }
        return {"channel": message.channel, "ts": message.ts, "text": message.text, "message": inner}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, stub: SlackStub) -> None:
        super().__init__(("127.0.0.1", port), _Request)
        self.stub = stub


class _Request(http.server.BaseHTTPRequestHandler):
    """One request; the path names the method, as with Slack."""

    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing; what was called is in `calls`."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urllib.parse.urlsplit(self.path)
        upload = url.path.startswith("/upload/")
        method = "upload" if upload else url.path.removeprefix("/api/")
        failure = self.server.stub.take_failure(method)
        if failure is not None and self._fail(failure):
            return
        if upload:
            known = self.server.stub.receive(url.path.rpartition("/")[2], body)
            self._reply(200 if known else 404, f"OK - {len(body)}".encode(), "text/plain")
            return
        payload = _decode(body, self.headers.get("Content-Type", ""), url.query)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        self._reply(200, json.dumps(self.server.stub.answer(method, payload, token)).encode())

    def _fail(self, failure: Failure) -> bool:
        if failure.hang:
            self.server.stub.hang(failure.hang)
            return False
        body = {
            "ok": False,
            "error": failure.error or ("ratelimited" if failure.status == 429 else "fatal_error"),
        }
        more = {} if failure.retry_after is None else {"Retry-After": str(failure.retry_after)}
        self._reply(failure.status, json.dumps(body).encode(), more=more)
        return True

    def _reply(
        self,
        status: int,
        content: bytes,
        kind: str = "application/json; charset=utf-8",
        more: Mapping[str, str] = {},
    ) -> None:
        try:
            self.send_response(status)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(content)),
                **more,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except ConnectionError:
            pass  # the caller did not wait for it


def _decode(body: bytes, kind: str, query: str) -> Json:
    """Return a call's arguments: JSON, or a form whose structured values are JSON."""
    if kind.startswith("application/json"):
        return dict(json.loads(body or b"{}"))
    pairs = dict(urllib.parse.parse_qsl(query)) | dict(urllib.parse.parse_qsl(body.decode()))
    return {
        name: json.loads(value) if name in ("blocks", "files") else value for name, value in pairs.items()
    }

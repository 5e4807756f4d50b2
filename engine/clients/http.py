"""One HTTP request over httpx, bounded in time and size as a whole. Import it late: httpx is slow to."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpcore
import httpx

from engine.clients.bounds import Bounds, connect
from engine.clients.wording import fault, root_cause
from engine.model.settings import Tls

_HTTPCORE_FAULTS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
)
_FAULTS = (*_HTTPCORE_FAULTS, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)


class NoReply(Exception):
    """There was no whole answer: `sent`, the request may have arrived; `late`, there was none in time."""

    def __init__(self, message: str, *, sent: bool, late: bool = False) -> None:
        super().__init__(message)
        self.sent = sent
        self.late = late


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; `location` is where a redirect leads, which is not followed."""

    status: int
    body: bytes
    location: str = ""


def ask(
    method: str,
    url: str,
    *,
    seconds: float,
    max_bytes: int,
    headers: Mapping[str, str] | None = None,
    params: Iterable[tuple[str, str]] = (),
    content: bytes | None = None,
    tls: Tls | None = None,
) -> Reply:
    """Return the answer, whatever its status, or raise NoReply after `seconds` at the latest."""
    network = _Network(Bounds(seconds, max_bytes))
    sent_headers = {**(headers or {}), "Accept-Encoding": "identity"}
    try:
        client = httpx.Client(transport=_Transport(network, tls), trust_env=False)
        query = httpx.QueryParams(list(params))
        with (
            client,
            client.stream(method, url, headers=sent_headers, params=query, content=content) as response,
        ):
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise NoReply("compressed its answer, which it was asked not to do", sent=True)
            body = b"".join(response.iter_raw())
            return Reply(response.status_code, body, response.headers.get("Location", ""))
    except (httpx.InvalidURL, httpcore.UnsupportedProtocol, UnicodeError) as error:
        raise NoReply("cannot be asked: its address or a header is not one", sent=False) from error
    except _FAULTS as error:
        late = isinstance(root_cause(error), TimeoutError)
        words = f"gave no {f'whole answer within {seconds:g} s' if late else 'answer'}: {fault(error)}"
        raise NoReply(words, sent=network.connected, late=late) from error


class _Network(httpcore.NetworkBackend):
    """Opens the connection of one exchange."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.connected = False

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> _Stream:
        stream = _Stream(connect(host, port, self.bounds), self.bounds)
        self.connected = True
        return stream


class _Stream(httpcore.NetworkStream):
    """A connection that keeps the bounds of the exchange instead of the timeouts of its parts."""

    def __init__(self, connection: socket.socket, bounds: Bounds) -> None:
        self._connection = connection
        self._bounds = bounds

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        self._connection.settimeout(self._bounds.left())
        received = self._connection.recv(max_bytes)
        self._bounds.take(len(received))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._connection.settimeout(self._bounds.left())
            self._connection.sendall(buffer)
        except OSError as error:
            # A server may answer before it has read all; httpcore goes on to read after this error alone.
            raise httpcore.WriteError(error) from error

    def close(self) -> None:
        self._connection.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> _Stream:
        self._connection.settimeout(self._bounds.left())
        return _Stream(
            ssl_context.wrap_socket(self._connection, server_hostname=server_hostname), self._bounds
        )


class _Transport(httpx.BaseTransport):
    """httpx' own transport has no place for a network of ours, so this leads to httpcore beneath it."""

    def __init__(self, network: _Network, tls: Tls | None) -> None:
        context = None if tls is None else _context(tls)
        self._pool = httpcore.ConnectionPool(network_backend=network, ssl_context=context)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(answer.status, headers=answer.headers, stream=_Body(answer.stream))

    def close(self) -> None:
        self._pool.close()


def _context(tls: Tls) -> ssl.SSLContext:
    """Return what a server's certificate is held against, and ours; NoReply if a file of them is none."""
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except OSError as error:
        files = ", ".join(file for file in (tls.ca_file, tls.cert_file, tls.key_file) if file)
        raise NoReply(f"was not asked: cannot use what is in {files}: {fault(error)}", sent=False) from error
    if tls.insecure_skip_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class _Body(httpx.SyncByteStream):
    """A body that httpx reads from httpcore."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        self._stream.close()

"""A server on loopback that answers each connection as a script says, whether that is HTTP or not."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

LIFETIME = 20.0  # seconds after which a script is cut off, whatever the client does


class Request(NamedTuple):
    """What a client sent."""

    head: str
    body: bytes

    def header(self, name: str) -> str:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name.lower():
                return value.strip()
        return ""


class Peer:
    """One connection of a client, with what a script does to it."""

    def __init__(self, connection: socket.socket, gone: threading.Event) -> None:
        self._connection = connection
        self._gone = gone

    def read(self) -> Request:
        """Return the next request; ConnectionError at the connection's end."""
        head, body = self.read_head()
        while len(body) < int(Request(head, b"").header("Content-Length") or 0):
            body += self._receive()
        return Request(head, body)

    def read_head(self) -> Request:
        """Return the next request with what of its body has come with the head."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._receive()
        head, _, body = data.partition(b"\r\n\r\n")
        return Request(head.decode("latin-1"), body)

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def drip(self, data: bytes, pause: float = 0.02) -> None:
        """Send over and over, a piece at each pause, until the client goes."""
        while not self._gone.wait(pause):
            self._connection.sendall(data)

    def hold(self) -> None:
        """Say nothing until the client goes."""
        with contextlib.suppress(OSError):
            while self._connection.recv(4096):
                pass

    def answer(self, body: bytes | object, status: int = 200, headers: str = "") -> None:
        """Send a whole HTTP answer; what is not bytes is sent as JSON."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send(
            f"HTTP/1.1 {status} Whatever\r\n{headers}Content-Length: {len(payload)}\r\n\r\n".encode()
            + payload
        )

    def _receive(self) -> bytes:
        if not (data := self._connection.recv(65_536)):
            raise ConnectionError("the client has gone")
        return data


Script = Callable[[Peer], None]


@contextmanager
def serving(
    script: Script, wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain
) -> Iterator[str]:
    """Yield the URL of a server that runs `script` for each connection; `wrap` may put TLS around it."""
    gone = threading.Event()
    open_connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def converse(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.settimeout(LIFETIME)
            connection = wrap(connection)
            open_connections.append(connection)
            with connection:
                script(Peer(connection, gone))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while not gone.is_set():
                connection, _ = listener.accept()
                open_connections.append(connection)
                thread = threading.Thread(target=converse, args=(connection,), daemon=True)
                threads.append(thread)
                thread.start()

    listener = socket.create_server(("127.0.0.1", 0))
    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        gone.set()
        for each in (listener, *open_connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in (acceptor, *threads):
            thread.join(LIFETIME)


def answering(body: bytes | object, status: int = 200, headers: str = "") -> Script:
    """Return a script that gives the same answer to every request."""

    def script(peer: Peer) -> None:
        while True:
            peer.read()
            peer.answer(body, status, headers)

    return script

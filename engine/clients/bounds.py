"""Bounds on a whole exchange with a server, where sockets know only a limit between two bytes.

A server that sends a byte a second keeps every ordinary read timeout from ever passing.
"""

from __future__ import annotations

import queue
import socket
import threading
from typing import Any

from engine.clock import Stopwatch

_Address = tuple[int, int, int, str, Any]  # as socket.getaddrinfo has them


class TooLong(OSError):
    """The other side sent more bytes than were allowed for."""


class Bounds:
    """The time, in seconds from now, and the bytes that an exchange may take."""

    def __init__(self, seconds: float, max_bytes: int) -> None:
        self._seconds = seconds
        self._max_bytes = self._bytes_left = max_bytes
        self._watch = Stopwatch()

    def left(self) -> float:
        """Return the seconds that are left; TimeoutError if there are none."""
        left = self._seconds - self._watch.seconds()
        if left <= 0:
            raise TimeoutError("the time is up")
        return left

    def take(self, count: int) -> None:
        """Note that `count` more bytes came; TooLong if that was more than allowed."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise TooLong(f"more than {self._max_bytes:,} bytes")


def connect(host: str, port: int, bounds: Bounds) -> socket.socket:
    """Return a TCP connection to the first address of `host` that answers; OSError if none does in time."""
    addresses = _look_up(host, port, bounds)
    failure: OSError | None = None
    for tried, (family, kind, protocol, _, address) in enumerate(addresses):
        connection = socket.socket(family, kind, protocol)
        try:
            # A dead address leaves time for those after it.
            connection.settimeout(bounds.left() / (len(addresses) - tried))
            connection.connect(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(bounds.left())
        except OSError as error:
            connection.close()
            failure = error
        else:
            return connection
    raise failure or OSError(f"{host} has no address")


def _look_up(host: str, port: int, bounds: Bounds) -> list[_Address]:
    """Return the addresses of `host`. A resolver cannot be interrupted: when it is slow it is left behind."""
    answers: queue.SimpleQueue[list[_Address] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)))
        except OSError as error:
            answers.put(error)
        except UnicodeError:
            answers.put(OSError(f"{host!r} is no host name"))

    threading.Thread(target=ask, name="look-up", daemon=True).start()
    try:
        answer = answers.get(timeout=bounds.left())
    except queue.Empty:
        raise TimeoutError(f"the name {host} was not resolved in time") from None
    if isinstance(answer, OSError):
        raise answer
    return answer

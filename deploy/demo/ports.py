"""Free ports on loopback, so that several clusters, demos and test runs can share one machine.

Ports are taken below the range from which the kernel serves outgoing connections: one of those could
otherwise sit on a port between our look and the use of it. A node of Ray needs many ports, some of which it
opens minutes later, so it gets a block, and the block is claimed by listening on its first port. The kernel
gives the claim back when we die; a lock file would stay.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

import psutil

EVERY_ADDRESS = ""
BLOCK_SIZE = 128
BLOCKS = range(11_008, 27_008, BLOCK_SIZE)
SINGLES = range(27_008, 32_000)


class PortTaken(RuntimeError):
    """A port that has to be free is not."""


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """True if a server could listen on the port now."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on, nor will unless someone asks for it by number."""
    for port in random.sample(SINGLES, len(SINGLES)):
        if is_free(port, host):
            return port
    raise PortTaken(f"no port from {SINGLES.start} to {SINGLES.stop - 1} is free on {host}")


def require_free(ports: Mapping[str, int], host: str = "127.0.0.1") -> None:
    """Raise `PortTaken`, which names every port that is in use, what it is wanted for, and whom to stop."""
    complaints = [
        f"port {port} on {host}, wanted for {purpose}, is in use by {_holder(port)}"
        for purpose, port in ports.items()
        if not is_free(port, host)
    ]
    if complaints:
        raise PortTaken("; ".join(complaints))


def _holder(port: int) -> str:
    """Who listens on the port, and how to end it."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        connections = []
    for connection in connections:
        if not (connection.status == psutil.CONN_LISTEN and connection.laddr and connection.pid):
            continue
        if connection.laddr.port == port:
            try:
                name = psutil.Process(connection.pid).name()
            except psutil.NoSuchProcess:
                continue
            whose = (
                "this very process"
                if connection.pid == os.getpid()
                else f"stop it with: kill {connection.pid}"
            )
            return f"{name} (pid {connection.pid}; {whose})"
    return f"another user's program (find it with: sudo ss -ltnp 'sport = :{port}')"


class PortBlock:
    """A run of ports that are ours alone from `claim` to `release`."""

    def __init__(self) -> None:
        self._guard: socket.socket | None = None
        self._unused: Iterator[int] = iter(())

    def claim(self) -> None:
        """Find a block in which every port is free, and hold it."""
        for base in random.sample(BLOCKS, len(BLOCKS)):
            guard = socket.socket()
            try:
                guard.bind(("127.0.0.1", base))
                guard.listen(1)
            except OSError:
                guard.close()
                continue
            if all(is_free(port, EVERY_ADDRESS) for port in range(base + 1, base + BLOCK_SIZE)):
                self._guard = guard
                self._unused = iter(range(base + 1, base + BLOCK_SIZE))
                return
            guard.close()
        raise PortTaken(f"no {BLOCK_SIZE} free ports in a row between {BLOCKS.start} and {BLOCKS.stop}")

    def take(self, count: int = 1) -> range:
        """The next ports of the block, in a row."""
        first = next(self._unused)
        for _ in range(count - 1):
            next(self._unused)
        return range(first, first + count)

    def release(self) -> None:
        """Give the block back."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def __enter__(self) -> Self:
        self.claim()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

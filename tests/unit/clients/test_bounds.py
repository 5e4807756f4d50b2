"""Bounds on an exchange."""

import socket

import pytest

from engine.clients.bounds import Bounds, TooLong, connect

pytestmark = pytest.mark.timeout(60)


def test_bytes_beyond_the_bound_are_too_many():
    bounds = Bounds(10, max_bytes=10)
    bounds.take(4)
    bounds.take(6)
    with pytest.raises(TooLong, match="more than 10 bytes"):
        bounds.take(1)


def test_time_beyond_the_bound_is_up():
    assert 0 < Bounds(10, 1).left() <= 10
    with pytest.raises(TimeoutError):
        Bounds(0, 1).left()


def test_a_dead_address_leaves_time_for_the_next(monkeypatch):
    """A full backlog drops the attempt, as a host that is gone does."""
    deaf, open_ones = socket.create_server(("127.0.0.1", 0), backlog=0), []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(deaf.getsockname())
        open_ones.append(filler)
    with socket.create_server(("127.0.0.1", 0)) as alive:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", each.getsockname()) for each in (deaf, alive)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)
        with connect("ray.example", 80, Bounds(1, 1)) as connection:
            assert connection.getpeername() == alive.getsockname()
    for each in (deaf, *open_ones):
        each.close()


@pytest.mark.parametrize("host", ["x" * 300, "a..b", "\udcff"])
def test_a_name_that_is_none_is_an_os_error(host):
    with pytest.raises(OSError):
        connect(host, 80, Bounds(10, 1))

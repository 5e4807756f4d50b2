"""Prometheus' remote write 1.0: series into a Prometheus, Mimir, Thanos or VictoriaMetrics.

The protobuf and the snappy frame are written by hand: there are three messages, and samples of rules are few, so
that it does not pay to compress them. A stale marker is a NaN of its own (`Point.value` None).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from engine.clients.access import Access
from engine.clients.wording import hide, host_of, telling_line
from engine.clock import Stopwatch
from engine.errors import QueryRejected, QueryUnavailable, SamplesRejected
from engine.model.labels import Labels
from engine.model.ports import Point
from engine.model.settings import RemoteWrite

_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
    "User-Agent": "ray-alert-engine",
}
_MAX_BYTES = 1024 * 1024  # of an answer
_MOST_REQUESTS = 64  # in which a batch is sent, where some of its samples are refused
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STALE = struct.pack("<Q", 0x7FF0000000000002)
_LITERAL = 1 << 16  # bytes; the longest with a length of two bytes

# What is refused for its time alone: a newer sample of the series is there, or another of the same instant.
_UNTIMELY = re.compile(
    r"out of order|out-of-order|duplicate sample|out of bounds|too old|err-mimir-sample-duplicate",
    re.IGNORECASE,
)


class _Untimely(QueryRejected):
    """A request refused for the time of one of its samples; the receiver took nothing of it, or all the others."""


class RemoteWriter:
    """Sends samples to one receiver. Threads may share it; each request has a connection of its own.

    Prometheus takes nothing of a request in which one sample is out of order, so what is refused for that is
    sent again in halves until the culprits are alone.
    """

    def __init__(self, settings: RemoteWrite) -> None:
        self._settings = settings
        self._where = f"the remote write receiver {host_of(settings.url)}"
        self._access = Access(settings)

    def write(self, points: Sequence[Point]) -> None:
        """Write the points; SamplesRejected says how many of them were refused."""
        watch, requests, refused = Stopwatch(), 0, 0
        first: _Untimely | None = None
        parts = [points] if points else []
        while parts:
            part = parts.pop(0)
            requests += 1
            try:
                self._send(part, self._settings.timeout.total_seconds() - watch.seconds())
            except _Untimely as error:
                first = first or error
                half = len(part) // 2
                if half and requests < _MOST_REQUESTS:
                    parts[:0] = [part[:half], part[half:]]
                else:
                    refused += len(part)
                    first = error if len(part) == 1 else first
            except QueryRejected as error:
                raise SamplesRejected(str(error), refused + len(part) + sum(map(len, parts))) from error
        if first is not None:
            raise SamplesRejected(f"{first} ({refused} of {len(points)} samples)", refused)

    def _send(self, points: Sequence[Point], seconds: float) -> None:
        from engine.clients.http import NoReply, ask  # noqa: PLC0415 - httpx is slow to import

        try:
            headers, secrets = self._access.headers()
        except OSError as error:
            raise QueryUnavailable(f"{self._where} was not asked: {error}") from None
        try:
            reply = ask(
                "POST",
                self._settings.url,
                seconds=max(seconds, 0.0),
                max_bytes=_MAX_BYTES,
                headers={**_HEADERS, **headers},
                content=encode(points),
                tls=self._settings.tls_config,
            )
        except NoReply as error:
            raise QueryUnavailable(hide(f"{self._where} {error}", secrets)) from error
        if not 200 <= reply.status < 300:
            words = hide(telling_line(reply.body), secrets) or "nothing more"
            raise self._refusal(reply.status, words, points)

    def _refusal(self, status: int, words: str, points: Sequence[Point]) -> QueryRejected | QueryUnavailable:
        said = f"{self._where} answered {status}: {words}"
        if 300 <= status < 400:
            return QueryUnavailable(f"{said}; set the url below remote_write to where it leads")
        if status >= 500 or status in (408, 429):
            return QueryUnavailable(said)
        if _UNTIMELY.search(words):
            which = (
                f"; the sample is {points[0].labels} at {points[0].at.isoformat()}"
                if len(points) == 1
                else ""
            )
            return _Untimely(f"{said}{which}")
        return QueryRejected(f"{said}{_way_out(status)}")


def _way_out(status: int) -> str:
    if status in (401, 403):
        return "; check the bearer_token_file, basic_auth or headers below remote_write"
    if status in (404, 405):
        return (
            "; is the url below remote_write whole, and the receiver on (--web.enable-remote-write-receiver)?"
        )
    return ""


def encode(points: Sequence[Point]) -> bytes:
    """Return the body of a request: a WriteRequest in snappy's block format. Samples stay in their order."""
    series: dict[Labels, list[Point]] = {}
    for point in points:
        series.setdefault(point.labels, []).append(point)
    return _snappy(b"".join(_field(1, _time_series(labels, samples)) for labels, samples in series.items()))


def _time_series(labels: Mapping[str, str], samples: Sequence[Point]) -> bytes:
    # The names are sorted already, as the protocol wants them: that of code points is the order of their bytes.
    names = (
        _field(1, _field(1, name.encode()) + _field(2, value.encode())) for name, value in labels.items()
    )
    return b"".join((*names, *(_field(2, _sample(sample)) for sample in samples)))


def _sample(point: Point) -> bytes:
    bits = _STALE if point.value is None else struct.pack("<d", point.value)
    return b"\x09" + bits + b"\x10" + _varint((point.at - _EPOCH) // timedelta(milliseconds=1))


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _snappy(content: bytes) -> bytes:
    """Return `content` in snappy's block format, as literals alone: valid, and as long as before."""
    return _varint(len(content)) + b"".join(_literals(content))


def _literals(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _LITERAL):
        literal = content[start : start + _LITERAL]
        yield b"\xf4" + (len(literal) - 1).to_bytes(2, "little") + literal

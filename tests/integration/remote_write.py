"""Prometheus' remote write without a library: protobuf and snappy by hand, for samples of any age."""

import struct
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence

_STALE = struct.pack("<Q", 0x7FF0000000000002)  # the NaN that marks the end of a series
_CHUNK = 1 << 16


def write(url: str, series: Iterable[tuple[Mapping[str, str], Iterable[tuple[int, float | None]]]]) -> None:
    """Send (labels, samples) to the server at `url`; a sample is (milliseconds, value), None a stale marker."""
    body = b"".join(_field(1, _time_series(labels, samples)) for labels, samples in series)
    request = urllib.request.Request(
        f"{url}/api/v1/write",
        data=_snappy(body),
        headers={
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        },
    )
    with urllib.request.urlopen(request, timeout=20):
        pass


def _time_series(labels: Mapping[str, str], samples: Iterable[tuple[int, float | None]]) -> bytes:
    names = (
        _field(1, _field(1, name.encode()) + _field(2, labels[name].encode())) for name in sorted(labels)
    )
    return b"".join(names) + b"".join(_field(2, _sample(at, value)) for at, value in samples)


def _sample(at: int, value: float | None) -> bytes:
    bits = _STALE if value is None else struct.pack("<d", value)
    return b"\x09" + bits + b"\x10" + _varint(at)


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
    """Return `content` in snappy's block format, as literals only: valid, and as long as before."""
    return _varint(len(content)) + b"".join(_literals(content))


def _literals(content: bytes) -> Iterator[bytes]:
    for start in range(0, len(content), _CHUNK):
        chunk: Sequence[int] = content[start : start + _CHUNK]
        yield bytes([61 << 2]) + (len(chunk) - 1).to_bytes(2, "little") + bytes(chunk)

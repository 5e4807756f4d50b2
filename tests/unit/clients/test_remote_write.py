"""What goes over the wire, and what a receiver's answers mean."""

from __future__ import annotations

import base64
import http.server
import math
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clients.remote_write import RemoteWriter, encode
from engine.errors import QueryError, QueryRejected, QueryUnavailable, SamplesRejected
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.ports import Point
from engine.model.settings import BasicAuth, RemoteWrite, Tls

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POINT = Point(Labels(__name__="m"), T0, 1.0)

# ── The encoding, read back by a decoder that shares nothing with it ─────────


def number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def uncompressed(data: bytes) -> bytes:
    """Read snappy's block format; copies do not occur."""
    length, at = number(data, 0)
    out = bytearray()
    while at < len(data):
        kind, size = data[at] & 3, data[at] >> 2
        assert kind == 0, "a literal"
        extra = max(0, size - 59)
        if extra:
            size = int.from_bytes(data[at + 1 : at + 1 + extra], "little")
        at += 1 + extra
        out += data[at : at + size + 1]
        at += size + 1
    assert len(out) == length
    return bytes(out)


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(data):
        key, at = number(data, at)
        if key & 7 == 2:
            size, at = number(data, at)
            yield key >> 3, data[at : at + size]
            at += size
        elif key & 7 == 1:
            yield key >> 3, data[at : at + 8]
            at += 8
        else:
            value, at = number(data, at)
            yield key >> 3, value


def decoded(body: bytes) -> list[tuple[list[tuple[str, str]], list[tuple[int, bytes]]]]:
    """Labels, and samples as (milliseconds, bits), of each series."""
    found = []
    for _, series in fields(uncompressed(body)):
        labels, samples = [], []
        for kind, content in fields(series):
            parts = dict(fields(content))
            if kind == 1:
                labels.append((parts[1].decode(), parts[2].decode()))
            else:
                samples.append((parts[2] - (1 << 64) * (parts[2] >> 63), parts[1]))
        found.append((labels, samples))
    return found


def bits(value: float | None) -> bytes:
    return bytes.fromhex("020000000000f07f") if value is None else struct.pack("<d", value)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
LABELS = st.dictionaries(
    NAMES, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
).map(Labels)
POINTS = st.builds(
    Point,
    LABELS,
    st.datetimes(datetime(1960, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - gets its zone
    st.none() | st.floats(),
)


@given(st.lists(POINTS, max_size=20))
def test_what_was_encoded_can_be_read_back(points):
    expected: dict[Labels, list[tuple[int, bytes]]] = {}
    for point in points:
        since = point.at - datetime(1970, 1, 1, tzinfo=UTC)
        expected.setdefault(point.labels, []).append((since // timedelta(milliseconds=1), bits(point.value)))
    found = decoded(encode(points))
    assert [(Labels(dict(labels)), samples) for labels, samples in found] == list(expected.items())
    for labels, _ in found:
        names = [name.encode() for name, _ in labels]
        assert names == sorted(names)


def test_a_stale_marker_is_no_ordinary_nan():
    ((_, samples),) = decoded(encode([POINT._replace(value=None), POINT._replace(value=math.nan)]))
    stale, nan = (struct.unpack("<Q", content)[0] for _, content in samples)
    assert stale == 0x7FF0000000000002
    assert nan == 0x7FF8000000000000


# ── Answers ──────────────────────────────────────────────────────────────────


class Request(NamedTuple):
    headers: dict[str, str]
    points: int


class Stub:
    """A receiver; `answer` says for the number of samples in a request what to answer."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[list[str]], tuple[int, str]] = lambda _: (204, "")
        self.url = ""


@contextmanager
def receiving(tls: ssl.SSLContext | None = None) -> Iterator[Stub]:
    stub = Stub()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            names = [dict(labels)["__name__"] for labels, _ in decoded(body)]
            stub.requests.append(Request(dict(self.headers), len(names)))
            status, text = stub.answer(names)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    stub.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}/api/v1/write"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def stub():
    with receiving() as found:
        yield found


def write_to(stub: Stub, points: list[Point] | None = None, **settings: object) -> None:
    RemoteWriter(RemoteWrite(url=stub.url, **settings)).write([POINT] if points is None else points)


def test_the_headers_are_those_of_the_protocol(stub):
    write_to(stub, headers={"X-Scope-OrgID": "ray"})
    (request,) = stub.requests
    assert request.headers["Content-Type"] == "application/x-protobuf"
    assert request.headers["Content-Encoding"] == "snappy"
    assert request.headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"
    assert request.headers["X-Scope-OrgID"] == "ray"
    assert "Authorization" not in request.headers


def test_without_points_nobody_is_asked(stub):
    write_to(stub, [])
    assert stub.requests == []


def test_who_we_are_is_read_from_files_that_may_change(stub, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("t0ken\n")
    writer = RemoteWriter(RemoteWrite(url=stub.url, bearer_token_file=str(secret)))
    writer.write([POINT])
    secret.write_text("another")
    writer.write([POINT])
    write_to(stub, basic_auth=BasicAuth(username="ray", password_file=str(secret)))
    sent = [request.headers["Authorization"] for request in stub.requests]
    assert sent == ["Bearer t0ken", "Bearer another", f"Basic {base64.b64encode(b'ray:another').decode()}"]


def test_a_secret_that_cannot_be_read_is_named_and_may_come(stub, tmp_path):
    with pytest.raises(QueryUnavailable, match=r"was not asked: cannot read the secret file .*/none"):
        write_to(stub, bearer_token_file=str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, None),
        (204, None),
        (302, QueryUnavailable),
        (400, SamplesRejected),
        (401, SamplesRejected),
        (404, SamplesRejected),
        (408, QueryUnavailable),
        (413, SamplesRejected),
        (429, QueryUnavailable),
        (500, QueryUnavailable),
        (503, QueryUnavailable),
    ],
)
def test_the_status_says_whether_to_send_again(stub, status, error):
    stub.answer = lambda _: (status, "as it is")
    if error is None:
        write_to(stub)
        return
    with pytest.raises(error, match=f"answered {status}: as it is") as caught:
        write_to(stub)
    assert type(caught.value) is error
    if error is SamplesRejected:
        assert caught.value.count == 1
    assert len(stub.requests) == 1


def test_what_the_server_repeats_of_a_secret_is_hidden(stub, tmp_path):
    (tmp_path / "token").write_text("t0ken")
    stub.answer = lambda _: (401, "no entry for t0ken and key5")
    with pytest.raises(QueryRejected, match=r"no entry for \*\*\* and \*\*\*; check the bearer_token_file"):
        write_to(stub, bearer_token_file=str(tmp_path / "token"), headers={"X-Api-Key": "key5"})


def named(*names: str) -> list[Point]:
    return [Point(Labels(__name__=name), T0, 1.0) for name in names]


@pytest.mark.parametrize(
    "words",
    [
        "out of order sample",
        "duplicate sample for timestamp",
        "out of bounds",
        "the sample has been rejected because it is too old (err-mimir-sample-timestamp-too-old)",
    ],
)
def test_the_samples_that_come_too_late_are_found_and_the_others_delivered(stub, words):
    taken = []

    def answer(names: list[str]) -> tuple[int, str]:
        if {"late", "later"} & set(names):
            return 400, words
        taken.extend(names)
        return 204, ""

    stub.answer = answer
    with pytest.raises(
        SamplesRejected, match=r"the sample is late\b.* \(2 of 7 samples\)|the sample is later"
    ) as caught:
        write_to(stub, named("a", "b", "late", "c", "later", "d", "e"))
    assert caught.value.count == 2
    assert taken == ["a", "b", "c", "d", "e"]


def test_a_batch_that_is_late_as_a_whole_is_given_up_after_a_while(stub):
    stub.answer = lambda _: (400, "out of order sample")
    with pytest.raises(SamplesRejected) as caught:
        write_to(stub, named(*(f"m{number}" for number in range(500))))
    assert caught.value.count == 500
    assert len(stub.requests) < 200


def test_a_refusal_of_another_kind_ends_the_search(stub):
    def answer(names: list[str]) -> tuple[int, str]:
        return (400, "out of order sample") if len(names) > 1 else (403, "no more")

    stub.answer = answer
    with pytest.raises(SamplesRejected, match="no more") as caught:
        write_to(stub, named("a", "b"))
    assert caught.value.count == 2


def test_nobody_there_and_an_answer_that_never_comes_are_tried_again_later():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        settings = RemoteWrite(url=f"http://127.0.0.1:{port}/", timeout=Duration(milliseconds=200))
        with pytest.raises(
            QueryUnavailable, match=rf"127\.0\.0\.1:{port} gave no whole answer within 0\.\d+ s"
        ):
            RemoteWriter(settings).write([POINT])
    with pytest.raises(QueryUnavailable, match="connection refused"):
        RemoteWriter(settings).write([POINT])


# ── TLS ──────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 and its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject, *files]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def server_context(certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@pytest.mark.parametrize(
    ("tls", "error"),
    [
        ({"ca_file": True}, None),
        ({"insecure_skip_verify": True}, None),
        ({}, "certificate verify failed: self-signed certificate"),
        (None, "certificate verify failed: self-signed certificate"),
    ],
)
def test_a_servers_certificate_is_held_against_what_the_settings_say(certificate, tls, error):
    given = (
        None
        if tls is None
        else Tls(**{**tls, **({"ca_file": str(certificate[0])} if "ca_file" in tls else {})})
    )
    with receiving(server_context(certificate)) as stub:
        if error is None:
            write_to(stub, tls_config=given)
            assert len(stub.requests) == 1
        else:
            with pytest.raises(QueryUnavailable, match=error):
                write_to(stub, tls_config=given)


@pytest.mark.parametrize("present", [True, False])
def test_our_certificate_is_shown_to_a_server_that_asks_for_one(certificate, present):
    context = server_context(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificate[0])
    cert, key = map(str, certificate)
    ours = {"cert_file": cert, "key_file": key} if present else {}
    with receiving(context) as stub:
        if present:
            write_to(stub, tls_config=Tls(ca_file=cert, **ours))
            assert len(stub.requests) == 1
        else:
            with pytest.raises(QueryError):
                write_to(stub, tls_config=Tls(ca_file=cert))


def test_a_file_that_is_no_certificate_is_named(certificate, tmp_path):
    (tmp_path / "none.pem").write_text("")
    with pytest.raises(QueryUnavailable, match=r"was not asked: cannot use what is in .*none\.pem"):
        RemoteWriter(
            RemoteWrite(url="https://127.0.0.1:1/", tls_config=Tls(cert_file=str(tmp_path / "none.pem")))
        ).write([POINT])

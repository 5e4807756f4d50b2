"""The source against servers that behave, and against those that do not: each ends in time, in one line that says why."""

import base64
import gc
import gzip
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import QueryError, QueryRejected, QueryUnavailable
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.settings import BasicAuth, PrometheusSettings, Tls
from engine.query.prometheus import PrometheusSource
from tests.unit.query.hostile import Peer, answering, serving

pytestmark = pytest.mark.timeout(60)  # a source that waits for ever fails here

AT = datetime(2026, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)
TLS = Path(__file__).parent / "tls"
ONE = {
    "status": "success",
    "data": {"resultType": "vector", "result": [{"metric": {"a": "b"}, "value": [0, "7"]}]},
}
PATIENT = Duration(seconds=30)


@contextmanager
def source_at(url, **more):
    source = PrometheusSource(PrometheusSettings(url=url, **{"timeout": PATIENT, **more}))
    try:
        yield source
    finally:
        source.close()


@contextmanager
def source_of(script, **more):
    with serving(script) as url, source_at(url, **more) as source:
        yield source


class Recorder:
    """A script that keeps requests and gives the same answer to all."""

    def __init__(self, answer=None):
        self.requests = []
        self.connections = 0
        self._answer = answer or ONE

    def __call__(self, peer: Peer) -> None:
        self.connections += 1
        while True:
            self.requests.append(peer.read())
            peer.answer(self._answer)

    def forms(self):
        return [
            {key: value for key, (value,) in parse_qs(request.body.decode()).items()}
            for request in self.requests
        ]


def test_importing_the_module_is_cheap():
    script = (
        "import sys, engine.query.prometheus; "
        "print([name for name in ('requests', 'urllib3', 'prometheus_api_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_instant_query_is_a_form_with_a_time_to_the_millisecond():
    recorder = Recorder()
    with source_of(recorder, max_samples=1000) as source:
        window = source.instant('up{a="é"} + 1', AT)
    (request,) = recorder.requests
    assert request.head.startswith("POST /api/v1/query HTTP/1.1")
    assert recorder.forms() == [
        {"query": 'up{a="é"} + 1', "time": "1769860800.123", "limit": "1001", "timeout": "27.000"}
    ]
    assert window.labels == (Labels(a="b"),)
    assert window.times.tolist() == [1769860800.123]
    assert len(window.until(AT).times) == 1


def test_a_query_of_any_length_goes_into_the_body():
    recorder = Recorder()
    with source_of(recorder) as source:
        source.instant("up" + " + up" * 50_000, AT)
    (request,) = recorder.requests
    assert len(request.head) < 500
    assert len(request.body) > 250_000


def test_a_range_query_keeps_fractions_of_a_second():
    recorder = Recorder({"status": "success", "data": {"resultType": "matrix", "result": []}})
    with source_of(recorder) as source:
        window = source.range("up", AT, AT + timedelta(seconds=1), timedelta(milliseconds=250))
    (form,) = recorder.forms()
    assert (form["start"], form["end"], form["step"]) == ("1769860800.123", "1769860801.123", "0.250")
    assert len(window.times) == 5


def test_a_long_range_is_fetched_in_pieces_of_11000_points():
    def script(peer):
        while True:
            form = parse_qs(peer.read().body.decode())
            points = [[float(form[end][0]), "1"] for end in ("start", "end")]
            peer.answer(
                {
                    "status": "success",
                    "data": {"resultType": "matrix", "result": [{"metric": {}, "values": points}]},
                }
            )

    with source_of(script) as source:
        window = source.range("up", AT, AT + timedelta(seconds=24_999), timedelta(seconds=1))
    assert window.present.nonzero()[1].tolist() == [0, 10_999, 11_000, 21_999, 22_000, 24_999]


def test_more_points_than_samples_are_allowed_is_not_even_asked():
    recorder = Recorder()
    with (
        source_of(recorder, max_samples=100) as source,
        pytest.raises(QueryRejected, match="101 points for each series"),
    ):
        source.range("up", AT, AT + timedelta(seconds=100), timedelta(seconds=1))
    assert recorder.requests == []


def test_one_connection_serves_many_queries():
    recorder = Recorder()
    with source_of(recorder) as source:
        for _ in range(5):
            source.instant("up", AT)
    assert (recorder.connections, len(recorder.requests)) == (1, 5)


def test_the_path_of_the_url_stays_and_user_and_headers_are_sent():
    recorder = Recorder()
    with serving(recorder) as url:
        address = url.replace("http://", "http://me:hunter2@") + "/prometheus/"
        with source_at(address, headers={"X-Scope-OrgID": "tenant"}) as source:
            source.instant("up", AT)
    (request,) = recorder.requests
    assert request.head.startswith("POST /prometheus/api/v1/query ")
    assert request.header("X-Scope-OrgID") == "tenant"
    assert request.header("Authorization") == "Basic " + base64.b64encode(b"me:hunter2").decode()
    assert request.header("Cookie") == ""


# --- servers that misbehave ---------------------------------------------------------------------------------


def silent(peer):
    peer.hold()


def drip_a_header(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nX: ")
    peer.drip(b"x")


def headers_for_ever(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\n")
    peer.drip(b"X: y\r\n", pause=0.05)


def continue_for_ever(peer):
    peer.read()
    peer.drip(b"HTTP/1.1 100 Continue\r\n\r\n")


def drip_a_body(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    peer.drip(b" ")


def drip_chunks(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    peer.drip(b"1\r\n \r\n")


def drip_without_end(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
    peer.drip(b" ")


def drip_an_error(peer):
    peer.read()
    peer.send(b"HTTP/1.1 500 Oh\r\nContent-Length: 1000000\r\n\r\n")
    peer.drip(b" ")


@pytest.mark.parametrize(
    "script",
    [
        silent, drip_a_header, headers_for_ever, continue_for_ever, drip_a_body, drip_chunks, drip_without_end, drip_an_error,
    ],
)  # fmt: skip
def test_a_server_that_never_comes_to_an_end_is_left_at_the_deadline(script):
    with (
        source_of(script, timeout=Duration(milliseconds=300)) as source,
        pytest.raises(QueryUnavailable, match=r"at 127\.0\.0\.1:\d+ gave no whole answer within 300ms"),
    ):
        source.instant("up", AT)


def test_the_deadline_holds_on_a_connection_that_has_served_before():
    def script(peer):
        peer.read()
        peer.answer(ONE)
        drip_a_body(peer)

    with source_of(script, timeout=Duration(milliseconds=300)) as source:
        source.instant("up", AT)
        with pytest.raises(QueryUnavailable, match="no whole answer within 300ms"):
            source.instant("up", AT)


def test_the_deadline_holds_for_a_server_that_does_not_read():
    with (
        source_of(lambda peer: peer.drip(b""), timeout=Duration(milliseconds=300)) as source,
        pytest.raises(QueryUnavailable, match="no whole answer within 300ms"),
    ):
        source.instant("x" * 30_000_000, AT)


def test_the_deadline_holds_for_a_name_that_is_not_resolved(monkeypatch):
    resolved = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: resolved.wait(20) and [])
    with (
        source_at("http://prometheus.example", timeout=Duration(milliseconds=300)) as source,
        pytest.raises(QueryUnavailable, match=r"within 300ms .*prometheus.example was not resolved in time"),
    ):
        source.instant("up", AT)
    resolved.set()


def test_the_deadline_holds_for_a_tls_handshake():
    with (
        serving(silent) as url,
        source_at(url.replace("http", "https"), timeout=Duration(milliseconds=300)) as source,
        pytest.raises(QueryUnavailable, match="no whole answer within 300ms"),
    ):
        source.instant("up", AT)


def endless(start, piece):
    def script(peer):
        peer.read()
        peer.send(start)
        while True:
            peer.send(piece)

    return script


@pytest.mark.parametrize(
    "script",
    [
        endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65_536),
        endless(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b" " * 65_536),
        endless(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65_536 + b"\r\n"
        ),
        endless(b"HTTP/1.1 500 Oh\r\n\r\n", b" " * 65_536),
    ],
)
def test_a_body_without_end_is_refused_with_the_way_out(script):
    with (
        source_of(script, max_samples=1000) as source,
        pytest.raises(
            QueryRejected, match=r"more than [0-9,]+ bytes, where prometheus.max_samples .* aggregate"
        ),
    ):
        source.instant("up", AT)


@pytest.mark.parametrize(
    "script",
    [
        endless(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 60_000 + b"\r\n"),
        endless(b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65_536),
        endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0" * 65_536),
        endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 10_000),
        endless(b"", b"\x00\xff" * 30_000),
    ],
)
def test_headers_and_chunks_without_end_are_given_up(script):
    with (
        source_of(script, max_samples=1000) as source,
        pytest.raises(QueryError, match=r"127\.0\.0\.1|max_samples"),
    ):
        source.instant("up", AT)


def close_half_way(peer):
    peer.read()
    peer.send(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"status":')


def close_in_a_chunk(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\nabc")


def speak_another_protocol(peer):
    peer.send(b"SSH-2.0-OpenSSH_9.2\r\n")
    peer.hold()


BOMB = gzip.compress(bytes(50_000_000))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (close_half_way, "gave no answer: IncompleteRead"),
        (close_in_a_chunk, "gave no answer: "),
        (lambda peer: None, "gave no answer: (connection reset|remote end closed)"),
        (speak_another_protocol, "gave no answer: BadStatusLine: SSH-2.0"),
        (answering(b"<html><title>502 Bad Gateway</title>", 502), "answered 502: 502 Bad Gateway"),
        (answering(b"hello"), "answered 200, but not as Prometheus does: hello"),
        (answering(json.dumps(ONE).encode()[:-9]), "answered 200, but not as Prometheus does"),
        (
            answering(b"", 302, "Location: https://u:p@login.example/in?x=1\r\n"),
            "302, a redirect to https://login.example/in;",
        ),
        (answering(BOMB, 302, "Location: /x\r\nContent-Encoding: gzip\r\n"), "302, a redirect to /x;"),
        (answering(b"", 301), "301, a redirect to nowhere;"),
        (
            answering(BOMB, 200, "Content-Encoding: gzip\r\n"),
            "answered in gzip, which it was asked not to do",
        ),
        (
            answering({"status": "error", "errorType": "timeout", "error": "query timed out"}, 503),
            "503 timeout: query timed out",
        ),
    ],
)
def test_what_is_no_answer_says_so_with_the_host(script, message):
    with source_of(script) as source, pytest.raises(QueryUnavailable, match=message) as caught:
        source.instant("up", AT)
    assert "Prometheus at 127.0.0.1:" in str(caught.value)
    assert str(caught.value).isprintable()
    assert "u:p" not in str(caught.value)


# Where headers make no sense, urllib3 leaves the socket to the garbage collector, which says so.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 400 \xff\r\n", b"HTTP/9.9 999\r\n", b"Content-Length: 5\r\n", b"Content-Length: -1\r\n",
     b"Content-Length: 5, 6\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Encoding: br\r\n", b"Set-Cookie: a=\xff; Expires=x\r\n",
     b"Location: http://[\r\n", b": x\r\n", b" folded\r\n", b"\r\n", b"5\r\nhello\r\n", b"-5\r\n", b"{}", b"\x00", b"0\r\n\r\n"]
), max_size=8))  # fmt: skip
def test_any_bytes_at_all_end_in_a_query_error(pieces):
    def script(peer):
        peer.read()
        peer.send(b"".join(pieces))

    with source_of(script, timeout=Duration(seconds=5)) as source, pytest.raises(QueryError) as caught:
        source.instant("up", AT)
    assert str(caught.value).isprintable()
    gc.collect()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:1", "at 127.0.0.1:1 gave no answer: connection refused"),
        ("http://no.such.host.invalid", "at no.such.host.invalid gave no answer: "),
        ("localhost:9090", "cannot be asked"),
        ("ftp://me:hunter2@localhost", "at localhost cannot be asked"),
        ("http://me:hunter2@", "cannot be asked"),
        ("http://me:hunter2@host:port", "cannot be asked"),
        ("", "cannot be asked"),
    ],
)
def test_an_address_that_nobody_answers_at_is_named_without_its_password(url, message):
    with source_at(url) as source, pytest.raises(QueryUnavailable, match=message) as caught:
        source.instant("up", AT)
    assert "hunter2" not in str(caught.value)


def test_the_body_of_a_redirect_is_not_even_read():
    def script(peer):
        peer.read()
        peer.send(b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 9\r\n\r\n")
        peer.hold()

    redirect = pytest.raises(QueryUnavailable, match="302, a redirect to /login;")
    with source_of(script, timeout=Duration(seconds=3)) as source, redirect:
        source.instant("up", AT)


# --- dropped connections ------------------------------------------------------------------------------------


def test_a_dropped_idle_connection_is_replaced_at_once():
    requests = []

    def script(peer):
        requests.append(peer.read())
        peer.answer(ONE)
        if len(requests) == 1:
            requests.append(peer.read())  # and hangs up instead of answering

    with source_of(script) as source:
        source.instant("up", AT)
        assert source.instant("up", AT).values.tolist() == [[7.0]]
    assert len(requests) == 3


def test_a_server_that_always_hangs_up_is_tried_twice_and_no_more():
    requests = []
    with source_of(lambda peer: requests.append(peer.read())) as source, pytest.raises(QueryUnavailable):
        source.instant("up", AT)
    assert len(requests) == 2


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_a_declared_error_is_not_tried_again(status):
    recorder = []

    def script(peer):
        recorder.append(peer.read())
        peer.answer({"status": "error", "errorType": "x", "error": "y"}, status)

    with source_of(script) as source, pytest.raises(QueryError):
        source.instant("up", AT)
    assert len(recorder) == 1


def test_threads_share_a_source():
    def script(peer):
        while True:
            query = parse_qs(peer.read().body.decode())["query"][0]
            peer.answer({"status": "success", "data": {"resultType": "scalar", "result": [0, query]}})

    with source_of(script) as source, ThreadPoolExecutor(16) as pool:
        values = pool.map(lambda number: source.instant(str(number), AT).values[0, 0], range(300))
        assert list(values) == list(range(300))


# --- secrets --------------------------------------------------------------------------------------------------


def test_a_rotated_token_is_read_again(tmp_path):
    recorder, file = Recorder(), tmp_path / "token"
    with source_of(recorder, bearer_token_file=str(file)) as source:
        for token in ("first-token", "second-token-\N{LATIN SMALL LETTER E}"):
            file.write_text(token + "\n")
            source.instant("up", AT)
            source.instant("up", AT)
    sent = [request.header("Authorization") for request in recorder.requests]
    assert sent == ["Bearer first-token"] * 2 + ["Bearer second-token-e"] * 2


def test_basic_auth_takes_its_password_from_a_file(tmp_path):
    (tmp_path / "password").write_text("pässword")
    recorder, auth = Recorder(), BasicAuth(username="mé", password_file=str(tmp_path / "password"))
    with source_of(recorder, basic_auth=auth) as source:
        source.instant("up", AT)
    assert (
        recorder.requests[0].header("Authorization")
        == "Basic " + base64.b64encode("mé:pässword".encode()).decode()
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read the secret file .*token: No such file"),
        (b"", "token must hold one line of text"),
        (b"hunter2\nhunter2", "token must hold one line of text"),
        (b"hunter2\xff", "cannot read the secret file .*token: not text"),
        ("hunter2日本".encode(), "cannot be asked .* secrets"),
    ],
)
def test_a_secret_file_that_is_no_use_is_named_and_not_told(tmp_path, content, message):
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with (
        source_of(answering(ONE), bearer_token_file=str(tmp_path / "token")) as source,
        pytest.raises(QueryUnavailable, match=message) as caught,
    ):
        source.instant("up", AT)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_a_server_that_repeats_our_secrets_does_not_get_them_into_messages(tmp_path, status, caplog):
    caplog.set_level("DEBUG")
    (tmp_path / "token").write_text("top-secret")

    def echo(peer):
        request = peer.read()
        peer.answer(
            {
                "status": "error",
                "errorType": request.header("X-Api-Key"),
                "error": request.header("Authorization"),
            },
            status,
        )

    with (
        source_of(
            echo, bearer_token_file=str(tmp_path / "token"), headers={"X-Api-Key": "key-secret"}
        ) as source,
        pytest.raises(QueryError, match=r"\*\*\*") as caught,
    ):
        source.instant("up", AT)
    assert "secret" not in str(caught.value) + caplog.text


# --- TLS ------------------------------------------------------------------------------------------------------


@contextmanager
def tls_server(script=None, *, ask_for_certificate=False):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "peer.pem", TLS / "peer.key")
    if ask_for_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(TLS / "ca.pem")
    with serving(script or answering(ONE), lambda plain: context.wrap_socket(plain, server_side=True)) as url:
        yield url.replace("http", "https")


CA = str(TLS / "ca.pem")
CLIENT = {"cert_file": str(TLS / "peer.pem"), "key_file": str(TLS / "peer.key")}


@pytest.mark.parametrize("tls", [Tls(ca_file=CA), Tls(insecure_skip_verify=True)])
def test_tls_with_our_authority_or_with_none(tls):
    with tls_server() as url, source_at(url, tls_config=tls) as source:
        assert source.instant("up", AT).values.tolist() == [[7.0]]
        assert source.instant("up", AT).values.tolist() == [[7.0]]


def test_tls_with_a_certificate_of_our_own():
    with (
        tls_server(ask_for_certificate=True) as url,
        source_at(url, tls_config=Tls(ca_file=CA, **CLIENT)) as source,
    ):
        assert source.instant("up", AT).values.tolist() == [[7.0]]
        with source_at(url, tls_config=Tls(ca_file=CA)) as nobody, pytest.raises(QueryUnavailable):
            nobody.instant("up", AT)


@pytest.mark.parametrize(
    ("tls", "message"),
    [
        (None, "certificate verify failed: .*; check prometheus.tls_config"),
        (Tls(ca_file="/no/such/ca.pem"), "/no/such/ca.pem"),
        (Tls(ca_file=CA, cert_file="/no/such/cert.pem"), "/no/such/cert.pem"),
        (
            Tls(ca_file=CA, cert_file=str(TLS / "peer.key"), key_file=str(TLS / "peer.key")),
            "check prometheus.tls_config",
        ),
    ],
)
def test_tls_that_cannot_be_says_why(tls, message):
    with (
        tls_server() as url,
        source_at(url, tls_config=tls) as source,
        pytest.raises(QueryUnavailable, match=message),
    ):
        source.instant("up", AT)


def test_bounds_hold_over_tls_too():
    with (
        tls_server(drip_a_header) as url,
        source_at(url, tls_config=Tls(ca_file=CA), timeout=Duration(milliseconds=500)) as source,
        pytest.raises(QueryUnavailable, match="no whole answer within 500ms"),
    ):
        source.instant("up", AT)
    with (
        tls_server(endless(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65_536)) as url,
        source_at(url, tls_config=Tls(ca_file=CA), max_samples=10) as source,
        pytest.raises(QueryRejected, match=r"more than [0-9,]+ bytes"),
    ):
        source.instant("up", AT)


def test_what_the_environment_says_about_proxies_does_not_count(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setitem(os.environ, name, "http://127.0.0.1:1")
    with source_of(answering(ONE)) as source:
        assert source.instant("up", AT).values.tolist() == [[7.0]]

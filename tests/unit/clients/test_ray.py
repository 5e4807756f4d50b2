"""The client of Ray's HTTP APIs against servers of its own and of other kinds."""

import json
import subprocess
import sys
from contextlib import contextmanager
from urllib.parse import parse_qs

import pytest

from engine.clients.ray import RayClient
from engine.errors import ActionTimeout, ClusterError
from engine.model.duration import Duration
from tests.unit.query.hostile import answering, serving

pytestmark = pytest.mark.timeout(60)

TAKEN = (
    b"Traceback (most recent call last):\n  File 'job_head.py', line 419, in submit_job\n"
    b"RuntimeError: Request failed with status code 400: Traceback (most recent call last):\n  File 'x'\n"
    b"ValueError: Job with submission_id run-1 already exists. Please use a different submission_id.\n.\n"
)


@contextmanager
def client_of(script, **more):
    with serving(script) as url:
        yield RayClient(url, **{"timeout": Duration(seconds=30), **more})


class Dashboard:
    """A script with answers by method and path; keeps what was asked."""

    def __init__(self, **answers):
        self._answers = answers
        self.asked = []
        self.requests = []

    def __call__(self, peer):
        request = peer.read()
        method, target, _ = request.head.split(" ", 2)
        self.asked.append(f"{method} {target}")
        self.requests.append(request)
        status, body = self._answers[f"{method} {target.partition('?')[0]}"]
        peer.answer(body, status)


def state(rows):
    return {"result": True, "msg": "", "data": {"result": {"total": len(rows), "result": rows}}}


def test_importing_the_client_is_cheap():
    script = "import sys, engine.clients.ray; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("resource", ["nodes", "objects", "tasks"])
def test_the_state_api_is_asked_for_all_it_may_give(resource):
    ray = Dashboard(**{f"GET /api/v0/{resource}": (200, state([{"id": 1}]))})
    with client_of(ray) as client:
        assert getattr(client, resource)() == [{"id": 1}]
    assert "?detail=1&limit=10000" in ray.asked[0]


def test_tasks_that_have_ended_are_left_out_by_ray():
    ray = Dashboard(**{"GET /api/v0/tasks": (200, state([]))})
    with client_of(ray) as client:
        client.tasks()
    query = parse_qs(ray.asked[0].partition("?")[2])
    assert query["filter_keys"] == ["state", "state"]
    assert query["filter_predicates"] == ["!=", "!="]
    assert query["filter_values"] == ["FINISHED", "FAILED"]


def test_a_job_is_looked_up_by_its_quoted_id_and_may_not_exist():
    ray = Dashboard(
        **{
            "GET /api/jobs/a%2Fb%3F": (200, {"status": "RUNNING"}),
            "GET /api/jobs/x": (404, b"Job x does not exist"),
            "GET /api/jobs/y": (500, b"oh"),
        }
    )
    with client_of(ray) as client:
        assert client.job("a/b?") == {"status": "RUNNING"}
        assert client.job("x") is None
        with pytest.raises(ClusterError, match="500: oh") as caught:
            client.job("y")
    assert caught.value.status == 500


def test_a_submission_says_what_to_run_under_which_id():
    ray = Dashboard(**{"POST /api/jobs/": (200, {"submission_id": "run-1"})})
    with client_of(ray) as client:
        client.submit("run-1", "python kill.py", metadata={"by": "engine"}, entrypoint_num_cpus=0)
    assert json.loads(ray.requests[0].body) == {
        "submission_id": "run-1", "entrypoint": "python kill.py", "metadata": {"by": "engine"}, "entrypoint_num_cpus": 0,
    }  # fmt: skip


def test_an_id_that_is_taken_is_a_success_if_the_job_is_there():
    ray = Dashboard(**{"POST /api/jobs/": (500, TAKEN), "GET /api/jobs/run-1": (200, {"status": "FAILED"})})
    with client_of(ray) as client:
        client.submit("run-1", "true")
    assert ray.asked == ["POST /api/jobs/", "GET /api/jobs/run-1"]


def test_an_id_that_is_said_to_be_taken_but_is_not_there_is_an_error():
    ray = Dashboard(**{"POST /api/jobs/": (500, TAKEN), "GET /api/jobs/run-1": (404, b"no")})
    with (
        client_of(ray) as client,
        pytest.raises(ClusterError, match="500: ValueError: Job with submission_id run-1") as caught,
    ):
        client.submit("run-1", "true")
    assert caught.value.status == 500


def hang_up(peer):
    peer.read()


def stay_silent(peer):
    peer.read()
    peer.hold()


@pytest.mark.parametrize(
    "script", [hang_up, stay_silent, answering(b"<html><title>504 Gateway Time-out", 504)]
)
def test_a_submission_without_a_clear_answer_may_have_been_accepted(script):
    with (
        client_of(script, timeout=Duration(milliseconds=300)) as client,
        pytest.raises(ActionTimeout, match="job run-1 may have been accepted"),
    ):
        client.submit("run-1", "true")


def test_a_submission_that_reached_nobody_was_not_accepted():
    with pytest.raises(ClusterError, match=r"at 127.0.0.1:1 gave no answer: connection refused"):
        RayClient("127.0.0.1:1", timeout=Duration(seconds=5)).submit("run-1", "true")


def test_a_submission_that_is_refused_says_why():
    ray = Dashboard(
        **{
            "POST /api/jobs/": (
                400,
                b"Traceback (most recent call last):\n  File\nTypeError: no 'nonsense'\n\n",
            )
        }
    )
    with (
        client_of(ray) as client,
        pytest.raises(ClusterError, match="POST /api/jobs/ answered 400: TypeError: no 'nonsense'"),
    ):
        client.submit("run-1", "true", nonsense=1)


def test_a_package_is_uploaded_once():
    path = "/api/packages/gcs/_ray_pkg_1.zip"
    absent = Dashboard(**{f"GET {path}": (404, b"no"), f"PUT {path}": (200, b"")})
    with client_of(absent) as client:
        assert client.ensure_package("_ray_pkg_1.zip", b"PK\x00") == "gcs://_ray_pkg_1.zip"
    assert absent.requests[1].body == b"PK\x00"
    present = Dashboard(**{f"GET {path}": (200, b"")})
    with client_of(present) as client:
        assert client.ensure_package("_ray_pkg_1.zip", b"PK\x00") == "gcs://_ray_pkg_1.zip"
    assert present.asked == [f"GET {path}"]


def test_a_package_that_may_not_be_asked_for_is_not_uploaded():
    ray = Dashboard(**{"GET /api/packages/gcs/p.zip": (500, b"oh")})
    with client_of(ray) as client, pytest.raises(ClusterError, match="500: oh"):
        client.ensure_package("p.zip", b"PK")
    assert len(ray.asked) == 1


def test_jobs_logs_stop_and_version():
    ray = Dashboard(
        **{
            "GET /api/jobs/": (200, [{"submission_id": "run-1"}]),
            "GET /api/jobs/run-1/logs": (200, {"logs": "hello\n"}),
            "POST /api/jobs/run-1/stop": (200, {"stopped": True}),
            "GET /api/version": (200, {"ray_version": "2.60.0"}),
        }
    )
    with client_of(ray) as client:
        assert client.jobs() == [{"submission_id": "run-1"}]
        assert client.logs("run-1") == "hello\n"
        assert client.version() == "2.60.0"
        client.stop("run-1")
    assert ray.asked[-1] == "POST /api/jobs/run-1/stop"


# --- tokens ---------------------------------------------------------------------------------------------------


def test_the_token_is_read_again_when_it_changes(tmp_path):
    ray, file = Dashboard(**{"GET /api/jobs/": (200, [])}), tmp_path / "token"
    with client_of(ray, token_file=str(file)) as client:
        for token in ("one", "other-token"):
            file.write_text(f"{token}\n")
            client.jobs()
    assert [request.header("Authorization") for request in ray.requests] == [
        "Bearer one",
        "Bearer other-token",
    ]


def test_a_cluster_that_wants_a_token_is_told_of_with_the_way_out(tmp_path):
    ray = answering(b"Unauthorized: Missing authentication token", 401)
    with (
        client_of(ray) as client,
        pytest.raises(ClusterError, match=r"401: Unauth.* \(RAY_AUTH_MODE=token\): set token_file") as caught,
    ):
        client.jobs()
    assert caught.value.status == 401


def test_a_token_that_is_not_taken_is_named_by_its_file_and_never_told(tmp_path):
    (tmp_path / "token").write_text("hunter2")

    def echo(peer):
        peer.answer(peer.read().header("Authorization").encode(), 403)

    with (
        client_of(echo, token_file=str(tmp_path / "token")) as client,
        pytest.raises(
            ClusterError, match=r"403: Bearer \*\*\*; it does not take the token in .*/token"
        ) as caught,
    ):
        client.jobs()
    assert "hunter2" not in str(caught.value)


def test_a_token_file_that_is_missing_is_named(tmp_path):
    with (
        client_of(answering([]), token_file=str(tmp_path / "token")) as client,
        pytest.raises(
            ClusterError, match=r"was not asked: cannot read the secret file .*/token: No such file"
        ),
    ):
        client.jobs()


# --- servers that misbehave -----------------------------------------------------------------------------------


def drip_headers(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nX: ")
    peer.drip(b"x")


def drip_a_body(peer):
    peer.read()
    peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    peer.drip(b" ")


@pytest.mark.parametrize("script", [stay_silent, drip_headers, drip_a_body, lambda peer: peer.drip(b"")])
def test_a_cluster_that_never_comes_to_an_end_is_left_at_the_deadline(script):
    with (
        client_of(script, timeout=Duration(milliseconds=300)) as client,
        pytest.raises(
            ClusterError, match=r"127.0.0.1:\d+ gave no whole answer within 0.3 s: .* \(GET /api/jobs/\)"
        ),
    ):
        client.jobs()


def test_the_deadline_holds_for_an_upload_that_is_not_read():
    def script(peer):
        if peer.read_head().head.startswith("GET"):
            peer.answer(b"", 404)
        else:
            peer.drip(b"")

    with (
        client_of(script, timeout=Duration(milliseconds=500)) as client,
        pytest.raises(ClusterError, match=r"no whole answer within 0.5 s"),
    ):
        client.ensure_package("p.zip", bytes(50_000_000))


def test_a_body_without_end_is_given_up():
    def script(peer):
        peer.read()
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            peer.send(b" " * 65_536)

    with (
        client_of(script) as client,
        pytest.raises(ClusterError, match="gave no answer: more than 67,108,864 bytes"),
    ):
        client.jobs()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (answering(b"<html><title>Grafana</title>"), "answered as no Ray does: Grafana; is the address a dashboard's"),
        (answering({"jobs": []}), "answered as no Ray does: no list of objects"),
        (answering([1]), "answered as no Ray does: no list of objects"),
        (answering(b"[" * 100_000), "answered as no Ray does"),
        (answering(b"", 302, "Location: https://login.example\r\n"), "answered 302: nothing more"),
        (answering(b"\x1f\x8b", 200, "Content-Encoding: gzip\r\n"), "compressed its answer"),
        (answering({"result": False, "msg": "GCS is\ndown", "data": {}}, 500), "answered 500: GCS is"),
        (lambda peer: peer.send(b"SSH-2.0\r\n"), "gave no answer: "),
        (lambda peer: (peer.read(), peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]")), "gave no answer: "),
    ],
)  # fmt: skip
def test_what_is_no_answer_of_ray_says_so_in_one_line(script, message):
    with client_of(script) as client, pytest.raises(ClusterError, match=message) as caught:
        client.jobs()
    assert "Ray at 127.0.0.1:" in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "body", [{}, {"data": None}, {"data": {"result": []}}, {"data": {"result": {"result": {}}}}, []]
)
def test_a_state_of_the_wrong_shape_says_so(body):
    with (
        client_of(answering(body)) as client,
        pytest.raises(ClusterError, match="/api/v0/nodes answered as no Ray does"),
    ):
        client.nodes()


@pytest.mark.parametrize("address", ["ftp://me:hunter2@x", "http://[", "http://me:hunter2@x:port", ""])
def test_an_address_that_is_none_is_a_cluster_error(address):
    with pytest.raises(ClusterError) as caught:
        RayClient(address, timeout=Duration(seconds=1)).jobs()
    assert "hunter2" not in str(caught.value)

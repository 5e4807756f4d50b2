"""One line from whatever another program says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.clients.wording import LONGEST, fault, hide, host_of, one_line, root_cause, telling_line

NESTED = b"""Traceback (most recent call last):
  File "job_head.py", line 419, in submit_job
    resp = await client.submit(request)
RuntimeError: Request failed with status code 400: Traceback (most recent call last):
  File "job_agent.py", line 45, in submit_job
    raise ValueError(
ValueError: Job with submission_id x already exists.
.
"""


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", ""),
        (b"\n  \n plain words \n more", "plain words"),
        (NESTED, "ValueError: Job with submission_id x already exists."),
        (b"Traceback (most recent call last):\n  File 'x'\nray.exceptions.RayError: no\n", "ray.exceptions.RayError: no"),
        (b"Traceback (most recent call last):\n  File 'x'", "File 'x'"),
        (b"<html><head><title>502 Bad\n Gateway</title></head>", "502 Bad Gateway"),
        (b"<!doctype html><body><H1 class='x'>Sign <b>in</b></H1>", "Sign in"),
        (b"<p>no title</p>", "no title"),
        (b"\x1b[31mred\x1b[0m \xff", "[31mred [0m \N{REPLACEMENT CHARACTER}"),
    ],
)  # fmt: skip
def test_the_telling_line_of_a_body(body, line):
    assert telling_line(body) == line


@given(st.text(), st.integers(1, 50))
def test_one_line_is_printable_and_short(text, longest):
    line = one_line(text, longest)
    assert line.isprintable()
    assert len(line) <= longest


@given(st.binary())
def test_a_telling_line_is_printable_and_short(body):
    line = telling_line(b"<" + body)
    assert line.isprintable()
    assert len(line) <= LONGEST


def test_a_huge_page_of_open_tags_takes_no_time():
    assert len(telling_line(b"<h1>" * 10_000_000)) <= LONGEST


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://ray:8265/x", "ray:8265"),
        ("http://me:pw@ray:8265", "ray:8265"),
        ("http://me:p@w@[::1]:80", "[::1]:80"),
        ("ray:8265", "no host"),
        ("http://me:pw@[::1", "no host"),
        ("", "no host"),
    ],
)
def test_the_host_of_a_url_comes_without_user_and_password(url, host):
    assert host_of(url) == host


def test_secrets_are_hidden_and_an_empty_one_hides_nothing():
    assert hide("a top-secret b top-secret", ["top-secret", ""]) == "a *** b ***"


def test_the_root_cause_is_found_however_it_is_wrapped():
    root = ConnectionRefusedError(111, "Connection refused")
    by_argument = RuntimeError("Aborted.", ValueError(root))
    assert root_cause(by_argument) is root
    assert fault(by_argument) == "connection refused"
    try:
        try:
            raise root
        except OSError:
            raise ValueError from None
    except ValueError as error:
        assert root_cause(error) is error  # noqa: PT017 - the raising is what is tested


def test_exceptions_that_wrap_each_other_do_not_go_on_for_ever():
    one, other = ValueError(), ValueError()
    one.__cause__, other.__cause__ = other, one
    assert root_cause(one) is other

import gc
import socket
import threading

import pytest

from deploy.demo.slack_stub import Failure
from engine.errors import NotifyError
from engine.model.alert import AlertState, Picture
from engine.model.notification import Reason
from engine.notify import slack as slack_module
from engine.notify.slack import Slack
from engine.registry import notifier
from tests.unit.notify.builders import PNG, alert, notification

CHART = {alert().fingerprint: (Picture("Full, last 1h", PNG, "7 GiB now"),)}


def failure_of(slack, told, previous=None):
    with pytest.raises(NotifyError) as caught:
        slack.notify(told, previous)
    return caught.value


def images(message):
    return [block for block in message.blocks if block["type"] == "image"]


def test_it_is_called_slack_and_updates_its_message_in_place():
    assert notifier.get("slack") is Slack
    assert Slack.updates_in_place


def test_constructing_it_reads_no_file_and_opens_no_connection():
    Slack(channel="#x", token_file="/does/not/exist", api_url="http://127.0.0.1:1/")


def test_a_new_incident_is_one_message_in_the_channel(stub, slack):
    slack.notify(notification(alert()), None)
    (message,) = stub.messages
    assert message.channel_name == "ray-alerts"
    assert "Full" in message.text


def test_the_receipt_names_the_channel_by_its_id(stub, slack):
    receipt = slack.notify(notification(alert()), None)
    (message,) = stub.messages
    assert (receipt["channel"], receipt["ts"]) == (message.channel, message.ts)
    assert receipt["channel"].startswith("C")


def test_what_follows_changes_the_same_message(stub, slack):
    receipt = slack.notify(notification(alert()), None)
    resolved = notification(alert(state=AlertState.RESOLVED), reason=Reason.ALL_RESOLVED)
    assert slack.notify(resolved, receipt) == receipt
    (message,) = stub.messages
    assert "RESOLVED" in message.text
    assert len(message.history) == 1


def test_another_incident_is_another_message(stub, slack):
    slack.notify(notification(alert()), None)
    slack.notify(notification(alert()), None)
    assert len(stub.messages) == 2


@pytest.mark.parametrize("reason", [Reason.REPEAT, Reason.NEW_ALERTS, Reason.ESCALATION])
def test_what_a_person_must_hear_again_is_also_a_reply_shown_in_the_channel(stub, slack, reason):
    receipt = slack.notify(notification(alert()), None)
    slack.notify(notification(alert(), reason=reason), receipt)
    reply = stub.messages[-1]
    assert reply.thread_ts == receipt["ts"]
    assert reply.broadcast


@pytest.mark.parametrize("reason", [Reason.PROGRESS, Reason.RESOLVED, Reason.ALL_RESOLVED])
def test_progress_and_resolution_make_no_sound(stub, slack, reason):
    receipt = slack.notify(notification(alert()), None)
    slack.notify(notification(alert(), reason=reason), receipt)
    assert len(stub.messages) == 1


def test_a_message_that_was_deleted_is_posted_anew(stub, slack):
    receipt = slack.notify(notification(alert(), evidence=CHART), None)
    stub.delete(stub.messages[0])
    again = slack.notify(notification(alert(), reason=Reason.PROGRESS, evidence=CHART), receipt)
    assert again["ts"] != receipt["ts"]
    assert images(next(message for message in stub.messages if message.ts == again["ts"]))


@pytest.mark.parametrize("word", ["message_not_found", "cant_update_message", "edit_window_closed"])
def test_a_message_that_cannot_be_changed_is_posted_anew(stub, slack, word):
    receipt = slack.notify(notification(alert()), None)
    stub.fail("chat.update", Failure(error=word))
    assert slack.notify(notification(alert(), reason=Reason.PROGRESS), receipt)["ts"] != receipt["ts"]
    assert len(stub.messages) == 2


# Charts.


def test_a_chart_is_shown_in_the_message_and_lies_in_its_thread(stub, slack):
    receipt = slack.notify(notification(alert(), evidence=CHART), None)
    message, share = stub.messages
    (kept,) = stub.files.values()
    assert kept.content == PNG
    assert [block["slack_file"]["id"] for block in images(message)] == [kept.id]
    assert (share.thread_ts, share.files) == (receipt["ts"], (kept.id,))


def test_a_chart_is_uploaded_once_an_incident_and_stays_in_the_message(stub, slack):
    receipt = slack.notify(notification(alert(), evidence=CHART), None)
    slack.notify(notification(alert(), reason=Reason.PROGRESS, evidence=CHART), receipt)
    assert len(stub.files) == 1
    assert len(images(stub.messages[0])) == 1


@pytest.mark.parametrize(
    ("step", "failure"),
    [
        ("files.getUploadURLExternal", Failure(error="missing_scope")),
        ("files.getUploadURLExternal", Failure(status=429, retry_after=9)),
        ("upload", Failure(status=500)),
        ("files.completeUploadExternal", Failure(error="internal_error")),
        ("files.completeUploadExternal", Failure(status=503)),
        ("files.completeUploadExternal", Failure(error="a page that is no answer")),
    ],
)
def test_an_upload_that_fails_does_not_lose_the_message(stub, slack, caplog, step, failure):
    stub.fail(step, failure)
    receipt = slack.notify(notification(alert(), evidence=CHART), None)
    assert receipt["ts"] == stub.messages[0].ts
    assert "chart was not shown" in caplog.text


def test_an_upload_that_failed_is_tried_again_with_the_next_notification(stub, slack):
    stub.fail("files.completeUploadExternal", Failure(error="internal_error"))
    receipt = slack.notify(notification(alert(), evidence=CHART), None)
    slack.notify(notification(alert(), reason=Reason.PROGRESS, evidence=CHART), receipt)
    assert len(images(stub.messages[0])) == 1


def test_a_chart_that_slack_does_not_take_yet_stays_in_the_thread_and_is_shown_by_the_next_update(
    stub, slack
):
    stub.fail("chat.update", Failure(error="invalid_blocks"))
    receipt = slack.notify(notification(alert(), evidence=CHART), None)
    assert not images(stub.messages[0])
    slack.notify(notification(alert(), reason=Reason.PROGRESS, evidence=CHART), receipt)
    assert images(stub.messages[0])
    assert len(stub.files) == 1


def test_a_slow_upload_does_not_hold_the_caller(stub, slack, caplog, monkeypatch):
    monkeypatch.setattr(slack_module, "_TIMEOUT", 1.5)
    stub.fail("files.getUploadURLExternal", Failure(hang=20))
    assert slack.notify(notification(alert(), evidence=CHART), None)["ts"] == stub.messages[0].ts
    assert "no answer in time" in caplog.text


def test_blocks_that_slack_refuses_leave_the_text(stub, slack):
    stub.fail("chat.postMessage", Failure(error="msg_blocks_too_long"))
    slack.notify(notification(alert()), None)
    (message,) = stub.messages
    assert message.blocks == []
    assert "Full" in message.text


# Failures.


def test_too_many_requests_say_how_long_to_wait(stub, slack):
    stub.fail("chat.postMessage", Failure(status=429, retry_after=30))
    error = failure_of(slack, notification(alert()))
    assert (error.retryable, error.reason, error.retry_after) == (True, "rate_limited", 30.0)
    assert len(stub.calls) == 0, "it neither waited nor tried again"


@pytest.mark.parametrize(
    ("failure", "retryable", "reason"),
    [
        (Failure(status=500), True, "server_error"),
        (Failure(status=503), True, "server_error"),
        (Failure(error="internal_error"), True, "server_error"),
        (Failure(error="ratelimited"), True, "rate_limited"),
        (Failure(error="token_revoked"), True, "unauthorized"),
        (Failure(error="missing_scope"), True, "unauthorized"),
        (Failure(error="not_in_channel"), True, "channel"),
        (Failure(error="is_archived"), True, "channel"),
        (Failure(error="msg_too_long"), False, "rejected"),
        (Failure(error="a_word_of_tomorrow"), False, "rejected"),
    ],
)
def test_each_refusal_says_whether_to_try_again(stub, slack, failure, retryable, reason):
    stub.fail("chat.postMessage", failure)
    error = failure_of(slack, notification(alert()))
    assert (error.retryable, error.reason) == (retryable, reason)


def test_what_an_operator_must_repair_is_retried_slowly_and_says_how(stub, token_file):
    error = failure_of(
        Slack(channel="#nowhere", token_file=str(token_file), api_url=stub.url), notification(alert())
    )
    assert error.retry_after >= 60
    assert "#nowhere" in str(error)
    assert "invite the bot" in str(error)


def test_a_replaced_token_is_used_without_a_restart(slack, token_file):
    token_file.write_text("xoxb-wrong")
    error = failure_of(slack, notification(alert()))
    assert error.reason == "unauthorized"
    assert "xoxb-wrong" not in str(error)
    token_file.write_text("xoxb-right")
    assert slack.notify(notification(alert()), None)["ts"]


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"", b"two\nlines"])
def test_a_token_file_that_cannot_be_read_is_named(slack, token_file, content):
    token_file.unlink()
    if content is not None:
        token_file.write_bytes(content)
    error = failure_of(slack, notification(alert()))
    assert (error.retryable, error.reason) == (True, "token_file")
    assert str(token_file) in str(error)


def test_no_answer_is_a_timeout(stub, slack, monkeypatch):
    monkeypatch.setattr(slack_module, "_TIMEOUT", 1.5)
    stub.fail("chat.postMessage", Failure(hang=20))
    error = failure_of(slack, notification(alert()))
    assert (error.retryable, error.reason) == (True, "timeout")
    assert "no answer in time" in str(error)


@pytest.fixture
def cut_short():
    """Let go of the connections that slack-sdk leaves open when an answer breaks off, within the test."""
    yield
    for thread in threading.enumerate():
        if thread.name == "slack":
            thread.join(20)
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("cut_short")
def test_an_answer_that_comes_byte_by_byte_is_a_timeout_too(token_file, monkeypatch):
    monkeypatch.setattr(slack_module, "_TIMEOUT", 1.5)
    enough = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip, args=(server, enough))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/api/"
        error = failure_of(
            Slack(channel="#x", token_file=str(token_file), api_url=url), notification(alert())
        )
        enough.set()
        thread.join()
    assert (error.retryable, error.reason) == (True, "timeout")
    assert "no answer in time" in str(error)


def drip(server, enough):
    server.settimeout(20)
    connection, _ = server.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not enough.wait(0.2):
            connection.sendall(b" ")


def test_nobody_listening_is_unreachable(token_file):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    error = failure_of(
        Slack(channel="#x", token_file=str(token_file), api_url=f"http://127.0.0.1:{port}/api/"),
        notification(alert()),
    )
    assert (error.retryable, error.reason) == (True, "unreachable")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("cut_short")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\noops",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b'HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{"ok":true}',
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\n<html></html>",
    ],
)
def test_an_answer_that_is_none_of_slacks_is_retried(token_file, raw):
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer_once, args=(server, raw))
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/api/"
        error = failure_of(
            Slack(channel="#x", token_file=str(token_file), api_url=url), notification(alert())
        )
        thread.join()
    assert error.retryable
    assert error.reason in ("bad_answer", "unreachable")


def answer_once(server, raw):
    connection, _ = server.accept()
    with connection:
        connection.settimeout(5)
        content = b""
        while b"}" not in content:
            content += connection.recv(65_536)
        connection.sendall(raw)

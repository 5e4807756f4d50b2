"""The stand-in refuses what Slack refuses; else the tests that use it prove nothing."""

import json
import urllib.request

import pytest

from deploy.demo.slack_render import render, render_html
from deploy.demo.slack_schema import problems
from deploy.demo.slack_stub import SlackStub
from engine.model.alert import Picture
from engine.notify.slack import Slack
from tests.unit.notify.builders import PNG, alert, notification, run

TEXT = {"type": "mrkdwn", "text": "x"}


def call(stub, method, payload, token="xoxb-right"):
    request = urllib.request.Request(
        stub.url + method,
        json.dumps(payload).encode(),
        {"Content-Type": "application/json; charset=utf-8", "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def section(text="x", kind="mrkdwn", **more):
    return {"type": "section", "text": {"type": kind, "text": text, **more}}


@pytest.mark.parametrize(
    "block",
    [
        section(),
        section("x" * 3000, "plain_text", emoji=False),
        {"type": "header", "text": {"type": "plain_text", "text": "x" * 150}},
        {"type": "divider"},
        {"type": "section", "fields": [TEXT] * 10},
        {"type": "context", "elements": [TEXT] * 10},
        {"type": "image", "image_url": "https://x.example/a.png", "alt_text": "a"},
        {"type": "image", "slack_file": {"id": "F012345678"}, "alt_text": "a"},
        {"type": "actions", "elements": [{"type": "button", "text": {"type": "plain_text", "text": "Go"}, "style": "danger"}]},
    ],
)  # fmt: skip
def test_good_blocks_pass(block):
    assert problems([block]) == []


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        (section("x" * 3001), "must be less than 3001 characters [json-pointer:/blocks/0/text/text]"),
        (section(""), "must be more than 0 characters [json-pointer:/blocks/0/text/text]"),
        (section(kind="markdown"), "unsupported type: markdown [json-pointer:/blocks/0/text/type]"),
        (section(colour="red"), "invalid additional property: colour [json-pointer:/blocks/0/text]"),
        ({"type": "section"}, "must provide one of text, fields [json-pointer:/blocks/0]"),
        ({"type": "header"}, "missing required field: text [json-pointer:/blocks/0]"),
        ({"type": "header", "text": TEXT}, "unsupported type: mrkdwn [json-pointer:/blocks/0/text/type]"),
        ({"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}, "must be less than 151 characters [json-pointer:/blocks/0/text/text]"),
        ({"type": "section", "fields": [TEXT] * 11}, "no more than 10 items allowed [json-pointer:/blocks/0/fields]"),
        ({"type": "context", "elements": []}, "no fewer than 1 items allowed [json-pointer:/blocks/0/elements]"),
        ({"type": "image", "alt_text": "a"}, "must provide one of image_url, slack_file [json-pointer:/blocks/0]"),
        ({"type": "image", "slack_file": {"id": "F1"}, "alt_text": "a"}, "input must match regex pattern: ^F[A-Z0-9]{8,}$ [json-pointer:/blocks/0/slack_file/id]"),
        ({"type": "carousel"}, "unsupported type: carousel [json-pointer:/blocks/0/type]"),
        ("text", "unsupported type: None [json-pointer:/blocks/0/type]"),
    ],
)  # fmt: skip
def test_bad_blocks_are_refused_in_slacks_words(block, problem):
    assert problem in problems([block])


def test_more_than_fifty_blocks_are_refused():
    assert problems([section()] * 51) == ["no more than 50 items allowed [json-pointer:/blocks]"]


@pytest.mark.parametrize(
    ("method", "payload", "word"),
    [
        ("chat.postMessage", {"channel": "#elsewhere", "text": "x"}, "channel_not_found"),
        ("chat.postMessage", {"channel": "#ray-alerts"}, "no_text"),
        ("chat.postMessage", {"channel": "#ray-alerts", "text": "x" * 40_001}, "msg_too_long"),
        ("chat.postMessage", {"channel": "#ray-alerts", "blocks": [{"type": "x"}]}, "invalid_blocks"),
        (
            "chat.postMessage",
            {"channel": "#ray-alerts", "blocks": [section("x" * 3000)] * 4},
            "msg_blocks_too_long",
        ),
        ("chat.postMessage", {"channel": "#ray-alerts", "text": "x", "thread_ts": "1.0"}, "thread_not_found"),
        ("chat.update", {"channel": "#ray-alerts", "ts": "1.0", "text": "x"}, "channel_not_found"),
        ("files.getUploadURLExternal", {"filename": "a.png"}, "invalid_arguments"),
        ("files.completeUploadExternal", {"files": [{"id": "F0"}]}, "file_not_found"),
        ("chat.whisper", {}, "unknown_method"),
    ],
)
def test_bad_calls_are_refused_in_slacks_words(stub, method, payload, word):
    assert call(stub, method, payload)["error"] == word


@pytest.mark.parametrize(("token", "word"), [("", "not_authed"), ("xoxb-wrong", "invalid_auth")])
def test_a_token_is_demanded(stub, token, word):
    assert call(stub, "auth.test", {}, token) == {"ok": False, "error": word}


def test_a_refusal_of_blocks_says_where(stub):
    answer = call(stub, "chat.postMessage", {"channel": "#ray-alerts", "blocks": [section("")]})
    assert answer["response_metadata"]["messages"] == [
        "[ERROR] must be more than 0 characters [json-pointer:/blocks/0/text/text]"
    ]


def test_a_file_that_was_not_shared_with_the_channel_cannot_be_shown_there(stub):
    given = call(stub, "files.getUploadURLExternal", {"filename": "a.png", "length": "3"})
    urllib.request.urlopen(given["upload_url"], b"png", timeout=10).close()
    call(stub, "files.completeUploadExternal", {"files": [{"id": given["file_id"]}]})
    image = {"type": "image", "slack_file": {"id": given["file_id"]}, "alt_text": "a"}
    answer = call(stub, "chat.postMessage", {"channel": "#ray-alerts", "blocks": [image]})
    assert answer["errors"] == ["invalid slack file [json-pointer:/blocks/0/slack_file]"]


def test_messages_and_files_are_kept_in_the_folder(tmp_path, token_file):
    evidence = {alert().fingerprint: (Picture("c", PNG, "alt"),)}
    with SlackStub(folder=tmp_path / "slack") as stub:
        Slack(channel="#a", token_file=str(token_file), api_url=stub.url).notify(
            notification(alert(), evidence=evidence), None
        )
    kept = sorted((tmp_path / "slack").iterdir())
    assert [path.suffix for path in kept] == [".png", ".json", ".json"]
    assert kept[0].read_bytes() == PNG
    assert json.loads(kept[1].read_text())["history"]


@pytest.fixture
def told(stub, slack):
    evidence = {alert().fingerprint: (Picture("chart", PNG, "7 GiB now"),)}
    slack.notify(notification(alert(note="<b>&</b>"), runs=(run(),), evidence=evidence), None)
    slack.notify(notification(alert(), evidence=evidence, external_url="https://engine.example.com"), None)
    return stub


def test_a_message_is_rendered_for_the_terminal(told):
    text = render(told.messages[0])
    assert "== 🟠 Full ==" in text
    assert "note=<b>&</b>" in text
    assert "▶ free objects engine-abc" in text
    assert "Engine (https://engine.example.com)" in render(told.messages[1])


def test_a_channel_is_rendered_as_a_page(told):
    page = render_html(told.messages, told.files)
    assert "<h2>🟠 Full</h2>" in page
    assert "<code>note=&lt;b&gt;&amp;&lt;/b&gt;</code>" in page
    assert '<a href="https://engine.example.com">Engine</a>' in page
    assert 'src="data:image/png;base64,' in page
    assert "1 reply" in page
    assert "\0" not in page

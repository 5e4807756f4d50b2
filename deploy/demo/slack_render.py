"""A Slack message as text for the terminal, and a channel as a page for a picture.

An own rendering of the blocks, near enough to Slack's to judge a message by; not Slack's code or style sheet.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from deploy.demo.slack_stub import File, Message

Block = Mapping[str, Any]


# For the terminal.


def render(message: Message) -> str:
    """Return the message as lines of text."""
    lines = [line for block in message.blocks for line in _block_lines(block)] or [_plain_of(message.text)]
    edited = f", edited {len(message.history)} times" if message.history else ""
    lines += [f"[file {file_id}]" for file_id in message.files]
    indent = "    " if message.thread_ts else "  "
    return "\n".join(
        [f"#{message.channel_name} {_time(message.ts)}{edited}", *(indent + line for line in lines)]
    )


def _block_lines(block: Block) -> Iterable[str]:
    match block["type"]:
        case "header":
            yield f"== {block['text']['text']} =="
        case "divider":
            yield "-" * 40
        case "image":
            yield f"[chart: {block['alt_text']}]"
        case "actions":
            yield " ".join(f"[{button['text']['text']}]" for button in block["elements"])
        case "context":
            yield "  ".join(_text_of(element) for element in block["elements"])
        case _:
            if "text" in block:
                yield from _text_of(block["text"]).splitlines()
            for text in block.get("fields", ()):
                yield _text_of(text).replace("\n", ": ")


def _text_of(text: Block) -> str:
    if text["type"] == "image":
        return f"[image: {text['alt_text']}]"
    return str(text["text"]) if text["type"] == "plain_text" else _plain_of(str(text["text"]))


def _plain_of(mrkdwn: str) -> str:
    """Return mrkdwn as it reads: links as `text (url)`, without the marks."""
    text = re.sub(r"<(https?://[^|>]+)\|([^>]*)>", r"\2 (\1)", mrkdwn)
    text = re.sub(r"(?<![\w*])\*([^*\n]+)\*(?![\w*])", r"\1", text.replace("```", "\n").strip("\n"))
    return html.unescape(text.replace("`", ""))


# For a picture.


def render_html(messages: Sequence[Message], files: Mapping[str, File] | None = None, title: str = "") -> str:
    """Return a static page that shows the messages of one channel, replies folded under their message."""
    known, tops = (
        files or {},
        [message for message in messages if message.thread_ts is None or message.broadcast],
    )
    name = title or (tops[0].channel_name if tops else "channel")
    shown = "\n".join(_message(message, messages, known) for message in tops)
    return (
        _PAGE.replace("{{name}}", html.escape(name))
        .replace("{{style}}", _STYLE)
        .replace("{{messages}}", shown)
    )


def _message(message: Message, messages: Sequence[Message], files: Mapping[str, File]) -> str:
    body = "".join(_block(block, files) for block in message.blocks) or f"<p>{_mrkdwn(message.text)}</p>"
    edited = '<span class="soft"> (edited)</span>' if message.history else ""
    replies = [reply for reply in messages if reply.thread_ts == message.ts]
    count = f"{len(replies)} {'reply' if len(replies) == 1 else 'replies'}"
    thread = f'<div class="thread">{count}</div>' if replies else ""
    return (
        f'<article><div class="avatar">e</div><div class="body"><div><b class="who">engine</b>'
        f'<span class="app">APP</span><span class="soft">{_time(message.ts)}</span></div>'
        f"{body}{edited}{thread}</div></article>"
    )


def _block(block: Block, files: Mapping[str, File]) -> str:
    match block["type"]:
        case "header":
            return f"<h2>{html.escape(block['text']['text'])}</h2>"
        case "divider":
            return "<hr>"
        case "image":
            return _image(block, files)
        case "actions":
            buttons = (f"<button>{html.escape(each['text']['text'])}</button>" for each in block["elements"])
            return f'<div class="actions">{"".join(buttons)}</div>'
        case "context":
            return f'<div class="context">{" ".join(map(_text, block["elements"]))}</div>'
    text = f"<div>{_text(block['text'])}</div>" if "text" in block else ""
    fields = "".join(f"<div>{_text(each)}</div>" for each in block.get("fields", ()))
    return f"<section>{text}{f'<div class=fields>{fields}</div>' if fields else ''}</section>"


def _image(block: Block, files: Mapping[str, File]) -> str:
    kept = files.get(block.get("slack_file", {}).get("id", ""))
    source = (
        "data:image/png;base64," + base64.b64encode(kept.content).decode()
        if kept
        else block.get("image_url", "")
    )
    caption = html.escape(block.get("title", {}).get("text", ""))
    alt = html.escape(block["alt_text"])
    return (
        f'<figure><figcaption>{caption} ▾</figcaption><img src="{html.escape(source)}" alt="{alt}"></figure>'
    )


def _text(text: Block) -> str:
    if text["type"] == "plain_text":
        return html.escape(str(text["text"])).replace("\n", "<br>")
    return "" if text["type"] == "image" else _mrkdwn(str(text["text"]))


def _mrkdwn(text: str) -> str:
    """Return mrkdwn as HTML. Its own escapes are HTML's already; code is set aside so that nothing acts in it."""
    kept: list[str] = []

    def keep(tag: str) -> Callable[[re.Match[str]], str]:
        def replaced(found: re.Match[str]) -> str:
            kept.append(f"<{tag}>{found[1].strip(chr(10))}</{tag}>")
            return f"\0{len(kept) - 1}\0"

        return replaced

    text = re.sub(r"(?s)```(.+?)```", keep("pre"), text)
    text = re.sub(r"`([^`\n]+)`", keep("code"), text)
    text = re.sub(r"<(https?://[^|>]+)\|([^>]*)>", r'<a href="\1">\2</a>', text)
    for mark, tag in (("*", "b"), ("_", "i"), ("~", "s")):
        at = re.escape(mark)
        text = re.sub(rf"(?<![\w{at}]){at}([^{at}\n]+){at}(?![\w{at}])", rf"<{tag}>\1</{tag}>", text)
    text = re.sub(r"\0\n|\n(?=\0)", lambda found: found[0].strip("\n"), text).replace("\n", "<br>")
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)


def _time(ts: str) -> str:
    return f"{datetime.fromtimestamp(float(ts), UTC):%H:%M}"


_STYLE = """
* { box-sizing: border-box }
body { margin: 0; background: #fff; color: #1d1c1d;
  font: 15px/1.46 Lato, "Noto Sans", "Liberation Sans", sans-serif }
header { padding: 12px 20px; border-bottom: 1px solid #e4e4e6; font-size: 18px; font-weight: 900 }
article { display: flex; gap: 9px; padding: 10px 20px }
.avatar { width: 36px; height: 36px; flex: none; border-radius: 8px; background: #1264a3; color: #fff;
  font: 900 22px/34px Lato, "Liberation Sans", sans-serif; text-align: center }
.body { min-width: 0; max-width: 680px; flex: 1 }
.who { font-weight: 900 }
.app { margin: 0 6px; padding: 0 3px; border-radius: 2px; background: #e8e8e8; color: #616061;
  font-size: 10px; font-weight: 700 }
.soft { color: #616061; font-size: 12px }
h2 { margin: 6px 0 4px; font-size: 18px; line-height: 1.33; font-weight: 900 }
section, figure, .actions { margin: 8px 0 }
.context { margin: 8px 0; color: #616061; font-size: 13px; line-height: 1.5 }
.fields { display: grid; grid-template-columns: 1fr 1fr; gap: 8px 16px }
code { padding: 2px 3px 1px; border: 1px solid #dddddd; border-radius: 3px; color: #c01343;
  background: #f8f8f8;
  font: 12px/1.5 Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere }
pre { margin: 4px 0; padding: 8px; border: 1px solid #dddddd; border-radius: 4px;
  background: #f8f8f8;
  font: 12px/1.5 Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere }
figcaption { color: #616061; font-size: 13px; margin-bottom: 4px }
img { display: block; width: 100%; border: 1px solid #e4e4e6; border-radius: 8px }
a, .thread { color: #1264a3; text-decoration: none }
.thread { margin-top: 6px; font-size: 13px; font-weight: 700 }
button { padding: 4px 12px; border: 1px solid #bbbbbb; border-radius: 4px; background: #fff;
  font: 700 13px Lato, sans-serif }
hr { border: 0; border-top: 1px solid #e4e4e6 }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>#{{name}}</title><style>{{style}}</style></head>
<body><header># {{name}}</header>
{{messages}}
</body></html>
"""

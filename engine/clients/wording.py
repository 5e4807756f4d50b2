"""What another program said, in one line that fits into a message."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

LONGEST = 300  # characters

_TITLE = re.compile(r"<(title|h1)\b[^>]{0,200}>(.{0,400}?)</\1", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]{0,400}>")
_RAISED = re.compile(
    r"^(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning)|[a-z_][\w.]*\.[A-Z]\w*)(?::|$)"
)


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return `text` as one line of printable characters, cut at `longest`."""
    # The rest is not looked at: the text may be huge, and none of ours.
    printable = "".join(char if char.isprintable() else " " for char in text[: 20 * longest])
    line = " ".join(printable.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def telling_line(body: bytes) -> str:
    """Return the line that says what is wrong: a traceback's end, a page's title, or the first."""
    text = body[:100_000].decode("utf-8", "replace").strip()
    if "Traceback (most recent call last)" in text:
        return one_line(_raised(text.splitlines()))
    if text.startswith("<"):
        title = _TITLE.search(text)
        return one_line(_TAG.sub(" ", title[2] if title else text))
    return one_line(next((line for line in text.splitlines() if line.strip()), ""))


def _raised(lines: list[str]) -> str:
    """Return the last line of a traceback that names an exception; its further text comes after."""
    named = [line for line in lines if _RAISED.match(line)]
    return named[-1] if named else lines[-1]


def host_of(url: str) -> str:
    """Return the host and port of `url`, without the user and password that may be in it."""
    try:
        host = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    return one_line(host, 100) or "no host"


def hide(text: str, secrets: Iterable[str]) -> str:
    """Return `text` without `secrets`, in case the other side repeated one."""
    for secret in secrets:
        text = text.replace(secret, "***") if secret else text
    return text


def root_cause(error: BaseException) -> BaseException:
    """Return the innermost exception in `error`: a cause, a reason, an argument or the context."""
    seen = {id(error)}
    while True:
        context = None if error.__suppress_context__ else error.__context__
        candidates = (error.__cause__, getattr(error, "reason", None), *reversed(error.args), context)
        inner = next((it for it in candidates if isinstance(it, BaseException) and id(it) not in seen), None)
        if inner is None:
            return error
        seen.add(id(inner))
        error = inner


def fault(error: BaseException) -> str:
    """Return in words what went wrong with a connection; the innermost exception speaks, and names no URL."""
    cause = root_cause(error)
    verify: str = getattr(cause, "verify_message", "")
    if verify:
        return one_line(f"certificate verify failed: {verify}")
    if isinstance(cause, OSError):
        return one_line((cause.strerror or str(cause) or type(cause).__name__).lower())
    name = type(cause).__name__
    return one_line(str(cause) if str(cause).startswith(name) else f"{name}: {cause}")

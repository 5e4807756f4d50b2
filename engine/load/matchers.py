"""Text to matchers and labels: `alertname=~"A|B"`, `{a="b",c!="d"}`, `metric{a="b"}`."""

from __future__ import annotations

import re
from typing import NamedTuple

from engine.model.labels import METRIC_NAME, Labels, Matcher, Matchers, MatchOp

_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`"
_NAME = re.compile(rf"\s*({_QUOTED}|[^\s{{}}!=~,\"'`\\]+)\s*", re.DOTALL)
_OP = re.compile(r"\s*(=~|!~|!=|=)\s*")
_VALUE = re.compile(rf"({_QUOTED}|[^\s{{}},\"'`]*)\s*", re.DOTALL)
_METRIC = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)?\s*")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[0-7]{3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|[^\\]+", re.DOTALL)
_LETTERS = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "'": "'",
}


class Misread(ValueError):
    """Text that cannot be read, and the index of the character at which it went wrong."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


class _Part(NamedTuple):
    name: str
    op: str | None  # None: a name alone
    value: str
    offset: int


def parse_matchers(text: str) -> Matchers:
    """Return the matchers that `text` lists, with or without braces. Raises Misread."""
    start, end = _inside_braces(text)
    parts = _parts(text, start, end)
    if not parts and start == 0:
        raise Misread('no matcher is written here; write one like severity="critical"')
    for part in parts:
        if part.op is None:
            raise Misread(f'{part.name!r} is not compared with anything; write {part.name}="…"', part.offset)
    return Matchers(_matcher(part) for part in parts)


def _matcher(part: _Part) -> Matcher:
    try:
        return Matcher(part.name, MatchOp(str(part.op)), part.value)
    except ValueError as error:
        raise Misread(str(error), part.offset) from None


def parse_series(text: str) -> Labels:
    """Return the labels of the series that `text` names, the metric's name among them. Raises Misread."""
    found = _METRIC.match(text)
    name, at = (found[1], found.end()) if found else (None, 0)
    labels = {METRIC_NAME: name} if name else {}
    if at < len(text):
        if text[at] != "{":
            raise Misread('not a series; write one like metric{label="value"}', at)
        for part in _parts(text, *_inside_braces(text, at)):
            _add_label(labels, part)
    if not labels:
        raise Misread("a series needs a name or a label")
    return Labels(labels)


def _add_label(labels: dict[str, str], part: _Part) -> None:
    name, value = (METRIC_NAME, part.name) if part.op is None else (part.name, part.value)
    if part.op not in (None, "="):
        raise Misread(
            f'a series has labels, not matchers: write {name}="…" instead of {part.op}', part.offset
        )
    if name in labels:
        raise Misread(f"label {name!r} is given twice", part.offset)
    labels[name] = value


def _inside_braces(text: str, at: int = 0) -> tuple[int, int]:
    """Return where what stands from `at` on begins and ends, without braces around it."""
    start, end = len(text) - len(text[at:].lstrip()), len(text.rstrip())
    if text[start : start + 1] != "{":
        return at, end
    if end - start < 2 or text[end - 1] != "}":
        raise Misread("the closing brace is missing", end)
    return start + 1, end - 1


def _parts(text: str, at: int, end: int) -> list[_Part]:
    """Return the parts between commas; one comma may end the list."""
    parts: list[_Part] = []
    while text[at:end].strip():
        part, at = _part(text, at, end)
        parts.append(part)
        if at < end:
            if text[at] != ",":
                raise Misread(
                    f"unexpected {text[at]!r}; put commas between them, and quotes around spaces and braces",
                    at,
                )
            at += 1
    return parts


def _part(text: str, at: int, end: int) -> tuple[_Part, int]:
    name = _NAME.match(text, at, end)
    if name is None:
        raise Misread(f"unexpected {text[at:end].lstrip()[0]!r}; a label's name is expected here", at)
    op = _OP.match(text, name.end(), end)
    if op is None:
        if name.end() < end and text[name.end()] != ",":
            raise Misread(f"{name[1]!r} must be followed by =, !=, =~ or !~", name.end())
        return _Part(_unquote(name[1], name.start(1)), None, "", name.start(1)), name.end()
    value = _VALUE.match(text, op.end(), end)
    if value is None or (not value[1] and text[op.end() : op.end() + 1] in ('"', "'", "`")):
        raise Misread("the closing quote is missing", op.end())
    label = _unquote(name[1], name.start(1))
    if not label:
        raise Misread("a label's name cannot be empty", name.start(1))
    return _Part(label, op[1], _unquote(value[1], value.start(1)), name.start(1)), value.end()


def _unquote(text: str, offset: int) -> str:
    """Return what a quoted string stands for; an unknown escape stays as it is, as in Alertmanager."""
    if text[:1] == "`":
        return text[1:-1]
    if text[:1] not in ('"', "'"):
        return text
    try:
        return b"".join(_unescape(match) for match in _ESCAPE.finditer(text[1:-1])).decode()
    except ValueError:
        raise Misread(f"{text} holds an escape that is no character", offset) from None


def _unescape(match: re.Match[str]) -> bytes:
    escape = match[1]
    if escape is None:
        return match[0].encode()
    if escape in _LETTERS:
        return _LETTERS[escape].encode()
    if len(escape) == 1:
        return match[0].encode()
    if escape[0] in "uU":
        return chr(int(escape[1:], 16)).encode()
    return bytes([int(escape[1:], 16) if escape[0] == "x" else int(escape, 8)])

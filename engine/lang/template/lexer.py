"""Splits a template into text and the tokens of its actions, as Go's text/template does."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from engine.errors import TemplateError

LEFT, RIGHT = "{{", "}}"
_SPACES = " \t\r\n"

KEYWORDS = frozenset(
    ("block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with")
)


class Kind(StrEnum):
    """What a token is; the values are how messages call it."""

    TEXT = "text"
    LEFT = "{{"
    RIGHT = "}}"
    SPACE = "space"
    DECLARE = ":="
    ASSIGN = "="
    PIPE = "|"
    OPEN = "("
    CLOSE = ")"
    COMMA = ","
    STRING = "string"
    CHARACTER = "character"
    NUMBER = "number"
    BOOL = "bool"
    VARIABLE = "variable"
    FIELD = "field"
    DOT = "."
    KEYWORD = "keyword"
    NAME = "function"
    END = "end of the template"


class Token(NamedTuple):
    """A piece of a template; `position` is its first character's, from 0."""

    kind: Kind
    text: str
    position: int

    def __str__(self) -> str:
        if self.kind is Kind.END:
            return self.kind
        return repr(self.text if len(self.text) <= 30 else f"{self.text[:30]}…")


def place(text: str, position: int) -> tuple[int, int]:
    """Return line and column of a position, both from 1."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def error_at(text: str, position: int, message: str) -> TemplateError:
    """Return the error to raise about what is at `position`."""
    return TemplateError(message, *place(text, position))


_NUMBER = (
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?|0[oO][0-7_]+|0[bB][01_]+|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)"
    r"(?:[pP][+-]?[0-9_]*)?i?"
)
_TOKENS = (
    (Kind.SPACE, rf"[{_SPACES}]+(?!-\}}\}})"),  # the space of a trim marker ` -}}` belongs to the marker
    (Kind.DECLARE, r":="),
    (Kind.ASSIGN, r"="),
    (Kind.PIPE, r"\|"),
    (Kind.OPEN, r"\("),
    (Kind.CLOSE, r"\)"),
    (Kind.COMMA, r","),
    (Kind.STRING, r'"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`'),
    (Kind.CHARACTER, r"'(?:[^'\\\n]|\\[^\n])*'"),
    (Kind.VARIABLE, r"\$\w*"),
    (Kind.NUMBER, rf"(?=[+-]|\.?[0-9]){_NUMBER}"),
    (Kind.FIELD, r"\.\w+"),
    (Kind.DOT, r"\."),
    (Kind.NAME, r"\w+"),
)
_TOKEN = re.compile("|".join(f"(?P<{kind.name}>{pattern})" for kind, pattern in _TOKENS))
_UNCLOSED = {'"': "unterminated string", "`": "unterminated raw string", "'": "unterminated character"}
_AFTER_WORD = re.compile(rf"[{_SPACES}.,|:)(]|\}}\}}|\Z")
_TRIMMED_RIGHT = re.compile(rf"[{_SPACES}]-\}}\}}")


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.tokens: list[Token] = []

    def run(self) -> list[Token]:
        trim = False
        while True:
            start = self.text.find(LEFT, self.position)
            end = len(self.text) if start < 0 else start
            chunk, at = self.text[self.position : end], self.position
            if trim:
                at += len(chunk) - len(chunk.lstrip(_SPACES))
                chunk = chunk.lstrip(_SPACES)
            marked = start >= 0 and self._left_is_marked(start)
            if marked:
                chunk = chunk.rstrip(_SPACES)
            if chunk:
                self.tokens.append(Token(Kind.TEXT, chunk, at))
            if start < 0:
                self.tokens.append(Token(Kind.END, "", end))
                return self.tokens
            self.position = start + (4 if marked else 2)
            trim = self._comment(start) if self.text.startswith("/*", self.position) else self._action(start)

    def _left_is_marked(self, start: int) -> bool:
        return self.text[start + 2 : start + 3] == "-" and self.text[start + 3 : start + 4] in tuple(_SPACES)

    def _right(self) -> int:
        """Return the length of the closing delimiter here, with its trim marker; 0 if there is none."""
        if self.text.startswith(RIGHT, self.position):
            return 2
        return 4 if _TRIMMED_RIGHT.match(self.text, self.position) else 0

    def _comment(self, start: int) -> bool:
        """Pass over a comment; return whether the text after it is trimmed."""
        end = self.text.find("*/", self.position)
        if end < 0:
            raise error_at(self.text, start, "unclosed comment; write {{/* … */}}")
        self.position = end + 2
        length = self._right()
        if not length:
            raise error_at(self.text, end, "a comment must end with */}}")
        self.position += length
        return length == 4

    def _action(self, start: int) -> bool:
        """Read an action's tokens; return whether the text after it is trimmed."""
        self.tokens.append(Token(Kind.LEFT, LEFT, start))
        depth = 0
        while not (length := self._right()):
            token = self._token(start)
            depth += {Kind.OPEN: 1, Kind.CLOSE: -1}.get(token.kind, 0)
            if depth < 0:
                raise error_at(self.text, token.position, "unexpected ')': nothing opened it")
            self.tokens.append(token)
            self.position = token.position + len(token.text)
        if depth:
            raise error_at(self.text, self.position, "unclosed '('")
        self.tokens.append(Token(Kind.RIGHT, RIGHT, self.position))
        self.position += length
        return length == 4

    def _token(self, start: int) -> Token:
        match = _TOKEN.match(self.text, self.position)
        if match is None or match.lastgroup is None:
            raise self._unreadable(start)
        kind, word = Kind[match.lastgroup], match[0]
        if kind in (Kind.VARIABLE, Kind.FIELD, Kind.DOT, Kind.NAME, Kind.NUMBER):
            self._check_end(kind, word, match.end())
        if kind is Kind.NAME and word in KEYWORDS:
            kind = Kind.KEYWORD
        elif word in ("true", "false"):
            kind = Kind.BOOL
        return Token(kind, word, self.position)

    def _check_end(self, kind: Kind, word: str, end: int) -> None:
        following = self.text[end : end + 1]
        if kind is Kind.NUMBER:
            if re.match(r"[\w+-]", following):
                raise error_at(self.text, self.position, f"bad number syntax: {word + following!r}")
        elif not _AFTER_WORD.match(self.text, end):
            raise error_at(self.text, end, f"bad character {following!r} after {word!r}")

    def _unreadable(self, start: int) -> TemplateError:
        character = self.text[self.position : self.position + 1]
        if not character:
            return error_at(self.text, start, "unclosed action: {{ without }}")
        if character in _UNCLOSED:
            return error_at(self.text, self.position, _UNCLOSED[character])
        if character == ":":
            return error_at(self.text, self.position, "expected := after the variable")
        return error_at(self.text, self.position, f"unexpected {character!r} in an action")


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a template, the last of kind END; raise TemplateError where it cannot be read."""
    return _Lexer(text).run()

"""Where in an expression something is wrong.

The parser's messages carry no place, so it is found again here: by the
brackets, by two words that cannot stand beside each other, or by the smallest
part in brackets that is refused by itself with the same message.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<blank>   \s+ | \#[^\n]* )
  | (?P<string>  "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*` )
  | (?P<number>  (?:0x[0-9a-fA-F]+ | \d+(?:\.\d*)?(?:e[-+]?\d+)? | \.\d+) \w* )
  | (?P<colon>   : (?=[\d\s\]]) )
  | (?P<word>    [A-Za-z_:][\w:.]* )
  | (?P<operator> == | != | =~ | !~ | <= | >= | [-+*/%^<>=@] )
  | (?P<comma>   , )
  | (?P<open>    [(\[{] )
  | (?P<close>   [)\]}] )
  | (?P<other>   . )
    """,
    re.VERBOSE | re.DOTALL,
)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
WORD_OPERATORS = frozenset({"and", "or", "unless", "atan2"})
MODIFIERS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"})

_BEFORE_TIMES = frozenset({"start", "end", "+", "-", "("})


class Token(NamedTuple):
    """A word of an expression and where it starts."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The index after the last character."""
        return self.start + len(self.text)


def tokens(text: str) -> list[Token]:
    """Return the words of `text` without blanks and comments."""
    found = (Token(str(match.lastgroup), match.group(), match.start()) for match in _TOKEN.finditer(text))
    return [token for token in found if token.kind != "blank"]


def shape(text: str) -> list[str]:
    """Return the words of `text` less what its strings hold: equal for queries that differ in those alone."""
    return [token.text[0] if token.kind == "string" else token.text for token in tokens(text)]


def line_and_column(text: str, index: int) -> tuple[int, int]:
    """Return the place of a character, counted from 1."""
    before = text[:index]
    return before.count("\n") + 1, index - before.rfind("\n")


def find_culprit(text: str, message: str, refusal: Callable[[str], str]) -> int | None:
    """Return the index of what the parser refused with `message`, if it can be told.

    `refusal` returns the message with which a part is refused by itself, if it is.
    """
    words = tokens(text)
    if (bracket := _unbalanced(words)) is not None:
        return bracket
    if (stray := _misplaced(words)) is not None:
        return stray
    # Inner parts close first, so the first that fails in the same way is the smallest.
    for start, end in _parts(words):
        if refusal(text[start:end]) == message:
            return start
    return None


def find_word(text: str, word: str) -> int | None:
    """Return the index of the first token that is `word`."""
    return next((token.start for token in tokens(text) if token.text == word), None)


def find_alternative(text: str) -> int | None:
    """Return the index of the first `or` inside braces."""
    inside = False
    for token in tokens(text):
        if token.text in "{}":
            inside = token.text == "{"
        elif inside and token.text.lower() == "or":
            return token.start
    return None


def is_too_large(number: str) -> bool:
    """Tell whether the text of a number stands for more than a float can hold."""
    try:
        return math.isinf(float(number))
    except ValueError:
        return False  # hexadecimal, or a duration


def _unbalanced(words: Sequence[Token]) -> int | None:
    opened: list[Token] = []
    for token in words:
        if token.kind == "open":
            opened.append(token)
        elif token.kind == "close" and (not opened or _PAIRS[opened.pop().text] != token.text):
            return token.start
    return opened[-1].start if opened else None


def _parts(words: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield the span of every bracketed part with the word before it, inner parts first."""
    opened: list[int] = []
    for index, token in enumerate(words):
        if token.kind == "open":
            opened.append(index)
        elif token.kind == "close":
            first = opened.pop()
            if first and words[first - 1].kind == "word" and words[first].text != "[":
                first -= 1
            yield words[first].start, token.end


def _misplaced(words: Sequence[Token]) -> int | None:
    """Return where one operand follows another, or an operator or modifier has nothing to work on."""
    in_braces = False
    for left, right in pairwise(words):
        if left.text in "{}":
            in_braces = left.text == "{"
        if _cannot_follow(left, right, in_braces=in_braces):
            return right.start
        if ends_operand(left) and right.kind in ("word", "number", "string") and not _joins(right):
            return right.start
        if is_operator(left) and (right.kind in ("close", "comma") or _is_binary(right)):
            return right.start
    if words and (is_operator(words[-1]) or _joins(words[-1])):
        return words[-1].start
    return next((token.start for token in words if token.kind == "other"), None)


def _cannot_follow(left: Token, right: Token, *, in_braces: bool) -> bool:
    if in_braces:
        return right.kind == "number"
    before, after = left.text.lower(), right.text.lower()
    return (
        after in ("=", "=~", "!~")
        or before + after in ("}{", "boolbool")
        or (before in ("@", "offset") and right.kind != "number" and after not in _BEFORE_TIMES)
        or (before in ("on", "ignoring") and after != "(")
    )


def ends_operand(token: Token) -> bool:
    """Tell whether an operand may end with `token`; of a closing parenthesis it depends on what it opened."""
    plain_word = token.kind == "word" and token.text.lower() not in WORD_OPERATORS | MODIFIERS
    return plain_word or token.kind in ("number", "string") or token.text in "}]"


def _joins(token: Token) -> bool:
    return token.text.lower() in WORD_OPERATORS | MODIFIERS


def is_operator(token: Token) -> bool:
    """Tell whether `token` is an operator, a sign or `@`."""
    return token.kind == "operator" or token.text.lower() in WORD_OPERATORS


def _is_binary(token: Token) -> bool:
    return is_operator(token) and token.text not in ("+", "-")

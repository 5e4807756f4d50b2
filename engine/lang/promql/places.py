"""Where in its text a part of an expression stands.

The parser's tree has no places. But selectors and calls come in the text in the
order in which the tree is read from the outside in, and operators between
vectors in the order of their operands; so they are counted on both sides. That
is done only for errors and for `engine check`: nothing here costs an evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.errors import ExpressionError
from engine.lang.promql.lexis import (
    MODIFIERS,
    WORD_OPERATORS,
    Token,
    ends_operand,
    is_operator,
    line_and_column,
    tokens,
)
from engine.lang.promql.parse import parse
from engine.lang.promql.syntax import Aggregation, Binary, Call, Node, Number, Selector, Text, children, walk

_NO_CALL = MODIFIERS | WORD_OPERATORS | {"start", "end"}
_NO_OPERAND = MODIFIERS - {"by", "without"}  # after whose labels the operand is yet to come
_LABELS_FOLLOW = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_NUMBERS = frozenset({"inf", "nan"})
_BEFORE_NUMBERS = frozenset({"bool", "+", "-", "("})


class Span(NamedTuple):
    """Characters `[start, end)` of an expression."""

    start: int
    end: int


class Places:
    """An expression with the place of each of its parts; of a part that cannot be placed it is all of the text."""

    def __init__(self, expr: str) -> None:
        """Parse `expr`, or raise ExpressionError."""
        self.expr = expr
        self.root = parse(expr)
        self._words = tokens(expr)
        self._heads: dict[int, Token] = {}
        self._selectors: dict[int, _SelectorText] = {}
        nodes = list(_in_order(self.root))
        self._pair((Call, Aggregation), nodes, list(_calls(self._words)))
        self._pair(Binary, nodes, list(_operators(self._words)))
        selectors = [node for node in nodes if isinstance(node, Selector)]
        texts = list(_selectors(self._words))
        if len(selectors) == len(texts):
            self._selectors = {id(node): text for node, text in zip(selectors, texts, strict=True)}

    def _pair(self, kinds: type | tuple[type, ...], nodes: Sequence[Node], words: Sequence[Token]) -> None:
        found = [node for node in nodes if isinstance(node, kinds)]
        if len(found) == len(words):
            self._heads.update({id(node): word for node, word in zip(found, words, strict=True)})

    @property
    def whole(self) -> Span:
        """The whole expression, less the white space around it."""
        text = self.expr
        return Span(len(text) - len(text.lstrip()), len(text.rstrip()))

    def head(self, node: Node) -> Span:
        """Return where the name of a call, an operator, or the name of a metric stands."""
        if isinstance(node, Selector) and (text := self._selectors.get(id(node))):
            return text.name or text.whole
        word = self._heads.get(id(node))
        return Span(word.start, word.end) if word is not None else self.of(node)

    def of(self, node: Node) -> Span:
        """Return from where to where a part stands: a call with its arguments, operands with their operator."""
        if isinstance(node, Selector):
            text = self._selectors.get(id(node))
            return text.whole if text is not None else self.whole
        if isinstance(node, Call | Aggregation) and (word := self._heads.get(id(node))) is not None:
            return Span(word.start, self._end_of_call(word))
        inner = [self.of(child) for child in children(node) if not isinstance(child, Number | Text)]
        if isinstance(node, Binary) and (word := self._heads.get(id(node))) is not None:
            inner += self._numbers(node, self._words.index(word))
        if not inner:
            return self.whole
        return Span(min(each.start for each in inner), max(each.end for each in inner))

    def _numbers(self, node: Binary, index: int) -> Iterator[Span]:
        """Yield where the operands of the operator at `index` that are mere numbers stand."""
        if isinstance(node.left, Number):
            before = self._words[index - 1]
            yield Span(before.start, before.end)
        if isinstance(node.right, Number):
            after = next(
                each for each in self._words[index + 1 :] if each.text.lower() not in _BEFORE_NUMBERS
            )
            yield Span(self._words[index].start, after.end)

    def matcher(self, node: Selector, index: int) -> Span:
        """Return where the selector's matcher of that index stands; its name counts as one if it is written."""
        text = self._selectors.get(id(node))
        if text is None:
            return self.whole
        parts = ([text.name] if text.name else []) + list(text.matchers)
        return parts[index] if len(parts) == len(node.matchers) else text.whole

    def grouping(self, node: Aggregation | Binary) -> Span:
        """Return where `by (…)` of an aggregation or `on (…)` of an operator stands; its name if nothing does."""
        word = self._heads.get(id(node))
        if word is None:
            return self.of(node)
        wanted = ("by", "without") if isinstance(node, Aggregation) else ("on", "ignoring")
        start = self._words.index(word)
        places = [start + 1, start + 2]
        if isinstance(node, Aggregation) and self._words[start + 1].text == "(":
            places = [self._closing(start + 1) + 1]
        for at in places:
            if at < len(self._words) and self._words[at].text.lower() in wanted:
                return Span(self._words[at].start, self._words[self._closing(at + 1)].end)
        return Span(word.start, word.end)

    def _closing(self, index: int) -> int:
        """Return the index of the bracket that closes the one at `index`."""
        depth = 0
        for at in range(index, len(self._words)):
            depth += (self._words[at].kind == "open") - (self._words[at].kind == "close")
            if depth == 0:
                return at
        return len(self._words) - 1

    def _end_of_call(self, word: Token) -> int:
        at = self._words.index(word) + 1
        if self._words[at].text != "(":  # `sum by (x) (…)`
            return self._words[self._closing(self._closing(at + 1) + 1)].end
        end = self._closing(at)
        if end + 1 < len(self._words) and self._words[end + 1].text.lower() in ("by", "without"):
            end = self._closing(end + 2)
        return self._words[end].end


def placed(error: ExpressionError, node: Node, root: Node, expr: str) -> ExpressionError:
    """Return `error` with the place of `node`, a part of `root`, in `expr`; as it is if that cannot be told."""
    kinds = Binary if isinstance(node, Binary) else (Call, Aggregation)
    nodes = [part for part in _in_order(root) if isinstance(part, kinds)]
    words = list(_operators(tokens(expr)) if kinds is Binary else _calls(tokens(expr)))
    if len(nodes) != len(words):
        return error
    index = next(number for number, part in enumerate(nodes) if part is node)
    line, column = line_and_column(expr, words[index].start)
    message, separator, hint = str(error).partition("; ")
    return ExpressionError(f"{message} at {line}:{column}{separator}{hint}", line, column)


def _in_order(node: Node) -> Iterator[Node]:
    if isinstance(node, Binary):
        yield from _in_order(node.left)
        yield node
        yield from _in_order(node.right)
        return
    yield node
    for child in children(node):
        yield from _in_order(child)


def _calls(words: Sequence[Token]) -> Iterator[Token]:
    """Yield the names of functions and aggregations."""
    for word, following in pairwise(words):
        is_name = word.kind == "word" and word.text.lower() not in _NO_CALL
        if is_name and (following.text == "(" or following.text.lower() in ("by", "without")):
            yield word


def _operators(words: Sequence[Token]) -> Iterator[Token]:
    """Yield the operators that stand between two operands, and so are no signs and not inside braces."""
    in_braces = False
    opened: list[str] = []  # the words before the brackets that are open
    before = Token("none", "", 0)
    ended = False  # whether an operand has ended before the token
    for token in words:
        if token.text in "{}":
            in_braces = token.text == "{"
        if not in_braces and ended and is_operator(token) and token.text != "@":
            yield token
        if token.kind == "open":
            opened.append(before.text.lower())
        ended = opened.pop() not in _NO_OPERAND if token.kind == "close" else ends_operand(token)
        before = token


class _SelectorText(NamedTuple):
    """A selector as it is written; `name` is what stands before the braces."""

    whole: Span
    name: Span | None
    matchers: tuple[Span, ...]


def _selectors(words: Sequence[Token]) -> Iterator[_SelectorText]:
    """Yield every selector's text, without its range and offset."""
    index = 0
    while index < len(words):
        word = words[index]
        following = words[index + 1].text if index + 1 < len(words) else ""
        if word.kind == "word" and following == "(" and word.text.lower() in _LABELS_FOLLOW:
            index = _after(words, index + 1, ")")
        elif word.text == "{":
            end = _after(words, index, "}")
            yield _selector(words[index:end], None)
            index = end
        elif _is_metric(word, following, words[index - 1].text if index else ""):
            end = _after(words, index + 1, "}") if following == "{" else index + 1
            yield _selector(words[index + 1 : end], word)
            index = end
        else:
            index += 1


def _is_metric(word: Token, following: str, before: str) -> bool:
    lowered = word.text.lower()
    return (
        word.kind == "word"
        and following != "("
        and following.lower() not in ("by", "without")
        and lowered not in _NO_CALL - {"start", "end"} | _NUMBERS
        and before != "@"
    )


def _after(words: Sequence[Token], index: int, closing: str) -> int:
    """Return the index behind the next `closing`."""
    return next((at + 1 for at in range(index, len(words)) if words[at].text == closing), len(words))


def _selector(braced: Sequence[Token], name: Token | None) -> _SelectorText:
    """Return a selector of its name and the tokens from `{` to `}`, either of which may be missing."""
    matchers: list[Span] = []
    part: list[Token] = []
    for token in braced[1:]:
        if token.kind == "comma" or token.text == "}":
            if part:
                matchers.append(Span(part[0].start, part[-1].end))
            part = []
        else:
            part.append(token)
    first = name or braced[0]
    last = braced[-1] if braced else first
    named = Span(name.start, name.end) if name is not None else None
    return _SelectorText(Span(first.start, last.end), named, tuple(matchers))


def selectors(root: Node) -> Iterator[Selector]:
    """Yield the selectors of an expression."""
    return (node for node in walk(root) if isinstance(node, Selector))

"""Where in its text a part of an expression stands: for errors that show only once there are samples.

The parser's tree has no places. But calls come in the text in the order in
which the tree is read from the outside in, and operators between vectors in
the order of their operands; so they are counted on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

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
from engine.lang.promql.syntax import Aggregation, Binary, Call, Node, children

_NO_CALL = MODIFIERS | WORD_OPERATORS | {"start", "end"}
_NO_OPERAND = MODIFIERS - {"by", "without"}  # after whose labels the operand is yet to come


def placed(error: ExpressionError, node: Node, root: Node, expr: str) -> ExpressionError:
    """Return `error` with the place of `node`, a part of `root`, in `expr`; as it is if that cannot be told."""
    kinds = Binary if isinstance(node, Binary) else (Call, Aggregation)
    nodes = [part for part in _in_order(root) if isinstance(part, kinds)]
    words = list(_operators(expr) if kinds is Binary else _calls(expr))
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


def _calls(expr: str) -> Iterator[Token]:
    """Yield the names of functions and aggregations."""
    for word, following in pairwise(tokens(expr)):
        is_name = word.kind == "word" and word.text.lower() not in _NO_CALL
        if is_name and (following.text == "(" or following.text.lower() in ("by", "without")):
            yield word


def _operators(expr: str) -> Iterator[Token]:
    """Yield the operators that stand between two operands, and so are no signs and not inside braces."""
    in_braces = False
    opened: list[str] = []  # the words before the brackets that are open
    before = Token("none", "", 0)
    ended = False  # whether an operand has ended before the token
    for token in tokens(expr):
        if token.text in "{}":
            in_braces = token.text == "{"
        if not in_braces and ended and is_operator(token) and token.text != "@":
            yield token
        if token.kind == "open":
            opened.append(before.text.lower())
        ended = opened.pop() not in _NO_OPERAND if token.kind == "close" else ends_operand(token)
        before = token

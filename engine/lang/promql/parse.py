"""From text to syntax: the one place that knows promql_parser.

It also decides what is answered. Only what is stable in Prometheus 3 and works
on floats passes; anything else is refused here, before a sample is looked at.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any

import promql_parser as pp

from engine.errors import ExpressionError
from engine.lang.promql.aggregations import AGGREGATIONS
from engine.lang.promql.functions import FUNCTIONS
from engine.lang.promql.lexis import (
    WORD_OPERATORS,
    Token,
    find_alternative,
    find_culprit,
    find_word,
    is_too_large,
    line_and_column,
    tokens,
)
from engine.lang.promql.newer import find_newer
from engine.lang.promql.range_functions import RANGE_FUNCTIONS
from engine.lang.promql.regex import compile_regex
from engine.lang.promql.syntax import (
    COMPARISONS,
    Aggregation,
    Binary,
    Call,
    Cardinality,
    Edge,
    Grouping,
    LabelMatcher,
    Matching,
    Negation,
    Node,
    Number,
    RangeSelector,
    Selector,
    Shift,
    Subquery,
    Text,
    selected_metric,
    walk,
)
from engine.model.labels import METRIC_NAME, MatchOp

# The last three need to see their argument's syntax; `evaluate` does them itself.
_KNOWN = frozenset({*FUNCTIONS, *RANGE_FUNCTIONS, "absent", "absent_over_time", "timestamp"})
_MATCH_OPS = {
    "Equal": MatchOp.EQUAL,
    "NotEqual": MatchOp.NOT_EQUAL,
    "Re": MatchOp.REGEX,
    "NotRe": MatchOp.NOT_REGEX,
}
_CARDINALITIES = {
    "OneToOne": Cardinality.ONE_TO_ONE,
    "ManyToOne": Cardinality.MANY_TO_ONE,
    "OneToMany": Cardinality.ONE_TO_MANY,
    "ManyToMany": Cardinality.MANY_TO_MANY,
}
# Of classic histograms and floats a server answers nothing, which in a test is never what was meant.
_NATIVE = frozenset(
    {"histogram_avg", "histogram_count", "histogram_stddev", "histogram_stdvar", "histogram_sum"}
)
_LONGEST = timedelta(milliseconds=2**63 // 10**6)  # Go counts nanoseconds in 64 bits
_MIRRORED = {"==": "==", "!=": "!=", ">": "<", "<": ">", ">=": "<=", "<=": ">="}
_REAL = "a real Prometheus answers it (`--engine prometheus`)"
_HINTS = (
    (r"expected type matrix", "give the selector a range, such as [5m]"),
    (r"expected type vector .* got matrix", "wrap the range in a function such as rate() or max_over_time()"),
    (r"must use BOOL", "write `bool` after the operator"),
    (r"non-empty matcher", "name the metric or give one label a value"),
    (r"illegal regex", "write it in RE2 syntax"),
    (r"^bad number or duration", "write numbers like 1000 or 1e3 and durations like 5m"),
    (r"inside brackets", "write the range as one duration, such as [5m]"),
    (r"invalid promql query", "look for a missing operator, operand or comma"),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A signal held against a threshold: `signal operator threshold`."""

    signal: str  # PromQL
    operator: str
    threshold: float


@lru_cache(maxsize=4096)
def parse(expr: str) -> Node:
    """Return the syntax of `expr`, or raise ExpressionError with the place and the way out."""
    tree = _read(expr)
    try:
        return _translate(tree, expr)
    except (OverflowError, ValueError) as error:  # the parser checks times only when they are asked for
        message = f"a time or duration is out of range ({error})"
        place = find_word(expr, "@") if "@" in expr else find_word(expr, "offset")
        raise _error(expr, message, place, "use one within a few decades") from None


def validate(expr: str) -> None:
    """Raise ExpressionError if `expr` cannot be parsed or will not be answered."""
    parse(expr)


def metric_names(expr: str) -> set[str]:
    """Return the names of the metrics that `expr` selects."""
    selectors = (node for node in walk(parse(expr)) if isinstance(node, Selector))
    found = (selected_metric(selector.matchers) for selector in selectors)
    return {name for name in found if name}


def selects(expr: str, metric: str) -> bool:
    """Tell whether `expr` may select series of `metric`, by its name or by what fits it."""
    selectors = (node for node in walk(parse(expr)) if isinstance(node, Selector))
    return any(
        all(
            matcher.matches({METRIC_NAME: metric})
            for matcher in selector.matchers
            if matcher.name == METRIC_NAME
        )
        for selector in selectors
    )


def split_comparison(expr: str) -> Comparison | None:
    """Return `expr` as a comparison of a vector with a number; None if it is anything else."""
    validate(expr)
    tree = _strip(_read(expr))
    if not isinstance(tree, pp.BinaryExpr):
        return None
    operator = str(tree.op)
    if operator not in COMPARISONS or (tree.modifier and tree.modifier.return_bool):
        return None
    left, right = _strip(tree.lhs), _strip(tree.rhs)
    if isinstance(left, pp.NumberLiteral):
        left, right, operator = right, left, _MIRRORED[operator]
    if not isinstance(right, pp.NumberLiteral):
        return None
    return Comparison(left.prettify().strip(), operator, float(right.val))


def signal_of(expr: str) -> tuple[str, float | None]:
    """Return what an expression compares with a number, and the number: of `memory > 5e9` that is `memory`, 5e9.

    It is the whole expression and None if it is no such comparison, or PromQL that only the server knows.
    """
    try:
        comparison = split_comparison(expr)
    except ExpressionError:
        comparison = None
    return (expr, None) if comparison is None else (comparison.signal, comparison.threshold)


MOST_OPERATORS, MOST_POWERS, DEEPEST = 250, 30, 60
_JOINING = WORD_OPERATORS | {"+", "-", "*", "/", "%", "^", "==", ">", "<", ">=", "<="}


def _read(expr: str) -> Any:
    """Return promql_parser's tree."""
    words = tokens(expr)
    refuse_giants(expr, words)
    for word, following in pairwise(words):
        if word.text == "@" and following.text == "-":  # the parser reads it, but panics when asked for it
            message = "@ with a time before 1970 is not supported"
            raise _error(expr, message, word.start, f"use a positive one; {_REAL}", beyond=True)
    tree, message = _attempt(expr)
    if message:
        raise _refusal(expr, message)
    for word, following in pairwise(words):
        if word.text in ("+", "-") and following.kind == "string":  # the parser forgets a plus
            message = "unary expression only allowed on expressions of type scalar or vector, got string"
            raise _error(expr, message, word.start, "remove the sign")
    for word in words:
        if word.kind == "number" and is_too_large(word.text):  # the parser takes it for infinity
            raise _error(
                expr, f"number {word.text} is out of range", word.start, "write Inf if that is meant"
            )
    return tree


def refuse_giants(expr: str, words: Sequence[Token] | None = None) -> None:
    """Raise ExpressionError for an expression so deep that the parser, or a walk of its tree, would not survive.

    The parser recurses in native code, where a stack that is used up ends the process. Rules of hundreds of
    operators are generated ones; a real server reads them.
    """
    words = tokens(expr) if words is None else words
    operators = sum(word.text in _JOINING for word in words)
    powers = sum(word.text == "^" for word in words)
    depth = deepest = 0
    for word in words:
        depth += (word.kind == "open") - (word.kind == "close")
        deepest = max(deepest, depth)
    if operators > MOST_OPERATORS or powers > MOST_POWERS or deepest > DEEPEST:
        message = f"the expression is too deep to be read here: {operators} operators, {deepest} brackets in each other"
        raise _error(expr, message, None, _REAL, beyond=True)


def _refusal(expr: str, message: str) -> ExpressionError:
    """Return what to say of an expression that the parser refused with `message`."""
    if newer := find_newer(expr):
        return _error(expr, message, newer.start, f"{newer.hint}; {_REAL} if it knows it", beyond=True)
    place = find_culprit(expr, message, lambda part: _attempt(part)[1])
    unknown = re.fullmatch(r"unknown function with name '(.*)'", message)
    if unknown is None:
        return _error(expr, message, place, _hint(message))
    near = difflib.get_close_matches(unknown[1], [*_KNOWN, *AGGREGATIONS], n=1)
    if near:
        return _error(expr, message, place, f"did you mean '{near[0]}'?")
    return _error(expr, message, place, f"{_REAL} if it knows the function", beyond=True)


def _attempt(expr: str) -> tuple[Any, str]:
    """Return the parser's tree and nothing, or why it refuses."""
    try:
        return pp.parse(expr), ""
    except ValueError as error:
        return None, str(error)
    except BaseException as error:
        # Durations such as NaN make the parser panic, which Python sees as no Exception at all.
        if type(error).__name__ != "PanicException":
            raise
        return None, str(error)


def _error(expr: str, message: str, index: int | None, hint: str, *, beyond: bool = False) -> ExpressionError:
    line, column = (1, 1) if index is None else line_and_column(expr, index)
    place = "" if index is None else f" at {line}:{column}"
    return ExpressionError(f"{message}{place}" + (f"; {hint}" if hint else ""), line, column, beyond=beyond)


def _unanswered(expr: str, what: str, reason: str) -> ExpressionError:
    """Return the refusal of `what`, which is PromQL but not evaluated here."""
    message = f"{what}() {reason} and is not evaluated"
    return _error(expr, message, find_word(expr, what), _REAL, beyond=True)


def _hint(message: str) -> str:
    return next((hint for pattern, hint in _HINTS if re.search(pattern, message)), "")


def _strip(tree: Any) -> Any:
    while isinstance(tree, pp.ParenExpr):
        tree = tree.expr
    return tree


def _translate(tree: Any, expr: str) -> Node:  # noqa: PLR0911, one for each form
    match _strip(tree):
        case pp.NumberLiteral(val=value):
            return Number(value)
        case pp.StringLiteral(val=value):
            return Text(value)
        case pp.VectorSelector() as selector:
            return _selector(selector, expr)
        case pp.MatrixSelector(vector_selector=selector, range=length):
            return RangeSelector(_selector(selector, expr), _milliseconds(length))
        case pp.SubqueryExpr() as subquery:
            return _subquery(subquery, expr)
        case pp.UnaryExpr(expr=inner):
            return Negation(_translate(inner, expr))
        case pp.Call() as call:
            return _call(call, expr)
        case pp.AggregateExpr() as aggregate:
            return _aggregation(aggregate, expr)
        case pp.BinaryExpr() as binary:
            return _binary(binary, expr)
        case other:
            raise ExpressionError(f"{type(other).__name__} is not supported; {_REAL}", beyond=True)


def _subquery(tree: Any, expr: str) -> Subquery:
    step_ms = None if tree.step is None else _milliseconds(tree.step)
    if step_ms == 0:
        message = "the step of a subquery must be greater than 0"
        raise _error(expr, message, find_word(expr, ":"), "write one such as [5m:1m]")
    return Subquery(_translate(tree.expr, expr), _milliseconds(tree.range), step_ms, _shift(tree))


def _selector(tree: Any, expr: str) -> Selector:
    if tree.matchers.or_matchers:
        message = "alternatives between matchers are VictoriaMetrics' own"
        hint = "join two selectors with `or`, or ask the real server (`--engine prometheus`)"
        raise _error(expr, message, find_alternative(expr), hint, beyond=True)
    matchers = _matchers(tree.matchers.matchers, expr)
    if tree.name:
        matchers = (LabelMatcher(METRIC_NAME, MatchOp.EQUAL, tree.name), *matchers)
    # A selector that an empty set of labels passes would select everything.
    if all(matcher.matches({}) for matcher in matchers):
        message = "vector selector must contain at least one non-empty matcher"
        raise _error(expr, message, find_word(expr, "{"), _hint(message))
    return Selector(matchers, _shift(tree))


def _matchers(found: Iterable[Any], expr: str) -> tuple[LabelMatcher, ...]:
    matchers = []
    for matcher in found:
        op = _MATCH_OPS[_word(matcher.op)]
        if op in (MatchOp.REGEX, MatchOp.NOT_REGEX):
            _check_regex(matcher.value, expr)  # RE2 refuses some that the parser's own engine takes
        matchers.append(LabelMatcher(matcher.name, op, matcher.value))
    return tuple(matchers)


def _check_regex(pattern: str, expr: str) -> None:
    try:
        compile_regex(pattern)
    except ExpressionError as error:
        message, _, hint = str(error).rpartition("; ")
        raise _error(expr, message, _find_text(expr, pattern), hint) from None


def _find_text(expr: str, text: str) -> int | None:
    """Return the index of the first string that stands for `text`."""
    strings = (token for token in tokens(expr) if token.kind == "string")
    return next((token.start for token in strings if _attempt(token.text)[0].val == text), None)


def _shift(tree: Any) -> Shift:
    offset = 0 if tree.offset is None else _milliseconds(tree.offset)
    if tree.at is None:
        return Shift(None, offset)
    kind = _word(tree.at.type)
    if kind == "At":
        at: datetime = tree.at.at
        return Shift(round(at.timestamp() * 1000), offset)
    return Shift(Edge.START if kind == "Start" else Edge.END, offset)


def _call(tree: Any, expr: str) -> Call:
    name = tree.func.name
    if name not in _KNOWN:
        if name in _NATIVE:
            raise _unanswered(expr, name, "works on native histograms")
        reason = (
            "is experimental in Prometheus" if tree.func.experimental else "is newer than what is known here"
        )
        raise _unanswered(expr, name, reason)
    arguments = tuple(_translate(argument, expr) for argument in tree.args)
    texts = [argument.value for argument in arguments if isinstance(argument, Text)]
    if name == "label_replace":
        target, _, _, pattern = texts
        _check_names(expr, name, target)
        _check_regex(pattern, expr)
    elif name == "label_join":
        target, _, *sources = texts
        _check_names(expr, name, target, *sources)
    return Call(name, arguments)


def _check_names(expr: str, function: str, *names: str) -> None:
    """Refuse an empty name of a label; any other text is one."""
    if "" in names:
        message = f'invalid label name "" in {function}()'
        raise _error(expr, message, find_word(expr, function), "give the label a name")


def _aggregation(tree: Any, expr: str) -> Aggregation:
    operator = str(tree.op)
    if operator not in AGGREGATIONS:
        raise _unanswered(expr, operator, "is experimental in Prometheus")
    modifier = tree.modifier
    grouping = Grouping(
        by=modifier is None or _word(modifier.type) == "By",
        labels=() if modifier is None else tuple(modifier.labels),
    )
    parameter = None if tree.param is None else _translate(tree.param, expr)
    if isinstance(parameter, Text):
        _check_names(expr, operator, parameter.value)
    return Aggregation(operator, _translate(tree.expr, expr), parameter, grouping)


def _binary(tree: Any, expr: str) -> Binary:
    left, right = _translate(tree.lhs, expr), _translate(tree.rhs, expr)
    modifier = tree.modifier
    if modifier is None:
        return Binary(str(tree.op), left, right, returns_bool=False, matching=Matching())
    if modifier.fill_values.lhs is not None or modifier.fill_values.rhs is not None:
        word = next(token for token in tokens(expr) if token.text.startswith("fill"))
        raise _unanswered(expr, word.text, "is experimental in Prometheus")
    matching = modifier.matching
    grouping = Grouping(
        by=matching is not None and _word(matching.type) == "Include",
        labels=() if matching is None else tuple(matching.labels),
    )
    how = Matching(_CARDINALITIES[_word(modifier.card)], grouping, tuple(modifier.group_labels or ()))
    return Binary(str(tree.op), left, right, modifier.return_bool, how)


def _word(value: Any) -> str:
    """Return the name of one of the parser's enumeration values, which are no Enum."""
    return str(value).rsplit(".", 1)[-1]


def _milliseconds(length: timedelta | None) -> int:
    assert length is not None
    if abs(length) > _LONGEST:
        raise OverflowError("it is longer than 292 years")
    return round(length / timedelta(milliseconds=1))

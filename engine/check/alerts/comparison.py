"""A condition that is always true, never true, or not there at all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from engine.check.registering import rule_check
from engine.check.subject import Note, Query, Severity, Subject, World
from engine.detect.present import Present
from engine.lang.promql.syntax import (
    COMPARISONS,
    SET_OPERATORS,
    Aggregation,
    Binary,
    Call,
    Negation,
    Node,
    Number,
    RangeSelector,
    Selector,
    Subquery,
    children,
    selected_metric,
    walk,
)
from engine.model.rule import AlertingRule

_KEEP = frozenset({"max_over_time", "min_over_time", "avg_over_time", "last_over_time", "abs", "sort", "sort_desc",
                   "ceil", "round", "label_replace", "label_join"})  # fmt: skip
_NOT_NEGATIVE = frozenset(
    {"rate", "irate", "increase", "changes", "resets", "stddev_over_time", "stdvar_over_time"}
)
_ONE = frozenset({"absent", "absent_over_time", "present_over_time"})
_EXACT_UNITS = frozenset({"bytes", "ms", "s", "bytes/s", "1/s"})
_MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
_SLIGHTLY_NEGATIVE = "_available"  # plasma's free bytes may be a few below 0


class Bounds(NamedTuple):
    """What values an element can have, both ends included."""

    low: float = -math.inf
    high: float = math.inf


@rule_check("alerts/comparison")
def comparison(subject: Subject, world: World) -> Iterator[Note]:
    """Hold comparisons with numbers against the values that are possible, and ask for one where none is."""
    if not isinstance(subject.rule, AlertingRule):
        return
    query = subject.expr
    for node in walk(query.root):
        if isinstance(node, Binary) and node.operator in COMPARISONS:
            yield from _decided(query, world, node)
    if not isinstance(subject.rule.detect, Present):
        return
    if isinstance(query.root, Binary) and query.root.returns_bool:
        message = "`bool` makes this 0 or 1, and either is an answer: the alert always fires; leave it out"
        yield Note(Severity.ERROR, message, query.at(query.places.head(query.root)))
    elif not _filters(query.root):
        message = "nothing is compared: an alert fires for every series, whatever its value"
        yield Note(Severity.WARNING, message, query.at(query.places.whole), f"{query.text.strip()} > 0")


def _filters(node: Node) -> bool:
    """Tell whether an expression can be empty although its series are there."""
    match node:
        case Binary(operator=operator, returns_bool=returns_bool):
            if operator in COMPARISONS and not returns_bool:
                return True
            if operator in SET_OPERATORS - {"or"}:
                return True
            return _filters(node.left) or _filters(node.right)
        case Call(function=function) if function in ("absent", "absent_over_time"):
            return True
        case Selector(matchers=matchers):
            return selected_metric(matchers) in ("ALERTS", "ALERTS_FOR_STATE")
        case _:
            return any(_filters(child) for child in children(node))


def _decided(query: Query, world: World, node: Binary) -> Iterator[Note]:
    side, other, operator = node.left, node.right, node.operator
    if isinstance(side, Number):
        side, other, operator = other, side, _MIRRORED.get(operator, operator)
    if not isinstance(other, Number) or isinstance(side, Number) or math.isnan(other.value):
        return
    verdict = _verdict(bounds(side, world), operator, other.value)
    if verdict is None:
        return
    written, never = query.written(query.places.of(side)), not verdict
    spot, rewrite = query.at(query.places.head(node)), ""
    if isinstance(side, Aggregation) and side.operator in ("count", "group") and never:
        message = f"{side.operator}() of nothing is no 0 but nothing at all: this is never true"
        rewrite = f"absent({query.written(query.places.of(side.operand))})"
    else:
        low, high = bounds(side, world)
        message = f"{written} is {_said(low, high)}: this is {'never' if never else 'always'} true"
    yield Note(Severity.ERROR if never else Severity.WARNING, message, spot, rewrite)


def _said(low: float, high: float) -> str:
    if low == high:
        return f"always {low:g} where there is anything"
    return f"at least {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"


def _verdict(found: Bounds, operator: str, value: float) -> bool | None:
    """Return whether the comparison always holds, or never; None if it depends."""
    low, high = found
    never = {">": high <= value, ">=": high < value, "<": low >= value, "<=": low > value}
    always = {">": low > value, ">=": low >= value, "<": high < value, "<=": high <= value}
    outside = not low <= value <= high
    never["=="], always["!="] = outside, outside
    always["=="] = never["!="] = low == high == value
    return False if never[operator] else True if always[operator] else None


def bounds(node: Node, world: World) -> Bounds:  # noqa: PLR0911, one for each form
    """Return between what the elements of `node` lie for certain."""
    match node:
        case Number(value):
            return Bounds(value, value)
        case Selector():
            return _selected(node, world)
        case RangeSelector(selector=inner) | Subquery(operand=inner):
            return bounds(inner, world)
        case Negation(operand=inner):
            low, high = bounds(inner, world)
            return Bounds(-high, -low)
        case Call():
            return _called(node, world)
        case Aggregation():
            return _aggregated(node, world)
        case Binary():
            return _combined(node, world)
        case _:
            return Bounds()


def _selected(node: Selector, world: World) -> Bounds:
    if selected_metric(node.matchers) == "up":
        return Bounds(0, 1)
    series = world.series(node)
    if series is None or _SLIGHTLY_NEGATIVE in series.metric.name:
        return Bounds()
    return Bounds(0) if series.grows or series.metric.unit in _EXACT_UNITS else Bounds()


def _called(node: Call, world: World) -> Bounds:
    if node.function in _ONE:
        return Bounds(1, 1)
    if node.function == "count_over_time":
        return Bounds(1)
    if node.function in _NOT_NEGATIVE:
        return Bounds(0)
    return bounds(node.arguments[0], world) if node.function in _KEEP else Bounds()


def _aggregated(node: Aggregation, world: World) -> Bounds:
    match node.operator:
        case "count":
            return Bounds(1)
        case "group":
            return Bounds(1, 1)
        case "max" | "min" | "avg" | "topk" | "bottomk":
            return bounds(node.operand, world)
        case "sum":
            return Bounds(0) if bounds(node.operand, world).low >= 0 else Bounds()
        case "stddev" | "stdvar":
            return Bounds(0)
        case _:
            return Bounds()


def _combined(node: Binary, world: World) -> Bounds:
    left, right = bounds(node.left, world), bounds(node.right, world)
    if node.operator in COMPARISONS:
        return Bounds(0, 1) if node.returns_bool else left
    if node.operator in ("and", "unless"):
        return left
    if node.operator == "or":
        return Bounds(min(left.low, right.low), max(left.high, right.high))
    if node.operator in ("+", "*", "/") and left.low >= 0 and right.low >= 0:
        return Bounds(0)
    return Bounds()

"""PromQL made of PromQL to judge tests by: with another threshold, the other way round, or without its filters.

Works on the parser's own tree, so that what is printed is what was parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import promql_parser as pp

from engine.lang.promql.parse import parse, validate
from engine.lang.promql.syntax import COMPARISONS, Binary, Call, Node, Selector, children, selected_metric

_FLIPPED = {">": "<", "<": ">", ">=": "<=", "<=": ">=", "==": "!=", "!=": "=="}
_MIRRORED = {">": "<", "<": ">", ">=": "<=", "<=": ">="}
_FACTORS = (0.5, 2.0)
_ABSENT = ("absent", "absent_over_time")


class Mutant(NamedTuple):
    """An expression that is wrong in one place: what stood there, what stands there now, and all of it."""

    before: str
    after: str
    expr: str


def mutants(expr: str) -> Iterator[Mutant]:
    """Yield `expr` with the number of each comparison halved and doubled, and with each comparison flipped."""
    validate(expr)
    count = _each_comparison(expr, lambda _index, _node: None)[1]
    for index in range(count):
        for change in (*(_scaled(factor) for factor in _FACTORS), _flipped):
            found: list[tuple[str, str]] = []

            def visit(
                at: int, node: Any, wanted: int = index, change: Any = change, found: Any = found
            ) -> Any:
                if at != wanted or (changed := change(node)) is None:
                    return None
                found.append(changed[:2])
                return pp.parse(changed[2])

            text = _each_comparison(expr, visit)[0]
            if found:
                yield Mutant(*_as_written(*found[0], expr), text)


def unfiltered(expr: str) -> str:
    """Return `expr` with comparisons that answer 0 or 1 rather than filter, and without what `unless` takes away.

    It is empty where `expr` is empty whatever the numbers in it are.
    """
    validate(expr)

    def after(node: Any) -> Any:
        if isinstance(node, pp.Call) and node.func.name in _ABSENT:
            return pp.parse("vector(1)")
        if not isinstance(node, pp.BinaryExpr):
            return None
        operator = str(node.op)
        if operator == "unless":
            return node.lhs
        if operator not in COMPARISONS or (node.modifier and node.modifier.return_bool):
            return None
        return pp.parse(f"({node.lhs}) {operator} bool {node.modifier or ''} ({node.rhs})")

    return str(pp.transform(pp.parse(expr), lambda _node: None, after))


def needed_metrics(expr: str) -> set[str]:
    """Return the names of metrics without which `expr` is empty for certain, or less than it was meant to be.

    What `absent()` asks for, what `unless` takes away and what an `or` falls back on may well not be there.
    """
    return set(_needed(parse(expr)))


def _needed(node: Node) -> Iterator[str]:
    if isinstance(node, Call) and node.function in _ABSENT:
        return
    if isinstance(node, Binary) and node.operator in ("unless", "or"):
        yield from _needed(node.left)
        return
    if isinstance(node, Selector) and (name := selected_metric(node.matchers)):
        yield name
    for child in children(node):
        yield from _needed(child)


def _each_comparison(expr: str, visit: Callable[[int, Any], Any]) -> tuple[str, int]:
    """Call `visit` for each comparison with a number; what it returns takes the place. Return text and count."""
    count = 0

    def after(node: Any) -> Any:
        nonlocal count
        if not isinstance(node, pp.BinaryExpr) or str(node.op) not in COMPARISONS:
            return None
        if _number(node.lhs) is None and _number(node.rhs) is None:
            return None
        count += 1
        return visit(count - 1, node)

    return str(pp.transform(pp.parse(expr), lambda _node: None, after)), count


def _number(node: Any) -> float | None:
    while isinstance(node, pp.ParenExpr):
        node = node.expr
    if isinstance(node, pp.UnaryExpr):
        inner = _number(node.expr)
        return None if inner is None else -inner
    return float(node.val) if isinstance(node, pp.NumberLiteral) else None


def _scaled(factor: float) -> Callable[[Any], tuple[str, str, str] | None]:
    def change(node: Any) -> tuple[str, str, str] | None:
        left, operator = _number(node.rhs) is None, str(node.op)
        number = _number(node.lhs if left else node.rhs)
        if not number:  # nought stays nought
            return None
        scaled = f"{number * factor:.15g}"
        if left:
            shown = _MIRRORED.get(operator, operator)
            return f"{shown} {number:g}", f"{shown} {scaled}", f"{scaled} {_operator(node)} ({node.rhs})"
        return f"{operator} {number:g}", f"{operator} {scaled}", f"({node.lhs}) {_operator(node)} {scaled}"

    return change


def _flipped(node: Any) -> tuple[str, str, str] | None:
    operator = str(node.op)
    flipped = _FLIPPED[operator]
    left = _number(node.rhs) is None
    number = _number(node.lhs if left else node.rhs)
    shown = _MIRRORED.get if left else lambda word, _default: word
    before, after = shown(operator, operator), shown(flipped, flipped)
    text = f"({node.lhs}) {_operator(node).replace(operator, flipped, 1)} ({node.rhs})"
    return f"{before} {number:g}", f"{after} {number:g}", text


def _operator(node: Any) -> str:
    return f"{node.op} bool" if node.modifier and node.modifier.return_bool else str(node.op)


def _as_written(before: str, after: str, expr: str) -> tuple[str, str]:
    """Return both with their numbers as the expression has them: `> 50e6` and `> 25e6` rather than `> 2.5e+07`."""
    operator, _, number = before.partition(" ")
    other, _, changed = after.partition(" ")
    for found in re.finditer(rf"(?<![<>=!]){re.escape(operator)}\s*((-?[\d.]+)(e\w+)?)", expr):
        if float(found[1]) == float(number):
            factor = float(changed) / float(number) if float(number) else 1.0
            shown = found[1] if factor == 1 else f"{float(found[2]) * factor:.15g}{found[3] or ''}"
            return f"{operator} {found[1]}", f"{other} {shown}"
    return before, after

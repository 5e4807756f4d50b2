"""PromQL made of PromQL: the same question asked over a presence window, or with parts of it answered before.

Works on the parser's own tree, so that what is printed is what was parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import promql_parser as pp

from engine.errors import ExpressionError
from engine.lang.promql.parse import metric_names, refuse_giants, validate
from engine.model.duration import Duration

Window = Callable[[str], str | None]
"""Says for the text of a selector over how long it is to be asked, `30s`; None: as it stands."""

_SCALARS = frozenset({"scalar", "time", "pi"})


def instant_selectors(expr: str) -> list[str]:
    """Return the texts of an expression's selectors that ask for the newest sample, without `offset` and `@`."""
    found: list[str] = []
    _each_instant(_parse(expr), lambda node: found.append(_selector(node)[0]))
    return list(dict.fromkeys(found))


def over_presence(expr: str, window: Window) -> str:
    """Return the expression with each instant selector widened to the newest sample of its presence window.

    A series that is published in one scrape of several has a value at every instant then, and a sum over such
    series is whole. Selectors inside `timestamp()` stay, since it is the time of the sample that is asked for.
    """

    def widen(node: Any) -> Any:
        text, shift = _selector(node)
        length = window(text)
        return None if length is None else _parse(f"last_over_time({text}[{length}]{shift})")

    tree = _each_instant(_parse(expr), widen)
    return str(tree)


def over_time(expr: str, function: str, length: timedelta, resolution: timedelta) -> str:
    """Return the expression whose value is `min`, `max`, `avg` or `median` of what `expr` was in the last `length`.

    A bare selector is asked for all its samples; anything else is worked out every `resolution`. A scalar
    becomes a vector of one element. The metric's name goes, as it does with every function.
    """
    try:
        tree = _parse(expr)
        while isinstance(tree, pp.ParenExpr):
            tree = tree.expr
        text = str(tree) if _is_vector(tree) else f"vector({tree})"
    except ExpressionError:
        tree, text = (
            None,
            f"{expr}\n",
        )  # newer PromQL than can be read here, perhaps with a comment at its end
    window = str(Duration.of(length))
    call = "quantile_over_time(0.5, " if function == "median" else f"{function}_over_time("
    if isinstance(tree, pp.VectorSelector):
        text, shift = _selector(tree)
        return f"{call}{text}[{window}]{shift})"
    return f"{call}({text})[{window}:{Duration.of(resolution)}])"


INSTANTS_A_STEP = 10
"""At how many instants an expression is asked for one figure of a step."""

FINEST = timedelta(seconds=1)
"""No two of them are closer than this."""


def over_step(expr: str, function: str, step: timedelta) -> str:
    """Return the expression whose value is the figure of the `step` that ends at the instant, as `over_time`."""
    return over_time(expr, function, step, min(max(step / INSTANTS_A_STEP, FINEST), step))


@lru_cache(maxsize=1024)
def over_range(expr: str, length: str) -> str:
    """Return the expression with the range of each range selector replaced by `length`, as `1h`.

    ExpressionError if it has none, or a subquery, whose range means something else.
    """
    found = 0

    def widen(node: Any) -> Any:
        nonlocal found
        if isinstance(node, pp.SubqueryExpr):
            raise ExpressionError(f"{node} is a subquery, whose range cannot be replaced by {length}")
        if not isinstance(node, pp.MatrixSelector):
            return None
        found += 1
        text = str(node)
        start, end = text.rindex("["), text.rindex("]")
        return _parse(f"{text[:start]}[{length}]{text[end + 1 :]}")

    tree = pp.transform(_parse(expr), widen, lambda _node: None)
    if not found:
        raise ExpressionError(f"{expr} has no range such as [5m] to be replaced by {length}")
    return str(tree)


@dataclass(frozen=True, slots=True)
class Split:
    """An expression in two halves: `remote` parts by the names that stand for them in `local`."""

    local: str
    remote: dict[str, str]


def split(expr: str, known: Collection[str]) -> Split:
    """Split an expression into what needs the metrics of `known`, and the largest parts that do not.

    The parts are vectors of one instant, so they cannot lie inside a subquery, nor be range selectors that
    share a function with a known metric: ExpressionError then.
    """
    remote: dict[str, str] = {}
    depth = 0  # of subqueries around
    ranges = 0

    def before(node: Any) -> Any:
        nonlocal depth, ranges
        ranges += isinstance(node, pp.MatrixSelector)
        depth += isinstance(node, pp.SubqueryExpr)
        if (
            _mentions(node, known)
            or not _has_selector(node)
            or (ranges and isinstance(node, pp.VectorSelector))
        ):
            return None
        if depth or isinstance(node, pp.MatrixSelector | pp.SubqueryExpr):
            raise ExpressionError(
                f"{node} is asked of the server and the recorded {', '.join(sorted(known))} is not; over a range "
                "they cannot be mixed: record this part too, or configure remote_write"
            )
        if not _is_vector(node):
            return None
        name = f"engine_part_{len(remote)}"
        remote[name] = str(node)
        return _parse(name)

    def after(node: Any) -> Any:
        nonlocal depth, ranges
        ranges -= isinstance(node, pp.MatrixSelector)
        depth -= isinstance(node, pp.SubqueryExpr)

    local = str(pp.transform(_parse(expr), before, after))
    return Split(local, remote)


def _parse(expr: str) -> Any:
    refuse_giants(expr)
    try:
        return pp.parse(expr)
    except ValueError:
        validate(expr)  # says where and why
        raise


def _each_instant(tree: Any, visit: Callable[[Any], Any]) -> Any:
    """Call `visit` for each instant selector, outside of `timestamp()`; what it returns takes the place."""
    inside = 0

    def covers(node: Any) -> bool:
        return isinstance(node, pp.MatrixSelector) or (
            isinstance(node, pp.Call) and node.func.name == "timestamp"
        )

    def before(node: Any) -> Any:
        nonlocal inside
        inside += covers(node)

    def after(node: Any) -> Any:
        nonlocal inside
        inside -= covers(node)
        return visit(node) if isinstance(node, pp.VectorSelector) and not inside else None

    return pp.transform(tree, before, after)


def _selector(node: Any) -> tuple[str, str]:
    """Return a selector's text, and what stands behind it: ` offset 5m`, ` @ 1.5`."""
    text = str(node)
    end = text.rindex("}") + 1  # it is always printed with its braces, and nothing behind them has any
    return text[:end], text[end:]


def _mentions(node: Any, known: Collection[str]) -> bool:
    return not metric_names(str(node)).isdisjoint(known) if _has_selector(node) else False


def _has_selector(node: Any) -> bool:
    found = False

    def look(inner: Any) -> bool:
        nonlocal found
        found = found or isinstance(inner, pp.VectorSelector)
        return not found

    pp.walk(node, look)
    return found


def _is_vector(node: Any) -> bool:
    if isinstance(node, pp.ParenExpr | pp.UnaryExpr):
        return _is_vector(node.expr)
    if isinstance(node, pp.BinaryExpr):
        return _is_vector(node.lhs) or _is_vector(node.rhs)
    if isinstance(node, pp.Call):
        return node.func.name not in _SCALARS
    return isinstance(node, pp.VectorSelector | pp.AggregateExpr)

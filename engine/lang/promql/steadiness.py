"""Whether an expression's value at an instant stays what it was, and does not depend on who asks for what else."""

from __future__ import annotations

from functools import lru_cache

from engine.errors import ExpressionError
from engine.lang.promql.parse import parse, selects
from engine.lang.promql.syntax import Aggregation, Selector, Shift, Subquery, walk

_BY_ORDER = frozenset({"topk", "bottomk"})  # ties go by the order of the series, and that by the whole range


@lru_cache(1 << 10)
def is_steady(expr: str) -> bool:
    """Tell whether `expr` looks only back, and has at each instant of a range what it has at that instant alone.

    It has not with `@`, whose time may be yet to come or an end of the range, with an offset into the future,
    and with what goes by the order of the series. Nothing is promised of what cannot be read here.
    """
    try:
        nodes = list(walk(parse(expr)))
    except ExpressionError:
        return False
    shifts = [node.shift for node in nodes if isinstance(node, Selector | Subquery)]
    return all(_is_back(shift) for shift in shifts) and not any(
        isinstance(node, Aggregation) and node.operator in _BY_ORDER for node in nodes
    )


@lru_cache(1 << 10)
def selects_any(expr: str, metrics: frozenset[str]) -> bool:
    """Tell whether `expr` may select series of one of `metrics`; also where it cannot be read here."""
    try:
        return any(selects(expr, metric) for metric in metrics)
    except ExpressionError:
        return True


def _is_back(shift: Shift) -> bool:
    return shift.at is None and shift.offset_ms >= 0

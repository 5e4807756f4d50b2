"""Which expressions are bare counters, whose resets a detector would take for falls."""

from __future__ import annotations

from engine.lang.promql.parse import parse
from engine.lang.promql.syntax import Aggregation, Negation, Selector, selected_metric

_SUFFIXES = ("_total", "_count", "_bucket")  # OpenMetrics' names of what only rises


def bare_counter(expr: str) -> str | None:
    """Return the metric if `expr` is a counter as it stands, or a sum of one; else None. ExpressionError if unread.

    Goes by the name alone, and says nothing of a quotient: `x / x_total` is a share of what there is.
    """
    node = parse(expr)
    while isinstance(node, Aggregation | Negation):
        node = node.operand
    metric = selected_metric(node.matchers) if isinstance(node, Selector) else None
    return metric if metric is not None and metric.endswith(_SUFFIXES) else None

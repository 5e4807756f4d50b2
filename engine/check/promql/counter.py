"""A rate of what is no counter, or a threshold on what only grows."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World
from engine.lang.promql.syntax import (
    COMPARISONS,
    Aggregation,
    Binary,
    Call,
    Node,
    Number,
    RangeSelector,
    Selector,
    selected_metric,
    walk,
)

_RATES = {"rate": "deriv", "irate": "idelta", "increase": "delta", "resets": "changes"}
_SLOPES = {"deriv": "rate", "delta": "increase", "idelta": "irate", "predict_linear": "rate"}
_TRANSPARENT = frozenset({"sum", "max", "min", "avg", "topk", "bottomk"})


@query_check("promql/counter")
def counter(query: Query, world: World) -> Iterator[Note]:
    """Note functions for counters on gauges, those for gauges on counters, and thresholds on counters."""
    for node in walk(query.root):
        if isinstance(node, Call) and node.arguments and isinstance(node.arguments[0], RangeSelector):
            yield from _function(query, world, node, node.arguments[0].selector)
        elif isinstance(node, Binary) and node.operator in COMPARISONS:
            for side, other in ((node.left, node.right), (node.right, node.left)):
                if isinstance(other, Number):
                    yield from _threshold(query, world, side)


def _function(query: Query, world: World, call: Call, selector: Selector) -> Iterator[Note]:
    series = world.series(selector)
    if series is None:
        return
    name = selected_metric(selector.matchers)
    spot, function = query.at(query.places.of(call)), call.function
    rewrite = (_RATES | _SLOPES).get(function, "") + query.written(query.places.of(call))[len(function) :]
    if function in _RATES and not series.grows:
        if series.metric.cumulative:
            message = (
                f"{name} grows like a counter and is exported as a gauge: {function}() is right only as long as it "
                "does; say so in a comment, or use what gauges have"
            )
            yield Note(Severity.WARNING, message, spot, rewrite)
        else:
            message = f"{function}() of {name}, a gauge: every fall counts as a restart from 0"
            yield Note(Severity.ERROR, message, spot, rewrite)
    elif function in _SLOPES and series.grows:
        message = f"{function}() of {name}, a counter: its restarts look like falls"
        yield Note(Severity.WARNING, message, spot, rewrite)


def _threshold(query: Query, world: World, side: Node) -> Iterator[Note]:
    """Note a counter, perhaps summed, that is itself held against a number."""
    while isinstance(side, Aggregation) and side.operator in _TRANSPARENT:
        side = side.operand
    if not isinstance(side, Selector):
        return
    name, series = selected_metric(side.matchers) or "", world.series(side)
    if series.grows or series.metric.cumulative if series is not None else name.endswith("_total"):
        message = f"{name} only grows: a threshold on it is passed once and then for ever"
        written = query.written(query.places.of(side))
        yield Note(Severity.WARNING, message, query.at(query.places.of(side)), f"increase({written}[15m])")

"""A quantile of buckets that have no rate, or have lost `le`."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World
from engine.lang.promql.syntax import Aggregation, Call, Node, Selector, children, selected_metric, walk

_PER_TIME = frozenset({"rate", "irate", "increase", "delta"})


@query_check("promql/histogram")
def histogram(query: Query, world: World) -> Iterator[Note]:
    """Look at each histogram_quantile and at the way from it to the buckets."""
    for node in walk(query.root):
        if isinstance(node, Call) and node.function == "histogram_quantile":
            yield from _along(query, world, node.arguments[1], per_time=False)


def _along(query: Query, world: World, node: Node, *, per_time: bool) -> Iterator[Note]:
    if isinstance(node, Aggregation) and ("le" in node.grouping.labels) != node.grouping.by:
        spot = query.at(query.places.grouping(node))
        labels = node.grouping.labels
        kept = ("le", *labels) if node.grouping.by else tuple(each for each in labels if each != "le")
        rewrite = f"{node.operator} {'by' if node.grouping.by else 'without'} ({', '.join(kept)}) (…)"
        message = (
            "histogram_quantile() needs the label le, and this aggregation drops it: the answer is empty"
        )
        yield Note(Severity.ERROR, message, spot, rewrite)
    if isinstance(node, Selector):
        yield from _selected(query, world, node, per_time=per_time)
    per_time = per_time or (isinstance(node, Call) and node.function in _PER_TIME)
    for child in children(node):
        yield from _along(query, world, child, per_time=per_time)


def _selected(query: Query, world: World, node: Selector, *, per_time: bool) -> Iterator[Note]:
    name = selected_metric(node.matchers) or ""
    spot, series = query.at(query.places.of(node)), world.series(node)
    written = query.written(query.places.of(node))
    if series is not None and series.part != "_bucket":
        message = f"{name} has no buckets: it is a {series.metric.type}"
        yield Note(Severity.ERROR, message, spot)
    elif not per_time and name.endswith("_bucket"):
        message = (
            f"{name} counts since the process started: without a rate the quantile is that of its whole life"
        )
        yield Note(Severity.ERROR, message, spot, f"rate({written}[5m])")

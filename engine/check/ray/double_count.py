"""A sum over sources that each count the same things."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World
from engine.lang.promql.syntax import Aggregation, Selector, selected_metric, walk
from engine.model.labels import METRIC_NAME


@query_check("ray/double-count")
def double_count(query: Query, world: World) -> Iterator[Note]:
    """Note an aggregation of a metric with several sources that neither picks one nor keeps them apart."""
    for node in walk(query.root):
        if not isinstance(node, Aggregation) or node.operator not in ("sum", "count", "avg"):
            continue
        selector = node.operand
        series = world.series(selector) if isinstance(selector, Selector) else None
        if series is None or not series.metric.source:
            continue
        assert isinstance(selector, Selector)
        source = series.metric.source
        kept = (source in node.grouping.labels) == node.grouping.by and (
            node.grouping.labels or not node.grouping.by
        )
        if kept or any(each.name == source for each in selector.matchers):
            continue
        name = selected_metric(selector.matchers)
        sources = ", ".join(series.metric.values.get(source, ()))
        message = (
            f"{name} is counted by several sources ({sources}), and {node.operator} adds them up: "
            f'{source}="{series.metric.once}" counts each once'
        )
        yield Note(
            Severity.ERROR,
            message,
            query.at(query.places.of(selector)),
            _picked(query, selector, source, series.metric.once),
        )


def _picked(query: Query, selector: Selector, source: str, once: str) -> str:
    """Return the selector with a matcher of the source added."""
    written = query.written(query.places.of(selector))
    matchers = [each for each in selector.matchers if each.name != METRIC_NAME]
    inside = written.rpartition("}")[0].rstrip().rstrip(",") if "{" in written else f"{written}{{"
    return f'{inside}{"," if matchers else ""}{source}="{once}"}}'

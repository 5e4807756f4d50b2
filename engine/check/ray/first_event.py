"""The increase of a counter that is born with its first event, which `increase` does not see."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World
from engine.lang.promql.syntax import Call, RangeSelector, selected_metric, walk
from engine.model.duration import Duration

_BLIND = frozenset({"increase", "rate", "irate", "delta", "idelta", "changes"})


@query_check("ray/first-event")
def first_event(query: Query, world: World) -> Iterator[Note]:
    """Note functions that need a sample before the event, on series that begin with it."""
    for node in walk(query.root):
        if not isinstance(node, Call) or node.function not in _BLIND:
            continue
        window = node.arguments[0]
        series = world.series(window.selector) if isinstance(window, RangeSelector) else None
        if series is None or not series.metric.born_at_one:
            continue
        assert isinstance(window, RangeSelector)
        name = selected_metric(window.selector.matchers)
        written = query.written(query.places.of(window.selector))
        before = f"{written} offset {Duration(milliseconds=window.length_ms)}"
        message = f"{name} appears with the value 1 at the first event: {node.function}() misses it"
        rewrite = f"({written} - {before}) > 0 or ({written} unless {before})"
        yield Note(Severity.WARNING, message, query.at(query.places.of(node)), rewrite)

"""A range in which there is at most one sample, or more history than a server usually keeps."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World
from engine.lang.promql.syntax import Call, RangeSelector, Selector, Subquery, selected_metric, walk
from engine.model.duration import Duration

_TWO_SAMPLES = frozenset(
    {"rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "changes", "resets"}
)
_RETENTION = Duration(days=15)  # Prometheus' default


@query_check("promql/range")
def ranges(query: Query, world: World) -> Iterator[Note]:
    """Hold ranges against the publish period of Ray's metrics and against the default retention."""
    for node in walk(query.root):
        if isinstance(node, Call) and node.function in _TWO_SAMPLES:
            yield from _short(query, world, node)
        if isinstance(node, RangeSelector | Subquery) and node.length_ms > _RETENTION.total_seconds() * 1000:
            length = Duration(milliseconds=node.length_ms)
            message = (
                f"the range {length} is longer than the {_RETENTION} that Prometheus keeps by default: "
                "what is missing is not noticed. Record the value and look back less"
            )
            spot = query.at(query.places.of(node))
            yield Note(Severity.WARNING, message, spot, f"[{_RETENTION}]")


def _short(query: Query, world: World, call: Call) -> Iterator[Note]:
    node = call.arguments[0]
    selector = node.selector if isinstance(node, RangeSelector) else None
    series = world.series(selector) if isinstance(selector, Selector) else None
    if series is None or series.metric.period is None or not isinstance(node, RangeSelector):
        return
    period = Duration(seconds=series.metric.period)
    if node.length_ms < 2 * period.total_seconds() * 1000:
        name, length = selected_metric(node.selector.matchers), Duration(milliseconds=node.length_ms)
        message = (
            f"Ray publishes {name} every {period}: in {length} there are not always the two samples that "
            f"{call.function}() needs"
        )
        yield Note(Severity.WARNING, message, query.at(query.places.of(node)), f"[{Duration.of(4 * period)}]")

"""A sum over sources that each count the same things, or that offset each other."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World
from engine.lang.promql.syntax import Aggregation, Grouping, LabelMatcher, Selector, walk
from engine.model.labels import METRIC_NAME, MatchOp
from engine.ray.contract import Metric

_ADDING = frozenset({"sum", "count", "avg"})
_SETTLED = frozenset({"FINISHED", "FAILED"})  # states of tasks that the owner alone reports
_POSITIVE = frozenset({MatchOp.EQUAL, MatchOp.REGEX})


@query_check("ray/double-count")
def double_count(query: Query, world: World) -> Iterator[Note]:
    """Note an aggregation of a metric with several sources that neither picks one nor keeps them apart."""
    for node in walk(query.root):
        selector = node.operand if isinstance(node, Aggregation) and node.operator in _ADDING else None
        series = world.series(selector) if isinstance(selector, Selector) else None
        if series is None or not series.metric.source:
            continue
        assert isinstance(node, Aggregation)
        assert isinstance(selector, Selector)
        metric, picked = series.metric, {each.name for each in selector.matchers}
        if metric.source in picked or _keeps(node.grouping, metric.source):
            continue
        severity, message = _said(selector, metric, node.operator)
        spot = query.at(query.places.of(selector))
        yield Note(severity, message, spot, _picked(query, selector, metric))


def _keeps(grouping: Grouping, label: str) -> bool:
    """Tell whether groups are told apart by a label; `sum(x)` is `sum by () (x)`."""
    return (label in grouping.labels) is grouping.by


def _said(selector: Selector, metric: Metric, operator: str) -> tuple[Severity, str]:
    sources = ", ".join(metric.values.get(metric.source, ()))
    once = f'{metric.source}="{metric.once}"'
    if not metric.offsets:
        message = (
            f"{metric.name} is counted by each of several sources ({sources}), and {operator} adds them up; "
            f"{once} counts everything once"
        )
        return Severity.ERROR, message
    message = (
        f"{metric.name} has several sources ({sources}) that offset each other: a part of them may be below 0; "
        f"{once} counts what is in the state"
    )
    states = [each for each in selector.matchers if each.name == "State" and each.op in _POSITIVE]
    unsettled = set(metric.values.get("State", ())) - _SETTLED
    asked = any(_takes(matcher, unsettled) for matcher in states)
    # Over all states the parts add up to the number of tasks, so that Ray's own dashboards sum them.
    return (Severity.WARNING if asked else Severity.ADVICE), message


def _takes(matcher: LabelMatcher, states: set[str]) -> bool:
    return any(matcher.matches({"State": state}) for state in states)


def _picked(query: Query, selector: Selector, metric: Metric) -> str:
    """Return the selector with a matcher of the source added."""
    written = query.written(query.places.of(selector))
    matchers = [each for each in selector.matchers if each.name != METRIC_NAME]
    inside = written.rpartition("}")[0].rstrip().rstrip(",") if "{" in written else f"{written}{{"
    return f'{inside}{"," if matchers else ""}{metric.source}="{metric.once}"}}'

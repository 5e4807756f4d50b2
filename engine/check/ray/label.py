"""A label, or a value of one, that Ray does not give this metric."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import MASK, Note, Query, Severity, World
from engine.lang.promql.places import Span
from engine.lang.promql.syntax import Aggregation, LabelMatcher, Selector, selected_metric, walk
from engine.model.labels import METRIC_NAME, MatchOp
from engine.ray.contract import RELABELLED, TARGET_LABELS, Series

_WORKERS = "ray_component_"


@query_check("ray/label")
def label(query: Query, world: World) -> Iterator[Note]:
    """Look at the matchers of each selector, and at what directly aggregates it."""
    for node in walk(query.root):
        if isinstance(node, Selector) and (series := world.series(node)) is not None:
            for index, matcher in enumerate(node.matchers):
                if matcher.name != METRIC_NAME:
                    spot = query.places.matcher(node, index)
                    yield from _matcher(query, world, series, node, matcher, spot)
        elif isinstance(node, Aggregation) and isinstance(node.operand, Selector) and node.grouping.by:
            yield from _grouping(query, world, node, node.operand)


def _matcher(
    query: Query, world: World, series: Series, node: Selector, matcher: LabelMatcher, span: Span
) -> Iterator[Note]:
    name = selected_metric(node.matchers) or ""
    if matcher.name not in series.labels | TARGET_LABELS | RELABELLED:
        severity, message, rewrite = _unknown(world, series, name, matcher.name, matcher.value)
        if matcher.matches({}):
            message = f"{message}; so this matcher lets everything pass"
        elif severity is Severity.ERROR:
            message = f"{message}; so nothing is selected"
        yield Note(severity, message, query.at(span), rewrite)
    elif matcher.op is MatchOp.EQUAL and matcher.value and MASK not in matcher.value:
        yield from _value(query, series, matcher, span)


def _unknown(world: World, series: Series, name: str, label: str, value: str) -> tuple[Severity, str, str]:
    """Return what to say of a label that Ray does not give a metric; `value` chooses between rewrites."""
    contract = world.contract
    missing = f"{name} has no label {label} in Ray {contract.version}"
    change = contract.change(series.metric.name, label, value) or contract.change(series.metric.name, label)
    if change is not None:
        return Severity.ERROR, f"{missing}: {change.why}", change.rewrite
    if label in series.metric.dropped:
        return Severity.ERROR, f"{missing}: it is left out by default", ""
    near = [each for each in series.labels if each.lower() == label.lower()]
    near = near or difflib.get_close_matches(label, series.labels, n=1, cutoff=0.8)
    if near:
        return Severity.ERROR, f"{missing}; did you mean {near[0]}?", near[0]
    own = sorted(series.labels - {"SessionName", "Version", "otel_scope_name"})
    known = f"it has {', '.join(own)}"
    if label in contract.vocabulary():
        return Severity.ERROR, f"{missing}; {known}", ""
    return Severity.ADVICE, f"{missing}; {known}; does relabelling add it?", ""


def _value(query: Query, series: Series, matcher: LabelMatcher, span: Span) -> Iterator[Note]:
    known = series.metric.values.get(matcher.name, ())
    if not known or matcher.value in known:
        return
    message = (
        f"{matcher.name} of {series.metric.name} is one of {', '.join(known)}, as far as scrapes have shown"
    )
    folded = [each for each in known if each.lower() == matcher.value.lower()]
    if near := folded or difflib.get_close_matches(matcher.value, known, n=1, cutoff=0.75):
        rewrite = f'{matcher.name}="{near[0]}"'
        yield Note(Severity.ERROR, f"{message}; did you mean {near[0]}?", query.at(span), rewrite)
    else:
        yield Note(Severity.WARNING, message, query.at(span))


def _grouping(query: Query, world: World, node: Aggregation, operand: Selector) -> Iterator[Note]:
    series = world.series(operand)
    for each in node.grouping.labels if series is not None else ():
        assert series is not None
        if each in series.labels | TARGET_LABELS | RELABELLED or each not in world.contract.vocabulary():
            continue
        name = selected_metric(operand.matchers) or ""
        _, message, rewrite = _unknown(world, series, name, each, "")
        spot = query.at(query.places.grouping(node))
        yield Note(Severity.WARNING, f"{message}; so it groups nothing", spot, rewrite.partition("=")[0])

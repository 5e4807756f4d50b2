"""A detector that looks at the level of a counter, which says how old its process is."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Subject, World
from engine.lang.promql.counters import bare_counter
from engine.model.ports import Detector, Rewriter
from engine.model.rule import AlertingRule
from engine.registry import detector


@rule_check("detect/counter")
def counter(subject: Subject, world: World) -> Iterator[Note]:
    """Note a bare counter, by Ray's contract or else by its name, under a detector that judges levels."""
    query = subject.expr
    metric = bare_counter(query.text)
    if (
        metric is None
        or not isinstance(subject.rule, AlertingRule)
        or not _judges_levels(subject.rule.detect)
    ):
        return
    series = next(filter(None, map(world.series, query.selectors)), None)
    if series is not None and not series.grows and not series.metric.cumulative:
        return
    message = f"{metric} looks like a counter, which falls to 0 when its process restarts; its rate is what happens now"
    written = next(query.written(query.places.of(each)) for each in query.selectors)
    yield Note(Severity.WARNING, message, query.at(query.places.whole), f"rate({written}[5m])")


def _judges_levels(detect: Detector) -> bool:
    whether_it_moves = detector.name_of(detect) in ("absent", "stale")
    return bool(detect.lookback) and not whether_it_moves and not isinstance(detect, Rewriter)

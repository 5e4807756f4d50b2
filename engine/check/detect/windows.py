"""Lookback, step, horizon and season that do not fit each other, or the metric."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Spot, Subject, World
from engine.load.nodes import MappingNode, Node, ScalarNode
from engine.model.duration import Duration
from engine.model.rule import AlertingRule

_FEWEST = 10  # points of history
_FARTHEST = 4  # lookbacks ahead
_SEASONS = 2


@rule_check("detect/windows")
def windows(subject: Subject, world: World) -> Iterator[Note]:
    """Hold the durations of a detector against each other and against the metric's publish period."""
    if not isinstance(subject.rule, AlertingRule) or not subject.rule.detect.lookback:
        return
    detector = subject.rule.detect
    lookback, step = detector.lookback, detector.step
    if step and lookback < _FEWEST * step:
        message = f"a lookback of {lookback} at a step of {step} is fewer than {_FEWEST} points"
        yield _note(subject, "step", Severity.ERROR, message, f"step: {Duration.of(lookback / 60)}")
    periods = [found.metric.period for each in subject.expr.selectors if (found := world.series(each))]
    slowest = Duration(seconds=max((each for each in periods if each), default=0))
    if step and step < slowest:
        message = f"Ray publishes the metric every {slowest}: at a step of {step} the same sample comes again and again"
        yield _note(subject, "step", Severity.WARNING, message, f"step: {Duration.of(2 * slowest)}")
    for name, length in _durations(detector):
        if name == "horizon" and length > _FARTHEST * lookback:
            message = f"{length} ahead from {lookback} of history: such forecasts come and go with every bend"
            yield _note(subject, name, Severity.WARNING, message, f"lookback: {Duration.of(length / 2)}")
        if name == "season" and lookback < _SEASONS * length:
            message = f"a season of {length} cannot be told in a lookback of {lookback}"
            yield _note(subject, name, Severity.ERROR, message, f"lookback: {Duration.of(3 * length)}")


def _durations(detector: object) -> Iterator[tuple[str, Duration]]:
    for each in dataclasses.fields(detector):  # type: ignore[arg-type]
        value = getattr(detector, each.name)
        if isinstance(value, Duration):
            yield each.name, value


def _note(subject: Subject, key: str, severity: Severity, message: str, rewrite: str) -> Note:
    """Return a note at the detector's key, or at `detect` where the default holds."""
    found = _find(subject.node.get("detect"), key)
    spot = Spot(found, 0, len(found.value)) if found is not None else subject.key("detect")
    return Note(severity, message, spot, rewrite)


def _find(node: Node | None, key: str) -> ScalarNode | None:
    for name, entry in node.entries.items() if isinstance(node, MappingNode) else ():
        if name == key and isinstance(entry.value, ScalarNode):
            return entry.value
        if (found := _find(entry.value, key)) is not None:
            return found
    return None

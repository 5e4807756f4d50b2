"""Lookback, horizon, seasons and steps that do not fit each other, or the metric."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Spot, Subject, World
from engine.load.nodes import MappingNode, Node, ScalarNode
from engine.model.duration import Duration
from engine.model.rule import AlertingRule

_FARTHEST = 4  # lookbacks ahead
_SEASONS = 2  # of history at least: one to learn, one to tell it from chance
_RETENTION = Duration(days=15)  # Prometheus' default


@rule_check("detect/windows")
def windows(subject: Subject, world: World) -> Iterator[Note]:
    """Hold the durations of a detector against each other and against the metric's publish period."""
    if not isinstance(subject.rule, AlertingRule):
        return
    keys = _durations(subject.rule.detect)
    yield from _published(subject, world, keys)
    if "lookback" not in keys:
        return
    lookback, history = keys["lookback"], keys.get("history", keys["lookback"])
    if (horizon := keys.get("horizon", lookback)) > _FARTHEST * lookback:
        message = f"{horizon} ahead from {lookback} of history: such forecasts come and go with every bend"
        yield _note(
            subject, "horizon", Severity.WARNING, message, f"lookback: {Duration.of(horizon / _FARTHEST)}"
        )
    longest = max(getattr(subject.rule.detect, "seasons", ()), default=Duration())
    if history < _SEASONS * longest:
        message = f"a season of {longest} cannot be told in {history} of history"
        rewrite = f"history: {Duration.of(_SEASONS * longest)}"
        yield _note(subject, "seasons", Severity.ERROR, message, rewrite)
    if history > _RETENTION:
        message = f"{history} of history is more than the {_RETENTION} that Prometheus keeps by default"
        key = "history" if "history" in keys else "lookback"
        yield _note(subject, key, Severity.WARNING, message, f"{key}: {_RETENTION}")


def _published(subject: Subject, world: World, keys: Mapping[str, Duration]) -> Iterator[Note]:
    """Note durations shorter than the time from one publication of a metric to the next."""
    periods = [found.metric.period or 0.0 for each in subject.expr.selectors if (found := world.series(each))]
    slowest = Duration(seconds=max(periods, default=0.0))
    for key, least in (("step", slowest), ("after", Duration.of(2 * slowest))):
        if (length := keys.get(key)) and length < least:
            message = (
                f"Ray publishes the metric every {slowest}, so a {key!r} of {length} sees gaps or repeats"
            )
            yield _note(subject, key, Severity.WARNING, message, f"{key}: {Duration.of(3 * slowest)}")


def _durations(detector: object) -> dict[str, Duration]:
    assert dataclasses.is_dataclass(detector)
    values = ((each.name, getattr(detector, each.name)) for each in dataclasses.fields(detector))
    return {name: value for name, value in values if isinstance(value, Duration)}


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

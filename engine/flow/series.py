"""What rules make, as series: recorded ones, and `ALERTS` and `ALERTS_FOR_STATE` of alerting rules.

As Prometheus writes them, with a stale marker where a series ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from engine.errors import DetectError
from engine.model.alert import Alert, AlertState
from engine.model.labels import METRIC_NAME, Labels
from engine.model.ports import Point
from engine.model.rule import RecordingRule
from engine.model.series import Window


class SeriesBook:
    """Which series each rule had at its last evaluation, so that those that are gone can be ended."""

    def __init__(self) -> None:
        self._live: dict[str, frozenset[Labels]] = {}

    def points(self, rule_id: str, values: Mapping[Labels, float], at: datetime) -> list[Point]:
        """Return the samples of one evaluation, and a stale marker for each series that it no longer has."""
        gone = self._live.get(rule_id, frozenset()).difference(values)
        self._live[rule_id] = frozenset(values)
        return [
            *(Point(labels, at, value) for labels, value in values.items()),
            *(Point(labels, at, None) for labels in sorted(gone, key=str)),
        ]


def recorded(rule: RecordingRule, window: Window) -> dict[Labels, float]:
    """Return the series of a recording rule: the result's labels, the rule's over them, its name over all."""
    found: dict[Labels, float] = {}
    for labels, value, there in zip(window.labels, window.values[:, 0], window.present[:, 0], strict=True):
        if not there:
            continue
        named = labels.updated(rule.labels).updated({METRIC_NAME: rule.record})
        if named in found:
            raise DetectError(
                f"{rule.origin}: {rule.record}: two results have the same labels after the rule's are applied: {named}"
            )
        found[named] = float(value)
    return found


def alert_series(alerts: Iterable[Alert]) -> dict[Labels, float]:
    """Return `ALERTS` (1) and `ALERTS_FOR_STATE` (Unix seconds since when) of what is pending or fires."""
    found: dict[Labels, float] = {}
    for alert in alerts:
        if alert.state is AlertState.RESOLVED:
            continue
        found[alert.labels.updated({METRIC_NAME: "ALERTS", "alertstate": alert.state.value})] = 1.0
        since = alert.active_at.timestamp()
        found[alert.labels.updated({METRIC_NAME: "ALERTS_FOR_STATE"})] = float(int(since))
    return found

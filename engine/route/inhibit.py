"""Inhibition: an alert that fires mutes others that only follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.model.alert import Alert
from engine.model.labels import Labels
from engine.model.route import InhibitRule


def inhibitors(rules: Sequence[InhibitRule], alerts: Iterable[Alert]) -> Mapping[str, Alert]:
    """Return, by fingerprint of each muted alert, the alert that mutes it.

    Alertmanager's rules: a missing label equals an empty one; an alert that matches both sides of a rule is
    not muted by itself, nor by another that matches both; a muted alert still mutes others, a resolved one
    does not.
    """
    present = tuple(alerts)
    muted: dict[str, Alert] = {}
    for rule in rules:
        sources = _Sources(rule, present)
        for alert in present:
            if alert.fingerprint not in muted and (source := sources.muting(alert.labels)) is not None:
                muted[alert.fingerprint] = source
    return muted


class _Sources:
    """The sources of one rule, found by the values of its `equal` labels."""

    def __init__(self, rule: InhibitRule, alerts: Iterable[Alert]) -> None:
        self._rule = rule
        self._any: dict[tuple[str, ...], Alert] = {}
        self._one_sided: dict[tuple[str, ...], Alert] = {}
        for alert in alerts:
            if alert.firing and rule.source_matchers.matches(alert.labels):
                self._any.setdefault(self._values(alert.labels), alert)
                if not rule.target_matchers.matches(alert.labels):
                    self._one_sided.setdefault(self._values(alert.labels), alert)

    def muting(self, labels: Labels) -> Alert | None:
        """Return the source that mutes an alert of these labels."""
        if not self._any or not self._rule.target_matchers.matches(labels):
            return None
        both_sides = self._rule.source_matchers.matches(labels)
        return (self._one_sided if both_sides else self._any).get(self._values(labels))

    def _values(self, labels: Labels) -> tuple[str, ...]:
        return tuple(labels.get(name, "") for name in self._rule.equal)

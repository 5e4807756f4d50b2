"""The engine's own alerts about its rules: one that fails, one that sees no series, one that is over its budget.

Nobody hears from a rule that is blind, so its silence is an alert of its own. They go through routing,
grouping and the store like any other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.alert.tracker import Finding, Tracker
from engine.model.alert import Alert
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME, Labels
from engine.model.ports import Store
from engine.model.rule import Absence, AlertingRule, Rule, RuleGroup
from engine.model.settings import EngineAlerts
from engine.registry import detector

FAILING, NO_DATA, OVER_BUDGET = "EngineRuleFailing", "EngineRuleNoData", "EngineRuleOverBudget"
_VERBS = {FAILING: "cannot be evaluated", NO_DATA: "sees no data", OVER_BUDGET: "is over its budget"}
ASKED_EVERY = timedelta(minutes=5)

Changes = list[tuple[Alert | None, Alert | None]]


@dataclass(frozen=True, slots=True)
class _Watch:
    """One of the engine's own rules. `at_once` is for rules that ask for it: `on_error: alert`."""

    alert: str
    hold: Duration
    at_once: bool

    @property
    def id(self) -> str:
        """Its rule id."""
        return f"engine;self;{self.alert}" + (";at once" if self.at_once else "")


class RuleWatch:
    """Watches how rules are doing, as alerts by rule."""

    def __init__(self, wanted: EngineAlerts, store: Store) -> None:
        self._watches = [
            _Watch(alert, Duration() if at_once else hold, at_once)
            for alert, hold in ((FAILING, wanted.rule_failing_for), (NO_DATA, wanted.rule_no_data_for))
            for at_once in (False, True)
        ]
        self._watches.append(_Watch(OVER_BUDGET, Duration(), at_once=True))
        self.trackers = {watch.id: Tracker(_rule(watch), store.alerts(watch.id)) for watch in self._watches}
        self._asked: dict[str, datetime] = {}
        self._has_data: dict[str, bool] = {}
        self._findings: dict[str, dict[str, Finding]] = {watch.id: {} for watch in self._watches}
        self._lock = threading.Lock()  # groups are evaluated on several threads
        self._off = {watch.id for watch in self._watches if not watch.hold and not watch.at_once}

    def is_due(self, rule: AlertingRule, slot: datetime) -> bool:
        """Tell whether it is time to ask whether a rule has data, which may cost a query."""
        if all(
            watch.id in self._off for watch in self._watches if watch.alert == NO_DATA and not watch.at_once
        ):
            return rule.on_no_data is Absence.ALERT
        asked = self._asked.get(rule.id)
        return asked is None or not timedelta() <= slot - asked < ASKED_EVERY

    def saw_data(self, rule: AlertingRule, *, has_data: bool | None, slot: datetime) -> None:
        """Note whether a rule had any series to look at; None: nobody can say."""
        if has_data is not None:
            self._has_data[rule.id] = has_data
            self._asked[rule.id] = slot

    def update(
        self, group: RuleGroup, errors: Mapping[str, str], over: Mapping[str, str], slot: datetime
    ) -> list[tuple[str, Changes]]:
        """Take note of one evaluation of a group; return what changed for each of the engine's own rules.

        `errors` and `over` say by rule what went wrong, and how its budget was exceeded; "" if neither.
        """
        found = []
        with self._lock:
            for watch in self._watches:
                if watch.id in self._off:
                    continue
                mine = self._findings[watch.id]
                for rule in group.rules:
                    mine.pop(rule.id, None)
                    said = over.get(rule.id, "") if watch.alert == OVER_BUDGET else errors[rule.id]
                    if why := self._why(watch, rule, said):
                        mine[rule.id] = _finding(watch, group, rule.name, why)
                if not mine and self.trackers[watch.id].idle:
                    continue
                if changed := self.trackers[watch.id].update(mine.values(), slot):
                    found.append((watch.id, changed))
        return found

    def _why(self, watch: _Watch, rule: Rule, error: str) -> str:
        """Return what is wrong with a rule, if it is this watch's to say so."""
        if watch.alert == OVER_BUDGET:
            return error
        if watch.alert == FAILING:
            at_once = isinstance(rule, AlertingRule) and rule.on_error is Absence.ALERT
            return error if at_once is watch.at_once else ""
        if not isinstance(rule, AlertingRule) or error or self._has_data.get(rule.id, True):
            return ""
        said = "its expression returns no series at all: is the metric still exported under this name?"
        return said if (rule.on_no_data is Absence.ALERT) is watch.at_once else ""


def _rule(watch: _Watch) -> AlertingRule:
    return AlertingRule(
        alert=watch.alert, expr="", hold=watch.hold, detect=detector.get("present")(), id=watch.id
    )


def _finding(watch: _Watch, group: RuleGroup, name: str, why: str) -> Finding:
    about = Labels(rule=name, rule_group=group.name, file=group.file, severity="warning", component="engine")
    return Finding(
        labels=about.updated({ALERT_NAME: watch.alert}),
        signal=about,
        bad=True,
        value=1.0,
        details={},
        annotations={"summary": f"{name} {_VERBS[watch.alert]}", "description": why},
    )

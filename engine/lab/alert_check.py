"""Are exactly the expected alerts there? If not: what a person needs to see why."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from engine.errors import ExpressionError, QueryError
from engine.lab.story import Moment, Story
from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME
from engine.model.rule import AlertingRule, RuleGroup
from engine.model.testing import AlertRuleTest, ExpectedAlert, Match

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_SHOWN = 5  # series of an expression's result


@dataclass(frozen=True, slots=True)
class AlertCheck:
    """One `alert_rule_test`, held against what happened. `tolerance` is relative, for numbers inside annotations."""

    it: AlertRuleTest
    story: Story
    groups: Sequence[RuleGroup]
    tolerance: float

    def lines(self) -> list[str]:
        """Return the difference in lines, `-` expected and `+` got; none if there is none."""
        moment = self.story.at(self.it.eval_time)
        states = (self.it.state,) if self.it.state is not None else (AlertState.PENDING, AlertState.FIRING)
        extra = [alert for alert in named(moment, self.it.alertname) if alert.state in states]
        missing = []
        for expected in self.it.exp_alerts:
            found = next((alert for alert in extra if self._fits(expected, alert)), None)
            if found is None:
                missing.append(expected)
            else:
                extra.remove(found)
        if not missing and not extra:
            return []
        return list(self._difference(missing, extra, moment))

    @property
    def _word(self) -> str:
        return self.it.state.value if self.it.state is not None else "active"

    def _fits(self, expected: ExpectedAlert, alert: Alert) -> bool:
        texts = expected.annotations
        if not self._same_labels(expected, alert):
            return False
        return texts is None or (
            texts.keys() == alert.annotations.keys()
            and all(same_text(texts[name], alert.annotations[name], self.tolerance) for name in texts)
        )

    def _same_labels(self, expected: ExpectedAlert, alert: Alert) -> bool:
        wanted = expected.labels.updated({ALERT_NAME: self.it.alertname})
        if self.it.match is Match.SUBSET:
            return all(alert.labels.get(name) == value for name, value in wanted.items())
        return alert.labels == wanted

    def _difference(
        self, missing: Iterable[ExpectedAlert], extra: list[Alert], moment: Moment
    ) -> Iterator[str]:
        after = Duration.of(moment.at - self.story.start)
        yield f"expected {self._word}, at the evaluation @ {after}"
        for expected in missing:
            twin = next((alert for alert in extra if self._same_labels(expected, alert)), None)
            if twin is None:
                yield from self._elsewhere(expected, moment)
            else:
                extra.remove(twin)
                yield f"  {self._word:8} {expected.labels}  with other annotations:"
                yield from self._texts(expected.annotations or {}, twin.annotations)
        for alert in extra:
            yield f"+ {alert.state.value:8} {alert.labels.without(ALERT_NAME)}  (not expected)"
        yield from self._results(moment)
        yield timeline(self.it.alertname, self.story, self.it.eval_time)

    def _texts(self, wanted: Mapping[str, str], got: Mapping[str, str]) -> Iterator[str]:
        for name in sorted({*wanted, *got}):
            if (
                name not in wanted
                or name not in got
                or not same_text(wanted[name], got[name], self.tolerance)
            ):
                yield f"- {name}: {wanted.get(name, '(none)')}"
                yield f"+ {name}: {got.get(name, '(none)')}"

    def _elsewhere(self, expected: ExpectedAlert, moment: Moment) -> Iterator[str]:
        """Say in which state the expected alert is instead."""
        yield f"- {self._word:8} {expected.labels}"
        alerts = named(moment, self.it.alertname)
        other = next((alert for alert in alerts if self._same_labels(expected, alert)), None)
        if other is None:
            yield f"+ inactive {expected.labels}"
            return
        since = other.active_at - self.story.start
        said = f"since {Duration.of(since)}"
        if other.state is AlertState.PENDING:
            hold = next((rule.hold for rule in self._rules() if rule.id == other.rule_id), timedelta())
            said += f", for: {Duration.of(hold)} → fires at {Duration.of(since + hold)}"
        yield f"+ {other.state.value:8} {expected.labels}  {said}"

    def _rules(self) -> Iterator[AlertingRule]:
        for group in self.groups:
            for rule in group.rules:
                if isinstance(rule, AlertingRule) and rule.alert == self.it.alertname:
                    yield rule

    def _results(self, moment: Moment) -> Iterator[str]:
        """Say what the rules' expressions return at that moment."""
        for rule in self._rules():
            expr = " ".join(rule.expr.split())
            try:
                window = self.story.stage.instant(rule.expr, moment.at)
            except (ExpressionError, QueryError) as error:
                yield f"  {expr}: {error}"
                continue
            yield f"  {expr} returns" + (":" if len(window) else " nothing")
            for labels, value in list(zip(window.labels, window.last(), strict=True))[:_SHOWN]:
                yield f"    {labels} {value:g}"
            if len(window) > _SHOWN:
                yield f"    … and {len(window) - _SHOWN} more"


def named(moment: Moment, name: str) -> list[Alert]:
    """Return the alerts of a moment that have a name."""
    return [alert for alert in moment.alerts if alert.name == name]


def close(one: float, other: float, tolerance: float) -> bool:
    """Tell whether two values are the same, give or take a relative tolerance."""
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=tolerance)


def same_text(one: str, other: str, tolerance: float) -> bool:
    """Tell whether two texts are the same but for numbers within a relative tolerance."""
    if one == other:
        return True
    if not tolerance or _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(close(float(first), float(second), tolerance) for first, second in pairs)


def timeline(name: str, story: Story, asked: timedelta) -> str:
    """Draw an alert's life: `.` nothing, `p` pending, `F` firing, `|` behind the moment asked about."""
    signs, moments = [], story.moments
    stride = max(1, math.ceil(len(moments) / 60))
    marked = story.at(asked)
    for i in range(0, len(moments), stride):
        part = moments[i : i + stride]
        states = {alert.state for moment in part for alert in named(moment, name)}
        sign = "F" if AlertState.FIRING in states else "p" if AlertState.PENDING in states else "."
        signs.append(f"{sign}|" if marked in part else sign)
    end = Duration.of(moments[-1].at - story.start)
    return f"  timeline 0s {''.join(signs)} {end}   (. nothing, p pending, F firing, | here)"

"""What makes a test weaker than it looks. In a rule file's own tests it is a failure, in promtool's files a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from engine.errors import ExpressionError, QueryError
from engine.flow.slots import interval_of
from engine.lab.story import ALERTS, ALERTS_FOR_STATE, Story, length_of
from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME, Labels
from engine.model.rule import AlertingRule, Origin, RuleGroup
from engine.model.testing import (
    AlertRuleTest,
    ForecastTest,
    Never,
    PromqlExprTest,
    RouteTest,
    TestGroup,
    Timeline,
)

About = AlertRuleTest | RouteTest | ForecastTest | Never | Timeline


class Weakness(NamedTuple):
    """What a test does not do although it looks so."""

    what: str
    origin: Origin
    line: str


class Rules:
    """The alerting rules that a test may name, each with its group."""

    def __init__(self, groups: Sequence[RuleGroup]) -> None:
        self.groups = groups
        self.by_name: dict[str, list[tuple[RuleGroup, AlertingRule]]] = {}
        for group in groups:
            for rule in group.rules:
                if isinstance(rule, AlertingRule):
                    self.by_name.setdefault(rule.alert, []).append((group, rule))
        self.recorded = {
            rule.record for group in groups for rule in group.rules if not isinstance(rule, AlertingRule)
        }

    def named(self, name: str) -> list[AlertingRule]:
        """Return the rules whose alerts have that name."""
        return [rule for _, rule in self.by_name.get(name, ())]


def questions(test: TestGroup) -> list[About]:
    """Return what a test says about alerts by their name."""
    return [*test.alert_rule_test, *test.route_test, *test.forecast_test, *test.never, *test.timeline]


def weaknesses(
    test: TestGroup, rules: Rules, *, interval: timedelta, own_intervals: bool
) -> Iterator[Weakness]:
    """Yield what can be told without running the test."""
    asked = questions(test)
    for it in asked:
        if it.alertname not in rules.by_name:
            yield Weakness(it.alertname, it.origin, _unknown(it.alertname, rules))
    if not asked and not test.promql_expr_test and not test.remediation_test:
        yield Weakness("nothing is expected", test.origin, "nothing is expected; add an alert_rule_test")
    yield from _without_input(test, rules, asked)
    yield from _after_input(test, asked, length_of(test, test.interval or interval))
    for it in asked:
        if not isinstance(it, Never | Timeline):
            yield from _off_grid(it, rules, None if own_intervals else interval)


def _unknown(name: str, rules: Rules) -> str:
    from engine.load.records import suggest  # noqa: PLC0415 - difflib, for this alone

    return f"no rule of this file is called {name!r}{suggest(name, rules.by_name) or '; known: none'}"


def _without_input(test: TestGroup, rules: Rules, asked: Sequence[About]) -> Iterator[Weakness]:
    if test.input_signal:
        return
    series = [each.labels for each in test.input_series] + [each.labels for each in test.input_files]
    known = {labels.get(METRIC_NAME, "") for labels in series} | rules.recorded | {ALERTS, ALERTS_FOR_STATE}
    for name in dict.fromkeys(it.alertname for it in asked):
        for rule in rules.named(name):
            for metric in sorted(_metrics(rule.expr) - known):
                yield Weakness(name, test.origin, f"{name}: no input series for {metric}")


def _metrics(expr: str) -> set[str]:
    from engine.lang.promql.mutants import needed_metrics  # noqa: PLC0415

    try:
        return needed_metrics(expr)
    except ExpressionError:
        return set()  # only a real server reads it


def _after_input(test: TestGroup, asked: Sequence[About], length: timedelta) -> Iterator[Weakness]:
    if not test.input_series and not test.input_signal and not test.input_files:
        return
    if any(len(series.stale) and series.stale[-1] for series in (*test.input_series, *test.input_signal)):
        return  # the test says itself that something ends
    late = {
        it.eval_time: it
        for it in reversed(asked)
        if not isinstance(it, Never | Timeline) and it.eval_time > length
    }
    for at in sorted(late):
        ends = f"input ends at {Duration.of(length)}, before eval_time {at}"
        line = f"{ends}; make the series longer, or end it with stale"
        yield Weakness(f"{late[at].alertname} @ {at}", late[at].origin, line)


def _off_grid(
    it: AlertRuleTest | RouteTest | ForecastTest, rules: Rules, interval: timedelta | None
) -> Iterator[Weakness]:
    for group, rule in rules.by_name.get(it.alertname, ()):
        step = interval or interval_of(group)
        if it.eval_time % step:
            used = Duration.of(it.eval_time // step * step)
            line = (
                f"eval_time {it.eval_time} is between two evaluations, which are {Duration.of(step)} apart; "
                f"the one at {used} is looked at"
            )
            yield Weakness(f"{rule.alert} @ {it.eval_time}", it.origin, line)
            return


def cannot_fail(
    it: About | PromqlExprTest, story: Story, rules: Rules, seen: dict[str, set[Labels] | None]
) -> str:
    """Return why an assertion that nothing is there cannot fail; nothing if it can.

    It cannot if the expression is empty during the whole test, however its comparisons turn out. `seen` keeps
    what each expression came to.
    """
    if isinstance(it, PromqlExprTest):
        return "" if it.exp_samples or _returns(it.expr, story, seen) else _words(it.expr)
    if not _expects_nothing(it) or not (named := rules.named(it.alertname)):
        return ""
    labels = it.labels if isinstance(it, Never | Timeline) else Labels()
    if any(
        labels.items() <= alert.labels.items()
        for m in story.moments
        for alert in m.alerts
        if alert.name == it.alertname
    ):
        return ""  # it was there at some time
    for rule in named:
        found = _seen(rule.expr, story, seen)
        if found is None or any(_fits(labels, rule, each) for each in found):
            return ""
    return _words(named[0].expr, labels)


def _words(expr: str, labels: Mapping[str, str] = Labels()) -> str:
    which = f" with {labels}" if labels else ""
    return (
        f"this cannot fail: {' '.join(expr.split())} has no series{which} during the whole test, "
        "whatever is compared; check the names and labels of the input"
    )


def _expects_nothing(it: About) -> bool:
    if isinstance(it, AlertRuleTest):
        return not it.exp_alerts
    if isinstance(it, Timeline):
        return not it.pending and not it.firing
    return isinstance(it, Never)


def _fits(wanted: Labels, rule: AlertingRule, series: Labels) -> bool:
    """Tell whether an alert of that series can have these labels; those that the rule adds are taken for granted."""
    return all(name in rule.labels or series.get(name, "") == value for name, value in wanted.items())


def _returns(expr: str, story: Story, seen: dict[str, set[Labels] | None]) -> bool:
    found = _seen(expr, story, seen)
    return found is None or bool(found)


def _seen(expr: str, story: Story, seen: dict[str, set[Labels] | None]) -> set[Labels] | None:
    """Return the labels that an expression has in a test, less its comparisons; None if that cannot be said."""
    if expr not in seen:
        seen[expr] = _ask(expr, story)
    return seen[expr]


def _ask(expr: str, story: Story) -> set[Labels] | None:
    from engine.lang.promql.mutants import unfiltered  # noqa: PLC0415

    first, last = story.moments[0].at, story.moments[-1].at
    step = story.moments[1].at - first if len(story.moments) > 1 else timedelta(minutes=1)
    try:
        text = expr if expr in story.stage.signals else unfiltered(expr)
        return set(story.stage.range(text, first, last, step).labels)
    except (ExpressionError, QueryError):
        return None

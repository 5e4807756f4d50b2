"""Hold what happened in a test group against what the test expects."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from engine.errors import ExpressionError, QueryError
from engine.lab.story import Moment, Story, length_of, live_through
from engine.lang.promql import metric_names
from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME, METRIC_NAME
from engine.model.playbook import Playbook
from engine.model.rule import AlertingRule, Origin, RuleGroup
from engine.model.settings import Settings
from engine.model.testing import (
    AlertRuleTest,
    ExpectedAlert,
    ForecastTest,
    Match,
    Never,
    PromqlExprTest,
    RemediationTest,
    RouteTest,
    TestGroup,
)
from engine.route.tree import receivers_of

TOLERANCE = 1e-9  # relative, for floats and for numbers inside annotations
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One expectation that did not hold."""

    test: str
    what: str  # the kind of assertion, what it is about, and when
    origin: Origin
    lines: tuple[str, ...]  # the difference, `-` expected and `+` got, and what helps to understand it


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one test group."""

    name: str
    assertions: int
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What test groups are run on."""

    groups: Sequence[RuleGroup]
    settings: Settings
    playbooks: Mapping[str, Playbook]
    interval: timedelta  # of a file that gives none
    own_intervals: bool  # each group at its own interval, not at the file's evaluation_interval


def run_test(test: TestGroup, bench: Bench) -> Result:
    """Live a test group through and check every expectation."""
    name = test.name or f"line {test.origin.line}"
    interval = test.interval or bench.interval
    if faults := list(_vacuous(test, bench.groups, name)):
        return Result(name=name, assertions=len(faults), failures=tuple(faults))
    story = live_through(
        test,
        bench.groups,
        settings=bench.settings,
        playbooks=bench.playbooks,
        interval=interval,
        own_intervals=bench.own_intervals,
    )
    checks = list(_checks(test, bench, story))
    failures = [*_errors(story, bench.groups, name)]
    for what, origin, check in checks:
        if lines := check():
            failures.append(Failure(test=name, what=what, origin=origin, lines=tuple(lines)))
    return Result(name=name, assertions=len(checks), failures=tuple(failures))


Check = tuple[str, Origin, Callable[[], list[str]]]


def _checks(test: TestGroup, bench: Bench, story: Story) -> Iterator[Check]:
    for alert in test.alert_rule_test:
        what = f"{alert.alertname} @ {alert.eval_time}"
        yield what, alert.origin, partial(_alerts, alert, story, bench.groups)
    for expr in test.promql_expr_test:
        yield f"promql_expr_test @ {expr.eval_time}", expr.origin, partial(_samples, expr, story)
    for route in test.route_test:
        what = f"route_test {route.alertname} @ {route.eval_time}"
        yield what, route.origin, partial(_routes, route, story, bench.settings)
    for heal in test.remediation_test:
        yield f"remediation_test @ {heal.eval_time}", heal.origin, partial(_remedies, heal, story)
    for eta in test.forecast_test:
        yield (
            f"forecast_test {eta.alertname} @ {eta.eval_time}",
            eta.origin,
            partial(_forecast, eta, story),
        )
    for never in test.never:
        yield f"never {never.alertname}", never.origin, partial(_never, never, story)


def _vacuous(test: TestGroup, groups: Sequence[RuleGroup], name: str) -> Iterator[Failure]:
    """Refuse what can only pass by mistake: alert names that no rule has, times after the input's end."""
    known = {rule.alert for group in groups for rule in group.rules if isinstance(rule, AlertingRule)}
    named: list[AlertRuleTest | RouteTest | ForecastTest | Never] = [
        *test.alert_rule_test,
        *test.route_test,
        *test.forecast_test,
        *test.never,
    ]
    for it in named:
        if it.alertname not in known:
            lines = (
                f"no rule of this file is called {it.alertname!r}; known: {', '.join(sorted(known)) or 'none'}",
            )
            yield Failure(test=name, what=f"{it.alertname}", origin=it.origin, lines=lines)
    if not test.alert_rule_test and not test.promql_expr_test and not _asks_more(test):
        yield Failure(
            test=name, what="nothing is expected", origin=test.origin, lines=("add an alert_rule_test",)
        )


def _asks_more(test: TestGroup) -> bool:
    return bool(test.route_test or test.remediation_test or test.forecast_test or test.never)


def _errors(story: Story, groups: Sequence[RuleGroup], name: str) -> Iterator[Failure]:
    """Return one failure a rule that could not be evaluated."""
    rules = {rule.id: rule for group in groups for rule in group.rules}
    seen: set[tuple[str, str]] = set()
    for moment in story.moments:
        for rule_id, error in moment.errors.items():
            if (rule_id, error) not in seen and len(seen) < 10:
                seen.add((rule_id, error))
                what = f"{rules[rule_id].name} cannot be evaluated @ {Duration.of(moment.at - story.start)}"
                yield Failure(test=name, what=what, origin=rules[rule_id].origin, lines=(error,))


def _alerts(it: AlertRuleTest, story: Story, groups: Sequence[RuleGroup]) -> list[str]:
    moment = story.at(it.eval_time)
    states = (it.state,) if it.state is not None else (AlertState.PENDING, AlertState.FIRING)
    got = [alert for alert in _named(moment, it.alertname) if alert.state in states]
    missing, extra = _pair_off(it, got)
    if not missing and not extra:
        return []
    word = it.state.value if it.state is not None else "active"
    lines = [f"expected {word}, at the evaluation @ {Duration.of(moment.at - story.start)}"]
    for expected in missing:
        lines += _missing(expected, extra, it, moment, story, _hold(groups, it.alertname))
    lines += [f"+ {word:8} {alert.labels.without(ALERT_NAME)}  (not expected)" for alert in extra]
    lines += _values(it.alertname, moment, story, groups)
    lines.append(_timeline(it.alertname, story, it.eval_time))
    return lines


def _pair_off(it: AlertRuleTest, got: list[Alert]) -> tuple[list[ExpectedAlert], list[Alert]]:
    """Return the expected alerts that are not there, and the ones there that are not expected."""
    missing, extra = [], list(got)
    for expected in it.exp_alerts:
        found = next((alert for alert in extra if _fits(expected, alert, it)), None)
        if found is None:
            missing.append(expected)
        else:
            extra.remove(found)
    return missing, extra


def _fits(expected: ExpectedAlert, alert: Alert, it: AlertRuleTest) -> bool:
    return _same_labels(expected, alert, it) and (
        expected.annotations is None or _same_texts(expected.annotations, alert.annotations)
    )


def _same_labels(expected: ExpectedAlert, alert: Alert, it: AlertRuleTest) -> bool:
    wanted = expected.labels.updated({ALERT_NAME: it.alertname})
    if it.match is Match.SUBSET:
        return all(alert.labels.get(name) == value for name, value in wanted.items())
    return alert.labels == wanted


def _same_texts(expected: Mapping[str, str], got: Mapping[str, str]) -> bool:
    return expected.keys() == got.keys() and all(_same_text(expected[name], got[name]) for name in expected)


def _same_text(expected: str, got: str) -> bool:
    if expected == got:
        return True
    if _NUMBER.sub("#", expected) != _NUMBER.sub("#", got):
        return False
    pairs = zip(_NUMBER.findall(expected), _NUMBER.findall(got), strict=True)
    return all(_close(float(one), float(other)) for one, other in pairs)


def _close(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=TOLERANCE)


def _hold(groups: Sequence[RuleGroup], name: str) -> timedelta:
    """Return the `for` of the rule of that name."""
    rules = (rule for group in groups for rule in group.rules if isinstance(rule, AlertingRule))
    return next((rule.hold for rule in rules if rule.alert == name), timedelta())


def _missing(
    expected: ExpectedAlert,
    extra: list[Alert],
    it: AlertRuleTest,
    moment: Moment,
    story: Story,
    hold: timedelta,
) -> list[str]:
    """Return the difference for one expected alert: its texts if only they differ, else where it stands instead."""
    word = it.state.value if it.state is not None else "active"
    twin = next((alert for alert in extra if _same_labels(expected, alert, it)), None)
    if twin is not None:
        extra.remove(twin)
        lines = [f"  {word:8} {expected.labels}  with other annotations:"]
        wanted = expected.annotations or {}
        for name in sorted({*wanted, *twin.annotations}):
            if not _same_text(wanted.get(name, ""), twin.annotations.get(name, "")) or name not in wanted:
                lines.append(f"- {name}: {wanted.get(name, '(none)')}")
                lines.append(f"+ {name}: {twin.annotations.get(name, '(none)')}")
        return lines
    lines = [f"- {word:8} {expected.labels}"]
    other = next((alert for alert in _named(moment, it.alertname) if _same_labels(expected, alert, it)), None)
    if other is None:
        lines.append(f"+ inactive {expected.labels}")
    else:
        since = other.active_at - story.start
        said = f"since {Duration.of(since)}"
        if other.state is AlertState.PENDING:
            said += f", for: {Duration.of(hold)} → fires at {Duration.of(since + hold)}"
        lines.append(f"+ {other.state.value:8} {expected.labels}  {said}")
    return lines


def _values(name: str, moment: Moment, story: Story, groups: Sequence[RuleGroup]) -> Iterator[str]:
    """Say what the rules' expressions return at that moment."""
    for group in groups:
        for rule in group.rules:
            if not isinstance(rule, AlertingRule) or rule.alert != name:
                continue
            expr = " ".join(rule.expr.split())
            try:
                window = story.source.instant(rule.expr, moment.at)
            except (ExpressionError, QueryError) as error:
                yield f"  {expr}: {error}"
                continue
            rows = [
                f"    {labels} {value:g}" for labels, value in zip(window.labels, window.last(), strict=True)
            ]
            yield f"  {expr} returns" + (":" if rows else " nothing")
            yield from rows[:5]
            if len(rows) > 5:
                yield f"    … and {len(rows) - 5} more"


def _timeline(name: str, story: Story, asked: timedelta) -> str:
    """Draw the alert's life: `.` nothing, `p` pending, `F` firing, `|` the moment asked about."""
    signs, moments = [], story.moments
    stride = max(1, math.ceil(len(moments) / 60))
    marked = story.at(asked)
    for i in range(0, len(moments), stride):
        part = moments[i : i + stride]
        states = {alert.state for moment in part for alert in _named(moment, name)}
        sign = "F" if AlertState.FIRING in states else "p" if AlertState.PENDING in states else "."
        signs.append(f"{sign}|" if marked in part else sign)
    end = Duration.of(moments[-1].at - story.start)
    return f"  timeline 0s {''.join(signs)} {end}   (. nothing, p pending, F firing, | here)"


def _samples(it: PromqlExprTest, story: Story) -> list[str]:
    try:
        window = story.source.instant(it.expr, story.start + it.eval_time)
    except (ExpressionError, QueryError) as error:
        return [str(error)]
    got = {
        labels: float(value)
        for labels, value, there in zip(window.labels, window.values[:, 0], window.present[:, 0], strict=True)
        if there
    }
    wanted = {sample.labels: sample.value for sample in it.exp_samples}
    lines = [
        f"- {labels} {value:g}"
        for labels, value in wanted.items()
        if labels not in got or not _close(value, got[labels])
    ]
    lines += [
        f"+ {labels} {value:g}"
        for labels, value in got.items()
        if labels not in wanted or not _close(value, wanted[labels])
    ]
    return [" ".join(it.expr.split()), *lines] if lines else []


def _routes(it: RouteTest, story: Story, settings: Settings) -> list[str]:
    alerts = [alert for alert in _named(story.at(it.eval_time), it.alertname) if alert.firing]
    if not alerts:
        return [
            f"no {it.alertname} fires then, so it reaches nobody",
            _timeline(it.alertname, story, it.eval_time),
        ]
    got = {route.receiver for alert in alerts for route in receivers_of(settings.routing.route, alert.labels)}
    return _sets(set(it.exp_receivers), got)


def _remedies(it: RemediationTest, story: Story) -> list[str]:
    runs = story.at(it.eval_time).runs
    guardrails = {run.refusal.guardrail for run in runs if run.refusal is not None}
    # A run that nobody approved in time was planned all the same, and so was a dry one.
    planned = {
        run.playbook for run in runs if run.refusal is None or run.refusal.guardrail in ("approval", "mode")
    }
    lines = _sets(set(it.exp_playbooks), planned)
    if it.refused_by and it.refused_by not in guardrails:
        lines += _sets({it.refused_by}, guardrails)
    said = [f"  {run.playbook}: {run.reason}" for run in runs]
    return [*lines, *said] if lines else []


def _sets(wanted: set[str], got: set[str]) -> list[str]:
    return [*(f"- {name}" for name in sorted(wanted - got)), *(f"+ {name}" for name in sorted(got - wanted))]


def _forecast(it: ForecastTest, story: Story) -> list[str]:
    moment = story.at(it.eval_time)
    alerts = [a for a in _named(moment, it.alertname) if it.labels.items() <= a.labels.items()]
    etas = [alert.details["eta"] for alert in alerts if "eta" in alert.details]
    if not etas:
        return [
            f"- eta {it.eta}",
            f"+ no {it.alertname} with an eta",
            _timeline(it.alertname, story, it.eval_time),
        ]
    wrong = [eta for eta in etas if abs(eta - it.eta.total_seconds()) > it.within.total_seconds()]
    return [
        line
        for eta in wrong
        for line in (f"- eta {it.eta}, within {it.within}", f"+ eta {Duration(seconds=round(eta))}")
    ]


def _never(it: Never, story: Story) -> list[str]:
    for moment in story.moments:
        for alert in _named(moment, it.alertname):
            if alert.firing and it.labels.items() <= alert.labels.items():
                after = Duration.of(moment.at - story.start)
                return [
                    f"+ firing {alert.labels.without(ALERT_NAME)} @ {after}",
                    _timeline(it.alertname, story, after),
                ]
    return []


def _named(moment: Moment, name: str) -> Iterable[Alert]:
    return (alert for alert in moment.alerts if alert.name == name)


def warnings(test: TestGroup, groups: Sequence[RuleGroup], default: timedelta) -> list[str]:
    """Say what makes a test weaker than it looks: metrics without input, input that ends early."""
    said = []
    names = {series.labels.get(METRIC_NAME, "") for series in test.input_series}
    recorded = {rule.record for group in groups for rule in group.rules if not isinstance(rule, AlertingRule)}
    for group in groups:
        for rule in group.rules:
            asked = {it.alertname for it in test.alert_rule_test}
            if isinstance(rule, AlertingRule) and rule.alert in asked and not test.input_signal:
                missing = _metrics(rule.expr) - names - recorded - {"ALERTS", "ALERTS_FOR_STATE"}
                said += [f"{rule.alert}: no input series for {name}" for name in sorted(missing)]
    length = length_of(test) if test.interval else Duration.of(length_of(test) / 60 * default.total_seconds())
    late = {it.eval_time for it in test.alert_rule_test if it.eval_time > length and test.input_series}
    said += [f"input ends at {Duration.of(length)}, before eval_time {at}" for at in sorted(late)]
    return said


def _metrics(expr: str) -> set[str]:
    try:
        return metric_names(expr)
    except ExpressionError:
        return set()

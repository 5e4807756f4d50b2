"""Hold what happened in a test group against what the test expects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from engine.errors import ExpressionError, QueryError
from engine.lab.alert_check import AlertCheck, close, named, timeline
from engine.lab.story import ALERTS, ALERTS_FOR_STATE, Story, length_of, live_through
from engine.lang.promql import metric_names
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME, METRIC_NAME
from engine.model.playbook import Playbook
from engine.model.rule import AlertingRule, Origin, RuleGroup
from engine.model.settings import Settings
from engine.model.testing import (
    AlertRuleTest,
    ForecastTest,
    Never,
    PromqlExprTest,
    RemediationTest,
    RouteTest,
    TestGroup,
)
from engine.route.tree import receivers_of

TOLERANCE = 1e-9  # relative, for floats and for numbers inside annotations, in inline tests
LAST_BIT = 2.0**-52  # relative, for floats in promtool's files with `fuzzy_compare`


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
    interval: timedelta  # between evaluations
    own_intervals: bool  # each group at its own interval instead; so it is with tests in the rules' own file
    float_tolerance: float = TOLERANCE  # relative
    text_tolerance: float = TOLERANCE  # of numbers inside annotations


def run_test(test: TestGroup, bench: Bench) -> Result:
    """Live a test group through and check every expectation."""
    name = test.name or f"line {test.origin.line}"
    # What promtool passes in silence passes here, with a warning.
    if bench.own_intervals and (faults := list(_vacuous(test, bench.groups, name))):
        return Result(name=name, assertions=len(faults), failures=tuple(faults))
    story = live_through(
        test,
        bench.groups,
        settings=bench.settings,
        playbooks=bench.playbooks,
        interval=bench.interval,
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
        yield what, alert.origin, AlertCheck(alert, story, bench.groups, bench.text_tolerance).lines
    for expr in test.promql_expr_test:
        yield (
            f"promql_expr_test @ {expr.eval_time}",
            expr.origin,
            partial(_samples, expr, story, bench.float_tolerance),
        )
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
            test=name,
            what="nothing is expected",
            origin=test.origin,
            lines=("nothing is expected; add an alert_rule_test",),
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


def _samples(it: PromqlExprTest, story: Story, tolerance: float) -> list[str]:
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
        if labels not in got or not close(value, got[labels], tolerance)
    ]
    lines += [
        f"+ {labels} {value:g}"
        for labels, value in got.items()
        if labels not in wanted or not close(value, wanted[labels], tolerance)
    ]
    return [" ".join(it.expr.split()), *lines] if lines else []


def _routes(it: RouteTest, story: Story, settings: Settings) -> list[str]:
    alerts = [alert for alert in named(story.at(it.eval_time), it.alertname) if alert.firing]
    if not alerts:
        return [
            f"no {it.alertname} fires then, so it reaches nobody",
            timeline(it.alertname, story, it.eval_time),
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
    alerts = [a for a in named(moment, it.alertname) if it.labels.items() <= a.labels.items()]
    etas = [alert.details["eta"] for alert in alerts if "eta" in alert.details]
    if not etas:
        return [
            f"- eta {it.eta}",
            f"+ no {it.alertname} with an eta",
            timeline(it.alertname, story, it.eval_time),
        ]
    wrong = [eta for eta in etas if abs(eta - it.eta.total_seconds()) > it.within.total_seconds()]
    return [
        line
        for eta in wrong
        for line in (f"- eta {it.eta}, within {it.within}", f"+ eta {Duration(seconds=round(eta))}")
    ]


def _never(it: Never, story: Story) -> list[str]:
    for moment in story.moments:
        for alert in named(moment, it.alertname):
            if alert.firing and it.labels.items() <= alert.labels.items():
                after = Duration.of(moment.at - story.start)
                return [
                    f"+ firing {alert.labels.without(ALERT_NAME)} @ {after}",
                    timeline(it.alertname, story, after),
                ]
    return []


def warnings(test: TestGroup, bench: Bench) -> list[str]:
    """Say what makes a test weaker than it looks: metrics without input, input that ends early."""
    groups = bench.groups
    said = [] if bench.own_intervals else [fault.lines[0] for fault in _vacuous(test, groups, test.name)]
    names = {series.labels.get(METRIC_NAME, "") for series in test.input_series}
    recorded = {rule.record for group in groups for rule in group.rules if not isinstance(rule, AlertingRule)}
    for group in groups:
        for rule in group.rules:
            asked = {it.alertname for it in test.alert_rule_test}
            if isinstance(rule, AlertingRule) and rule.alert in asked and not test.input_signal:
                missing = _metrics(rule.expr) - names - recorded - {ALERTS, ALERTS_FOR_STATE}
                said += [f"{rule.alert}: no input series for {name}" for name in sorted(missing)]
    length = Duration.of(length_of(test, test.interval or bench.interval))
    late = {it.eval_time for it in test.alert_rule_test if it.eval_time > length and test.input_series}
    said += [f"input ends at {length}, before eval_time {at}" for at in sorted(late)]
    return said


def _metrics(expr: str) -> set[str]:
    try:
        return metric_names(expr)
    except ExpressionError:
        return set()

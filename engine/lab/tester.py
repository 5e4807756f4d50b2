"""Hold what happened in a test group against what the test expects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import NamedTuple

from engine.errors import ExpressionError, QueryError
from engine.lab.alert_check import AlertCheck, close, named, timeline
from engine.lab.sources import Ground
from engine.lab.story import Moment, Story, live_through
from engine.lab.weakness import Rules, Weakness, cannot_fail, weaknesses
from engine.model.alert import AlertState
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME, Labels
from engine.model.playbook import Playbook
from engine.model.rule import Origin, RuleGroup
from engine.model.settings import Settings
from engine.model.testing import (
    AlertRuleTest,
    ForecastTest,
    Never,
    PromqlExprTest,
    RemediationTest,
    RouteTest,
    Span,
    TestGroup,
    Timeline,
)

TOLERANCE = 1e-9  # relative, for floats and for numbers inside annotations, in inline tests
LAST_BIT = 2.0**-52  # relative, for floats in promtool's files with `fuzzy_compare`


class Failure(NamedTuple):
    """One expectation that did not hold."""

    test: str
    what: str  # the kind of assertion, what it is about, and when
    origin: Origin
    lines: tuple[str, ...]  # the difference, `-` expected and `+` got, and what helps to understand it


class Checked(NamedTuple):
    """One assertion, and what became of it: the difference, or nothing.

    `fires` and `quiet` are ids of rules: those that it saw firing, and those of which it asserts that they do not.
    """

    what: str
    origin: Origin
    lines: tuple[str, ...]
    fires: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()
    mentions: frozenset[str] = frozenset()  # PromQL that it got samples from
    plans: frozenset[str] = frozenset()  # playbooks that it saw planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one test group. `faults` are no assertions: rules without an answer, and tests that are weak."""

    name: str
    origin: Origin
    checks: tuple[Checked, ...]
    faults: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def assertions(self) -> int:
        """How much was asserted."""
        return len(self.checks)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """What did not hold."""
        failed = (
            Failure(self.name, check.what, check.origin, check.lines) for check in self.checks if check.lines
        )
        return (*self.faults, *failed)


OpenGround = Callable[[TestGroup, timedelta, timedelta], AbstractContextManager[Ground]]
"""Puts a test's series, whose samples lie so far apart, where they can be asked for; with a subquery's usual step."""


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
    ground: OpenGround | None = None  # None: series in memory


Witness = Callable[[TestGroup, Story, Result], None]
"""Is shown each story while its series can still be asked for."""


def run_test(test: TestGroup, bench: Bench, witnesses: Sequence[Witness] = ()) -> Result:
    """Live a test group through and check every expectation."""
    name = test.name or f"line {test.origin.line}"
    rules = Rules(bench.groups)
    with ExitStack() as stack:
        ground = None
        if bench.ground is not None:
            ground = stack.enter_context(bench.ground(test, test.interval or bench.interval, bench.interval))
        story = live(test, bench, ground)
        result = _judge(test, bench, story, rules, name)
        for witness in witnesses:
            witness(test, story, result)
    return result


def live(test: TestGroup, bench: Bench, ground: Ground | None = None) -> Story:
    """Live a test group through on a bench."""
    return live_through(
        test,
        bench.groups,
        settings=bench.settings,
        playbooks=bench.playbooks,
        interval=bench.interval,
        own_intervals=bench.own_intervals,
        ground=ground,
    )


def _judge(test: TestGroup, bench: Bench, story: Story, rules: Rules, name: str) -> Result:
    weak = list(weaknesses(test, rules, interval=bench.interval, own_intervals=bench.own_intervals))
    checks, seen = [], dict[str, set[Labels] | None]()
    for it, what, check in _checks(test, bench, story, rules):
        lines = tuple(check())
        if not lines and (why := _vain(it, story, rules, seen)):
            weak.append(Weakness(what, it.origin, why))
            checks.append(Checked(what, it.origin, ()))
        else:
            checks.append(Checked(what, it.origin, lines, **({} if lines else _shown(it, story, rules))))
    faults = list(_errors(story, bench.groups, name))
    # What promtool passes in silence passes in its files, with a warning.
    if bench.own_intervals:
        faults = [*(Failure(name, each.what, each.origin, (each.line,)) for each in weak), *faults]
    warnings = () if bench.own_intervals else tuple(dict.fromkeys(each.line for each in weak))
    return Result(
        name=name, origin=test.origin, checks=tuple(checks), faults=tuple(faults), warnings=warnings
    )


Assertion = AlertRuleTest | PromqlExprTest | RouteTest | RemediationTest | ForecastTest | Never | Timeline
Check = tuple[Assertion, str, Callable[[], list[str]]]


def _checks(test: TestGroup, bench: Bench, story: Story, rules: Rules) -> Iterator[Check]:
    for alert in test.alert_rule_test:
        what = f"{alert.alertname} @ {alert.eval_time}"
        if alert.alertname in rules.by_name or not bench.own_intervals:
            yield alert, what, AlertCheck(alert, story, bench.groups, bench.text_tolerance).lines
    for expr in test.promql_expr_test:
        yield (
            expr,
            f"promql_expr_test @ {expr.eval_time}",
            partial(_samples, expr, story, bench.float_tolerance),
        )
    for route in test.route_test:
        what = f"route_test {route.alertname} @ {route.eval_time}"
        yield route, what, partial(_routes, route, story, bench.settings)
    for heal in test.remediation_test:
        yield heal, f"remediation_test @ {heal.eval_time}", partial(_remedies, heal, story)
    for eta in test.forecast_test:
        yield eta, f"forecast_test {eta.alertname} @ {eta.eval_time}", partial(_forecast, eta, story)
    for never in test.never:
        yield never, f"never {never.alertname}", partial(_never, never, story)
    for life in test.timeline:
        yield life, f"timeline {life.alertname}", partial(_timeline, life, story)


def _vain(it: Assertion, story: Story, rules: Rules, seen: dict[str, set[Labels] | None]) -> str:
    return "" if isinstance(it, RemediationTest) else cannot_fail(it, story, rules, seen)


def _shown(it: Assertion, story: Story, rules: Rules) -> dict[str, frozenset[str]]:
    """Return what an assertion that held has seen, as fields of `Checked`."""
    if isinstance(it, RemediationTest):
        return {"plans": frozenset(it.exp_playbooks)}
    if isinstance(it, PromqlExprTest):
        return {"mentions": frozenset([it.expr] if it.exp_samples else [])}
    ids = frozenset(rule.id for rule in rules.named(it.alertname))
    if isinstance(it, Never):
        return {"quiet": ids}
    if isinstance(it, Timeline):
        firing = _firing(story.moments, it.alertname) if it.firing else frozenset()
        always = any(span.start == timedelta() and span.end is None for span in it.firing)
        return {"fires": firing, "quiet": frozenset() if always else ids}
    firing = _firing([story.at(it.eval_time)], it.alertname)
    if isinstance(it, AlertRuleTest) and (it.state is not AlertState.FIRING or not it.exp_alerts):
        return {"quiet": ids - firing}
    return {"fires": firing}


def _firing(moments: Sequence[Moment], name: str) -> frozenset[str]:
    return frozenset(alert.rule_id for moment in moments for alert in named(moment, name) if alert.firing)


def _errors(story: Story, groups: Sequence[RuleGroup], name: str) -> Iterator[Failure]:
    """Return one failure a rule that could not be evaluated."""
    rules = {rule.id: rule for group in groups for rule in group.rules}
    seen: set[tuple[str, str]] = set()
    for moment in story.moments:
        for rule_id, error in moment.errors.items():
            if (rule_id, error) not in seen and len(seen) < 10:
                seen.add((rule_id, error))
                what = f"{rules[rule_id].name} cannot be evaluated @ {Duration.of(moment.at - story.start)}"
                yield Failure(name, what, rules[rule_id].origin, (error,))


def samples(story: Story, it: PromqlExprTest) -> dict[Labels, float]:
    """Return what an expression gives at its `eval_time`."""
    window = story.source.instant(it.expr, story.start + it.eval_time)
    columns = zip(window.labels, window.values[:, 0], window.present[:, 0], strict=True)
    return {labels: float(value) for labels, value, there in columns if there}


def _samples(it: PromqlExprTest, story: Story, tolerance: float) -> list[str]:
    try:
        got = samples(story, it)
    except (ExpressionError, QueryError) as error:
        return [str(error)]
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
    from engine.route.tree import receivers_of  # noqa: PLC0415 - few tests ask

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


def spans_of(story: Story, name: str, labels: Mapping[str, str]) -> dict[AlertState, list[Span]]:
    """Return when alerts with that name and these labels were pending and when they fired.

    A span ends at the evaluation at which that is over. Of several alerts the one that is furthest counts.
    """
    found: dict[AlertState, list[Span]] = {AlertState.PENDING: [], AlertState.FIRING: []}
    before: AlertState | None = None
    for moment in story.moments:
        after = Duration.of(moment.at - story.start)
        states = {alert.state for alert in named(moment, name) if labels.items() <= alert.labels.items()}
        state = next((each for each in (AlertState.FIRING, AlertState.PENDING) if each in states), None)
        if state is not before:
            if before is not None:
                found[before][-1] = found[before][-1]._replace(end=after)
            if state is not None:
                found[state].append(Span(after, None))
        before = state
    return found


def _timeline(it: Timeline, story: Story) -> list[str]:
    got = spans_of(story, it.alertname, it.labels)
    lines = []
    for state, wanted in ((AlertState.PENDING, it.pending), (AlertState.FIRING, it.firing)):
        if sorted(wanted) != got[state]:
            lines += [f"- {state.value:8} {_listed(wanted)}", f"+ {state.value:8} {_listed(got[state])}"]
    last = Duration.of(story.moments[-1].at - story.start)
    return [*lines, timeline(it.alertname, story, last)] if lines else []


def _listed(spans: Sequence[Span]) -> str:
    return ", ".join(str(span) for span in spans) or "at no time"

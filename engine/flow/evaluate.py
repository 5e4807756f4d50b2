"""One rule at one slot: query, detect, and what is to be thought of series that are not there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.alert.tracker import Finding
from engine.errors import DetectError, EngineError
from engine.lang.promql import split_comparison
from engine.lang.promql.rewrite import over_step
from engine.model.alert import Alert, AlertState
from engine.model.labels import Labels
from engine.model.ports import Detector, Source
from engine.model.rule import Absence, AlertingRule
from engine.model.series import Window
from engine.model.verdict import NOTHING, Memory, Verdicts

GONE_AFTER = timedelta(minutes=15)
"""How long an alert is kept whose series alone is gone: a node that left does not come back."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation came to. `expr` is what was asked."""

    expr: str
    verdicts: Verdicts
    warnings: tuple[str, ...]


def evaluate(
    rule: AlertingRule,
    expr: str,
    source: Source,
    at: datetime,
    memory: Memory = NOTHING,
    *,
    history: Source | None = None,
    passed: timedelta = timedelta(),
) -> Outcome:
    """Return the verdicts on a rule's series at an instant. QueryError or DetectError if there are none.

    `expr` is the rule's, or what stands for it; `memory` is what its detector noted at the evaluation before;
    `history` is asked instead of `source` for what the detector looks back at; `passed` is as in `fetch`.
    """
    signal = fetch(expr, rule.detect, history or source, at, passed=passed)
    inputs = {name: source.instant(text, at) for name, text in rule.inputs.items()}
    for name, text in rule.histories.items():
        lookback, step = rule.detect.lookback, rule.detect.step
        inputs[name] = _look_back(text, "avg", history or source, at - passed % step, lookback, step)
    try:
        verdicts = rule.detect.judge(signal, inputs, at, memory)
    except EngineError:
        raise
    except Exception as error:  # a detector may come from anywhere; its faults must not stop the other rules
        raise DetectError(f"{rule.origin}: {rule.alert}: {type(error).__name__}: {error}") from error
    warnings = [*signal.warnings, *(text for window in inputs.values() for text in window.warnings)]
    return Outcome(expr, verdicts, tuple(dict.fromkeys(warnings)))


def unseen(
    rule: AlertingRule,
    outcome: Outcome,
    alerts: Iterable[Alert],
    source: Source,
    at: datetime,
    *,
    probe: bool,
) -> tuple[list[Finding], bool | None]:
    """Return unknowns for alerts whose series has no data, and whether the rule has any data (None: not asked).

    A threshold rule's result says nothing of series below the threshold. So where alerts are to be kept without
    data, and when it is time to `probe`, the compared vector itself is asked for.
    """
    seen = {labels.unnamed for labels in outcome.verdicts.labels}
    history = bool(rule.detect.lookback)
    keeps = rule.on_no_data in (Absence.KEEP, Absence.ALERT) or (rule.on_no_data is None and history)
    missing = [
        alert
        for alert in alerts
        if keeps and alert.state is not AlertState.RESOLVED and alert.signal not in seen
    ]
    if history:
        with_data: set[Labels] | None = seen
    elif not missing and (seen or not probe):
        return [], True if seen else None
    else:
        with_data = _compared(outcome.expr, source, at)
    if with_data is None:
        return [], True if seen else None
    gone = [alert for alert in missing if alert.signal not in with_data]
    return [_unknown(alert) for alert in gone if not with_data or _lately(alert, at)], bool(with_data)


def _lately(alert: Alert, at: datetime) -> bool:
    """Tell whether a series that is gone while others of its rule are there may still come back."""
    return at - (alert.seen_at or alert.active_at) < GONE_AFTER


def _compared(expr: str, source: Source, at: datetime) -> set[Labels] | None:
    """Return the series that a comparison compares; None if the expression is no comparison with a number."""
    try:
        comparison = split_comparison(expr)
    except EngineError:
        return None
    if comparison is None:
        return None
    return {labels.unnamed for labels in source.instant(comparison.signal, at).labels}


def _unknown(alert: Alert) -> Finding:
    return Finding(
        labels=alert.labels,
        signal=alert.signal,
        bad=None,
        value=alert.value,
        details=alert.details,
        annotations=alert.annotations,
    )


def fetch(
    expr: str,
    detect: Detector,
    source: Source,
    at: datetime,
    *,
    passed: timedelta = timedelta(),
    lookback: timedelta | None = None,
) -> Window:
    """Return what a detector looks at: the newest value, or `lookback` (without it the detector's) on a grid.

    The grid ends at `at` if `passed`, the time since the first of all slots, is a whole number of steps, as it
    always is where the group's interval is. Otherwise it ends up to a step earlier, at a multiple of steps
    since then: it must not be another one at each evaluation, since what is judged (blocks, votes, stored
    forecasts) and what is kept of the answer are the instants of one grid.

    With `over`, each point is the least, the largest or the mean of its step, worked out by the server: of the
    samples themselves for a bare selector, else of the expression at ten instants a step.
    """
    if not detect.lookback:
        return source.instant(expr, at)
    length = detect.lookback if lookback is None else lookback
    return _look_back(expr, detect.over, source, at - passed % detect.step, length, detect.step)


def _look_back(
    expr: str, over: str | None, source: Source, end: datetime, lookback: timedelta, step: timedelta
) -> Window:
    """Return the history of `expr` until `end`, each point what `over` makes of its step."""
    if over is not None:
        expr = over_step(expr, over, step)
    return source.range(expr, end - lookback // step * step, end, step)

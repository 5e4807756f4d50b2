"""One rule at one slot: query, detect."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.errors import DetectError, EngineError
from engine.model.ports import Detector, Source
from engine.model.rule import AlertingRule
from engine.model.series import Verdicts, Window


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an evaluation came to."""

    verdicts: Verdicts
    warnings: tuple[str, ...]


def evaluate(rule: AlertingRule, source: Source, slot: datetime, query_offset: timedelta) -> Outcome:
    """Return the verdicts on a rule's series at a slot. QueryError or DetectError if there are none."""
    at = slot - query_offset
    signal = fetch(rule.expr, rule.detect, source, at)
    inputs = {name: source.instant(expr, at) for name, expr in rule.detect.inputs.items()}
    try:
        verdicts = rule.detect.judge(signal, inputs, at)
    except EngineError:
        raise
    except Exception as error:  # a detector may come from anywhere; its faults must not stop the other rules
        raise DetectError(f"{rule.origin}: {rule.alert}: {type(error).__name__}: {error}") from error
    warnings = [*signal.warnings, *(text for window in inputs.values() for text in window.warnings)]
    return Outcome(verdicts, tuple(dict.fromkeys(warnings)))


def fetch(expr: str, detect: Detector, source: Source, at: datetime) -> Window:
    """Return what a detector looks at: the newest value, or `lookback` on a grid that ends at `at`."""
    if not detect.lookback:
        return source.instant(expr, at)
    steps = detect.lookback // detect.step
    return source.range(expr, at - steps * detect.step, at, detect.step)

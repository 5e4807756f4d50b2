"""What a person, or a program, reads after `engine query`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

import numpy as np

from engine.errors import ExpressionError
from engine.lab.charts import Plot, Way
from engine.lab.insight import Insight, Row
from engine.lang.promql import split_comparison
from engine.lang.readable import clock, columns, span
from engine.lang.units import Unit, unit_of
from engine.model.labels import METRIC_NAME
from engine.model.rule import AlertingRule
from engine.model.series import instant_of

_WIDE = 170
_LINES = 5  # series of the chart
_SECONDS = frozenset({"eta", "eta_earliest", "eta_latest", "gone_for", "age"})
_IN_UNIT = frozenset({"bound", "level", "slope_per_hour", "expected", "before", "after", "low", "high"})


def lines(it: Insight, limit: int) -> Iterator[str]:
    """Yield the lines of the report: the rule, its chart, and a row for each series, the most interesting first."""
    rule = it.rule
    unit = unit_of(rule.expr)
    yield f"{rule.alert}  {rule.origin.file}:{rule.origin.line}, at {clock(it.at)}"
    begin = "the running engine's state" if it.from_state else f"what it saw since {clock(it.since, it.at)}"
    yield f"  {' '.join(rule.expr.split())}"
    yield f"  judged with {begin}"
    if it.error:
        yield f"  cannot be evaluated: {it.error}"
    if it.quality:
        yield "  " + ", ".join(f"{name} {value:.3g}" for name, value in it.quality.items())
    yield ""
    yield from _chart(it, unit)
    yield from _table(it, unit, limit)


def _chart(it: Insight, unit: Unit) -> Iterator[str]:
    window = it.signal
    if window is None or not len(window) or len(window.times) < 2:
        return
    places = {labels.without(METRIC_NAME): row for row, labels in enumerate(window.labels)}
    shown = [places[row.labels] for row in it.rows if row.labels in places][:_LINES]
    rows = [window.values[row] for row in shown if np.isfinite(window.values[row]).any()]
    if not rows:
        return
    times = window.times - window.times[0]
    first = next(row for row in it.rows if row.labels in places)
    threshold, way = _threshold(it.rule, first), _way(first, float(times[-1]))
    start = float(window.times[0])
    plot = Plot(
        times, np.array(rows), threshold, way, when=lambda seconds: clock(instant_of(start + seconds), it.at)
    )
    yield from plot.lines(unit.show)
    yield ""


def _threshold(rule: AlertingRule, row: Row) -> float | None:
    if "bound" in row.details:
        return row.details["bound"]
    try:
        comparison = None if rule.detect.lookback else split_comparison(rule.expr)
    except ExpressionError:
        return None
    return None if comparison is None else comparison.threshold


def _way(row: Row, now: float) -> Way | None:
    if {"eta", "level", "bound"} <= row.details.keys() and row.details["eta"] > 0:
        return Way(now, now + row.details["eta"], row.details["level"], row.details["bound"])
    return None


def _table(it: Insight, unit: Unit, limit: int) -> Iterator[str]:
    if not it.rows:
        yield "no series"
        return
    shown = it.rows[:limit]
    names = list(dict.fromkeys(name for row in shown for name in row.details))
    header = ["series", "state", "value", *names, "why"]
    rows = [
        [
            str(row.labels),
            row.state,
            unit.show(row.value),
            *(_figure(name, row.details, unit) for name in names),
            "; ".join(row.gates),
        ]
        for row in shown
    ]
    yield from columns(header, rows, _WIDE)
    if len(it.rows) > limit:
        yield f"… {len(it.rows) - limit} more; --limit shows them"


def _figure(name: str, details: Mapping[str, float], unit: Unit) -> str:
    value = details.get(name, math.nan)
    if math.isnan(value):
        return ""
    if name in _SECONDS:
        return span(value)
    return unit.show(value) if name in _IN_UNIT else f"{value:.3g}"


def as_json(it: Insight) -> str:
    """Return the report as JSON."""
    found = {
        "rule": it.rule.id,
        "at": it.at.isoformat(),
        "since": it.since.isoformat(),
        "from_state": it.from_state,
        "error": it.error,
        "quality": dict(it.quality),
        "series": [
            {
                "labels": dict(row.labels),
                "state": row.state,
                "value": None if math.isnan(row.value) else row.value,
                "details": dict(row.details),
                "why": list(row.gates),
            }
            for row in it.rows
        ],
    }
    return json.dumps(found, indent=2, ensure_ascii=False)

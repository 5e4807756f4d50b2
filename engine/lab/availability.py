"""Of which part of a period a server has data for a rule: where its history begins, and where it has gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

import numpy as np

from engine.errors import ExpressionError, QueryRejected
from engine.lang.promql import split_comparison
from engine.lang.promql.rewrite import instant_selectors
from engine.model.ports import Source
from engine.model.rule import AlertingRule
from engine.model.series import Bools, Floats, instant_of

SHORTEST = timedelta(minutes=5)
"""What is shorter is no gap: Prometheus itself bridges so much."""

_POINTS = 40_000  # instants that are looked at; a longer period is looked at less finely


@dataclass(frozen=True, slots=True)
class Gap:
    """From the first instant without data to the next one with."""

    start: datetime
    end: datetime

    @property
    def length(self) -> timedelta:
        """How long it is."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Availability:
    """When there was anything to judge: `there[k]` of the instants `times[k]`, in Unix seconds, `step` apart."""

    times: Floats
    there: Bools
    step: timedelta
    trouble: str = ""  # why nobody knows; then all of it counts as there

    @property
    def first(self) -> datetime | None:
        """The first instant with data."""
        found = np.flatnonzero(self.there)
        return instant_of(float(self.times[found[0]])) if len(found) else None

    @property
    def length(self) -> timedelta:
        """For how long there was data."""
        return int(np.count_nonzero(self.there)) * self.step

    @property
    def share(self) -> float:
        """The share of the period with data."""
        return float(self.there.mean()) if len(self.there) else 0.0

    @property
    def starts_late(self) -> bool:
        """Whether history begins only within the period: the server has kept no more, or there was no more."""
        return self.first is None or self.first - instant_of(float(self.times[0])) > self._long

    @property
    def gaps(self) -> list[Gap]:
        """The gaps between the first instant with data and the period's end."""
        return [gap for gap in self._gaps() if gap.length > self._long]

    def within(self, start: datetime, end: datetime) -> float:
        """Return the share of the instants from `start` to `end` with data; 0 where the period has none of them."""
        inside = (self.times >= start.timestamp() - 1e-6) & (self.times <= end.timestamp() + 1e-6)
        return float(self.there[inside].mean()) if inside.any() else 0.0

    @property
    def _long(self) -> timedelta:
        return max(SHORTEST, 2 * self.step)

    def _gaps(self) -> Iterator[Gap]:
        found = np.flatnonzero(self.there)
        if not len(found):
            return
        edges = [*found.tolist(), len(self.times)]
        end = float(self.times[-1]) + self.step.total_seconds()
        for before, after in pairwise(edges):
            if after > before + 1:
                until = float(self.times[after]) if after < len(self.times) else end
                yield Gap(instant_of(float(self.times[before + 1])), instant_of(until))


def availability(
    rule: AlertingRule, source: Source, start: datetime, end: datetime, interval: timedelta
) -> Availability:
    """Ask when a rule had data. Raises QueryUnavailable only; a question that is refused is told as `trouble`."""
    step = max(interval, (end - start) / _POINTS // timedelta(seconds=1) * timedelta(seconds=1))
    count = (end - start) // step + 1
    times: Floats = start.timestamp() + np.arange(count, dtype=np.float64) * step.total_seconds()
    there = np.ones(count, dtype=np.bool_)
    try:
        for expr in questions(rule):
            window = source.range(expr, start, start + (count - 1) * step, step)
            there &= window.present.any(axis=0) if len(window) else False
    except QueryRejected as error:
        return Availability(times, np.ones(count, dtype=np.bool_), step, str(error))
    return Availability(times, there, step)


def questions(rule: AlertingRule) -> list[str]:
    """Return PromQL, all of which has to return something where a rule has data.

    What a rule compares is its signal; of other rules without a detector, whose result says nothing of data, each
    selector is asked for.
    """
    if rule.detect.lookback:
        return [_counted(rule.expr)]
    try:
        comparison = split_comparison(rule.expr)
        if comparison is not None:
            return [_counted(comparison.signal)]
        return [_counted(each) for each in instant_selectors(rule.expr)] or ["vector(1)"]
    except ExpressionError:
        return [_counted(rule.expr)]


def _counted(expr: str) -> str:
    return f"count({expr}\n)"

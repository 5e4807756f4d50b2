"""Evaluate each expression once for a whole test, and answer the slots from that.

A range evaluation at step *s* equals the instant ones, so an expression is evaluated over the test's whole
grid at its first question, and later ones are slices. Where that does not hold (`@ start()`/`end()`, an
order by `sort()` or `topk()`, series that rules add while the test runs, an instant without an answer) each
question is evaluated on its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta

import numpy as np

from engine.errors import ExpressionError, QueryError
from engine.lang.promql import selects
from engine.model.ports import Source
from engine.model.series import Window, instant_of

_ALONE = re.compile(r"@\s*(start|end)\s*\(|\b(sort\w*|topk|bottomk)\b")


class AheadSource:
    """A source in front of another, for questions on one grid up to a known end."""

    def __init__(self, source: Source, step: timedelta, end: datetime, growing: Collection[str] = ()) -> None:
        self._source = source
        self._step = step
        self._end = end
        self._growing = frozenset(growing)
        self._fixed: dict[str, bool] = {}  # whether an expression may be answered ahead
        self._answers: dict[str, Window] = {}

    def instant(self, expr: str, at: datetime) -> Window:
        """Return the answer's column at `at`."""
        window = self._cover(expr, at, at)
        return self._source.instant(expr, at) if window is None else _slice(window, at, at, self._step)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Return the answer's columns from `start` to `end`."""
        window = self._cover(expr, start, end) if step == self._step else None
        return (
            self._source.range(expr, start, end, step) if window is None else _slice(window, start, end, step)
        )

    def _cover(self, expr: str, start: datetime, end: datetime) -> Window | None:
        """Return the answer over the whole test, on the grid through `start`; None if it has to be asked anew."""
        if end > self._end or not self._may_ahead(expr):
            return None
        known = self._answers.get(expr)
        if known is None or start.timestamp() < known.times[0] - 1e-6:
            steps = (self._end - start) // self._step
            try:
                known = self._source.range(expr, start, start + steps * self._step, self._step)
            except QueryError:  # at one of the instants at least; the others have an answer
                self._fixed[expr] = False
                return None
            self._answers[expr] = known
        off = (start - instant_of(float(known.times[0]))) % self._step
        return known if off == timedelta() and end.timestamp() <= known.times[-1] + 1e-6 else None

    def _may_ahead(self, expr: str) -> bool:
        if expr not in self._fixed:
            self._fixed[expr] = not _ALONE.search(expr) and not self._grows(expr)
        return self._fixed[expr]

    def _grows(self, expr: str) -> bool:
        try:
            return any(selects(expr, name) for name in self._growing)
        except ExpressionError:
            return True  # the source says what is wrong with it


def _slice(window: Window, start: datetime, end: datetime, step: timedelta) -> Window:
    first = round((start.timestamp() - window.times[0]) / step.total_seconds())
    last = round((end.timestamp() - window.times[0]) / step.total_seconds()) + 1
    present = window.present[:, first:last]
    if present.all():
        return Window(
            window.labels, window.times[first:last], window.values[:, first:last], present, window.warnings
        )
    keep = np.flatnonzero(present.any(axis=1))  # a series that has no sample here is not in the answer
    return Window(
        tuple(window.labels[i] for i in keep),
        window.times[first:last],
        window.values[keep, first:last],
        present[keep],
        window.warnings,
    )

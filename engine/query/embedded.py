"""PromQL answered from samples in memory: what `test-rule` asks instead of a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from engine.errors import ExpressionError, QueryRejected
from engine.lang.promql import SUBQUERY_STEP, Storage, evaluate
from engine.model.duration import Duration
from engine.model.series import Window


@dataclass(frozen=True, slots=True)
class EmbeddedSource:
    """A `Source` over `storage`, which may grow between queries; `subquery_step` as in `evaluate`."""

    storage: Storage
    subquery_step: Duration = SUBQUERY_STEP

    def instant(self, expr: str, at: datetime) -> Window:
        return self._evaluate(expr, [at.timestamp()])

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        count = (end - start) // step + 1
        return self._evaluate(
            expr, [start.timestamp() + index * step.total_seconds() for index in range(count)]
        )

    def _evaluate(self, expr: str, times: Sequence[float]) -> Window:
        try:
            return evaluate(expr, self.storage, times, subquery_step=self.subquery_step)
        except ExpressionError as error:
            raise QueryRejected(f"{error}, in {expr!r}") from error

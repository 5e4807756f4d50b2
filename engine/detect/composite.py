"""An alert made of other alerts: this one and not that one, on the same node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from engine.errors import ExpressionError
from engine.model.duration import Duration
from engine.model.rule import Origin
from engine.model.series import Window
from engine.model.verdict import NOTHING, Memory, Verdicts
from engine.registry import detector

if TYPE_CHECKING:
    from engine.lang.promql.alerts import Combination


@detector("composite")
@dataclass(frozen=True, slots=True, kw_only=True)
class Composite:
    """Bad when other rules' alerts fire together as `when` says, with the labels `on` as the series has them.

    `when` joins names of alerts by `and`, `or`, `unless` and parentheses, as PromQL does; a name may have matchers:
    `RayGcsLatency{severity="critical"} unless RayNodeLost`. The alerts are those that fire at that moment: of rules
    above in the same group at this evaluation, of others at their last one. Without `on` they may fire
    anywhere. `expr` says which series it is about, and what is shown as the value.
    """

    when: str
    on: tuple[str, ...] = ()
    origin: Origin = field(default=Origin("", 1, 1), metadata={"key": None})

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        try:
            self._combined()
        except ExpressionError as error:
            raise ValueError(f"when: {error}") from None

    def _combined(self) -> Combination:
        from engine.lang.promql.alerts import combine  # noqa: PLC0415 - loaded only when needed

        return combine(self.when, self.on)

    @property
    def alerts(self) -> tuple[str, ...]:
        """The names of the alerts that it depends on."""
        return self._combined().names

    @property
    def lookback(self) -> Duration:
        return Duration()

    @property
    def step(self) -> Duration:
        return Duration()

    @property
    def inputs(self) -> Mapping[str, str]:
        return {"when": self._combined().expr}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        newest = signal.until(at)
        met = set()
        if (answer := inputs.get("when")) is not None:
            now = answer.until(at)
            there = now.present[:, -1] if len(now.times) else np.zeros(len(now), dtype=np.bool_)
            met = {each.only(*self.on) for each, is_there in zip(now.labels, there, strict=True) if is_there}
        fits = np.array([each.only(*self.on) in met for each in newest.labels], dtype=np.bool_)
        bad = fits & newest.present[:, -1] if len(newest.times) else np.zeros(len(newest), dtype=np.bool_)
        return Verdicts(newest.labels, bad, np.ones(len(newest), dtype=np.bool_), newest.last())

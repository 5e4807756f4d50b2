"""The condition of a plain Prometheus rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import numpy as np

from engine.model.duration import Duration
from engine.model.series import Window
from engine.model.verdict import NOTHING, Memory, Verdicts
from engine.registry import detector


@detector("present")
@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """Bad when it is there: every element that the expression returns, as in Prometheus."""

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {}

    @property
    def lookback(self) -> Duration:
        return Duration()

    @property
    def step(self) -> Duration:
        return Duration()

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        newest = signal.until(at)
        # A sample that is NaN is there; only a missing one is not.
        there = newest.present[:, -1].copy() if len(newest.times) else np.zeros(len(newest), dtype=np.bool_)
        return Verdicts(newest.labels, there, np.ones(len(newest), dtype=np.bool_), newest.last())

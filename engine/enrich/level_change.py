"""Whether the level of the alert's signal changed, when, and by how much: what to look for among deploys."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from engine.lang.readable import clock, span
from engine.lang.units import unit_of
from engine.model.alert import Evidence, Text
from engine.model.duration import Duration
from engine.model.ports import Scene
from engine.model.series import instant_of
from engine.numeric.robust import quantum
from engine.numeric.shifts import level_shift
from engine.registry import enricher

_POINTS = 120
_LEAST = 8  # points on each side
_CLEAR = 7.0  # standard errors; the largest of many scores is looked at
_STEPWISE = 0.1  # by how much a step has to describe it better than a straight line


@enricher("level_change")
@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """When the level of the alert's signal changed within the last `range`, and from what to what.

    It is the split at which the medians before and after describe the signal best. Said only if the two differ by
    seven standard errors, and if a step describes it better than a straight line.
    """

    range: Duration = Duration(hours=6)

    def __post_init__(self) -> None:
        if self.range <= Duration():
            raise ValueError("range must be longer than 0s")

    def collect(self, scene: Scene) -> Evidence:
        from engine.lang.promql import signal_of  # noqa: PLC0415 - loads a parser

        expr, _ = signal_of(scene.rule.expr)
        step = timedelta(milliseconds=math.ceil(self.range / timedelta(milliseconds=_POINTS)))
        window = scene.source.range(expr, scene.at - self.range, scene.at, step)
        title = f"Change of level, last {self.range}"
        own = window.row_of(scene.alert.signal)
        values = np.zeros((1, 0)) if own is None else window.values[own : own + 1]
        values = np.where(np.isfinite(values), values, np.nan)
        if np.count_nonzero(~np.isnan(values)) < 2 * _LEAST:
            return Text(title, f"Fewer than {2 * _LEAST} samples of this alert's signal: {expr}")
        found = level_shift(values, _LEAST, np.maximum(quantum(values) / 2, np.finfo(float).tiny))
        score, stepwise = float(found.score[0]), float(found.stepwise[0])
        if not (abs(score) >= _CLEAR and stepwise >= _STEPWISE):
            return Text(title, "None that stands out.")
        show = unit_of(expr).show
        before, after, at = float(found.before[0]), float(found.after[0]), float(window.times[found.place[0]])
        word = "rose" if after > before else "fell"
        ago = span(scene.at.timestamp() - at)
        return Text(
            title,
            f"It {word} from {show(before)} to {show(after)} at about {clock(instant_of(at))}, {ago} ago. "
            "What was deployed or started then?",
        )

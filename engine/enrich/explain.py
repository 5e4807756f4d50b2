"""What the alert's signal does, by a model of it: where it is going, what the time of day does, how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

import numpy as np

from engine.clients.aside import Aside
from engine.lang.readable import clock, span
from engine.lang.units import Unit, unit_of
from engine.model.alert import Evidence, Text
from engine.model.duration import Duration
from engine.model.ports import Scene
from engine.model.series import Floats, Window, instant_of
from engine.numeric.decompose import Structure, structure
from engine.numeric.normal import normal_quantile
from engine.numeric.robust import spread
from engine.registry import enricher

_POINTS = 288  # a quarter of an hour apart in three days
_LEAST = 36  # samples
_LONGEST = 8.0  # seconds for the calculation, of the ten that an alert's evidence has
_COVERAGE = 0.9
_WHITE = 0.01  # below this probability what is left is no noise
_NOTHING = 0.005  # a share of less is none
_STILL = 1e-9  # of the level: a spread of less is none


@enricher("explain")
@dataclass(frozen=True, slots=True, kw_only=True)
class Explain:
    """What a structural model says of the alert's signal over the last `range`, in a few sentences.

    Whether it grows or falls, by how much an hour with a 90 % interval, and since when; how much of its movement
    the time of the `season` explains, if it does; and whether what is left is noise, so that the interval can be
    believed. The calculation has a process of its own, and 8 seconds. A `season` of 0s, or of more than half of
    `range`, is not looked for.
    """

    range: Duration = Duration(days=3)
    season: Duration = Duration(days=1)

    def __post_init__(self) -> None:
        if self.range <= Duration():
            raise ValueError("range must be longer than 0s")
        if self.season < Duration():
            raise ValueError(f"season must not be negative, as {self.season} is")

    def collect(self, scene: Scene) -> Evidence:
        from engine.lang.promql import signal_of  # noqa: PLC0415 - loads a parser

        expr, _ = signal_of(scene.rule.expr)
        step = timedelta(milliseconds=math.ceil(self.range / timedelta(milliseconds=_POINTS)))
        window = scene.source.range(expr, scene.at - self.range, scene.at, step)
        title = f"What {scene.alert.name} does, last {self.range}"
        own = window.row_of(scene.alert.signal)
        values = np.empty(0) if own is None else _known(window, own)
        if np.count_nonzero(~np.isnan(values)) < _LEAST:
            return Text(title, f"Fewer than {_LEAST} samples of this alert's signal: {expr}")
        level = float(np.nanmedian(values))
        size = float(spread(values - level, relative=0.0))
        if size <= _STILL * abs(level):
            return Text(title, f"It hardly moves: {unit_of(expr).show(level)} all the time.")
        period = self.season / step if Duration() < self.season <= self.range / 2 else None
        found = Aside().call(structure, (values - level) / size, period, timeout=_LONGEST)
        return Text(
            title, _Account(found, window.times, size, unit_of(expr), period is not None).text(self.season)
        )


def _known(window: Window, row: int) -> Floats:
    """Return a series from its first sample on, NaN where it has none."""
    values = np.where(np.isfinite(window.values[row]), window.values[row], np.nan)
    return values[np.argmax(~np.isnan(values)) :]


class _Account(NamedTuple):
    """A structural model put in words; `size` is one of its units in the signal's."""

    found: Structure
    times: Floats
    size: float
    unit: Unit
    looked: bool  # for a season

    def text(self, season: Duration) -> str:
        return "\n".join([self._trend(), *self._shares(season), self._trust()])

    def _trend(self) -> str:
        step = float(self.times[1] - self.times[0])
        rate = self.size * 3600 / step
        error = normal_quantile(0.5 + _COVERAGE / 2) * self.found.slope_error * rate
        slope, show = self.found.slope * rate, self.unit.show
        if abs(slope) <= error:
            return (
                f"No trend for sure: it may as well fall by {show(max(error - slope, 0))} "
                f"as grow by {show(max(error + slope, 0))} an hour."
            )
        verb = "Grows" if slope > 0 else "Falls"
        return f"{verb} by {show(abs(slope))} an hour (± {show(error)}, 90 %) {self._since()}."

    def _since(self) -> str:
        times = self.times[-len(self.found.level) :]
        if self.found.since == 0:
            return f"for all of the {span(float(times[-1] - times[0]))}"
        return (
            f"since about {clock(instant_of(float(times[self.found.since])), instant_of(float(times[-1])))}"
        )

    def _shares(self, season: Duration) -> list[str]:
        parts = {"level": self.found.level, "season": self.found.seasonal, "rest": self.found.rest}
        moves = {name: float(np.nanvar(part)) for name, part in parts.items()}
        whole = sum(moves.values())
        if not whole > 0:
            return []
        share = {name: move / whole for name, move in moves.items()}
        words = f"Of its movement {share['level']:.0%} is trend"
        if share["season"] > _NOTHING:
            words += f", {share['season']:.0%} the {_named(season)}"
        elif self.looked:
            words += f", none the {_named(season)}"
        return [f"{words}, {share['rest']:.0%} is left."]

    def _trust(self) -> str:
        if self.found.whiteness >= _WHITE:
            return "What is left looks like noise: the figures can be believed."
        return "What is left is no mere noise: the truth may well be outside of ±."


def _named(season: Duration) -> str:
    return {Duration(days=1): "time of day", Duration(days=7): "time of the week"}.get(
        season, f"season of {season}"
    )

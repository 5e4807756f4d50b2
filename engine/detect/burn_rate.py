"""An error budget that is used up too fast: several windows, several rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import numpy as np

from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Floats, Window
from engine.model.verdict import NOTHING, Memory, Verdicts
from engine.registry import detector


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """Two windows over both of which the budget burns more than `factor` times too fast."""

    long: Duration
    short: Duration
    factor: float


_DEFAULT = (
    Burn(long=Duration(hours=1), short=Duration(minutes=5), factor=14.4),
    Burn(long=Duration(hours=6), short=Duration(minutes=30), factor=6.0),
    Burn(long=Duration(days=3), short=Duration(hours=6), factor=1.0),
)


@detector("burn_rate")
@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRate:
    """Bad when errors use up their budget too fast, over a long window and still over a short one.

    `expr` is the ratio of errors, as in `rate(errors[5m]) / rate(all[5m])`. It is asked once for each window,
    with that in place of every range in it: the same as that many rules of Prometheus, `ratio over the long
    window > factor x (1 - objective) and ratio over the short one > factor x (1 - objective)`, joined by
    `or`. Where there is no traffic there is no ratio, and nothing is bad. The budget is what `1 - objective` leaves of
    `period`.
    """

    objective: float
    windows: tuple[Burn, ...] = _DEFAULT
    period: Duration = Duration(days=30)

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "burn_rate": "how many times too fast the budget burns, over the long window that is worst",
        "window": "that window, in seconds",
        "budget_left": "of the period's budget, 0 to 1, if none was used before the longest window",
        "exhausted_in": "seconds until nothing of it is left, at this rate",
    }

    def __post_init__(self) -> None:
        if not 0 < self.objective < 1:
            raise ValueError(f"objective must be a share such as 0.999, not {self.objective:g}")
        if not self.windows:
            raise ValueError("windows is empty; leave it out for the usual three")
        for burn in self.windows:
            if not Duration() < burn.short < burn.long:
                raise ValueError(
                    f"the short window {burn.short} must be shorter than the long one {burn.long}"
                )
            if not burn.factor > 0:
                raise ValueError(f"factor must be more than 0, not {burn.factor:g}")
        if self.period < self._longest:
            raise ValueError(f"period {self.period} is shorter than the window {self._longest}")

    @property
    def _longest(self) -> Duration:
        return max(burn.long for burn in self.windows)

    @property
    def lookback(self) -> Duration:
        return Duration()

    @property
    def step(self) -> Duration:
        return Duration()

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def inputs_of(self, expr: str) -> Mapping[str, str]:
        """Return `expr` over each window, by the window as it is written."""
        from engine.lang.promql.rewrite import over_range  # noqa: PLC0415 - loaded only when needed

        lengths = sorted({length for burn in self.windows for length in (burn.long, burn.short)})
        return {str(length): over_range(expr, str(length)) for length in lengths}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        windows = {name: window.until(at) for name, window in inputs.items()}
        labels, values = _together(signal.until(at), windows)
        with np.errstate(over="ignore"):
            rates = {
                name: _aligned(window, labels) / (1 - self.objective) for name, window in windows.items()
            }
        nothing = np.full(len(labels), np.nan)
        bad = np.zeros(len(labels), dtype=np.bool_)
        worst, rate, length = nothing.copy(), nothing.copy(), nothing.copy()
        for burn in self.windows:
            over_long, over_short = rates.get(str(burn.long), nothing), rates.get(str(burn.short), nothing)
            share = np.minimum(over_long, over_short) / burn.factor
            bad |= (over_long > burn.factor) & (over_short > burn.factor)
            worse = ~np.isnan(share) & ~(share <= worst)
            worst, rate = np.where(worse, share, worst), np.where(worse, over_long, rate)
            length = np.where(worse, burn.long.total_seconds(), length)
        spent = rates.get(str(self._longest), nothing) * (self._longest / self.period)
        left = np.clip(1 - spent, 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            exhausted = left * self.period.total_seconds() / np.where(rate > 0, rate, np.nan)
        figures = {"burn_rate": rate, "window": length, "budget_left": left, "exhausted_in": exhausted}
        return Verdicts(
            labels,
            bad,
            np.ones(len(labels), dtype=np.bool_),
            values,
            {name: np.where(np.isfinite(figure), figure, np.nan) for name, figure in figures.items()},
        )


def _together(signal: Window, windows: Mapping[str, Window]) -> tuple[tuple[Labels, ...], Floats]:
    """Return every series that any window has, those of the signal first, each with the ratio that is newest."""
    found = dict(zip(signal.labels, signal.last().tolist(), strict=True))
    bare = {each.without(METRIC_NAME) for each in found}
    for window in windows.values():  # from the shortest to the longest
        for each, value in zip(window.labels, window.last().tolist(), strict=True):
            if each.without(METRIC_NAME) not in bare:
                bare.add(each.without(METRIC_NAME))
                found[each] = value
    return tuple(found), np.array(list(found.values()), dtype=np.float64)


def _aligned(window: Window, labels: tuple[Labels, ...]) -> Floats:
    """Return the window's newest values for `labels` [n], NaN where it has none."""
    names = (each.without(METRIC_NAME) for each in window.labels)
    values = dict(zip(names, window.last().tolist(), strict=True))
    return np.array([values.get(each.without(METRIC_NAME), np.nan) for each in labels], dtype=np.float64)

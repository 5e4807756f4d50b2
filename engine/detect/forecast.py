"""Exhaustion seen before it comes: when will the signal reach a bound, and how sure is that.

One pass for all series: keep what came after the last reset, reduce it to block medians, put a Theil-Sen
line through them (through the newer half or third where that goes significantly elsewhere), and ask when a
line with these errors first reaches the bound. All lengths are fractions of `lookback` and of the bound, so
that a minute at two seconds is judged like four hours at a minute, and bytes like shares.

It keeps no memory: what earlier forecasts came to, and at which level a series is usually cleaned up, is not
known here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np

from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Bools, Floats, Window
from engine.model.verdict import NOTHING, Memory, Verdicts
from engine.numeric.normal import normal_quantile
from engine.numeric.passage import Course
from engine.numeric.regression import Line, choose, fit_line
from engine.numeric.robust import SD_PER_MAD, SD_PER_QUANTUM, Blocks, block_medians, median, quantum
from engine.numeric.segments import last_fall
from engine.registry import detector

_BLOCKS = 24  # per lookback; fewer samples than that are blocks of their own
_RESET = 0.12  # of the span: a fall that ends a fill, such as a clean-up or a restart
_LEAST_SAMPLES = 8  # below which nothing is a trend
_COVERAGE = 0.6  # of the samples since the last reset must be there
_FRESH = 0.1  # of the lookback: what is newer counts as the present
_NEAR = 0.1  # of the span: so close to the bound, doubt about the slope no longer excuses
_FLOOR = 1e-4  # of the span: no signal is known better than this
_WILDEST = 1e6  # spans from the bound: what is further off is wild, however far
_SPANS = (1 / 2, 1 / 3)  # newer parts of the lookback whose own slope may overrule
_SPAN_BLOCKS = 6  # at least so many blocks for it
_OVERRULED = 2.0  # standard errors of the difference at which it does
_UNSTEADY = 0.25  # of the slope: rates that held for a lookback change by about so much within the horizon


class Direction(StrEnum):
    """On which side of the signal the bound is."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Urgent:
    """The nearer horizon, at which less certainty is enough."""

    horizon: Duration | None = None  # None: a quarter of the forecast's
    probability: float = 0.5


class _Signal(NamedTuple):
    """The samples that count, measured from the bound in spans, signed so that the bound is above, at 0."""

    times: Floats  # [m], in lookbacks before now: -1 to 0
    values: Floats  # [n, m], NaN where missing or before the last reset
    bound: Floats  # [n], signed, in the signal's unit; NaN if unknown
    span: Floats  # [n], in the signal's unit: the bound's size, or the usual distance from it if larger


@detector("forecast")
@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Bad when the signal will probably reach a bound within a horizon, or has reached it.

    `bound` is a number or PromQL; a bound with labels holds for the series of the signal with the same
    labels, a single one without labels for all. Bad when P(reached within `horizon`) is at least
    `probability`, or P(reached within `urgent.horizon`) at least `urgent.probability`. Only samples after
    the last reset count: a fall, within three samples, by more than 12 % of the bound and five robust
    standard deviations. A flat or receding series is fine, and so is one whose slope may be zero while it is
    further than 10 % from the bound. Nothing is said with fewer than `min_samples` samples since the reset,
    when more than 40 % of them are missing, or without a bound.
    """

    bound: float | str
    direction: Direction = Direction.UP
    horizon: Duration = Duration(hours=4)
    probability: float = 0.8
    urgent: Urgent = Urgent()
    lookback: Duration = Duration(hours=4)
    step: Duration = Duration(minutes=1)
    min_samples: int | None = None  # None: a quarter of the lookback's, but at least 8
    coverage: float = 0.9  # of the interval from eta_earliest to eta_latest

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "eta": "seconds until the bound is reached, by even odds",
        "eta_earliest": "seconds until the bound is reached, at the early end of the interval",
        "eta_latest": "seconds until the bound is reached, at the late end; missing if it may never be",
        "probability": "that the bound is reached within the horizon, 0 to 1",
        "slope_per_hour": "change of the signal per hour, in its unit",
        "level": "the signal now without its noise, in its unit",
        "bound": "what must not be reached, in the signal's unit",
    }

    def __post_init__(self) -> None:
        positive = {"horizon": self.horizon, "lookback": self.lookback, "step": self.step}
        for name, length in positive.items():
            if length <= Duration():
                raise ValueError(f"{name} must be longer than {length}")
        shares = {
            "probability": self.probability,
            "urgent.probability": self.urgent.probability,
            "coverage": self.coverage,
        }
        for name, share in shares.items():
            if not 0 < share < 1:
                raise ValueError(f"{name} must be between 0 and 1, both excluded, not {share:g}")
        self._check_bound()
        self._check_urgent()
        self._check_samples()

    def _check_bound(self) -> None:
        if isinstance(self.bound, str):
            if not self.bound.strip():
                raise ValueError("bound is empty; write a number, or PromQL with the signal's labels")
        elif not math.isfinite(self.bound):
            raise ValueError(f"bound must be a finite number or PromQL, not {self.bound}")

    def _check_urgent(self) -> None:
        urgent = self.urgent.horizon
        if urgent is None:
            return
        if urgent <= Duration():
            raise ValueError(f"urgent.horizon must be longer than {urgent}")
        if urgent > self.horizon:
            raise ValueError(
                f"urgent.horizon {urgent} is beyond horizon {self.horizon}; shorten it, or leave it out "
                "for a quarter of the horizon"
            )

    def _check_samples(self) -> None:
        held = math.floor(self.lookback / self.step) + 1
        if held <= _LEAST_SAMPLES:
            raise ValueError(
                f"lookback {self.lookback} at step {self.step} holds {held} samples, too few to see a trend; "
                f"lengthen lookback to {Duration.of(self.step * _LEAST_SAMPLES)} or more, or shorten step"
            )
        if self.min_samples is not None and not 3 <= self.min_samples <= held:
            raise ValueError(
                f"min_samples must be between 3 and the {held} samples that lookback {self.lookback} "
                f"at step {self.step} holds, not {self.min_samples}"
            )

    @property
    def inputs(self) -> Mapping[str, str]:
        return {"bound": self.bound} if isinstance(self.bound, str) else {}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("forecast: the times of the signal do not rise")
        window = signal.until(at)
        with np.errstate(over="ignore"):  # figures beyond the largest float are infinite, and left out
            measured = self._measure(window, self._bounds(window.labels, inputs, at), at)
            return self._decide(window.labels, _newest_sample(window), measured)

    def _decide(self, labels: tuple[Labels, ...], values: Floats, signal: _Signal) -> Verdicts:
        """Return the verdicts on what is left of the signal after its last reset."""
        line, course = self._fit(signal)
        fresh = self._fresh(signal)
        reached = ~np.isposinf(signal.bound) & (_newest(fresh) >= 0)
        known = ~np.isnan(signal.bound) & (~np.isnan(fresh)).any(axis=1) & (self._is_enough(signal) | reached)
        urgent = self.urgent.horizon or self.horizon / 4
        probability = course.probability(self.horizon / self.lookback)
        likely = (probability >= self.probability) | (
            course.probability(urgent / self.lookback) >= self.urgent.probability
        )
        error = normal_quantile(0.5 + self.coverage / 2) * line.slope_error
        moving = (line.slope > 0) & ((line.slope > error) | (course.gap >= -_NEAR))
        bad = known & (reached | (moving & likely & np.isfinite(signal.bound)))
        figures = self._figures(signal, course, np.where(reached, 1.0, probability), reached)
        details = {
            name: np.where(known & np.isfinite(signal.bound) & np.isfinite(figure), figure, np.nan)
            for name, figure in figures.items()
        }
        return Verdicts(labels, bad, known, values, details)

    def _bounds(self, labels: tuple[Labels, ...], inputs: Mapping[str, Window], at: datetime) -> Floats:
        """Return the bound of each series [n], NaN where there is none or more than one."""
        if not isinstance(self.bound, str):
            return np.full(len(labels), float(self.bound))
        if (answer := inputs.get("bound")) is None:
            return np.full(len(labels), np.nan)
        values = answer.until(at).last()
        names = [_anonymous(name) for name in answer.labels]
        if len(names) == 1 and not names[0]:
            return np.full(len(labels), values[0])
        found: dict[Labels, float] = {}
        for name, value in zip(names, values.tolist(), strict=True):
            found[name] = math.nan if name in found else value
        return np.array([found.get(_anonymous(name), math.nan) for name in labels], dtype=np.float64)

    def _measure(self, window: Window, bounds: Floats, at: datetime) -> _Signal:
        """Return the samples since the last reset within the lookback, measured from the bound."""
        times = (window.times - at.timestamp()) / self.lookback.total_seconds()
        recent = times >= -1 - 0.5 * self.step / self.lookback
        samples = window.values[:, recent]
        sign = 1.0 if self.direction is Direction.UP else -1.0
        values = np.where(window.present[:, recent] & np.isfinite(samples), sign * samples, np.nan)
        limit = np.where(np.isfinite(bounds), sign * bounds, 0.0)
        # First to a size at which nothing overflows, then to the span.
        size = np.maximum(_largest(values), np.abs(limit))
        size[size == 0] = 1.0
        values /= size[:, None]
        values -= (limit / size)[:, None]
        span = np.fmax(median(np.abs(values)), np.abs(limit / size))
        span[span == 0] = 1.0
        values = np.clip(values / span[:, None], -_WILDEST, _WILDEST)
        foot = last_fall(values, np.full(len(values), _RESET))
        values[np.arange(values.shape[1]) < foot[:, None]] = np.nan
        return _Signal(times[recent], values, sign * bounds, size * span)

    def _fit(self, signal: _Signal) -> tuple[Line, Course]:
        """Return the line through the blocks and the course that follows from it."""
        held = self.lookback / self.step
        size = max(1, round(held / _BLOCKS))
        count = int(held // size)
        # The newest block ends half a step from now, so that now is inside it.
        edges = (0.5 - size * np.arange(count, -1, -1, dtype=np.float64)) / held
        blocks = block_medians(signal.times, signal.values, edges)
        floor = np.maximum(_FLOOR, SD_PER_QUANTUM * quantum(blocks.values))
        line = fit_line(blocks.times, blocks.values, floor)
        for span in _SPANS:
            first = count - math.ceil(span * count)
            newer = fit_line(blocks.times[:, first:], blocks.values[:, first:], floor)
            error = np.hypot(line.slope_error, newer.slope_error)
            overruled = (np.abs(newer.slope - line.slope) > _OVERRULED * error) & (
                newer.points >= _SPAN_BLOCKS
            )
            line = choose(line, newer, overruled)
        return line, _course(line, blocks)

    def _fresh(self, signal: _Signal) -> Floats:
        """Return the newest samples [n, at least 3 steps]: without any a series is gone, not forecast."""
        oldest = -max(_FRESH, 2.5 * self.step / self.lookback)
        return signal.values[:, signal.times >= oldest]

    def _is_enough(self, signal: _Signal) -> Bools:
        """Tell which series [n] have enough samples since the reset, and few enough missing between them."""
        there = ~np.isnan(signal.values)
        count = np.count_nonzero(there, axis=1)
        if not signal.times.size:
            return np.zeros(len(count), dtype=np.bool_)
        first = signal.times[np.argmax(there, axis=1)]
        last = signal.times[there.shape[1] - 1 - np.argmax(there[:, ::-1], axis=1)]
        expected = (last - first) * (self.lookback / self.step) + 1
        least = self.min_samples or max(_LEAST_SAMPLES, round(self.lookback / self.step / 4))
        enough: Bools = (count >= least) & (count >= _COVERAGE * expected)
        return enough

    def _figures(
        self, signal: _Signal, course: Course, probability: Floats, reached: Bools
    ) -> dict[str, Floats]:
        """Return what `details` names [n], not finite where a series has no such figure."""
        sign = 1.0 if self.direction is Direction.UP else -1.0
        seconds, hours = self.lookback.total_seconds(), self.lookback / Duration(hours=1)
        tail = (1 - self.coverage) / 2
        odds = {"eta": 0.5, "eta_earliest": tail, "eta_latest": 1 - tail}
        return {
            **{name: np.where(reached, 0.0, course.time_of(p) * seconds) for name, p in odds.items()},
            "probability": probability,
            "slope_per_hour": sign * course.slope / hours * signal.span,
            "level": sign * (course.gap * signal.span + signal.bound),
            "bound": sign * signal.bound,
        }


def _course(line: Line, blocks: Blocks) -> Course:
    """Return where the line leads [n], from where the newest blocks are if they have left it."""
    times, values = blocks.times, blocks.values
    newest = median(values[:, -3:] - line.level[:, None] - line.slope[:, None] * times[:, -3:])
    level = np.where(np.abs(newest) > line.noise, line.level + newest, line.level)
    lengths = np.diff(times, axis=1)
    steps = (np.diff(values, axis=1) - line.slope[:, None] * lengths) / np.sqrt(lengths)
    # Noise that does not remember leaves no walk behind; noise that does, the more the longer it remembers.
    walk = SD_PER_MAD * median(np.abs(steps)) * line.autocorrelation
    return Course(
        gap=level,
        slope=line.slope,
        level_error=np.hypot(line.level_error, line.noise),
        slope_error=np.hypot(line.slope_error, _UNSTEADY * line.slope),
        walk=walk,
    )


def _newest(values: Floats) -> Floats:
    """Return the median [n] of the three newest of `values[n, m]`, NaN with fewer than three."""
    there = ~np.isnan(values)
    rank = np.cumsum(there[:, ::-1], axis=1)[:, ::-1]
    newest = median(np.where(there & (rank <= 3), values, np.nan))
    return np.where(np.count_nonzero(there, axis=1) >= 3, newest, np.nan)


def _newest_sample(window: Window) -> Floats:
    """Return each series' newest sample [n], NaN where it has none."""
    if not len(window.times):
        return np.full(len(window), np.nan)
    last = window.present.shape[1] - 1 - np.argmax(window.present[:, ::-1], axis=1)
    rows = np.arange(len(window))
    return np.where(window.present[rows, last], window.values[rows, last], np.nan)


def _largest(values: Floats) -> Floats:
    """Return the largest size [n] of `values[n, m]`, 0 where there is none."""
    largest: Floats = np.max(np.abs(values), axis=1, where=~np.isnan(values), initial=0.0)
    return largest


def _anonymous(labels: Labels) -> Labels:
    return labels.without(METRIC_NAME) if METRIC_NAME in labels else labels

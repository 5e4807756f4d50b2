"""Exhaustion seen before it comes: when will the signal reach a bound, and how sure is that.

One pass for all series: keep what came after the last reset, reduce it to block medians, put a Theil-Sen
line through them (through the newer half or third where that goes significantly elsewhere), and ask when a
line with these errors first reaches the bound. That is the gate. For the series that pass it, a bank of local
linear trends says when (engine/numeric/kalman.py); the interval that is reported is the earlier end of the
two models on either side, stretched by how well such intervals did on this rule. All lengths are fractions of
`lookback` and of the bound, so that a minute at two seconds is judged like four hours at a minute, and bytes
like shares.

What it remembers of a series: the level at which it was cleaned up so far, what earlier lines expected by now,
the forecasts whose truth is still to come, and how the last judgements went.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Bools, Floats, Window
from engine.model.verdict import NOTHING, Memory, Persist, Verdicts
from engine.numeric.crossings import Crossings, stretched
from engine.numeric.hindcast import Hindcast
from engine.numeric.kalman import Path, trend_path
from engine.numeric.normal import normal_quantile
from engine.numeric.passage import Course
from engine.numeric.regression import Line, choose, fit_line
from engine.numeric.robust import SD_PER_MAD, SD_PER_QUANTUM, Blocks, block_medians, median, quantum
from engine.numeric.segments import calm, carry_forward, last_fall
from engine.numeric.votes import Votes
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
_UNSTEADY = 0.25  # of the slope: rates change by about so much within the horizon, until it is known better
_JUDGED = 16  # times a lookback
_LINES = 8  # earlier ones that are held against the present
_SETTLED = 0.1  # of the lookback: how old a line must be for that
_REALISED = (
    0.7  # of the error that earlier slopes turned out to have: the next one will be off by about so much
)
_REALISED_TREND = 0.5  # the same for the bank's
_CEILING = 0.02  # of the span, above the highest level at which a series was cleaned up so far
_END = 0.05  # of the span: a fall from so close to the bound was the end of a fill, and no clean-up
_FORGOTTEN = 42.0  # lookbacks after the last clean-up: a week of four hours
_REBOUND = 0.01  # of the span: a bound that moved by more is another
_LONG = 6.0  # horizons: what is not reached by then counts as never
_REMOTE = 0.05  # P(reached within them) below which nobody asks when
_TREND_BLOCKS = 60  # per lookback, of the bank
_AHEAD = np.geomspace(1 / 80, 24.0, 60)  # lookbacks
_NEW_RESET = 1 / 8  # of the lookback: resets closer to each other are one
_VIRTUAL = 0.5  # horizons: where the limit lies by which a forecast is scored


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
    reset: Floats  # [n], Unix seconds of the last reset, NaN without one
    peak: Floats  # [n], signed, in the signal's unit: the highest level before it, NaN without one

    def raw(self, gap: Floats) -> Floats:
        """Return levels [n] in spans from the bound as signed ones in the signal's unit."""
        return gap * self.span + self.bound


@detector("forecast")
@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Bad when the signal will probably reach a bound within a horizon, or has reached it.

    `bound` is a number or PromQL; a bound with labels holds for the series of the signal with the same
    labels, a single one without labels for all. Bad when P(reached within `horizon`) is at least
    `probability`, or P(reached within `urgent.horizon`) at least `urgent.probability`. Only samples after
    the last reset count: a fall, within three samples, by more than 12 % of the bound and five robust
    standard deviations. A flat or receding series is fine, and so is one whose slope may be zero while it is
    further than 10 % from the bound. Once a series was cleaned up, it is fine up to 2 % above the highest level at
    which it was. It is judged 16 times a lookback, and an alert begins when `persist.m` of the last `persist.n`
    judgements were bad, and ends when `persist.n` in a row were below `clear` of what is bad; a bound that is
    reached is bad at once. Nothing is said with fewer than `min_samples` samples since the reset,
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
    persist: Persist = Persist(m=2, n=3)
    clear: float = 0.5  # of the probability that is bad

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "eta": "seconds until the bound is reached, by even odds",
        "eta_earliest": "seconds until the bound is reached, at the early end of the interval",
        "eta_latest": "seconds until the bound is reached, at the late end; missing if it may never be",
        "probability": "that the bound is reached within the horizon, 0 to 1",
        "slope_per_hour": "change of the signal per hour, in its unit",
        "level": "the signal now without its noise, in its unit",
        "bound": "what must not be reached, in the signal's unit",
        "probability_never": "that the bound is not reached within six horizons, 0 to 1",
        "coverage": "of the interval, as set",
        "coverage_achieved": "share of this rule's intervals that held the truth, 0 to 1, once some were scored",
        "scored": "how many of this rule's forecasts that is, at most the last 600",
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
            "clear": self.clear,
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
        bounds = self._bounds(window.labels, inputs, at)
        with np.errstate(over="ignore", invalid="ignore"):  # figures beyond the largest float are left out
            measured = self._measure(window, bounds, at)
            past = _Past.recall(memory, measured, window.labels, self.persist)
            return self._decide(window, measured, past, at)

    def _decide(self, window: Window, signal: _Signal, past: _Past, at: datetime) -> Verdicts:
        """Return the verdicts on what is left of the signal after its last reset."""
        now, unit = at.timestamp(), self.lookback.total_seconds()
        line, course = self._fit(signal)
        ceiling = past.ceiling.after(signal, now, unit)
        level = signal.raw(course.gap)
        realised = past.lines.slope_error(level, now, ceiling.reset, _SETTLED * unit) * unit / signal.span
        doubt = np.where(np.isnan(realised), _UNSTEADY * np.abs(line.slope), _REALISED * realised)
        course = course._replace(slope_error=np.hypot(line.slope_error, doubt))
        fresh = self._fresh(signal)
        reached = ~np.isposinf(signal.bound) & (_newest(fresh) >= 0)
        known = ~np.isnan(signal.bound) & (~np.isnan(fresh)).any(axis=1) & (self._is_enough(signal) | reached)
        bounded = known & np.isfinite(signal.bound)
        score = np.where(bounded & ~ceiling.holds(level, signal.span), self._score(line, course), 0.0)
        votes = past.votes.take(
            np.where(known, np.where(reached, np.maximum(score, 1.0), score), np.nan),
            now,
            persist=self.persist,
            every=unit / _JUDGED,
            clear=self.clear,
        )
        outlook = self._outlook(signal, course, past, ceiling.reset, bounded & ~reached, at)
        figures = {
            **self._figures(signal, course, reached),
            **{name: np.where(reached, 0.0, time) for name, time in outlook.times.items()},
            "coverage": np.full(len(window), self.coverage),
            **_achieved(outlook.crossings, len(window)),
        }
        slope = np.where(known, course.slope * signal.span / unit, np.nan)
        notes = {
            **votes.columns(),
            **ceiling.columns(),
            **past.lines.note(level, slope, now, unit / _JUDGED).columns("line"),
            **outlook.trends.columns("trend"),
            **outlook.crossings.columns(),
            "bound": np.where(known, signal.bound, past.bound),
        }
        return Verdicts(
            window.labels,
            bad=known & (votes.bad | reached),
            known=known,
            values=_newest_sample(window),
            details={
                name: np.where(bounded & np.isfinite(each), each, np.nan) for name, each in figures.items()
            },
            quality=_quality(outlook.crossings),
            memory=Memory(window.labels, notes, outlook.crossings.shared(), now),
        )

    def _score(self, line: Line, course: Course) -> Floats:
        """Return how bad it is [n]: 1 and more is, 0 where the slope may as well be none."""
        urgent = self.urgent.horizon or self.horizon / 4
        score = np.maximum(
            course.probability(self.horizon / self.lookback) / self.probability,
            course.probability(urgent / self.lookback) / self.urgent.probability,
        )
        error = normal_quantile(0.5 + self.coverage / 2) * line.slope_error
        moving = (line.slope > 0) & ((line.slope > error) | (course.gap >= -_NEAR))
        return np.where(moving, score, 0.0)

    def _outlook(
        self, signal: _Signal, course: Course, past: _Past, reset: Floats, fit: Bools, at: datetime
    ) -> _Outlook:
        """Return when the bound will be reached, for series [n] of which it may be, and score earlier answers."""
        now, unit = at.timestamp(), self.lookback.total_seconds()
        level = signal.raw(course.gap)
        crossings = past.crossings.score(level, now)
        times = {name: np.full(len(fit), np.inf) for name in ("eta", "eta_earliest", "eta_latest")}
        long = course.probability(_LONG * (self.horizon / self.lookback))
        rows = np.flatnonzero(fit & (course.slope > 0) & (long >= _REMOTE))
        if not len(rows):
            return _Outlook(times, past.trends, crossings)
        span, bound = signal.span[rows], signal.bound[rows]
        path = trend_path(self._blocks(signal, rows, _TREND_BLOCKS).values, _AHEAD)
        realised = past.trends.slope_error(level, now, reset, _SETTLED * unit)[rows] * unit / span
        path = path.widened(_REALISED_TREND * np.nan_to_num(realised))
        near = Course(*(part[rows] for part in course))
        for name, time in self._interval(path, near, np.zeros(len(rows)), crossings).items():
            times[name][rows] = time * unit
        slope = _spread(path.slope * span / unit, rows, len(fit))
        trends = past.trends.note(level, slope, now, unit / _JUDGED)
        # Where the path is on its way there: a level that is passed long before the bound, if it is at all.
        limit = path.mean_at(_VIRTUAL * (self.horizon / self.lookback))
        virtual = self._interval(path, near, limit, Crossings.none(len(rows)))
        asked = _spread(limit * span + bound, rows, len(fit))
        asked[~(trends.drawn[:, -1] == now)] = np.nan
        waiting = crossings.wait(asked, now, *(_spread(t * unit, rows, len(fit)) for t in virtual.values()))
        return _Outlook(times, trends, waiting)

    def _interval(self, path: Path, course: Course, limit: Floats, crossings: Crossings) -> dict[str, Floats]:
        """Return the even, the earliest and the latest time [n] at which `limit[n]` is reached, in lookbacks."""
        tail = (1 - self.coverage) / 2
        passage, line = path.passage(limit), course._replace(gap=course.gap - limit)
        early = np.minimum(passage.time_of(tail), line.time_of(tail))
        late = np.minimum(passage.time_of(1 - tail), line.time_of(1 - tail))
        middle = np.clip(passage.time_of(0.5), early, late)
        before, after = crossings.stretch(self.coverage)
        return {
            "eta": middle,
            "eta_earliest": stretched(middle, early, before),
            "eta_latest": stretched(middle, late, after),
        }

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
        # What fell at the very start of the window may have been a single wild sample.
        rows = np.flatnonzero(foot >= _LEAST_SAMPLES)
        before = np.arange(values.shape[1]) < foot[:, None]
        peak, reset = np.full(len(foot), np.nan), np.full(len(foot), np.nan)
        calmed = calm(carry_forward(values[rows]))
        peak[rows] = np.max(calmed, axis=1, where=before[rows] & ~np.isnan(calmed), initial=-np.inf)
        reset[rows] = window.times[recent][foot[rows]]
        values[before] = np.nan
        found = _Signal(times[recent], values, sign * bounds, size * span, reset, peak)
        return found._replace(peak=np.where(peak < -_END, found.raw(peak), np.nan))

    def _blocks(self, signal: _Signal, rows: NDArray[np.intp] | slice, most: int) -> Blocks:
        """Return block medians of some series, about `most` a lookback."""
        held = self.lookback / self.step
        size = max(1, round(held / most))
        # The newest block ends half a step from now, so that now is inside it.
        edges = (0.5 - size * np.arange(int(held // size), -1, -1, dtype=np.float64)) / held
        return block_medians(signal.times, signal.values[rows], edges)

    def _fit(self, signal: _Signal) -> tuple[Line, Course]:
        """Return the line through the blocks and the course that follows from it."""
        blocks = self._blocks(signal, slice(None), _BLOCKS)
        count = blocks.values.shape[1]
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

    def _figures(self, signal: _Signal, course: Course, reached: Bools) -> dict[str, Floats]:
        """Return what the line says of each series [n], not finite where it has no such figure."""
        sign = 1.0 if self.direction is Direction.UP else -1.0
        probability = course.probability(self.horizon / self.lookback)
        never = 1 - course.probability(_LONG * (self.horizon / self.lookback))
        return {
            "probability": np.where(reached, 1.0, probability),
            "probability_never": np.where(reached, 0.0, never),
            "slope_per_hour": sign * course.slope / (self.lookback / Duration(hours=1)) * signal.span,
            "level": sign * signal.raw(course.gap),
            "bound": sign * signal.bound,
        }


class _Ceiling(NamedTuple):
    """Where series are cleaned up: a clean-up is how it should be, and no alarm before it is wanted."""

    peak: Floats  # [n], signed: the highest level before any reset so far, NaN before the first
    reset: Floats  # [n], Unix seconds: the newest one

    def after(self, signal: _Signal, now: float, lookback: float) -> _Ceiling:
        """Return it with a reset that is in the window, if it is another than the newest one.

        Nothing is left of it once a series went on to its end, or when the last clean-up was long ago.
        """
        new = ~np.isnan(signal.reset) & ~(signal.reset <= self.reset + _NEW_RESET * lookback)
        ended = new & np.isnan(signal.peak)
        peak = np.where(new, np.fmax(self.peak, signal.peak), self.peak)
        reset = np.where(new, signal.reset, self.reset)
        return _Ceiling(np.where(ended | (now - reset > _FORGOTTEN * lookback), np.nan, peak), reset)

    def holds(self, level: Floats, span: Floats) -> Bools:
        """Tell which series are still below where they are cleaned up."""
        below: Bools = level < self.peak + _CEILING * span
        return below

    def columns(self) -> dict[str, Floats]:
        """Return it as columns of a memory."""
        return {"peak": self.peak, "reset": self.reset}


class _Past(NamedTuple):
    """What was noted of the series; nothing of one whose bound is another since."""

    votes: Votes
    ceiling: _Ceiling
    lines: Hindcast
    trends: Hindcast
    crossings: Crossings
    bound: Floats  # [n], signed

    @classmethod
    def recall(cls, memory: Memory, signal: _Signal, labels: tuple[Labels, ...], persist: Persist) -> _Past:
        bound = memory.rows(labels, "bound")
        moved = np.abs(bound - signal.bound) > _REBOUND * signal.span
        peak, reset = (np.where(moved, np.nan, memory.rows(labels, name)) for name in ("peak", "reset"))
        return cls(
            Votes.recall(memory, labels, persist),
            _Ceiling(peak, reset),
            Hindcast.recall(memory, labels, "line", _LINES).without(moved),
            Hindcast.recall(memory, labels, "trend", _LINES).without(moved),
            Crossings.recall(memory, labels).without(moved),
            bound,
        )


class _Outlook(NamedTuple):
    """When series reach their bounds, in seconds [n] by the detail's name, and what is to be noted of that."""

    times: dict[str, Floats]
    trends: Hindcast
    crossings: Crossings


def _spread(values: Floats, rows: NDArray[np.intp], size: int) -> Floats:
    """Return figures of some series as those of all [size], NaN for the others."""
    found = np.full(size, np.nan)
    found[rows] = values
    return found


def _achieved(crossings: Crossings, size: int) -> dict[str, Floats]:
    count = len(crossings.scores)
    return {
        "coverage_achieved": np.full(size, crossings.coverage()),
        "scored": np.full(size, float(count) if count else np.nan),
    }


def _quality(crossings: Crossings) -> dict[str, float]:
    """Return how well the intervals of this rule did; nothing until some were scored."""
    if not len(crossings.scores):
        return {}
    return {
        "forecast_coverage": crossings.coverage(),
        "forecast_bias": float(np.median(crossings.errors)),
        "forecast_error": float(np.median(np.abs(crossings.errors))),
        "forecast_scored": float(len(crossings.scores)),
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

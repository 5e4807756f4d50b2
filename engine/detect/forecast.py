"""Exhaustion seen before it comes: when will the signal reach a bound, and how sure is that.

Whether: keep what came after the last reset, reduce it to block medians, put a Theil-Sen line through them
(through the newer half or third where that goes significantly elsewhere), and ask when a line with these
errors first reaches the bound. The errors are also those that earlier forecasts of the series turned out to
have, and nothing is bad below the level at which the series is usually cleaned up.

When: of series that move towards their bound, a bank of local linear trends says when they reach it. Each such
forecast is held against what happens: it says when nearer levels are reached as well, and those are. The
intervals of all series of the rule are as wide as these need.

All lengths are fractions of `lookback` and of the bound, so that a minute at two seconds is judged like four
hours at a minute, and bytes like shares.
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
from engine.numeric.conformal import Track
from engine.numeric.kalman import Trend, crossing, fit_trend
from engine.numeric.normal import normal_cdf, normal_quantile
from engine.numeric.passage import Course
from engine.numeric.regression import Line, choose, fit_line
from engine.numeric.robust import SD_PER_MAD, SD_PER_QUANTUM, Blocks, block_medians, median, quantum
from engine.numeric.segments import carry_forward, last_fall
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
_UNSTEADY = 0.25  # of the slope: rates that held for a lookback change by about so much within the horizon
_VOTES = 16  # judgements a lookback that count, and forecasts that are noted
_LATE = 0.9  # of the time between two: a slot that comes a little early still counts
_TOLD = 8  # forecasts noted of a series
_OLD = 0.1  # of the lookback: from this age on a forecast tells how wrong it was
_TRUSTED = 0.5  # of the mean error of the slope, that is taken for lasting
_DOUBT = 0.25  # of their root mean square, that a trend's own errors do not know of
_CLEANED = 0.02  # of the span: so far above where it was cleaned up before, a series is beyond it
_FULL = 0.05  # of the span: a peak so close to the bound was no clean-up but the end
_FORGOTTEN = 42  # lookbacks after the last reset: a week of four hours
_MOVED = 0.02  # of the span: a bound that moved by more is another one
_TREND_BLOCKS = 60  # per lookback
_TREND_LEAST = 15  # blocks, for a local linear trend
_HORIZONS = 6  # within which "never" is meant
_TIMES = 60  # moments within them at which a trend is asked
_VIRTUAL = (1 / 4, 1 / 2, 1)  # of the horizon, at which virtual limits should be reached
_PENDING = 3  # such limits of each kind that a series may have
_EXPIRE = 4  # times the forecast, after which a limit is given up
_NEXT = 1.03  # no side of an interval is taken to be narrower
_CLEAR_OF_NOISE = 4  # standard deviations that such a limit is off
_SCORED = 200  # of them, from which on the intervals follow


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
    reset: Floats  # [n], when the last one was, in lookbacks before now; NaN without one
    peak: Floats  # [n], the highest before it, in spans from the bound

    def level(self, gap: Floats) -> Floats:
        """Return signed levels [n] in the signal's unit, of distances from the bound in spans."""
        return gap * self.span + np.where(np.isfinite(self.bound), self.bound, 0.0)

    def gap(self, level: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return how far from the bound, in spans, the signed levels [rows, k] of some series are."""
        bound = np.where(np.isfinite(self.bound), self.bound, 0.0)[rows]
        return (level - bound[:, None]) / self.span[rows][:, None]


class _Notes(NamedTuple):
    """What is noted of each series, in the signal's unit (signed) and seconds; NaN where there is nothing."""

    bound: Floats  # [n], that the votes were about
    reset: Floats  # [n], when the last one was
    ceiling: Floats  # [n], the highest level at which the series was cleaned up
    told: Floats  # [n, 8, 3], oldest first: when, level and slope (in spans a lookback) of a forecast
    pending: Floats  # [n, 9, 5]: virtual limits: when, level, time it takes, logarithms of its two sides

    @classmethod
    def recall(cls, memory: Memory, labels: tuple[Labels, ...], at: float) -> _Notes:
        """Return what was noted of `labels` until now."""
        told = memory.rows(labels, "told", _TOLD * 3).reshape(-1, _TOLD, 3)
        pending = memory.rows(labels, "pending", len(_VIRTUAL) * _PENDING * 5)
        pending = pending.reshape(-1, len(_VIRTUAL) * _PENDING, 5)
        for each in (told, pending):
            each[~(each[:, :, 0] <= at)] = np.nan
        reset = memory.rows(labels, "reset")
        ceiling = memory.rows(labels, "ceiling")
        return cls(
            memory.rows(labels, "bound"),
            np.where(reset <= at, reset, np.nan),
            np.where(reset <= at, ceiling, np.nan),
            told,
            pending,
        )

    def columns(self) -> dict[str, Floats]:
        """Return them as columns of a memory."""
        count = len(self.bound)
        return {
            "bound": self.bound,
            "reset": self.reset,
            "ceiling": self.ceiling,
            "told": self.told.reshape(count, _TOLD * 3),
            "pending": self.pending.reshape(count, len(_VIRTUAL) * _PENDING * 5),
        }


class _Outlook(NamedTuple):
    """What a bank of trends says of some of the series: `rows`, their trends, and the moments asked."""

    rows: NDArray[np.intp]
    trend: Trend  # in spans and blocks
    blocks: Blocks  # times in lookbacks before now
    ahead: Floats  # [60], in blocks after the last one
    times: Floats  # [60], in lookbacks from now


@detector("forecast")
@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Bad when the signal will probably reach a bound within a horizon, or has reached it.

    `bound` is a number or PromQL; a bound with labels holds for the series of the signal with the same
    labels, a single one without labels for all. Bad when P(reached within `horizon`) is at least
    `probability`, or P(reached within `urgent.horizon`) at least `urgent.probability`, at `persist.m` of the last
    `persist.n` judgements, a sixteenth of the lookback apart; it ends once `persist.n` in a row are below
    `clear` times that. A bound that is reached is bad at once. Only samples after the last reset count: a fall,
    within three samples, by more than 12 % of the bound and five robust standard deviations. A series that was
    reset before it came within 5 % of the bound is fine until it is 2 % of the bound above all such peaks, and
    a flat or receding one is fine, and so is one whose slope may be zero while it is further than 10 % from the
    bound. Nothing is said with fewer than `min_samples` samples since the reset, when more than 40 % of them are
    missing, or without a bound. A bound that moves by more than 2 % begins all that anew.
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
    clear: float = 0.5

    over: ClassVar[str | None] = None
    details: ClassVar[Mapping[str, str]] = {
        "eta": "seconds until the bound is reached, by even odds",
        "eta_earliest": "seconds until the bound is reached, at the early end of the interval",
        "eta_latest": "seconds until the bound is reached, at the late end; missing if it may never be",
        "probability": "that the bound is reached within the horizon, 0 to 1",
        "probability_never": "that it is not reached within six horizons, 0 to 1",
        "coverage": "the share of truths that the interval is meant to hold, 0 to 1",
        "coverage_achieved": "the share that intervals of this rule held of late, 0 to 1; missing without any",
        "scored": "how many forecasts of this rule that is of",
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
        if not 0 <= self.clear <= 1:
            raise ValueError(f"clear must be a share of the threshold, 0 to 1, not {self.clear:g}")
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
            return self._decide(window.labels, _newest_sample(window), measured, memory, at.timestamp())

    def _decide(
        self, labels: tuple[Labels, ...], values: Floats, signal: _Signal, memory: Memory, now: float
    ) -> Verdicts:
        """Return the verdicts on what is left of the signal after its last reset."""
        line, blocks = self._fit(signal)
        votes, notes = self._recall(memory, labels, signal, now)
        bias, error = self._errors(notes, signal, line, blocks, now)
        course = _course(line, blocks, bias, error)
        fresh = self._fresh(signal)
        reached = ~np.isposinf(signal.bound) & (_newest(fresh) >= 0)
        known = ~np.isnan(signal.bound) & (~np.isnan(fresh)).any(axis=1) & (self._is_enough(signal) | reached)
        bounded = known & np.isfinite(signal.bound)
        probability = course.probability(self.horizon / self.lookback)
        margin = normal_quantile(0.5 + self.coverage / 2) * line.slope_error
        moving = bounded & (line.slope > 0) & ((line.slope > margin) | (course.gap >= -_NEAR))
        cleaned = signal.level(course.gap) < notes.ceiling + _CLEANED * signal.span
        score = np.where(moving & ~cleaned, self._score(course, probability), 0.0)
        score = np.where(known, np.where(reached, np.maximum(score, 1.0), score), np.nan)
        every = self.lookback.total_seconds() / _VOTES
        votes = votes.take(score, now, persist=self.persist, every=every, clear=self.clear)
        outlook = self._look(signal, moving & ~reached, notes)
        track = Track.recall(memory.shared.get("scored"), memory.shared.get("missing"), self.coverage)
        notes, track = self._learn(notes, track, signal, outlook, moving & ~reached, now)
        notes = self._tell(notes, signal, course, known, now)
        figures = self._figures(signal, course, np.where(reached, 1.0, probability), reached)
        self._time(figures, outlook, moving & ~reached, error, track)
        achieved, off, size, scored = track.quality()
        details = {
            name: np.where(bounded & np.isfinite(figure), figure, np.nan)
            for name, figure in {**figures, "coverage_achieved": np.full(len(labels), achieved)}.items()
        }
        details["scored"] = np.where(bounded, float(scored), np.nan)
        quality = {
            "forecast_coverage": achieved,
            "forecast_bias": off,
            "forecast_error": size,
            "forecast_scored": float(scored),
        }
        return Verdicts(
            labels,
            known & (votes.bad | reached),
            known,
            values,
            details,
            quality={name: figure for name, figure in quality.items() if not math.isnan(figure)},
            memory=Memory(
                labels,
                {**votes.columns(), **notes.columns()},
                {"scored": track.scored, "missing": track.missing},
                at=now,
            ),
        )

    def _score(self, course: Course, probability: Floats) -> Floats:
        """Return how sure it is [n] that the bound is reached in time; 1 is sure enough."""
        urgent = self.urgent.horizon or self.horizon / 4
        soon = course.probability(urgent / self.lookback)
        return np.maximum(probability / self.probability, soon / self.urgent.probability)

    def _recall(
        self, memory: Memory, labels: tuple[Labels, ...], signal: _Signal, now: float
    ) -> tuple[Votes, _Notes]:
        """Return what was noted, as far as it still holds, with resets that were not known yet."""
        votes, notes = Votes.recall(memory, labels, self.persist), _Notes.recall(memory, labels, now)
        lookback = self.lookback.total_seconds()
        moved = np.abs(signal.bound - notes.bound) > _MOVED * signal.span  # never true of what is not known
        votes = Votes(*(np.where(moved if x.ndim == 1 else moved[:, None], np.nan, x) for x in votes))
        reset = now + signal.reset * lookback
        new = ~np.isnan(reset) & ~(reset <= notes.reset + lookback / 8)
        old = moved | (now - notes.reset > _FORGOTTEN * lookback)
        ceiling = np.where(old, np.nan, notes.ceiling)
        peak = np.where(new & (signal.peak < -_FULL), signal.level(signal.peak), np.nan)
        reset = np.where(new, reset, notes.reset)
        for each in (notes.told, notes.pending):
            each[each[:, :, 0] < reset[:, None]] = np.nan
        bound = np.where(np.isfinite(signal.bound), signal.bound, notes.bound)
        bound = np.where(moved | np.isnan(notes.bound), bound, notes.bound)
        return votes, notes._replace(bound=bound, reset=reset, ceiling=np.fmax(ceiling, peak))

    def _errors(
        self, notes: _Notes, signal: _Signal, line: Line, blocks: Blocks, now: float
    ) -> tuple[Floats, Floats]:
        """Return mean and root mean square [n] of the errors that the noted slopes had; NaN without any."""
        when, level, slope = np.moveaxis(notes.told, 2, 0)
        age = (now - when) / self.lookback.total_seconds()
        here = signal.level(_present(line, blocks))[:, None]
        with np.errstate(invalid="ignore"):
            wrong = ((here - level) / signal.span[:, None] - slope * age) / np.where(age >= _OLD, age, np.nan)
        there = np.isfinite(wrong)
        count = np.count_nonzero(there, axis=1)
        wrong = np.where(there, np.clip(wrong, -_WILDEST, _WILDEST), 0.0)
        some = np.where(count > 0, count, np.nan)
        return np.sum(wrong, axis=1) / some, np.sqrt(np.sum(wrong * wrong, axis=1) / some)

    def _tell(self, notes: _Notes, signal: _Signal, course: Course, known: Bools, now: float) -> _Notes:
        """Return the notes with the forecast made now, unless the last one is newer than a vote."""
        every = self.lookback.total_seconds() / _VOTES
        due = known & ~(now - notes.told[:, -1, 0] < _LATE * every) & np.isfinite(course.slope)
        new = np.stack([np.full(len(due), now), signal.level(course.gap), course.slope], axis=1)
        told = np.concatenate([notes.told[:, 1:], new[:, None]], axis=1)
        return notes._replace(told=np.where(due[:, None, None], told, notes.told))

    def _look(self, signal: _Signal, asked: Bools, notes: _Notes) -> _Outlook:
        """Return the trends of series that move, and the blocks of those that limits were set for."""
        rows = np.flatnonzero(asked | (~np.isnan(notes.pending[:, :, 0])).any(axis=1))
        held = self.lookback / self.step
        size = max(1, round(held / _TREND_BLOCKS))
        edges = (0.5 - size * np.arange(int(held // size), -1, -1, dtype=np.float64)) / held
        blocks = block_medians(signal.times, signal.values[rows], edges)
        times = self.horizon / self.lookback * np.geomspace(1 / 80, _HORIZONS, _TIMES)
        # The newest block is of the moment of its middle sample.
        ahead = (times * held + (size - 1) / 2) / size
        return _Outlook(rows, fit_trend(blocks.values), blocks, ahead, times)

    def _enough_blocks(self, outlook: _Outlook, asked: Bools) -> Bools:
        there = np.count_nonzero(~np.isnan(outlook.blocks.values), axis=1) >= _TREND_LEAST
        trusted: Bools = asked[outlook.rows] & there & (outlook.trend.slope > 0)
        return trusted

    def _time(
        self, figures: dict[str, Floats], outlook: _Outlook, asked: Bools, error: Floats, track: Track
    ) -> None:
        """Put the times of the series that move into `figures`, and widen all intervals as the track says."""
        rows, seconds = outlook.rows, self.lookback.total_seconds()
        blocks = outlook.blocks.values.shape[1]
        spread = _DOUBT * np.nan_to_num(error[rows]) / max(blocks, 1)
        outlook.trend.variances[:, 2] += spread * spread
        scores = outlook.trend.scores(np.zeros(len(rows)), outlook.ahead)
        use = self._enough_blocks(outlook, asked)
        z = normal_quantile(0.5 + self.coverage / 2)
        for name, at in (("eta", 0.0), ("eta_earliest", -z), ("eta_latest", z)):
            figures[name][rows[use]] = (crossing(scores, outlook.times, at) * seconds)[use]
        figures["probability_never"][rows[use]] = normal_cdf(-scores[use, -1])
        low, high = track.factors(_SCORED)
        eta = figures["eta"]
        for name, factor in (("eta_earliest", low), ("eta_latest", high)):
            with np.errstate(invalid="ignore", divide="ignore"):
                scaled = eta * (figures[name] / eta) ** factor
            figures[name] = np.where(np.isfinite(scaled) & (eta > 0), scaled, figures[name])

    def _learn(
        self, notes: _Notes, track: Track, signal: _Signal, outlook: _Outlook, asked: Bools, now: float
    ) -> tuple[_Notes, Track]:
        """Return both with what virtual limits that were reached tell, and with new ones."""
        rows = outlook.rows
        pending = notes.pending[rows]
        when, limit, takes, early, late = np.moveaxis(pending, 2, 0)
        took = self._took(outlook.blocks, signal.gap(limit, rows), when, now)
        done = np.isfinite(took)
        order = np.argsort((when + took)[done], kind="stable")
        found = [x[done][order] for x in (np.log(np.where(done, took, 1.0) / takes), early, late)]
        track = track.add(*found, least=_SCORED, coverage=self.coverage)
        pending[done | (now - when > _EXPIRE * takes)] = np.nan
        self._set(pending, signal, outlook, self._enough_blocks(outlook, asked), now)
        everything = notes.pending.copy()
        everything[rows] = pending
        return notes._replace(pending=everything), track

    def _took(self, blocks: Blocks, limits: Floats, when: Floats, now: float) -> Floats:
        """Return after how many seconds virtual `limits[rows, k]`, set at `when`, were reached; NaN if not yet."""
        seconds = self.lookback.total_seconds()
        times, values = now + seconds * carry_forward(blocks.times), carry_forward(blocks.values)
        took = np.full(limits.shape, np.nan)
        for row, column in np.argwhere(~np.isnan(limits)):
            after = np.flatnonzero((times[row] > when[row, column]) & (values[row] >= limits[row, column]))
            if not after.size:
                continue
            place = after[0]
            moment = times[row, place]
            if place and values[row, place - 1] < limits[row, column]:
                low, high = values[row, place - 1], values[row, place]
                moment -= (moment - times[row, place - 1]) * (high - limits[row, column]) / (high - low)
            took[row, column] = max(moment - when[row, column], seconds / _TREND_BLOCKS / 2)
        return took

    def _set(self, pending: Floats, signal: _Signal, outlook: _Outlook, asked: Bools, now: float) -> None:
        """Put limits at the levels that should be reached within shares of the horizon into free places."""
        trend, seconds = outlook.trend, self.horizon.total_seconds()
        z = normal_quantile(0.5 + self.coverage / 2)
        newest = np.fmax.reduce(pending[:, :, 0], axis=1) if len(pending) else np.empty(0)
        due = asked & ~(now - newest < _LATE * self.lookback.total_seconds() / _VOTES)
        last, rows = outlook.times[-1], outlook.rows
        for kind, share in enumerate(_VIRTUAL):
            time = share * self.horizon / self.lookback
            ahead = np.interp(time, outlook.times, outlook.ahead)
            limit = trend.mean(np.array([ahead]))[:, 0]
            good = due & (limit - trend.level > _CLEAR_OF_NOISE * trend.noise) & (limit < -_CLEANED)
            places = pending[:, kind * _PENDING : (kind + 1) * _PENDING]
            free = np.isnan(places[:, :, 0])
            chosen = np.flatnonzero(good & free.any(axis=1))
            scores = trend.scores(limit, outlook.ahead)[chosen]
            early = np.minimum(crossing(scores, outlook.times, -z), time / _NEXT)
            late = np.clip(crossing(scores, outlook.times, z), time * _NEXT, last)
            level = limit[chosen] * signal.span[rows][chosen] + signal.bound[rows][chosen]
            new = [np.full(len(chosen), now), level, np.full(len(chosen), share * seconds)]
            new += [np.log(time / early), np.log(late / time)]
            places[chosen, np.argmax(free[chosen], axis=1)] = np.stack(new, axis=1)

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
        reset, peak = np.full((2, len(values)), np.nan)
        fell = np.flatnonzero(foot)
        reset[fell] = times[recent][foot[fell]]
        before = np.arange(values.shape[1]) < foot[fell][:, None]
        peak[fell] = np.fmax.reduce(np.where(before, values[fell], np.nan), axis=1) if fell.size else np.nan
        values[fell] = np.where(before, np.nan, values[fell])
        return _Signal(times[recent], values, sign * bounds, size * span, reset, peak)

    def _fit(self, signal: _Signal) -> tuple[Line, Blocks]:
        """Return the line through the blocks, and these."""
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
        return line, blocks

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
            "probability_never": np.where(
                reached, 0.0, 1 - course.probability(_HORIZONS * self.horizon / self.lookback)
            ),
            "coverage": np.full(len(probability), self.coverage),
            "slope_per_hour": sign * course.slope / hours * signal.span,
            "level": sign * (course.gap * signal.span + signal.bound),
            "bound": sign * signal.bound,
        }


def _present(line: Line, blocks: Blocks) -> Floats:
    """Return where each series is now [n]: on its line, or where the newest blocks are if they have left it."""
    times, values = blocks.times, blocks.values
    newest = median(values[:, -3:] - line.level[:, None] - line.slope[:, None] * times[:, -3:])
    return np.where(np.abs(newest) > line.noise, line.level + newest, line.level)


def _course(line: Line, blocks: Blocks, bias: Floats, error: Floats) -> Course:
    """Return where the line leads [n], given the mean and the root mean square of its earlier slopes' errors."""
    times, values = blocks.times, blocks.values
    lengths = np.diff(times, axis=1)
    steps = (np.diff(values, axis=1) - line.slope[:, None] * lengths) / np.sqrt(lengths)
    # Noise that does not remember leaves no walk behind; noise that does, the more the longer it remembers.
    walk = SD_PER_MAD * median(np.abs(steps)) * line.autocorrelation
    return Course(
        gap=_present(line, blocks),
        slope=line.slope + _TRUSTED * np.nan_to_num(bias),
        level_error=np.hypot(line.level_error, line.noise),
        slope_error=np.hypot(line.slope_error, np.where(np.isnan(error), _UNSTEADY * line.slope, error)),
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

"""What is unusual for this time of day, for few series and with a model that takes its time.

A season is fitted to weeks of history once a day, beside the evaluations, by a method that a few bad days do not
bend. An evaluation only looks up what the season says for now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import ClassVar, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.series import Bools, Floats, Window, instant_of
from engine.model.verdict import NOTHING, Memory, Persist, Verdicts
from engine.numeric.decompose import decompose
from engine.numeric.robust import median, quantile, spread
from engine.numeric.votes import Votes
from engine.registry import detector

_FLOOR = 0.02  # of the level: nobody minds less
_FORGIVEN = 16 * 3600.0  # seconds after which what is unusual is thought to be usual
_ENORMOUS = 1e150  # beyond it differences overflow
_THERE = 0.7  # of the history must be there for a fit
_BETTER = 0.9  # of the mean error without it: a season that leaves more is none
_BESIDE = 1  # steps on either side that also say how much is usual at this time
_STRONG = 0.9  # the quantile that stands for the size of what a season leaves, and of what it explains
_PROFILE, _SCALE, _SLOPE, _STRENGTH = "profile", "scale", "slope", "strength"


class Direction(StrEnum):
    """On which side of what is expected a value is bad."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


class _Fit(NamedTuple):
    """What was learned of each of n series, in the signal's unit; NaN where nothing was."""

    profile: Floats  # [n, p]: what the season adds in each step of the longest period
    scale: Floats  # [n, d]: the spread of what neither explain, in each step of the shortest season
    slope: Floats  # [n]: of the level, per step
    strength: Floats  # [n]: 0, no season, to 1, nothing else


class _Season(NamedTuple):
    """What was learned of one series of about unit size."""

    profile: Floats  # [p]
    wider: (
        Floats  # [d]: how many times the usual spread is usual in each step of the shortest season, 1 or more
    )
    slope: float
    strength: float


@detector("seasonal")
@dataclass(frozen=True, slots=True, kw_only=True)
class Seasonal:
    """Bad when a series is not where it usually is at this time of day, or of the week.

    Once in `refit`, trend and season are separated over `history` (STL with one season, MSTL with more), robustly:
    a few bad days do not count. Of `seasons` those are taken that explain something on days that were
    not fitted. What is expected is the season's value now plus the level, the median of the last `lookback`
    without the season and moved on with the trend. Bad when the newest step is `sensitivity` spreads or more from
    it, and `min_dev` and `min_rel_dev` of what is expected. The spread is that of such differences on days that
    were not fitted, at least 2 % of the level, and wider at times of day when it usually is.

    Nothing is said before the first fit, with less than 70 % of the history, without a quarter of the
    lookback, or without a sample now. More than `max_series` are refused. Steps in an episode do not count for the
    level for 16 hours.
    """

    direction: Direction = Direction.BOTH
    sensitivity: float = 4.0
    min_dev: float = 0.0
    min_rel_dev: float = 0.0
    seasons: tuple[Duration, ...] = (Duration(days=1), Duration(days=7))
    timezone: str = "UTC"
    history: Duration = Duration(days=14)
    refit: Duration = Duration(days=1)
    lookback: Duration = Duration(days=1)
    step: Duration = Duration(minutes=15)
    max_series: int = 200
    persist: Persist = Persist(m=2, n=3)
    clear: float = 0.5

    over: ClassVar[str | None] = "avg"
    inputs: ClassVar[Mapping[str, str]] = {}
    details: ClassVar[Mapping[str, str]] = {
        "expected": "what is usual at this time, in the signal's unit",
        "low": "the lowest that would not be bad, in the signal's unit",
        "high": "the highest that would not be bad, in the signal's unit",
        "score": "how far it is from what is expected, in spreads",
        "strength": "how much of the variation the season explains, 0 to 1",
    }

    def __post_init__(self) -> None:
        if self.sensitivity <= 0:
            raise ValueError(f"sensitivity must be more than 0, not {self.sensitivity:g}")
        for name, least in {"min_dev": self.min_dev, "min_rel_dev": self.min_rel_dev}.items():
            if not 0 <= least < math.inf:
                raise ValueError(f"{name} must be 0 or more, not {least:g}")
        if not 0 <= self.clear <= 1:
            raise ValueError(f"clear must be a share of the sensitivity, 0 to 1, not {self.clear:g}")
        if self.max_series < 1:
            raise ValueError(f"max_series must be 1 or more, not {self.max_series}")
        try:
            ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(
                f"timezone {self.timezone!r} is not known; write it like Europe/Berlin"
            ) from None
        self._check_lengths()

    def _check_lengths(self) -> None:
        for name, length in {"step": self.step, "refit": self.refit}.items():
            if length <= Duration():
                raise ValueError(f"{name} must be longer than {length}")
        if self.lookback < 8 * self.step:
            raise ValueError(f"lookback {self.lookback} is shorter than eight steps of {self.step}")
        if not self.seasons:
            raise ValueError("seasons is empty; leave it out for a day and a week")
        for shorter, longer in pairwise((self.step, *self.seasons)):
            if longer % shorter or longer < 2 * shorter:
                raise ValueError(f"seasons must rise, each a multiple of the one before: {longer} is none")
        if self.seasons[0] < 8 * self.step:
            raise ValueError(f"a season of {self.seasons[0]} has fewer than eight steps of {self.step}")
        if self.history < 3 * self.seasons[0] + self.lookback:
            raise ValueError(
                f"history {self.history} is too short for a season of {self.seasons[0]}; "
                f"{Duration.of(3 * self.seasons[0] + self.lookback)} or more are needed"
            )

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        window, now = self._checked(signal, at), at.timestamp()
        labels, every = window.labels, self.step.total_seconds()
        fit = self._recall(memory, window)
        votes = Votes.recall(memory, labels, self.persist)
        newest, expected, scale = self._expect(window, fit, votes.since, now)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            score = np.where(scale > 0, (newest - expected) / scale, np.nan)
        width = np.maximum(
            self.sensitivity * scale, np.fmax(self.min_dev, self.min_rel_dev * np.abs(expected))
        )
        rate = self._rate(score, newest, expected, width)
        votes = votes.take(rate, now, persist=self.persist, every=every, clear=self.clear)
        known = ~np.isnan(rate)
        figures = {
            "expected": expected,
            "low": expected - width,
            "high": expected + width,
            "score": score,
            "strength": fit.strength,
        }
        details = {name: np.where(known & np.isfinite(each), each, np.nan) for name, each in figures.items()}
        columns = {_PROFILE: fit.profile, _SCALE: fit.scale, _SLOPE: fit.slope, _STRENGTH: fit.strength}
        return Verdicts(
            labels,
            votes.bad & known,
            known,
            newest,
            details,
            quality={"fitted": float(np.count_nonzero(~np.isnan(fit.slope))) / len(labels)} if labels else {},
            memory=Memory(labels, {**votes.columns(), **columns}, memory.shared, at=now),
        )

    def fit(self, signal: Window, at: datetime) -> Memory:
        """Learn the season of each series: 20 ms each with one season, a second with more."""
        window = self._checked(signal, at)
        steps, first = self._steps(window.times), 0
        if len(steps):
            first = int(steps[0])
        size = len(window)
        learned = _Fit(
            np.full((size, self._period), np.nan),
            np.full((size, self._day), np.nan),
            *np.full((2, size), np.nan),
        )
        for row in range(len(window)):
            usable = window.present[row] & (np.abs(window.values[row]) < _ENORMOUS)
            values = _on_grid(np.where(usable, window.values[row], np.nan), steps - first)
            if len(values) and np.count_nonzero(~np.isnan(values)) >= _THERE * (self.history // self.step):
                self._learn(values, first, learned, row)
        return Memory(
            window.labels,
            {
                _PROFILE: learned.profile,
                _SCALE: learned.scale,
                _SLOPE: learned.slope,
                _STRENGTH: learned.strength,
            },
            at=at.timestamp(),
        )

    @property
    def _period(self) -> int:
        """The longest season, in steps."""
        return int(self.seasons[-1] // self.step)

    @property
    def _day(self) -> int:
        """The shortest season, in steps."""
        return int(self.seasons[0] // self.step)

    def _checked(self, signal: Window, at: datetime) -> Window:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("seasonal: the times of the signal do not rise")
        if len(signal) > self.max_series:
            raise DetectError(
                f"seasonal: {len(signal)} series are more than max_series ({self.max_series}); let the "
                "expression sum them up by node or service, or take the detector anomaly"
            )
        return signal.until(at)

    def _recall(self, memory: Memory, window: Window) -> _Fit:
        return _Fit(
            memory.rows(window.labels, _PROFILE, self._period),
            memory.rows(window.labels, _SCALE, self._day),
            *(memory.rows(window.labels, name) for name in (_SLOPE, _STRENGTH)),
        )

    def _steps(self, times: Floats) -> NDArray[np.intp]:
        """Return how many steps of local time have passed at each of `times[m]`."""
        zone = ZoneInfo(self.timezone)
        shifts = [instant_of(each).astimezone(zone).utcoffset() for each in times.tolist()]
        local = times + np.array([shift.total_seconds() if shift else 0.0 for shift in shifts])
        passed: NDArray[np.intp] = np.floor(local / self.step.total_seconds() + 1e-6).astype(np.intp)
        return passed

    def _expect(self, window: Window, fit: _Fit, since: Floats, now: float) -> tuple[Floats, Floats, Floats]:
        """Return the newest step of each series [n], what is expected of it, and the spread; NaN if unknown."""
        step = self.step.total_seconds()
        recent = window.times > now - self.lookback.total_seconds() - 1.5 * step
        times = window.times[recent]
        if not len(times) or now - times[-1] > 1.5 * step:
            return np.full(len(window), np.nan), np.full(len(window), np.nan), np.full(len(window), np.nan)
        samples = window.values[:, recent]
        values = np.where(window.present[:, recent] & (np.abs(samples) < _ENORMOUS), samples, np.nan)
        steps = self._steps(times)
        season = fit.profile[:, steps % self._period]
        going = now - since < _FORGIVEN
        usual = times < np.where(going, since - step, np.inf)[:, None]
        level = self._level(values[:, :-1], season[:, :-1], fit.slope, usual[:, :-1])
        return values[:, -1], season[:, -1] + level, fit.scale[:, steps[-1] % self._day]

    def _level(self, values: Floats, season: Floats, slope: Floats, usual: Bools) -> Floats:
        """Return what each series [n] would be one step later without its season."""
        ahead = np.arange(values.shape[1], 0, -1.0)
        flat = np.where(usual, values - season + slope[:, None] * ahead, np.nan)
        enough = np.count_nonzero(~np.isnan(flat), axis=1) >= self.lookback / self.step / 4
        return np.where(enough, median(flat), np.nan)

    def _rate(self, score: Floats, newest: Floats, expected: Floats, width: Floats) -> Floats:
        """Return how bad each series is [n], where 1 is bad."""
        rate = {Direction.UP: score, Direction.DOWN: -score, Direction.BOTH: np.abs(score)}[
            self.direction
        ] / self.sensitivity
        with np.errstate(invalid="ignore"):
            small = np.abs(newest - expected) < width
        return np.where(small & (rate >= 1), np.nextafter(1.0, 0.0), rate)

    def _learn(self, values: Floats, first: int, learned: _Fit, row: int) -> None:
        """Fit one series, `values[m]` of which the first is that of step `first`, and note it in its row."""
        centre, size = median(values), float(spread(values, relative=0.0, least=_FLOOR * abs(median(values))))
        if not size > 0:
            return
        scaled = (values - centre) / size
        floor = _FLOOR * abs(float(centre)) / size
        held = max(self.seasons[0], self.history / 5) // self.step
        least, periods, rest = math.inf, tuple[int, ...](), np.empty(0)
        for choice in self._choices(len(values) - held):
            wrong = self._held_out(scaled, first, held, choice)
            error = float(np.mean(np.abs(wrong))) if len(wrong) >= held / 2 else math.inf
            if error < (_BETTER if choice else 1.0) * least:
                least, periods, rest = error, choice, wrong
        width = float(spread(rest, relative=0.0, least=floor))
        if not width > 0:
            return
        season = self._fitted(scaled, first, periods)
        learned.profile[row] = season.profile * size
        learned.slope[row], learned.strength[row] = season.slope * size, season.strength
        learned.scale[row] = season.wider * width * size

    def _choices(self, size: int) -> list[tuple[int, ...]]:
        """Return the seasons to choose from, in steps: none, then more and more of them."""
        periods = [season // self.step for season in self.seasons]
        fitting = [period for period in periods if 2 * period <= size]
        return [tuple(fitting[:count]) for count in range(len(fitting) + 1)]

    def _fitted(self, values: Floats, first: int, periods: tuple[int, ...]) -> _Season:
        """Return the seasons of `values[m]`, of which the first is that of step `first`."""
        day = self._day
        if not periods:
            return _Season(np.zeros(self._period), np.ones(day), 0.0, 0.0)
        longest = periods[-1]
        parts = decompose(_filled(values, longest), periods)
        # The newest cycle: a season that changes is expected to be as it was last.
        profile = np.resize(_turned(parts.seasonal[-longest:], first + len(values) - longest), self._period)
        slope = median(parts.trend[day:] - parts.trend[:-day]) / day
        rest = np.where(np.isnan(values), np.nan, np.abs(parts.rest))
        whole = quantile(np.abs(parts.seasonal + parts.rest), _STRONG)
        strength = 1 - (quantile(rest, _STRONG) / whole) ** 2 if whole > 0 else 0.0
        return _Season(profile, _wider(rest, first, day), float(slope), float(max(strength, 0.0)))

    def _held_out(self, values: Floats, first: int, held: int, periods: tuple[int, ...]) -> Floats:
        """Return how far the newest `held` steps are from what is expected without them, where that is known."""
        size = self.lookback // self.step
        start = len(values) - held - size
        if start < 0:
            return np.empty(0)
        learned = self._fitted(values[:-held], first, periods)
        season = learned.profile[(first + start + np.arange(held + size)) % self._period]
        rows = np.lib.stride_tricks.sliding_window_view(values[start:], size + 1)
        seasons = np.lib.stride_tricks.sliding_window_view(season, size + 1)
        usual = np.ones((len(rows), size), dtype=np.bool_)
        level = self._level(rows[:, :-1], seasons[:, :-1], np.full(len(rows), learned.slope), usual)
        rest = rows[:, -1] - seasons[:, -1] - level
        known: Floats = rest[~np.isnan(rest)]
        return known


def _on_grid(values: Floats, places: NDArray[np.intp]) -> Floats:
    """Return values at successive steps: the mean of those at one place, NaN where there are none.

    Where clocks are put forward a step is missing, where they are put back there are two of one local time.
    """
    if not len(places):
        return np.empty(0)
    there = ~np.isnan(values)
    size = int(places.max()) + 1
    count = np.bincount(places[there], minlength=size)
    total = np.bincount(places[there], weights=values[there], minlength=size)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _turned(cycle: Floats, first: int) -> Floats:
    """Return a cycle of which the first value is that of step `first`, from step 0 on."""
    return np.roll(cycle, first % len(cycle))


def _wider(rest: Floats, first: int, period: int) -> Floats:
    """Return by how much more than usual |rest[m]| is at each step of the period [d], at least 1.

    So a job that begins now a little earlier and now later is no news, while in quiet hours little is.
    """
    padded = np.full(-(-len(rest) // period) * period, np.nan)
    padded[: len(rest)] = rest
    cycles = padded.reshape(-1, period)
    known = np.where(np.isnan(cycles), -1.0, cycles)
    one_bad_day = known == known.max(axis=0)
    width = quantile(np.where(one_bad_day, np.nan, cycles).T, _STRONG)
    width = np.fmax.reduce([np.roll(width, shift) for shift in range(-_BESIDE, _BESIDE + 1)])
    usual = float(median(width))
    if not usual > 0:
        return np.ones(period)
    return _turned(np.fmax(width / usual, 1.0), first)


def _filled(values: Floats, period: int) -> Floats:
    """Return values without gaps: what is missing is as usual at its place in the period, beside its neighbours."""
    missing = np.isnan(values)
    if not missing.any():
        return values
    padded = np.full(-(-len(values) // period) * period, np.nan)
    padded[: len(values)] = values
    usual = median(padded.reshape(-1, period).T)
    usual = np.where(np.isnan(usual), median(values), usual)
    expected = np.resize(usual, len(values))
    places = np.arange(len(values))
    rest = np.interp(places, places[~missing], (values - expected)[~missing])
    return np.where(missing, expected + rest, values)

"""One that is not like its own past: beyond what it did at this time of day, beyond what it did lately, or a jump.

How much beyond is measured by the series' own tail of such excesses, so that what is wild by nature must be wilder
still. A series that has been so before, and recovered by itself, must be worse than then to be told with the same
urgency.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np

from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.series import Bools, Floats, Window
from engine.model.verdict import NOTHING, Memory, Persist, Verdicts
from engine.numeric.episodes import Episodes
from engine.numeric.innovation import innovations
from engine.numeric.robust import is_tied, median, quantile
from engine.numeric.season import (
    Range,
    lagged_range,
    median_of_lags,
    trailing_mean,
    trailing_range,
    without_single,
)
from engine.numeric.tail import Tail, tail
from engine.numeric.votes import Votes
from engine.registry import detector

_DAY, _WEEK = 86_400.0, 7 * 86_400.0
_DAYS_BACK = (1, 2, 3, 7)  # at which a series with a daily season is looked up
_NEAR = 900.0  # seconds around them, at most _NEAR_STEPS steps
_NEAR_STEPS = 3
_WHILE = 3 * 3600.0  # seconds over which a level is taken that only a season can tell from the usual
_EXPLAINED = 0.9  # of the square of the spread, from which on a season tells one
_USUALLY = 0.9  # of the samples are within what is called the spread here
_MUCH_LESS = 0.7  # of what another season leaves
_KNOWN = 0.45  # of the samples
_LATELY = 3 * 86_400.0  # seconds whose range a series is held against
_TAIL = 0.005  # of the excesses make the tail
_LARGE = 0.1  # of the jumps are large
_FLOOR = 0.01  # of the level: no tail is taken to be thinner
_GAP = 5  # steps that are judged before they are learned from
_LEVELS = 64  # samples that tell a level well enough for a floor
_FORGIVEN = 16 * 3600.0  # seconds after which an episode's samples are the new usual
_LEAST_SAMPLES = 60
_FRESH = 2.5  # steps: a series without a sample in so long is gone
_ENORMOUS = 1e150  # beyond it differences overflow
_MOST = 14.0  # times the large ones: all jumps beyond are one
_REFIT = 8  # steps, in a replay
_GREATEST = 1e6  # surprise


class Direction(StrEnum):
    """On which side of its past a series is bad."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


class Season(StrEnum):
    """Which earlier times a sample is held against, where no periods are named."""

    AUTO = "auto"  # of a day or a week, the one that explains more, once there is one of history
    NONE = "none"


class _Seasonal(NamedTuple):
    """What is to be seen of samples, each against those at such times before it; all fields are [n, m]."""

    range: Range
    beyond: Floats  # how far outside
    aside: Floats  # mean distance over a while from the middle of them, to the side that is bad
    rest: Floats  # distance of each sample from it, either way

    def part(self, columns: slice) -> _Seasonal:
        """Return some columns."""
        band = Range(*(edge[:, columns] for edge in self.range))
        return _Seasonal(band, *(each[:, columns] for each in self[1:]))


class _Seen(NamedTuple):
    """What is to be seen of samples, each against those before it; all fields are [n, m]."""

    values: Floats
    lately: Range
    beyond_lately: Floats  # how far outside
    jumps: Floats  # to the side that is bad, 0 to the other
    sizes: Floats  # of all jumps
    seasons: tuple[_Seasonal, ...]  # of each period that may be its season

    def part(self, columns: slice) -> _Seen:
        """Return some columns."""
        return _Seen(
            self.values[:, columns],
            Range(*(edge[:, columns] for edge in self.lately)),
            self.beyond_lately[:, columns],
            self.jumps[:, columns],
            self.sizes[:, columns],
            tuple(each.part(columns) for each in self.seasons),
        )


class _Fits(NamedTuple):
    """What is usual for each of n series."""

    lately: Tail
    season: Tail
    level: Tail  # infinite where the season explains too little of the series
    large: Floats  # jump [n]; infinite where jumps tell nothing
    suits: Floats  # [n], which of the seasons; NaN for none

    def surprise(self, seen: _Seen) -> Floats:
        """Return how surprising the last of what is seen is [n]."""
        jump = np.nan_to_num(_last(seen.jumps) / self.large)
        total = (
            np.minimum(jump, _MOST)
            + self.lately.surprise(_last(seen.beyond_lately))
            + self.season.surprise(self.of(seen, lambda each: _last(each.beyond)))
            + self.level.surprise(self.of(seen, lambda each: _last(each.aside)))
        )
        return np.clip(np.nan_to_num(total), 0.0, _GREATEST)

    def of(self, seen: _Seen, figure: Callable[[_Seasonal], Floats]) -> Floats:
        """Return a figure [n, ...] of the season that suits each series, NaN without one."""
        return _chosen(self.suits, [figure(each) for each in seen.seasons])


@detector("anomaly")
@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """Bad when a series does what it has not done before.

    Four things count: how far the newest sample is outside the range of the samples at the same time one, two,
    three and seven days ago (give or take 15 minutes; or one and two weeks, where that explains the series much
    better, or the periods that `season` names); where a season explains the series nearly all, how far the last
    three hours were from the middle of what they were at such times; how far the sample is outside the range of
    the last three days; and how much it jumped, over the large jumps. All but the jump are held against the tail
    of all such excesses in the lookback, as -ln P. The sum S is divided by 1 + N / 2, where N earlier episodes of this
    series were as large, and the score is sqrt(2 S): about the number of standard deviations that would be as
    surprising in normal noise. Bad when it is at least `sensitivity` at `persist.m` of the last `persist.n`
    steps, and the sample at least `min_dev`, and `min_rel_dev` of what was expected, away from it.

    Nothing is said with fewer than `min_samples` samples, or none lately. Without a day of history only the
    last days and the jump count, and of a series that is the same most of the time the jump does not. Samples
    of an episode do not count as usual for 16 hours.
    """

    direction: Direction = Direction.UP
    sensitivity: float = 4.0
    min_dev: float = 0.0
    min_rel_dev: float = 0.0
    season: Season | tuple[Duration, ...] = Season.AUTO
    lookback: Duration = Duration(days=14)
    step: Duration = Duration(minutes=5)
    min_samples: int | None = None  # None: 60
    persist: Persist = Persist()
    clear: float = 0.5

    over: ClassVar[str | None] = "median"
    details: ClassVar[Mapping[str, str]] = {
        "expected": "the middle of what it was at such times before, in the signal's unit",
        "low": "the lowest that would not be bad, in the signal's unit",
        "high": "the highest that would not be bad, in the signal's unit",
        "score": "how surprising the newest sample is, in standard deviations of normal noise",
    }

    def __post_init__(self) -> None:
        if not self.sensitivity > 0:
            raise ValueError(f"sensitivity must be more than 0, not {self.sensitivity:g}")
        if not 0 <= self.clear <= 1:
            raise ValueError(f"clear must be a share of the sensitivity, 0 to 1, not {self.clear:g}")
        for name, least in (("min_dev", self.min_dev), ("min_rel_dev", self.min_rel_dev)):
            if not least >= 0:
                raise ValueError(f"{name} must be 0 or more, not {least:g}")
        if self.step <= Duration():
            raise ValueError(f"step must be longer than {self.step}")
        self._check_season()
        held = self.lookback // self.step + 1
        if held < _LEAST_SAMPLES:
            raise ValueError(
                f"lookback {self.lookback} at step {self.step} holds {held} samples; {_LEAST_SAMPLES} are needed"
            )
        if self.min_samples is not None and not 2 * _GAP <= self.min_samples <= held:
            raise ValueError(f"min_samples must be between {2 * _GAP} and {held}, not {self.min_samples}")

    def _check_season(self) -> None:
        if isinstance(self.season, Season):
            return
        if not self.season:
            raise ValueError("season names no period; write auto, none, or periods such as [1d]")
        for each in self.season:
            if not 8 * self.step <= each <= self.lookback / 2:
                raise ValueError(
                    f"a season of {each} must be at least 8 steps of {self.step}, and fit twice into "
                    f"lookback {self.lookback}"
                )

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("anomaly: the times of the signal do not rise")
        labels, now = signal.labels, at.timestamp()
        votes = Votes.recall(memory, labels, self.persist)
        episodes = Episodes.recall(memory, labels)
        times, values = self._samples(signal.until(at), at)
        newest = values[:, -1].copy() if values.shape[1] else np.full(len(labels), np.nan)
        with np.errstate(all="ignore"):  # what overflows is beyond everything
            usual = self._usual(times, votes, now)
            seen = self._seen(values, values if usual is None else np.where(usual, values, np.nan))
            fits = self._fits(seen, _floor(values), usual)
            seen = seen.part(slice(-1, None))
            surprise = fits.surprise(seen)
            damping = episodes.damping(surprise, now)
            score = np.sqrt(2 * surprise / damping)
            figures = self._figures(seen, fits, score, damping)
            least = np.maximum(self.min_dev, self.min_rel_dev * np.abs(figures["expected"]))
            matters = ~(np.abs(newest - figures["expected"]) < least)
        enough = np.count_nonzero(~np.isnan(values), axis=1) >= (self.min_samples or _LEAST_SAMPLES)
        known = enough & ~np.isnan(newest)
        rate = np.where(known, np.where(matters, score, 0.0) / self.sensitivity, np.nan)
        votes = votes.take(rate, now, persist=self.persist, every=self._every(), clear=self.clear)
        episodes = episodes.note(np.where(known & matters, surprise, 0.0), now)
        return Verdicts(
            labels,
            votes.bad & known,
            known,
            newest,
            {name: np.where(known & np.isfinite(column), column, np.nan) for name, column in figures.items()},
            memory=Memory(labels, {**votes.columns(), **episodes.columns()}, at=now),
        )

    def _every(self) -> float:
        return self.step.total_seconds()

    def _samples(self, window: Window, at: datetime) -> tuple[Floats, Floats]:
        """Return the times [m] of the lookback and the samples at them [n, m], none if the newest is old."""
        step, now = self.step.total_seconds(), at.timestamp()
        recent = window.times >= now - self.lookback.total_seconds() - 0.5 * step
        if not window.times.size or window.times[-1] < now - _FRESH * step:
            recent[:] = False
        values = window.values[:, recent]
        usable = window.present[:, recent] & (np.abs(values) < _ENORMOUS)
        return window.times[recent], np.where(usable, values, np.nan)

    def _usual(self, times: Floats, votes: Votes, now: float) -> Bools | None:
        """Tell which samples [n, m] may say what is usual: not those of an episode, unless it has lasted long."""
        going = now - votes.since < _FORGIVEN
        if not going.any():
            return None
        until = np.where(going, votes.since - self.persist.n * self.step.total_seconds(), np.inf)
        before: Bools = times < until[:, None]
        return before

    def surprises(self, values: Floats) -> Floats:
        """Return how surprising each of `values[n, m]`, a step apart, was when it came [n, m], undamped.

        What successive judgements would have thought, without their memory of episodes; tails are fitted anew
        every eighth step only, which makes years of history affordable.
        """
        found = np.zeros(values.shape)
        held = self.lookback // self.step + 1
        with np.errstate(all="ignore"):
            seen = self._seen(values, values)
            for first in range(self.min_samples or _LEAST_SAMPLES, values.shape[1], _REFIT):
                window = slice(max(0, first - held), first + 1)
                fits = self._fits(seen.part(window), _floor(values[:, window]))
                for column in range(first, min(first + _REFIT, values.shape[1])):
                    found[:, column] = fits.surprise(seen.part(slice(column, column + 1)))
        return found

    def _seen(self, values: Floats, learned: Floats) -> _Seen:
        """Return what is to be seen of all samples: `values` [n, m], of which `learned`, not NaN, are usual."""
        step = self.step.total_seconds()
        up, down = self.direction is not Direction.DOWN, self.direction is not Direction.UP
        lately = trailing_range(learned, round(_LATELY / step), _GAP)
        jumps = innovations(values)

        def sides(distance: Floats) -> Floats:
            return np.maximum(np.abs(distance) if up and down else distance if up else -distance, 0.0)

        seasons = []
        for lags in self._candidates():
            if not any(lag < values.shape[1] for lag in lags):
                continue
            near = min(max(1, round(_NEAR / step)), _NEAR_STEPS, max(lags[0] // 8, 1))
            band = lagged_range(learned, lags, near)
            rest = values - median_of_lags(learned, lags)
            aside = trailing_mean(without_single(rest), max(1, round(_WHILE / step)))
            beyond = band.exceedance(values, up=up, down=down)
            seasons.append(_Seasonal(band, beyond, sides(aside), np.abs(rest)))
        return _Seen(
            values,
            lately,
            lately.exceedance(values, up=up, down=down),
            sides(jumps),
            np.abs(jumps),
            tuple(seasons),
        )

    def _candidates(self) -> list[tuple[int, ...]]:
        """Return the lags of each season that may be, in steps."""
        step = self.step.total_seconds()
        if self.season is Season.NONE:
            return []
        if self.season is Season.AUTO:
            seasons = [tuple(_DAY * back for back in _DAYS_BACK), tuple(_WEEK * back for back in (1, 2))]
        else:
            seasons = [tuple(each.total_seconds() * back for back in (1, 2, 3)) for each in self.season]
        return [tuple(round(lag / step) for lag in lags) for lags in seasons]

    def _fits(self, seen: _Seen, floor: Floats, usual: Bools | None = None) -> _Fits:
        """Return what is usual of what was seen until shortly before the last column."""
        end = max(0, seen.jumps.shape[1] - _GAP)

        def known(part: Floats) -> Floats:
            return part[:, :end] if usual is None else np.where(usual[:, :end], part[:, :end], np.nan)

        count = len(seen.values)
        suits, spread = _suitable([known(each.rest) for each in seen.seasons], count)
        if seen.seasons:
            around = known(np.abs(seen.values - median(known(seen.values))[:, None]))
            told = spread**2 < (1 - _EXPLAINED) * quantile(around, _USUALLY) ** 2
            seasonal = tail(_chosen(suits, [known(each.beyond) for each in seen.seasons]), _TAIL, floor)
            level = tail(_chosen(suits, [known(each.aside) for each in seen.seasons]), _TAIL, floor)
            level = level._replace(threshold=np.where(told, level.threshold, np.inf))
        else:
            seasonal = level = tail(np.zeros((count, 0)), _TAIL, floor)
        sizes = known(seen.sizes)
        large = tail(sizes, _LARGE, floor).threshold
        return _Fits(
            tail(known(seen.beyond_lately), _TAIL, floor),
            seasonal,
            level,
            np.where(is_tied(sizes), np.inf, np.maximum(large, floor)),
            suits,
        )

    def _figures(self, seen: _Seen, fits: _Fits, score: Floats, damping: Floats) -> dict[str, Floats]:
        """Return what `details` names [n], not finite where a series has no such figure."""
        season_low = fits.of(seen, lambda each: _last(each.range.low))
        season_high = fits.of(seen, lambda each: _last(each.range.high))
        seasonal = ~np.isnan(season_high)
        low = np.where(seasonal, season_low, _last(seen.lately.low))
        high = np.where(seasonal, season_high, _last(seen.lately.high))
        needed = 0.5 * self.sensitivity**2 * damping
        far = np.where(seasonal, fits.season.at(needed), fits.lately.at(needed))
        return {
            "expected": low + 0.5 * (high - low),
            "low": np.where(self.direction is Direction.UP, np.nan, low - far),
            "high": np.where(self.direction is Direction.DOWN, np.nan, high + far),
            "score": score,
        }


def _last(values: Floats) -> Floats:
    """Return the last column [n], NaN without any."""
    return values[:, -1] if values.shape[1] else np.full(len(values), np.nan)


def _suitable(rests: list[Floats], count: int) -> tuple[Floats, Floats]:
    """Return which season leaves the least of each of n series [n], NaN for none, and how much [n].

    A later one must leave much less than an earlier one, and be known for nearly half of the samples: two of its
    periods. With less it is chance.
    """
    which, least = np.full(count, np.nan), np.full(count, np.inf)
    for index, rest in enumerate(rests):
        spread = quantile(rest, _USUALLY)
        long = np.count_nonzero(~np.isnan(rest), axis=1) >= _KNOWN * rest.shape[1] if index else True
        better = long & (spread < (_MUCH_LESS if index else 1.0) * least)
        which, least = np.where(better, float(index), which), np.where(better, spread, least)
    return which, least


def _chosen(which: Floats, figures: list[Floats]) -> Floats:
    """Return for each of n series that of `figures` [n, ...] which is its own, NaN where none is."""
    if not figures:
        return np.full(len(which), np.nan)
    found = np.full(figures[0].shape, np.nan)
    for index, figure in enumerate(figures):
        own = which == index
        found[own] = figure[own]
    return found


def _floor(values: Floats) -> Floats:
    """Return the excess [n] that is next to nothing for a series of that level."""
    sparse = values[:, :: max(1, values.shape[1] // _LEVELS)]
    return _FLOOR * np.nan_to_num(median(np.abs(sparse)))

"""One that is not like its peers: nodes that do the same work should take the same time for it.

What all have in common, the daily course and the incidents of a whole cluster, is taken away before anything is
judged. That is what detectors that know one series alone cannot do, and why they must be so dull.
"""

from __future__ import annotations

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
from engine.numeric.peers import median_polish, rolling_mean
from engine.numeric.regression import lag_one_autocorrelation
from engine.numeric.robust import is_tied, median, spread
from engine.numeric.votes import Votes
from engine.registry import detector

_SLOW = 6  # steps whose mean is looked at as well, for deviations that are small and last
_STILL = (
    0.5  # of that mean the newest must be: what is over does not count on because it was there a while ago
)
_FLOOR = 0.02  # of the level: nobody minds less
_FORGIVEN = 16 * 3600.0  # seconds after which what is unlike its peers is thought to be so
_APART = 0.99  # of a step: two medians of a step that are closer share samples
_BESIDE = 1.2  # steps: so close to the one before, its median says what to expect
_A_STEP = 10  # newest samples noted a step, at most
_KEPT = 12  # of them: a little more than a step
_ENORMOUS = 1e150  # beyond it differences overflow


class Direction(StrEnum):
    """On which side of its peers a member is bad."""

    UP = "up"
    DOWN = "down"
    BOTH = "both"


class Scale(StrEnum):
    """How members are compared: by ratios, or by differences."""

    AUTO = "auto"  # by ratios where all values of a group are above 0
    LOG = "log"
    LINEAR = "linear"


class _Judged(NamedTuple):
    """What is thought of each member; fields are [n], in the signal's unit where they have one."""

    score: Floats  # spreads from what is expected, signed; NaN if nothing can be said
    expected: Floats
    low: Floats
    high: Floats


class _Common(NamedTuple):
    """What is thought of each group; fields are [g]."""

    share: Floats  # that deviates
    level: Floats  # of its usual member
    members: Floats  # that are there


class _Samples(NamedTuple):
    """What there is to look at: `times[m]`, `values[n, m]`; NaN where there is no sample that is of use."""

    times: Floats
    values: Floats

    @property
    def newest(self) -> Floats:
        """The newest samples [n]."""
        return self.values[:, -1].copy()

    def beside(self, step: float) -> bool:
        """Tell whether the column before the newest is of the step before."""
        return len(self.times) > 1 and bool(self.times[-1] - self.times[-2] <= _BESIDE * step)


class _Recent(NamedTuple):
    """The newest samples at the last evaluations: `times[k]`, `values[n, k]`, oldest first."""

    times: Floats
    values: Floats

    @classmethod
    def recall(cls, memory: Memory, labels: tuple[Labels, ...]) -> _Recent:
        """Return what was noted of `labels`."""
        times = memory.shared.get("recent_at")
        if times is None or times.shape != (_KEPT,):
            times = np.full(_KEPT, np.nan)
        return cls(times, memory.rows(labels, "recent", _KEPT))

    def add(self, newest: Floats, at: float, pause: float) -> _Recent:
        """Return them with the newest, unless those before are newer than `pause` seconds."""
        times = np.where(self.times > at, np.nan, self.times)  # somebody set the clock back
        if at - np.max(times, where=~np.isnan(times), initial=-np.inf) < pause:
            return _Recent(times, self.values)
        return _Recent(np.append(times[1:], at), np.column_stack([self.values[:, 1:], newest]))


@detector("outlier")
@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """Bad when a series is not like its peers: the series with the same values of the labels `by`.

    Of each value, or of its logarithm, what the group has in common at that time and what is usual for the
    member itself are taken away (median polish over the lookback). What is left in the newest step, its mean
    over the last six, and what of it the step before did not let expect, are each held against their own spread
    over the lookback, which is never taken to be less than that of the group's usual member. Bad when one is
    `sensitivity` spreads or more, and `min_dev` or more, on the side of `direction`. If more than `common` of
    the group deviates, to either side, that is one alert, with the labels `by` alone, and nothing is said of the
    members.

    Nothing is said in groups of fewer than `min_members`, and of members that have fewer than `min_samples`
    steps of history, no sample now, or the same value most of the time. Steps in an episode count for 16 hours
    as unusual, so that what is bad does not become what is expected.
    """

    by: tuple[str, ...]
    direction: Direction = Direction.UP
    sensitivity: float = 4.5
    common: float = 0.2
    scale: Scale = Scale.AUTO
    min_members: int = 8
    min_dev: float = 0.0
    lookback: Duration = Duration(hours=24)
    step: Duration = Duration(minutes=5)
    min_samples: int | None = None  # None: a quarter of the lookback's
    persist: Persist = Persist(m=1, n=3)
    clear: float = 0.5

    over: ClassVar[str | None] = "median"
    details: ClassVar[Mapping[str, str]] = {
        "expected": "what the peers and the member's own past say that it should be, in the signal's unit",
        "low": "the lowest that would not be bad, in the signal's unit",
        "high": "the highest that would not be bad, in the signal's unit",
        "score": "how far it is from what is expected, in spreads",
        "share": "of the group that deviates, 0 to 1",
        "members": "how many the group has",
    }

    def __post_init__(self) -> None:
        if self.sensitivity <= 0:
            raise ValueError(f"sensitivity must be more than 0, not {self.sensitivity:g}")
        if not 0 < self.common <= 1:
            raise ValueError(f"common must be a share between 0 and 1, not {self.common:g}")
        if not 0 <= self.clear <= 1:
            raise ValueError(f"clear must be a share of the sensitivity, 0 to 1, not {self.clear:g}")
        if self.min_members < 3:
            raise ValueError(f"min_members must be 3 or more, not {self.min_members}: two are no group")
        if self.min_dev < 0:
            raise ValueError(f"min_dev must be 0 or more, not {self.min_dev:g}")
        self._check_history()

    def _check_history(self) -> None:
        if self.step <= Duration():
            raise ValueError(f"step must be longer than {self.step}")
        held = self.lookback // self.step + 1
        if held < 4 * _SLOW:
            raise ValueError(
                f"lookback {self.lookback} at step {self.step} holds {held} samples; {4 * _SLOW} are needed"
            )
        if self.min_samples is not None and not 2 * _SLOW <= self.min_samples <= held:
            raise ValueError(f"min_samples must be between {2 * _SLOW} and {held}, not {self.min_samples}")

    @property
    def inputs(self) -> Mapping[str, str]:
        return {}

    def inputs_of(self, expr: str) -> Mapping[str, str]:
        """Return what asks for the step that ends now: those of the history end when its grid says so."""
        from engine.lang.promql.rewrite import over_step  # noqa: PLC0415 - loaded only when needed

        return {"now": over_step(expr, "median", self.step)}

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        if (np.diff(signal.times) <= 0).any():
            raise DetectError("outlier: the times of the signal do not rise")
        members, now = signal.labels, at.timestamp()
        groups = self._groups(members)
        labels = (*members, *groups)
        votes = Votes.recall(memory, labels, self.persist)
        recent = _Recent.recall(memory, members)
        samples = self._samples(signal.until(at), inputs.get("now"), at, recent)
        usual = self._usual(samples.times, votes.since[: len(members)], now)
        judged = _Judged(*np.full((4, len(members)), np.nan))
        common = _Common(*np.full((3, len(groups)), np.nan))
        known = np.zeros(len(members), dtype=np.bool_)
        beside = samples.beside(self.step.total_seconds())
        for index, rows in enumerate(groups.values()):
            found = self._judge_group(samples.values[rows], usual[rows], beside=beside)
            for column, figures in zip(judged, found, strict=True):
                column[rows] = figures
            common.share[index] = share = self._share(found.score)
            common.level[index] = median(found.expected[None])[0]
            common.members[index] = np.count_nonzero(~np.isnan(samples.newest[rows]))
            known[rows] = ~np.isnan(found.score) & ~(share > self.common)
        rates = np.where(known, self._rates(judged, samples.newest), np.nan)
        scores = np.concatenate([rates, common.share / self.common])
        votes = votes.take(scores, now, persist=self.persist, every=0.0, clear=self.clear)
        heard = ~np.isnan(scores)
        recent = recent.add(samples.newest, now, self.step.total_seconds() / _A_STEP)
        return Verdicts(
            labels,
            votes.bad & heard,
            heard,
            np.concatenate([samples.newest, common.level]),
            _details(judged, common, groups),
            memory=Memory(
                labels,
                {**votes.columns(), "recent": np.pad(recent.values, ((0, len(groups)), (0, 0)))},
                {"recent_at": recent.times},
                at=now,
            ),
        )

    def _samples(self, history: Window, newest: Window | None, at: datetime, recent: _Recent) -> _Samples:
        """Return the history, the step before the one that ends now if it is known, and that one.

        Without that, the last of the history is taken for it.
        """
        now, step = at.timestamp(), self.step.total_seconds()
        values = np.where(history.present & (np.abs(history.values) < _ENORMOUS), history.values, np.nan)
        if newest is None:
            if not len(history.times) or now - history.times[-1] > 1.5 * step:
                return _Samples(np.array([now]), np.full((len(history), 1), np.nan))
            return _Samples(history.times, values)
        times, columns = [now], [_aligned(newest.until(at), history.labels)]
        ages = now - recent.times
        if (beside := np.flatnonzero((ages >= _APART * step) & (ages <= _BESIDE * step))).size:
            times.insert(0, float(recent.times[beside[-1]]))
            columns.insert(0, recent.values[:, beside[-1]])
        earlier = history.times <= times[0] - _APART * step
        return _Samples(
            np.concatenate([history.times[earlier], times]),
            np.concatenate([values[:, earlier], np.column_stack(columns)], axis=1),
        )

    def _groups(self, labels: tuple[Labels, ...]) -> dict[Labels, NDArray[np.intp]]:
        """Return the rows of each group of peers that is large enough, by the labels of the group."""
        found: dict[Labels, list[int]] = {}
        for row, each in enumerate(labels):
            found.setdefault(each.only(*self.by), []).append(row)
        taken = set(labels)  # a series may have the labels of its group, and can have but one verdict
        return {
            group: np.array(rows, dtype=np.intp)
            for group, rows in found.items()
            if len(rows) >= self.min_members and group not in taken
        }

    def _usual(self, times: Floats, since: Floats, now: float) -> Bools:
        """Tell which samples [n, m] may say what is usual: not those of an episode, unless it has lasted long."""
        going = now - since < _FORGIVEN
        until = np.where(going, since - self.step.total_seconds(), np.inf)
        before: Bools = times < until[:, None]
        return before

    def _judge_group(self, samples: Floats, usual: Bools, *, beside: bool) -> _Judged:
        """Return what is thought of the members of one group: the last of `samples[n, m]` is the newest.

        `beside` tells that the one before it is of the step before.
        """
        there = ~np.isnan(samples)
        enough = np.count_nonzero(there, axis=1) >= (self.min_samples or (self.lookback // self.step) // 4)
        if np.count_nonzero(there[:, -1]) < self.min_members:
            return _Judged(*np.full((4, len(samples)), np.nan))
        by_ratio = self._is_by_ratio(samples)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(samples > 0, np.log(samples), np.nan) if by_ratio else samples
        parts = median_polish(values, usual)
        floor = _FLOOR if by_ratio else _FLOOR * median(np.abs(parts.common)[None])[0]
        courses = [parts.rest, rolling_mean(parts.rest, _SLOW)]
        floors = [floor, floor / 2]
        if beside:
            courses.append(_news(parts.rest, enough))
            floors.append(floor)
        spreads = [
            _spread(np.where(usual, course, np.nan), least, enough)
            for course, least in zip(courses, floors, strict=True)
        ]
        newest = parts.rest[:, -1]
        score = np.zeros(len(samples))
        for course, wide in zip(courses, spreads, strict=True):
            look = course[:, -1]
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                goes_on = newest * np.sign(look) >= _STILL * np.abs(look)
                found = np.where(goes_on, look / wide, 0.0)
                score = np.where(np.abs(found) > np.abs(score), found, score)
        known = enough & there[:, -1] & (spreads[0] > 0) & ~is_tied(parts.rest)
        expected = parts.common[-1] + parts.own
        width = self.sensitivity * spreads[0]
        figures = [expected, expected - width, expected + width]
        with np.errstate(over="ignore", invalid="ignore"):
            figures = [np.exp(figure) for figure in figures] if by_ratio else figures
        return _Judged(*(np.where(known, figure, np.nan) for figure in (score, *figures)))

    def _is_by_ratio(self, samples: Floats) -> bool:
        if self.scale is Scale.AUTO:
            return bool(np.min(samples, where=~np.isnan(samples), initial=np.inf) > 0)
        return self.scale is Scale.LOG

    def _share(self, score: Floats) -> float:
        """Return which share of a group deviates, to either side; NaN if too few can be judged."""
        judged = int(np.count_nonzero(~np.isnan(score)))
        if judged < self.min_members:
            return np.nan
        return float(np.count_nonzero(np.abs(score) >= self.sensitivity)) / judged

    def _rates(self, judged: _Judged, newest: Floats) -> Floats:
        """Return how bad each member is [n], where 1 is bad."""
        sides = {
            Direction.UP: judged.score,
            Direction.DOWN: -judged.score,
            Direction.BOTH: np.abs(judged.score),
        }
        rate = sides[self.direction] / self.sensitivity
        with np.errstate(invalid="ignore"):
            matters = ~(np.abs(newest - judged.expected) < self.min_dev)
        return np.where(matters, rate, np.minimum(rate, 0.0))


def _aligned(window: Window, labels: tuple[Labels, ...]) -> Floats:
    """Return the window's newest values for `labels` [n], NaN where it has none that is of use."""
    values = window.last()
    found = {each.without(METRIC_NAME): row for row, each in enumerate(window.labels)}
    rows = np.array([found.get(each.without(METRIC_NAME), -1) for each in labels], dtype=np.intp)
    newest = np.where(rows >= 0, np.append(values, np.nan)[rows], np.nan)
    return np.where(np.abs(newest) < _ENORMOUS, newest, np.nan)


def _news(rest: Floats, enough: Bools) -> Floats:
    """Return what of `rest[n, m]` the step before did not let expect; the first column has none.

    Noise that remembers is a first-order autoregression, with the coefficient of the group's usual member.
    """
    coefficient = np.nan_to_num(median(np.where(enough, lag_one_autocorrelation(rest), np.nan)[None])[0])
    news = np.full_like(rest, np.nan)
    news[:, 1:] = rest[:, 1:] - coefficient * rest[:, :-1]
    return news


def _spread(values: Floats, floor: float, enough: Bools) -> Floats:
    """Return each member's spread [n], at least that of the group's usual member."""
    own = spread(values, relative=0.0, least=floor)
    usual = median(np.where(enough, own, np.nan)[None])[0]
    wider: Floats = np.fmax(own, usual)
    return wider


def _details(
    judged: _Judged, common: _Common, groups: Mapping[Labels, NDArray[np.intp]]
) -> dict[str, Floats]:
    """Return the figures of the members, then those of the groups."""
    none = np.full(len(groups), np.nan)
    share, members = np.full_like(judged.score, np.nan), np.full_like(judged.score, np.nan)
    for index, rows in enumerate(groups.values()):
        share[rows], members[rows] = common.share[index], common.members[index]
    figures = {
        "expected": np.concatenate([judged.expected, common.level]),
        "low": np.concatenate([judged.low, none]),
        "high": np.concatenate([judged.high, none]),
        "score": np.concatenate([judged.score, none]),
        "share": np.concatenate([share, common.share]),
        "members": np.concatenate([members, common.members]),
    }
    return {name: np.where(np.isfinite(column), column, np.nan) for name, column in figures.items()}

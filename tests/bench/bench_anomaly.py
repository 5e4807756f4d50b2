"""What `anomaly` finds in data that others labelled, and in pure noise: `python -m tests.bench.bench_anomaly`.

The detector is as shipped; the direction is `both` and the step that of the data. Scores are those of
`Anomaly.surprises`, damped by earlier episodes as `judge` does it. Rivals are rules that people write.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.detect.anomaly import Anomaly, Direction, Season
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Floats, Window, instant_of
from engine.model.verdict import NOTHING
from engine.numeric.episodes import Episodes
from tests.bench import nab
from tests.bench.scenarios import stream

DAY = 86_400.0
_SPLITS = 20  # of NAB into halves
_NULL_SERIES = 200
_NULL_DAYS = 1


class Series(NamedTuple):
    """A labelled series: `values[m]`, `labels[m]`, `step` in seconds."""

    step: float
    values: Floats
    labels: NDArray[np.int8]


class Outcome(NamedTuple):
    """Counts of events and alarms."""

    precision: float
    recall: float
    f1: float
    false_per_day: float


def report() -> Iterator[str]:
    """Yield the lines of one table a set."""
    yield f"{'NAB':26s} {'std':>6s} {'lowFP':>6s} {'lowFN':>6s}   threshold from the other half (std)"
    files = nab.files()
    for name, rival in DETECTORS.items():
        began = time.perf_counter()
        scores = [news(rival(file.values, file.step), file.step) for file in files]
        took = time.perf_counter() - began
        found = nab.evaluate(scores)
        line = " ".join(f"{scored.score:6.1f}" for scored in found.values())
        yield f"{name:26s} {line}   {_other_half([scores]):6.1f}   {took:5.1f} s"
    configurations = [
        [news(_surprises(file.values, file.step, **each), file.step) for file in files]
        for each in CONFIGURATIONS
    ]
    yield f"  threshold and one of {len(CONFIGURATIONS)} configurations from the other half: {_other_half(configurations):.1f}"
    yield f"{'cloud, two-fold':26s} {'F1':>6s} {'prec.':>6s} {'recall':>6s} {'false alarms a series-day':>26s}"
    series = cloud()
    for name, rival in DETECTORS.items():
        scores = [damped(rival(each.values, each.step), each.step) for each in series]
        found = two_fold(series, scores)
        yield f"{name:26s} {found.f1:6.3f} {found.precision:6.2f} {found.recall:6.2f} {found.false_per_day:26.3f}"
    yield f"{'pure noise':26s} episodes per 10,000 series-days"
    for kind in NOISES:
        yield f"  {kind:24s} {null_episodes(kind):8.1f}"


CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {},
    {"season": Season.NONE},
    {"season": (Duration(days=1),)},
    {"lookback": Duration(days=7)},
    {"min_samples": 300},
)
"""What there is to choose from beside the defaults."""


def ours(values: Floats, step: float) -> Floats:
    """Return the surprises [m] of the detector as shipped."""
    return _surprises(values, step)


def _surprises(values: Floats, step: float, **fields: Any) -> Floats:
    detect = Anomaly(direction=Direction.BOTH, step=Duration(seconds=step), **fields)
    return detect.surprises(values[None])[0]


def damped(scores: Floats, step: float) -> Floats:
    """Return scores [m] divided as the detector does it for earlier episodes of the same size."""
    return _replayed(scores, step)[0]


def news(scores: Floats, step: float) -> Floats:
    """Return the damped scores [m] where they are new: the first of an episode, or more than it has been."""
    return _replayed(scores, step)[1]


def _replayed(scores: Floats, step: float) -> tuple[Floats, Floats]:
    """Return the damped scores, and those of them that are news; a score of 0 is no news to anybody."""
    lower, new = np.zeros(len(scores)), np.zeros(len(scores))
    episodes = Episodes.recall(NOTHING, (Labels(),))
    for row in np.flatnonzero(scores > 0):
        now, size = row * step, scores[row : row + 1]
        lower[row] = (size / episodes.damping(size, now))[0]
        if episodes.is_new(size, now)[0] > 0:
            new[row] = lower[row]
            episodes = episodes.note(size, now)
    return lower, new


def z_score(values: Floats, step: float) -> Floats:
    """Distance from the mean of the last 26 hours, in standard deviations: what recording rules do."""
    width = max(10, round(26 * 3600 / step))
    total = np.concatenate([[0.0], np.cumsum(values - values[0])])
    square = np.concatenate([[0.0], np.cumsum((values - values[0]) ** 2)])
    stop = np.arange(len(values))
    start = np.maximum(stop - width, 0)
    count = np.maximum(stop - start, 1)
    mean = (total[stop] - total[start]) / count
    sd = np.sqrt(np.maximum((square[stop] - square[start]) / count - mean**2, 0))
    z = np.abs(values - values[0] - mean) / np.maximum(sd, 1e-9)
    return np.where(stop < 10, 0.0, np.minimum(z, 1e6))


def mad_score(values: Floats, step: float) -> Floats:
    """Distance from the median of the last day, in MADs that are at least 1 % of the level."""
    width = max(20, round(DAY / step))
    found = np.zeros(len(values))
    for first in range(20, len(values), 8):
        past = values[max(0, first - width) : first]
        middle = np.median(past)
        scale = max(1.4826 * np.median(np.abs(past - middle)), 0.01 * abs(middle), 1e-9)
        found[first : first + 8] = np.abs(values[first : first + 8] - middle) / scale
    return np.minimum(found, 1e6)


def smoothing_score(values: Floats, step: float) -> Floats:
    """Error of Prometheus' `double_exponential_smoothing(0.3, 0.3)`, in running standard deviations."""
    del step
    level, trend, variance = values[0], 0.0, 1e-12
    found = np.zeros(len(values))
    for row in range(1, len(values)):
        error = values[row] - level - trend
        found[row] = abs(error) / np.sqrt(variance) if row > 20 else 0.0
        variance = 0.99 * variance + 0.01 * error * error + 1e-15
        before, level = level, level + trend + 0.3 * error
        trend = 0.3 * (level - before) + 0.7 * trend
    return np.minimum(found, 1e6)


DETECTORS: dict[str, Callable[[Floats, float], Floats]] = {
    "anomaly": ours,
    "z-score of 26 h": z_score,
    "MAD of a day": mad_score,
    "exponential smoothing": smoothing_score,
}


def _other_half(configurations: Sequence[Sequence[Floats]]) -> float:
    """Return NAB's standard score, on average, where threshold and configuration are from the other half of the files.

    `configurations` are the scores of each; with a single one only the threshold is chosen.
    """
    profile, files = nab.PROFILES["standard"], nab.files()
    results = []
    for split in range(_SPLITS):
        order = stream("nab", 201, "split", split).permutation(len(files))
        # Files of one folder in turn to one half and the other.
        ranked = sorted(order.tolist(), key=lambda index: files[index].name.split("/")[0])
        for chosen, scored in ((ranked[::2], ranked[1::2]), (ranked[1::2], ranked[::2])):
            found = [nab.score(scores, profile, only=chosen) for scores in configurations]
            best = max(range(len(found)), key=lambda index: found[index].score)
            at = found[best].threshold
            results.append(nab.score(configurations[best], profile, only=scored, at=at).score)
    return float(np.mean(results))


def cloud() -> list[Series]:
    """Return the cloud-monitoring set."""
    arrays = nab.load("cloud")
    stops = np.cumsum(arrays["rows"])[:-1]
    parts = zip(np.split(arrays["values"], stops), np.split(arrays["labels"], stops), strict=True)
    return [Series(float(step), *part) for step, part in zip(arrays["steps"], parts, strict=True)]


def runs(marked: NDArray[np.bool_], gap: int) -> list[tuple[int, int]]:
    """Return the first and last index of the runs of what is marked; gaps of `gap` and less do not part them."""
    places = np.flatnonzero(marked)
    if not places.size:
        return []
    cuts = np.flatnonzero(np.diff(places) > gap)
    bounds = [0, *(cuts + 1).tolist(), len(places)]
    return [(int(places[start]), int(places[stop - 1])) for start, stop in pairwise(bounds)]


def outcome(series: Sequence[Series], scores: Sequence[Floats], threshold: float) -> Outcome:
    """Count events that an alarm overlaps (or follows within half an hour), and alarms that overlap none.

    Alarms within an hour are one. The first tenth, or day if shorter, of a series is for learning.
    """
    found = missed = right = wrong = 0
    days = 0.0
    for each, score in zip(series, scores, strict=True):
        gap = max(1, round(3600 / each.step))
        late = max(1, round(1800 / each.step)) if each.step < 1800 else 1
        size = len(each.values)
        first = max(size // 10, min(round(DAY / each.step), size // 5))
        events = [event for event in runs(each.labels > 0, gap) if event[1] >= first]
        alarms = runs((score >= threshold) & (np.arange(size) >= first), gap)
        hits = [[start <= end + late and stop >= begin for begin, end in events] for start, stop in alarms]
        caught = np.any(np.array(hits, dtype=np.bool_).reshape(len(alarms), len(events)), axis=0)
        found, missed = found + np.count_nonzero(caught), missed + np.count_nonzero(~caught)
        right, wrong = right + sum(map(any, hits)), wrong + sum(not any(hit) for hit in hits)
        days += (size - first) * each.step / DAY
    precision, recall = right / max(right + wrong, 1), found / max(found + missed, 1)
    f1 = 2 * precision * recall / max(precision + recall, 1e-9)
    return Outcome(precision, recall, f1, wrong / days)


def two_fold(series: Sequence[Series], scores: Sequence[Floats]) -> Outcome:
    """Return the mean outcome of each half at the threshold that was best on the other half."""
    halves = (slice(0, None, 2), slice(1, None, 2))
    found = []
    for chosen, scored in (halves, halves[::-1]):
        pooled = np.concatenate(scores[chosen])
        thresholds = np.unique(np.quantile(pooled, 1 - np.geomspace(1e-5, 0.2, 45)))
        best = max(thresholds[thresholds > 0], key=lambda at: outcome(series[chosen], scores[chosen], at).f1)
        found.append(outcome(series[scored], scores[scored], best))
    return Outcome(*np.mean(found, axis=0).tolist())


def _autocorrelated(rng: np.random.Generator, size: int) -> Floats:
    shocks = rng.normal(0, np.sqrt(1 - 0.81), size)
    values = np.empty(size)
    last = rng.normal()
    for row, shock in enumerate(shocks):
        values[row] = last = 0.9 * last + shock
    return 10 + values


NOISES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "iid": lambda rng, size: rng.normal(10, 1, size),
    "AR(1) 0.9": _autocorrelated,
    "lognormal 0.8": lambda rng, size: rng.lognormal(0, 0.8, size),
    "Pareto 2.5": lambda rng, size: rng.pareto(2.5, size) + 1,
    "Poisson 0.3": lambda rng, size: rng.poisson(0.3, size).astype(np.float64),
    "constant, 1 % spikes": lambda rng, size: 5 + (rng.random(size) < 0.01) * rng.exponential(1, size),
}


def null_episodes(kind: str, seed: int = 201) -> float:
    """Return false episodes per 10,000 series-days: an hour of samples each 15 s, judged each minute."""
    size, held = round(_NULL_DAYS * DAY / 15), 241
    values = np.stack(
        [NOISES[kind](stream("null", seed, kind, index), size + held) for index in range(_NULL_SERIES)]
    )
    detect = Anomaly(lookback=Duration(hours=1), step=Duration(seconds=15))
    labels = tuple(Labels(instance=str(index)) for index in range(_NULL_SERIES))
    memory, before, episodes = NOTHING, np.zeros(_NULL_SERIES, dtype=np.bool_), 0
    for last in range(held, size + held, 4):
        times = 15.0 * np.arange(last - held + 1, last + 1)
        window = Window.of(labels, times, values[:, last - held + 1 : last + 1])
        verdicts = detect.judge(window, {}, instant_of(float(times[-1])), memory)
        episodes += np.count_nonzero(verdicts.bad & ~before)
        memory, before = verdicts.memory, verdicts.bad
    return 10_000 * episodes / (_NULL_SERIES * _NULL_DAYS)


if __name__ == "__main__":
    for row in report():
        sys.stdout.write(f"{row}\n")
        sys.stdout.flush()

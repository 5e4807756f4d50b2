"""How well a slow node is told from its peers, beside detectors that know one series alone.

Made-up fleets (`scenarios/peers.py`), evaluated every minute from the second day on. An episode is false if no slowdown of its node
is going on or ended within two hours; those of a node within 30 minutes are one. `outlier` runs as it ships. The
rivals get the threshold, the same for all seeds, at which they have as many false episodes as are allowed: that is
chosen on the very data, in their favour.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from engine.detect.outlier import Outlier
from engine.model.labels import Labels
from engine.model.series import Bools, Floats, Window, instant_of
from engine.model.verdict import NOTHING
from engine.numeric.robust import SD_PER_MAD, median
from tests.bench.scenarios.peers import DAY, SIZES, Fleet, fleet

SEEDS = (201, 202, 203, 204, 205)
ALLOWED = 100  # false episodes per 10,000 series-days
START = 1_800_000_000.0
AFTER = 120  # minutes for which a slowdown excuses what its node does
MERGED = 30  # minutes between episodes of one node that count as one
SMOOTHED = 5  # samples whose median is looked at, as `outlier` asks for it
COARSE = 10  # minutes between two looks at a day's median and MAD


class Outcome(NamedTuple):
    """What an alarm matrix comes to: false episodes, and by size the delays in minutes of those found, infinite if not."""

    false: int
    delays: dict[float, list[float]]


def score(alarms: Bools, it: Fleet) -> Outcome:
    """Hold alarms `[nodes, samples]` against the truth."""
    excused = np.zeros_like(alarms)
    delays: dict[float, list[float]] = {size: [] for size in SIZES}
    for slow in it.slowdowns:
        end = slow.start + slow.length
        excused[slow.node, slow.start : end + AFTER] = True
        hits = np.flatnonzero(alarms[slow.node, slow.start : end + SMOOTHED])
        delays[slow.size].append(float(hits[0]) if len(hits) else np.inf)
    return Outcome(sum(_episodes(row) for row in alarms & ~excused), delays)


def _episodes(alarms: Bools) -> int:
    (moments,) = np.nonzero(alarms)
    return int(len(moments) > 0) + int(np.count_nonzero(np.diff(moments) > MERGED))


def judged(it: Fleet, example: Outlier) -> Bools:
    """Return the verdicts [nodes, samples] of the detector, asked every minute from the second day on."""
    step = round(example.step.total_seconds() / 60)
    steps = example.lookback // example.step
    medians = _medians(it.values)
    labels = tuple(Labels(instance=f"n{node}") for node in range(len(medians)))
    alarms = np.zeros(medians.shape, dtype=np.bool_)
    memory = NOTHING
    for minute in range(DAY + SMOOTHED, medians.shape[1]):
        columns = step * (minute // step - np.arange(steps, -1, -1))  # one grid for all, as `engine run` asks
        columns = columns[columns >= SMOOTHED - 1]
        signal = Window.of(labels, START + 60.0 * columns, medians[:, columns])
        now = {"now": Window.of(labels, [START + 60.0 * minute], medians[:, [minute]])}
        verdicts = example.judge(signal, now, instant_of(START + 60.0 * minute), memory)
        memory = verdicts.memory
        alarms[:, minute] = verdicts.bad[: len(labels)]
    return alarms


def _medians(values: Floats) -> Floats:
    """Return the median of each sample and the four before it; NaN where there are none."""
    found = np.full(values.shape, np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(values, SMOOTHED, axis=1)
    found[:, SMOOTHED - 1 :] = np.median(windows, axis=2)
    return found


def own_hour(values: Floats) -> Floats:
    """Return (x - mean) / sd of the hour before: what a recording rule does."""
    total = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1)
    square = np.cumsum(np.pad(values**2, ((0, 0), (1, 0))), axis=1)
    mean = (total[:, 60:-1] - total[:, :-61]) / 60
    variance = (square[:, 60:-1] - square[:, :-61]) / 60 - mean**2
    found = np.full(values.shape, np.nan)
    found[:, 60:] = (values[:, 60:] - mean) / np.sqrt(np.maximum(variance, 1e-15))
    return found


def own_day(values: Floats) -> Floats:
    """Return (x - median) / MAD of the day before."""
    return _against_day(values, values)


def own_season(values: Floats) -> Floats:
    """Return the logarithm less the median of those at this time of the days before, over its MAD of a day."""
    logs = np.log(_medians(values))
    residuals = np.full(values.shape, np.nan)
    days = values.shape[1] // DAY
    for day in range(1, days):
        rows = [logs[:, (day - back) * DAY : (day - back + 1) * DAY] for back in range(1, min(day, 3) + 1)]
        today = slice(day * DAY, (day + 1) * DAY)
        residuals[:, today] = logs[:, today] - median(np.stack(rows, axis=-1))
    return _against_day(residuals, residuals)


def _against_day(values: Floats, history: Floats) -> Floats:
    found = np.full(values.shape, np.nan)
    for start in range(DAY, values.shape[1], COARSE):
        past = history[:, start - DAY : start]
        past = past[:, ~np.isnan(past).any(axis=0)]
        if past.shape[1] < DAY // 4:
            continue
        middle = np.median(past, axis=1, keepdims=True)
        mad = SD_PER_MAD * np.median(np.abs(past - middle), axis=1, keepdims=True)
        found[:, start : start + COARSE] = (values[:, start : start + COARSE] - middle) / mad
    return found


RIVALS: dict[str, Callable[[Floats], Floats]] = {
    "own z of an hour": own_hour,
    "own median and MAD of a day": own_day,
    "own median at this time of day": own_season,
}


def _persistent(scores: Floats, threshold: float) -> Bools:
    """Return where three successive scores are at the threshold or above."""
    above = np.nan_to_num(scores, nan=-np.inf) >= threshold
    above[:, :DAY] = False
    above[:, 2:] &= above[:, 1:-1] & above[:, :-2]
    return above


def _tuned(scores: Sequence[Floats], fleets: Sequence[Fleet], days: float) -> list[Outcome]:
    """Return the outcomes at the lowest threshold that keeps to the allowance."""
    for threshold in np.geomspace(2, 200, 40):
        found = [score(_persistent(each, threshold), it) for each, it in zip(scores, fleets, strict=True)]
        if sum(one.false for one in found) <= ALLOWED * days / 10_000:
            break
    return found


def report(seeds: Sequence[int] = SEEDS) -> Iterator[str]:
    """Yield the table."""
    fleets = [fleet(seed) for seed in seeds]
    days = sum(len(it.values) * (it.values.shape[1] / DAY - 1) for it in fleets)
    yield f"a slow node among its peers: {len(fleets)} fleets of {len(fleets[0].values)}, {days:,.0f} series-days"
    yield f"{'':32} {'false per':>9} {'recall at':>5}{'':12} {'minutes to it':17} within 5 min"
    yield f"{'':32} {'10,000':>9} " + "".join(f"{size:>+6.1f}" for _ in range(3) for size in SIZES)
    example = Outlier(by=())
    yield _row("outlier", [score(judged(it, example), it) for it in fleets], days)
    for name, rival in RIVALS.items():
        yield _row(name, _tuned([rival(it.values) for it in fleets], fleets, days), days)


def _row(name: str, found: Sequence[Outcome], days: float) -> str:
    false = 10_000 * sum(one.false for one in found) / days
    delays = {size: np.array([d for one in found for d in one.delays[size]]) for size in SIZES}
    recall = "".join(f"{np.mean(np.isfinite(delays[size])):6.2f}" for size in SIZES)
    middle = "".join(f"{_middle(delays[size])}" for size in SIZES)
    soon = "".join(f"{np.mean(delays[size] <= 5):6.2f}" for size in SIZES)
    return f"{name:32} {false:9.0f} {recall}{middle}{soon}"


def _middle(delays: Floats) -> str:
    found = delays[np.isfinite(delays)]
    return f"{np.median(found):6.1f}" if len(found) else f"{'-':>6}"

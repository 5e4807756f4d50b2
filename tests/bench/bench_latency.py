"""Latency: which incidents `anomaly` sees, how soon, and how often it is wrong, beside a z-score and its like.

Judged every five minutes of the last two days, with the memory passed on, on all that came before. An incident is seen if the
alert begins within it; what begins elsewhere is false.
"""

from collections.abc import Callable, Iterator

import numpy as np

from engine.detect.anomaly import Anomaly
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Bools, Window, instant_of
from engine.model.verdict import NOTHING
from tests.bench.scenarios import version_of
from tests.bench.scenarios.latency import CHANGES, DAY, LAST, SIZE, STEP, Incidents, latency

SEEDS = (201, 202)
PER_KIND = 12
START = 1_800_000_000.0

Rule = Callable[[Incidents], Bools]
"""Tells where each series' alert is on [n, steps of the last days]."""


def report() -> Iterator[str]:
    data = latency(SEEDS, PER_KIND)
    yield f"latency: seeds {SEEDS[0]} and {SEEDS[-1]}, {PER_KIND} a class, set {version_of(data.values)}; recall, or false episodes a series-day"
    rules: dict[str, Rule] = {
        "anomaly": ours,
        "z of 26 h > 3 for 15m": z_score,
        "150 % of yesterday for 15m": yesterday,
    }
    for name, rule in rules.items():
        on = rule(data)
        begins = on & ~np.column_stack([np.zeros(len(on), dtype=np.bool_), on[:, :-1]])
        columns = LAST + np.arange(on.shape[1])
        inside = (columns >= data.start[:, None]) & (columns < data.stop[:, None] + 3)
        seen = (begins & inside).any(axis=1)
        false = (begins & ~inside).sum(axis=1) / ((SIZE - LAST) / DAY)
        recall = ", ".join(
            f"{kind} {seen[data.kinds == kind].mean():.2f}"
            for kind in CHANGES
            if (data.start[data.kinds == kind] >= 0).all()
        )
        wrong = ", ".join(
            f"{kind} {false[data.kinds == kind].mean():.3f}"
            for kind in CHANGES
            if (data.start[data.kinds == kind] < 0).all()
        )
        yield f"  {name}: {recall}"
        yield f"    false: {wrong}; on all {false.mean():.3f}"


def ours(data: Incidents) -> Bools:
    """Return what the detector says, as shipped."""
    labels = tuple(Labels(i=str(i)) for i in range(len(data.values)))
    detector, memory, found = Anomaly(step=Duration(seconds=STEP)), NOTHING, []
    times = START + STEP * np.arange(SIZE)
    for stop in range(LAST + 1, SIZE + 1):
        window = Window.of(labels, times[:stop], data.values[:, :stop])
        verdicts = detector.judge(window, {}, instant_of(times[stop - 1]), memory)
        memory = verdicts.memory
        found.append(verdicts.bad)
    return np.column_stack(found)


def z_score(data: Incidents) -> Bools:
    """Return where a recording rule's z-score is above 3, three times in a row."""
    width = 26 * 12
    windows = np.lib.stride_tricks.sliding_window_view(data.values, width, axis=1)[
        :, LAST - width : SIZE - width
    ]
    z = (data.values[:, LAST:] - windows.mean(axis=2)) / windows.std(axis=2)
    return _held(z > 3)


def yesterday(data: Incidents) -> Bools:
    """Return where it is half as much again as at this time of yesterday, three times in a row."""
    return _held(data.values[:, LAST:] > 1.5 * data.values[:, LAST - DAY : SIZE - DAY])


def _held(above: Bools) -> Bools:
    held = above.copy()
    held[:, 2:] &= above[:, 1:-1] & above[:, :-2]
    held[:, :2] = False
    return held

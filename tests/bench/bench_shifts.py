"""How well a change of level is seen, and how often there is none: `changepoint` as it ships, asked every five minutes.

The rival is what a recording rule can do: the mean of the last hour against mean and standard deviation of the five hours
before it, at three of these.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from engine.detect.changepoint import Changepoint
from engine.model.labels import Labels
from engine.model.series import Bools, Floats, Window, instant_of
from engine.model.verdict import NOTHING
from tests.bench.scenarios.shifts import NOISES, SIZES, quiet, shifted

SEEDS = (201, 202, 203, 204, 205)
COUNT = 40  # series of a class and seed
HELD, AFTER = 73, 288  # samples of the lookback, and of the day that is watched
CHANGE = HELD + 60
START = 1_800_000_000.0
STEP = 300.0
Judge = Callable[[Floats], Bools]


def ours(values: Floats) -> Bools:
    """Return the verdicts [n, evaluations] of the detector."""
    example, memory, found = Changepoint(), NOTHING, []
    labels = tuple(Labels(instance=f"n{row}") for row in range(len(values)))
    for newest in range(HELD - 1, values.shape[1]):
        columns = np.arange(newest - HELD + 1, newest + 1)
        at = START + STEP * newest
        signal = Window.of(labels, START + STEP * columns, values[:, columns])
        verdicts = example.judge(signal, {}, instant_of(at), memory)
        memory = verdicts.memory
        found.append(verdicts.bad)
    return np.stack(found, axis=1)


def rule(values: Floats) -> Bools:
    """Return where the last hour's mean is three standard deviations from that of the five hours before."""
    windows = np.lib.stride_tricks.sliding_window_view(values, HELD, axis=1)
    before, last = windows[..., :-12], windows[..., -12:]
    far: Bools = np.abs(last.mean(axis=2) - before.mean(axis=2)) > 3 * before.std(axis=2)
    return far


def report(seeds: Sequence[int] = SEEDS) -> Iterator[str]:
    """Yield the table."""
    days = len(seeds) * COUNT * AFTER / 288
    yield f"a change of level: {len(seeds) * COUNT} series of a class, a day each; noise of standard deviation 1"
    heads = "".join(f"{kind:>12}" for kind in NOISES) + "".join(f"{f'+{size:g}':>14}" for size in SIZES)
    yield f"{'':22}episodes per 10,000 series-days of{'':15}recall, minutes to it"
    yield f"{'':14}{heads}"
    for name, judge in (("changepoint", ours), ("mean > 3 sd", rule)):
        cells = [f"{_episodes(judge, kind, seeds) * 10_000 / days:12.0f}" for kind in NOISES]
        yield f"{name:14}{''.join(cells)}{''.join(_recall(judge, size, seeds) for size in SIZES)}"


def _episodes(judge: Judge, kind: str, seeds: Sequence[int]) -> int:
    rows = np.stack([quiet(seed, kind, index, HELD + AFTER) for seed in seeds for index in range(COUNT)])
    alarms = judge(rows)
    return int(alarms[:, 0].sum() + (alarms[:, 1:] & ~alarms[:, :-1]).sum())


def _recall(judge: Judge, size: float, seeds: Sequence[int]) -> str:
    rows = np.stack(
        [shifted(seed, size, index, HELD + AFTER, CHANGE) for seed in seeds for index in range(COUNT)]
    )
    alarms = judge(rows)[:, CHANGE - HELD + 1 :]
    seen = alarms[:, :HELD].any(axis=1)
    delay = 5 * np.median(np.argmax(alarms[seen], axis=1)) if seen.any() else np.nan
    return f"{seen.mean():8.2f}{delay:6.0f}"

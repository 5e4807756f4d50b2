"""What `seasonal` finds of hours that are not as usual, what it costs, and what a rule would find in its place.

Made-up services (`scenarios/services.py`), judged each quarter of an hour on a week after the history, with a fit a
day. An episode is false if no incident of its series is going on or ended within three hours. The rivals get the
threshold at which they have as many false episodes as `seasonal`, chosen on the very data, in their favour.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from engine.clients.aside import Aside
from engine.detect.seasonal import Seasonal
from engine.flow.refits import fitted_at
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Bools, Floats, Window, instant_of
from engine.model.verdict import NOTHING, Memory
from tests.bench.scenarios.services import DAY, KINDS, SIZES, Service, services

SEEDS = (201, 202, 203, 204, 205)
EACH = 6  # services of a kind
JUDGED = 7  # days
AFTER = 12  # samples for which an incident excuses what its series does
STEP = 900.0
START = 20_000 * 86_400.0


class Outcome(NamedTuple):
    """False episodes by kind, and by size whether each incident was found, for those of all kinds."""

    false: dict[str, int]
    found: dict[float, list[bool]]

    @property
    def falses(self) -> int:
        return sum(self.false.values())


def score(alarms: Bools, those: Sequence[Service]) -> Outcome:
    """Hold alarms `[services, samples]` against the truth."""
    outcome = Outcome(dict.fromkeys(KINDS, 0), {size: [] for size in SIZES})
    for row, it in zip(alarms, those, strict=True):
        wrong = row.copy()
        if it.length:
            end = it.start + it.length
            outcome.found[it.size].append(bool(row[it.start : end + 2].any()))
            wrong[it.start : end + AFTER] = False
        outcome.false[it.kind] += int(np.count_nonzero(np.diff(wrong.astype(int), prepend=0) == 1))
    return outcome


def window(those: Sequence[Service]) -> Window:
    """Return the services as a window."""
    values = np.stack([it.values for it in those])
    times = START + STEP * np.arange(values.shape[1])
    return Window.of([Labels(service=str(row)) for row in range(len(values))], times, values)


def part(whole: Window, end: int, length: int) -> Window:
    """Return the `length` samples up to the one at `end`."""
    first = max(0, end + 1 - length)
    return Window.of(whole.labels, whole.times[first : end + 1], whole.values[:, first : end + 1])


def judged(those: Sequence[Service], model: Seasonal, refit: int) -> Bools:
    """Return the verdicts [services, samples] of the detector in the days that are judged."""
    whole = window(those)
    alarms = np.zeros(whole.values.shape, dtype=np.bool_)
    memory, samples = NOTHING, whole.values.shape[1]
    for place in range(samples - JUDGED * DAY, samples):
        at = instant_of(whole.times[place])
        if (samples - place) % (refit * DAY) == 0:
            fitted = model.fit(part(whole, place - 1, model.history // model.step + 1), at)
            memory = Memory(fitted.labels, {**memory.columns, **fitted.columns})
        verdicts = model.judge(part(whole, place, model.lookback // model.step + 1), {}, at, memory)
        memory = verdicts.memory
        alarms[:, place] = verdicts.bad
    return alarms


def as_yesterday(values: Floats) -> Floats:
    """Return |x / x a day ago - 1|."""
    return _against(values, DAY)


def as_last_week(values: Floats) -> Floats:
    """Return |x / x a week ago - 1|."""
    return _against(values, 7 * DAY)


def _against(values: Floats, back: int) -> Floats:
    found = np.zeros(values.shape)
    found[:, back:] = np.abs(values[:, back:] / values[:, :-back] - 1)
    return found


def own_day(values: Floats) -> Floats:
    """Return |x - mean| / sd of the day before."""
    windows = np.lib.stride_tricks.sliding_window_view(values, DAY, axis=1)[:, :-1]
    found = np.zeros(values.shape)
    found[:, DAY:] = np.abs(values[:, DAY:] - windows.mean(axis=2)) / windows.std(axis=2)
    return found


RIVALS = {"as at this time yesterday": as_yesterday, "as a week ago": as_last_week, "own z of a day": own_day}


def _tuned(scores: Floats, those: Sequence[Service], allowed: int) -> Outcome:
    """Return the outcome at the lowest threshold, held twice in a row, with no more false episodes."""
    for threshold in np.geomspace(0.05, 50, 120):
        above = scores >= threshold
        above[:, : -JUDGED * DAY] = False
        above[:, 1:] &= above[:, :-1]
        outcome = score(above, those)
        if outcome.falses <= allowed:
            return outcome
    return outcome


def quality(seeds: Sequence[int] = SEEDS, each: int = EACH) -> Iterator[str]:
    """Yield the table of what is found."""
    those = [it for seed in seeds for it in services(seed, each=each, days=21 + JUDGED, judged=JUDGED)]
    days = len(those) * JUDGED
    yield f"hours unlike the usual: {len(those)} services, {days:,} series-days, {len(seeds)} seeds"
    yield f"{'':28} {'false per':>9} {'recall at':>9}        by kind, false per 100 series-days"
    yield (
        f"{'':28} {'100 days':>9}"
        + "".join(f"{size:>6.0%}" for size in SIZES)
        + "".join(f"{kind:>9}" for kind in KINDS)
    )
    ours = score(judged(those, Seasonal(), 1), those)
    yield _row("seasonal", ours, days)
    values = np.stack([it.values for it in those])
    for name, rival in RIVALS.items():
        yield _row(name, _tuned(rival(values), those, ours.falses), days)


def _row(name: str, outcome: Outcome, days: int) -> str:
    recall = "".join(f"{np.mean(found):6.2f}" for found in outcome.found.values())
    kinds = "".join(f"{100 * count / (days / len(KINDS)):9.2f}" for count in outcome.false.values())
    return f"{name:28} {100 * outcome.falses / days:9.2f}{recall}{kinds}"


def cost() -> Iterator[str]:
    """Yield what a fit costs here, beside the engine, and what an evaluation does."""
    those = services(1, each=34, days=29, judged=JUDGED)[:200]
    whole, at = window(those), instant_of(START + STEP * (29 * DAY - 1))
    for name, model, count in (
        ("STL, 14 d of 15 min", Seasonal(), 50),
        ("MSTL, 28 d of 15 min", Seasonal(history=Duration(days=28)), 4),
    ):
        signal = part(window(those[:count]), 29 * DAY - 1, model.history // model.step + 1)
        model.fit(part(window(those[:1]), 29 * DAY - 1, model.history // model.step + 1), at)  # imports
        began = time.process_time()
        model.fit(signal, at)
        seconds = (time.process_time() - began) / count
        yield f"{name:28} {1000 * seconds:8.1f} ms of a core a series, with the choice of its seasons"
    model, aside = Seasonal(), Aside()
    signal = part(whole, 29 * DAY - 1, model.history // model.step + 1)
    try:
        empty = _seconds(lambda: aside.call(fitted_at, model, signal.until(instant_of(0)), at, timeout=60))
        seconds = _seconds(lambda: aside.call(fitted_at, model, signal, at, timeout=600))
    finally:
        aside.close()
    yield f"{'200 series aside':28} {seconds:8.1f} s, of which {empty:.1f} s for the process: {200 / seconds:.0f} series/s"
    memory = model.fit(signal, at)
    recent = part(whole, 29 * DAY - 1, model.lookback // model.step + 1)
    best = min(_seconds(lambda: model.judge(recent, {}, at, memory)) for _ in range(5))
    yield f"{'200 series judged':28} {1000 * best:8.1f} ms"


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def report() -> Iterator[str]:
    """Yield both tables."""
    yield from cost()
    yield from quality()

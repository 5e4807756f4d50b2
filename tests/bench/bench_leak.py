"""How well leaks are told from what only looks like them, beside rules that people write today.

Made-up series (`scenarios/leak.py`), 72 hours at 90 s, evaluated every 30 minutes, verdicts counted from 24 hours on, which is
when there is history enough. `leak` runs as it ships, with its memory passed on. A leak is found if the alert is on at
some time after its onset, and its delay counts from the onset, even where that lies before the first verdict (class `lin`
leaks from the beginning). An alert on a series that does not leak, or not yet, is false; those of a series within six
hours are one. Rivals get their rule's usual threshold, or one at which they did best on other series, in their favour.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from engine.detect.leak import Leak, Preset
from engine.model.labels import Labels
from engine.model.series import Bools, Floats, Window, instant_of
from engine.model.verdict import NOTHING
from engine.numeric.robust import median
from engine.numeric.shapes import block_floors
from engine.numeric.trend import fit_trend, score_variance
from tests.bench.scenarios.leak import HOURS, LEAKS, OTHERS, STEP, Series, T, autoregressive, make

SEEDS = (201, 202, 203, 204, 205)
EACH = 40  # series a class and seed
START = 1_800_000_000.0
FIRST = 24.0  # hours: before it no verdict counts
EVERY = 0.5  # hours
MERGED = 6.0  # hours within which false alarms are one
INSTANTS = np.arange(FIRST, HOURS + EVERY / 2, EVERY)
SAMPLES = round(6 * 3600 / STEP)  # in six hours
RESAMPLES = 1000


class Outcome(NamedTuple):
    """What an alarm matrix comes to, series by series."""

    kinds: np.ndarray
    leaks: Bools
    delay: Floats  # hours after the onset, NaN where it was not found
    false: Floats  # alarms
    days: Floats  # during which an alarm would be false


def score(alarms: Bools, them: list[Series]) -> Outcome:
    """Hold alarms `[instants, series]` against the truth."""
    leaks = np.array([it.leaks for it in them])
    onset = np.where(leaks, [it.onset for it in them], np.inf)
    counts = alarms & (INSTANTS[:, None] >= onset)
    delay = np.where(counts.any(axis=0), INSTANTS[np.argmax(counts, axis=0)] - onset, np.nan)
    false = np.array(
        [_episodes(INSTANTS[row & (start > INSTANTS)]) for row, start in zip(alarms.T, onset, strict=True)],
        dtype=np.float64,
    )
    days = np.clip(onset - FIRST, 0, HOURS + EVERY - FIRST) / 24
    return Outcome(np.array([it.kind for it in them]), leaks, delay, false, days)


def _episodes(moments: Floats) -> int:
    return int(len(moments) > 0) + int(np.count_nonzero(np.diff(moments) > MERGED))


def pooled(outcomes: list[Outcome]) -> Outcome:
    """Return the outcomes of several seeds as one."""
    return Outcome(*(np.concatenate(columns) for columns in zip(*outcomes, strict=True)))


def figures(it: Outcome) -> tuple[float, float, float]:
    """Return recall, false alarms a series-day, and the median delay of those found in hours."""
    return (
        float(np.mean(~np.isnan(it.delay[it.leaks]))),
        float(np.sum(it.false) / np.sum(it.days)),
        float(np.nanmedian(it.delay[it.leaks])),
    )


def intervals(it: Outcome) -> list[tuple[float, float]]:
    """Return 95 % intervals of the three figures, by drawing series of each class anew."""
    rng = np.random.default_rng(1)
    groups = [np.flatnonzero(it.kinds == kind) for kind in dict.fromkeys(it.kinds)]
    drawn = []
    for _ in range(RESAMPLES):
        rows = np.concatenate([rng.choice(group, len(group)) for group in groups])
        drawn.append(figures(Outcome(*(column[rows] for column in it))))
    return [(float(low), float(high)) for low, high in np.percentile(drawn, [2.5, 97.5], axis=0).T]


# ── The detector ─────────────────────────────────────────────────────────────


def on_grid(samples: Floats, seconds: float, how: np.ufunc) -> Floats:
    """Return what `how` makes of the samples in each step of `seconds` [series, steps], as the server would."""
    step = np.maximum(np.ceil(T * 3600 / seconds).astype(int) - 1, 0)
    _, starts = np.unique(step, return_index=True)
    return np.asarray(how.reduceat(samples, starts, axis=1))


def judged(example: Leak, them: list[Series]) -> Bools:
    """Return the verdicts [instants, series] of the detector, each with the memory of the one before."""
    seconds = example.step.total_seconds()
    labels = tuple(Labels(pod=str(index)) for index in range(len(them)))
    lowest = on_grid(np.stack([it.values for it in them]), seconds, np.fmin)
    load = on_grid(np.stack([it.load for it in them]), seconds, np.add)
    load /= on_grid(np.ones((1, len(T))), seconds, np.add)
    times = START + seconds * np.arange(1, lowest.shape[1] + 1)
    points = example.lookback // example.step
    memory, alarms = NOTHING, []
    for hours in INSTANTS:
        end = round(hours * 3600 / seconds)
        part = slice(max(0, end - points), end)
        signal, work = (Window.of(labels, times[part], each[:, part]) for each in (lowest, load))
        verdicts = example.judge(signal, {"load": work}, instant_of(START + hours * 3600), memory)
        memory = verdicts.memory
        alarms.append(verdicts.bad)
    return np.array(alarms)


# ── Rivals ───────────────────────────────────────────────────────────────────


class Fit(NamedTuple):
    """A least squares line; fields are [n]."""

    slope: Floats
    now: Floats
    r_squared: Floats


def least_squares(values: Floats, hours: Floats) -> Fit:
    """Return the line through `values[n, m]` at `hours[m]` before now, as `deriv` and `predict_linear` draw it."""
    there = ~np.isnan(values)
    count = there.sum(axis=1)
    x, y = np.where(there, hours, 0.0), np.where(there, values, 0.0)
    x_mean, y_mean = x.sum(axis=1) / count, y.sum(axis=1) / count
    xx = (x * x).sum(axis=1) - count * x_mean**2
    xy = (x * y).sum(axis=1) - count * x_mean * y_mean
    yy = np.maximum((y * y).sum(axis=1) - count * y_mean**2, 1e-12)
    return Fit(xy / xx, y_mean - xy / xx * x_mean, xy**2 / (xx * yy))


def mann_kendall(values: Floats) -> Floats:
    """Return S of `values[n, m]` over its standard deviation for independent samples [n]."""
    total = np.zeros(len(values))
    single = values.astype(np.float32)
    for lag in range(1, values.shape[1]):
        total += np.nansum(np.sign(single[:, lag:] - single[:, :-lag]), axis=1)
    return (total - np.sign(total)) / np.sqrt(np.maximum(score_variance(values), 1e-9))


def hamed_rao(values: Floats) -> Floats:
    """Return by how much significant autocorrelations of the detrended ranks widen the variance (1998) [n]."""
    size = values.shape[1]
    time_ = np.arange(size, dtype=np.float64)
    rest = values - halves_slope(values, time_)[:, None] * time_
    rest = np.where(np.isnan(rest), median(rest)[:, None], rest)
    ranks = np.argsort(np.argsort(rest, axis=1), axis=1) - (size - 1) / 2
    power = np.abs(np.fft.rfft(ranks, 2 * size, axis=1)) ** 2
    correlation = np.fft.irfft(power, axis=1)[:, 1:size]
    correlation /= np.sum(ranks**2, axis=1)[:, None]
    correlation[np.abs(correlation) <= 1.96 / np.sqrt(size)] = 0.0
    lag = np.arange(1, size)
    weight = (size - lag) * (size - lag - 1) * (size - lag - 2)
    return np.maximum(1 + 2 / (size * (size - 1) * (size - 2)) * np.matmul(correlation, weight), 1.0)


def halves_slope(values: Floats, times: Floats) -> Floats:
    """Return the median slope between each sample and the one half a window later: a cheap Theil-Sen [n]."""
    half = values.shape[1] // 2
    return median((values[:, half : 2 * half] - values[:, :half]) / (times[half] - times[0]))


class Recent(NamedTuple):
    """What a rival sees: the last 6 hours, their test statistics, and the last 24 hours of 6-minute minima."""

    short: Floats
    long: Floats
    z: Floats
    widened: Floats


SHORT = (np.arange(SAMPLES) - SAMPLES + 1) * STEP / 3600
HOUR = SAMPLES // 6


def _steepness(it: Recent) -> Floats:
    return halves_slope(it.short, SHORT)


def _hamed_rao_p(it: Recent) -> Floats:
    return np.asarray(ndtr(-it.z / np.sqrt(it.widened)))


def _backward(it: Recent, r_squared: float, hours: float) -> Bools:
    """Linear backward regression: some window that ends now is straight, and leads to the limit in time."""
    found = np.zeros(len(it.long), dtype=np.bool_)
    for size in (60, 120, 180, 240):
        fit = least_squares(it.long[:, -size:], np.arange(1 - size, 1) * 0.1)
        found |= (fit.r_squared > r_squared) & (fit.slope > 0) & ((1 - fit.now) < hours * fit.slope)
    return found


def _ahead(it: Recent, past: int, hours: float) -> Bools:
    fit = least_squares(it.short[:, -past:], SHORT[-past:])
    return np.asarray(fit.now + hours * fit.slope > 1)


class Rival(NamedTuple):
    """A condition, and for how many hours it must hold."""

    holds: Callable[[Recent], Bools]
    hours: float


RIVALS: Mapping[str, Rival] = {
    "predict_linear(x[1h], 4h) > limit, for 1h": Rival(lambda it: _ahead(it, HOUR, 4), 1),
    "predict_linear(x[6h], 24h) > limit, for 6h": Rival(lambda it: _ahead(it, SAMPLES, 24), 6),
    "deriv(x[6h]) > 0.5 %/h, for 1h": Rival(lambda it: least_squares(it.short, SHORT).slope > 0.005, 1),
    "deriv(x[6h]) > 2 %/h, for 6h": Rival(lambda it: least_squares(it.short, SHORT).slope > 0.02, 6),
    "a day's growth of 20 %, for 1h": Rival(
        lambda it: np.nanmean(it.short[:, -HOUR:], axis=1) > 1.2 * np.nanmean(it.long[:, :10], axis=1), 1
    ),
    "Mann-Kendall p < 0.01, for 1h": Rival(lambda it: (it.z > 2.326) & (_steepness(it) > 0.002), 1),
    "Hamed-Rao p < 0.01, for 1h": Rival(lambda it: (_hamed_rao_p(it) < 0.01) & (_steepness(it) > 0.002), 1),
    "Hamed-Rao p < 1e-8, > 0.5 %/h, for 6h": Rival(
        lambda it: (_hamed_rao_p(it) < 1e-8) & (_steepness(it) > 0.005), 6
    ),
    "backward regression r2 > 0.8, 7 d, for 1h": Rival(lambda it: _backward(it, 0.8, 168), 1),
    "backward regression r2 > 0.97, 2 d, for 6h": Rival(lambda it: _backward(it, 0.97, 48), 6),
    "backward regression r2 > 0.97, 7 d, for 4h": Rival(lambda it: _backward(it, 0.97, 168), 4),
}


def rivals(them: list[Series]) -> dict[str, Bools]:
    """Return the alarms [instants, series] of each rival."""
    values = np.stack([it.values for it in them])
    lowest = on_grid(values, 360.0, np.fmin)
    conditions: dict[str, list[Bools]] = {name: [] for name in RIVALS}
    for hours in INSTANTS:
        end, coarse = round(hours * 3600 / STEP), round(hours * 10)
        short = values[:, end - SAMPLES : end]
        recent = Recent(short, lowest[:, coarse - 240 : coarse], mann_kendall(short), hamed_rao(short))
        for name, rival in RIVALS.items():
            conditions[name].append(rival.holds(recent))
    return {name: _lasting(np.array(conditions[name]), rival.hours) for name, rival in RIVALS.items()}


def _lasting(holds: Bools, hours: float) -> Bools:
    """Return when a condition has held at every evaluation for so long."""
    lasting = holds.copy()
    for back in range(1, round(hours / EVERY) + 1):
        lasting[back:] &= holds[:-back]
        lasting[:back] = False
    return lasting


# ── Sizes ────────────────────────────────────────────────────────────────────


def sizes(count: int = 2000) -> Iterator[str]:
    """Yield how often each test sees a trend at p < 0.01 where there is only noise that remembers."""
    yield f"{count} series of 240 samples without a trend: share with p < 0.01 (one-sided)"
    yield f"{'autocorrelation':18}{'OLS t':>9}{'Mann-Kendall':>14}{'Hamed-Rao':>11}{'24 blocks':>11}{'leak':>8}"
    rng = np.random.default_rng(9)
    hours = np.arange(240.0)
    for correlation in (0.0, 0.5, 0.8, 0.9, 0.97, 0.99):
        values = np.stack([autoregressive(rng, correlation, 540)[300:] for _ in range(count)])
        fit = least_squares(values, hours)
        student = np.sign(fit.slope) * np.sqrt(238 * fit.r_squared / (1 - fit.r_squared))
        raw = mann_kendall(values)
        blocks = median(values.reshape(count, 24, 10))
        ours = fit_trend((np.arange(24) + 0.5) / 24, block_floors(values, 24)).z
        tests = (student, raw, raw / np.sqrt(hamed_rao(values)), mann_kendall(blocks), ours)
        shares = [float(np.mean(z > 2.326)) for z in tests]
        yield f"{correlation:<18g}" + "".join(
            f"{share:{width}.3f}" for share, width in zip(shares, (9, 14, 11, 11, 8), strict=True)
        )


# ── The tables ───────────────────────────────────────────────────────────────

OURS: Mapping[str, Leak] = {
    "leak (balanced, as shipped)": Leak(),
    "leak (balanced), with load": Leak(load="work"),
    "leak (strict, where a playbook acts)": Leak(preset=Preset.STRICT),
    "leak (strict), with load": Leak(preset=Preset.STRICT, load="work"),
    "leak (sensitive)": Leak(preset=Preset.SENSITIVE),
}


def measure(seeds: tuple[int, ...], each: int, *, with_rivals: bool = True) -> dict[str, Outcome]:
    """Return the pooled outcome of every contender."""
    found: dict[str, list[Outcome]] = {}
    for seed in seeds:
        them = [make(seed, kind, index) for kind in (*LEAKS, *OTHERS) for index in range(each)]
        alarms = {name: judged(example, them) for name, example in OURS.items()}
        for name, matrix in (alarms | (rivals(them) if with_rivals else {})).items():
            found.setdefault(name, []).append(score(matrix, them))
    return {name: pooled(outcomes) for name, outcomes in found.items()}


def quality(seeds: tuple[int, ...] = SEEDS, each: int = EACH, *, with_rivals: bool = True) -> Iterator[str]:
    """Yield the lines of the tables of quality."""
    found = measure(seeds, each, with_rivals=with_rivals)
    yield f"leaks: seeds {seeds}, {each} a class; 95 % intervals from {RESAMPLES} resamplings of the series"
    yield f"{'':46}{'recall':>22}{'false a series-day':>26}{'median delay, h':>22}{'precision':>11}"
    for name, it in found.items():
        cells = [
            f"{value:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"
            for value, (low, high), digits in zip(figures(it), intervals(it), (3, 4, 1), strict=True)
        ]
        hits = np.count_nonzero(~np.isnan(it.delay))
        precision = hits / max(hits + np.count_nonzero(it.false), 1)
        yield f"{name:46}{cells[0]:>22}{cells[1]:>26}{cells[2]:>22}{precision:11.3f}"
    for name in OURS:
        yield from _by_class(name, found[name])


def _by_class(name: str, it: Outcome) -> Iterator[str]:
    recalls = [
        f"{kind} {np.mean(~np.isnan(it.delay[it.kinds == kind])):.2f} ({np.nanmedian(it.delay[it.kinds == kind]):.0f} h)"
        for kind in LEAKS
        if not np.isnan(it.delay[it.kinds == kind]).all()
    ]
    alarms = {kind: int(it.false[it.kinds == kind].sum()) for kind in dict.fromkeys(it.kinds)}
    yield f"{name}: recall (median delay): {', '.join(recalls)}"
    yield f"    false alarms: {', '.join(f'{kind} {count}' for kind, count in alarms.items() if count) or 'none'}"


def speed(count: int = 10_000) -> Iterator[str]:
    """Yield how long one judgement of many series takes."""
    kinds = (*LEAKS, *OTHERS)
    usual = ("stat_ar", "diurnal", "saw_flat", "ou_slow", "warm_exp", "restarts_flat")
    for what, chosen in (("all classes alike, 41 % leak", kinds), ("six classes that do not leak", usual)):
        few = [make(1, kind, index) for kind in chosen for index in range(10)]
        for name, example in (("", Leak()), (", with load", replace(Leak(), load="work"))):
            seconds = example.step.total_seconds()
            lowest = on_grid(np.stack([it.values for it in few]), seconds, np.fmin)[:, -289:]
            work = on_grid(np.stack([it.load for it in few]), seconds, np.add)[:, -289:]
            rows = np.arange(count) % len(few)
            labels = tuple(Labels(pod=str(index)) for index in range(count))
            times = START + seconds * np.arange(-288, 1)
            signal, load = (Window.of(labels, times, each[rows]) for each in (lowest, work))
            first, held = _time(example, signal, load)
            yield (
                f"leak{name}: {count} series x {lowest.shape[1]} minima, {what}: {first:.3f} s of one core a judgement, "
                f"{held:.3f} s in between"
            )


def _time(example: Leak, signal: Window, load: Window) -> tuple[float, float]:
    """Return the least processor seconds of three judgements, and of three evaluations at which none is due."""
    at = instant_of(START)
    verdicts = example.judge(signal, {"load": load}, at)
    took = []
    for memory in (NOTHING, verdicts.memory):
        runs = []
        for _ in range(3):
            began = time.process_time()
            example.judge(signal, {"load": load}, at, memory)
            runs.append(time.process_time() - began)
        took.append(min(runs))
    return took[0], took[1]


def report() -> Iterator[str]:
    """Yield the lines of all tables."""
    with np.errstate(all="ignore"):
        yield from quality()
        yield from sizes()
    yield from speed()

"""How early and how surely a full store is seen: `forecast` as it ships, asked every quarter of an hour for a day.

An alarm counts on a series that is full within twelve hours; the lead is the time that is left at the first. Any
other is a false one, and one that comes back within two hours is the same. The rival is what a rule would say today:
`predict_linear(x[4h], 4h) >= 1` for half an hour, by the least squares that Prometheus does. Intervals are those
told while a fill is six minutes to four hours away; none that is later than a day is counted as wide.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from engine.detect.forecast import Forecast
from engine.model.labels import Labels
from engine.model.series import Bools, Floats, Window, instant_of
from engine.model.verdict import NOTHING
from engine.numeric.kalman import crossing, fit_trend
from tests.bench.scenarios.exhaustion import FILLING, KINDS, Usage, usage

SEEDS = (201, 202, 203, 204, 205)
COUNT = 40  # series of a class and seed
HELD = 241  # samples of the lookback
START = 1_800_000_000.0
REACH, AGAIN, HORIZON = 12.0, 2.0, 4.0  # hours
SERIES = 10_000
DRAWS = 1000


class Answers(NamedTuple):
    """What was said at `hours[e]`: `bad[n, e]`, `times[3, n, e]` (earliest, even odds, latest, in hours)."""

    hours: Floats
    bad: Bools
    times: Floats
    quality: dict[str, float]


class Result(NamedTuple):
    """Of each series: `lead[n]` in hours, NaN without an alarm; false alarms `wrong[n]`."""

    lead: Floats
    wrong: Floats


def ours(values: Floats, every: int = 15) -> Answers:
    """Return what the detector says, with its memory handed on."""
    example, memory = Forecast(bound=1.0), NOTHING
    labels = tuple(Labels(instance=f"n{row}") for row in range(len(values)))
    hours, bad, times = [], [], []
    verdicts = None
    for newest in range(HELD - 1, values.shape[1], every):
        columns = np.arange(newest - HELD + 1, newest + 1)
        signal = Window.of(labels, START + 60.0 * columns, values[:, columns])
        verdicts = example.judge(signal, {}, instant_of(START + 60.0 * newest), memory)
        memory = verdicts.memory
        hours.append(newest / 60)
        bad.append(verdicts.bad)
        times.append([verdicts.details[name] / 3600 for name in ("eta_earliest", "eta", "eta_latest")])
    assert verdicts is not None
    return Answers(
        np.array(hours), np.stack(bad, axis=1), np.moveaxis(np.array(times), 0, 2), dict(verdicts.quality)
    )


def linear(values: Floats, every: int = 15) -> Answers:
    """Return what predict_linear(x[4h], 4h) >= 1 says, for half an hour."""
    hours, bad = [], []
    for newest in range(HELD - 1, values.shape[1], every):
        part = values[:, newest - HELD + 2 : newest + 1]
        moments = np.arange(-part.shape[1] + 1, 1) / 60
        there = ~np.isnan(part)
        count = there.sum(axis=1)
        mean_t = (there * moments).sum(axis=1) / count
        mean_x = np.nansum(part, axis=1) / count
        off = there * (moments - mean_t[:, None])
        slope = np.nansum(off * np.where(there, part, 0), axis=1) / (off**2).sum(axis=1)
        bad.append(mean_x + slope * (HORIZON - mean_t) >= 1)
        hours.append(newest / 60)
    raw = np.stack(bad, axis=1)
    held = raw.copy()
    for back in range(1, 30 // every + 1):
        held[:, back:] &= raw[:, :-back]
        held[:, :back] = False
    return Answers(np.array(hours), held, np.full((3, *held.shape), np.nan), {})


def scored(answers: Answers, full: Floats) -> Result:
    """Return leads and false alarms; nothing counts once a series is full."""
    left = full[:, None] - answers.hours
    bad = answers.bad & (left > 0)
    good = bad & (left <= REACH)
    lead = np.where(good.any(axis=1), left[np.arange(len(left)), np.argmax(good, axis=1)], np.nan)
    wrong = np.zeros(len(left))
    last = np.full(len(left), -np.inf)
    for index, hour in enumerate(answers.hours):
        false = bad[:, index] & ~(left[:, index] <= REACH)
        wrong += false & (hour - last > AGAIN)
        last = np.where(false, hour, last)
    return Result(lead, wrong)


def intervals(answers: Answers, full: Floats) -> tuple[Floats, Floats, Floats]:
    """Return whether each interval [n, e] held the truth, log(latest / earliest), and |log(eta / truth)|."""
    left = full[:, None] - answers.hours
    early, middle, late = answers.times
    late = np.where(np.isnan(late), np.inf, late)
    asked = (left > 0.1) & (left <= HORIZON) & ~np.isnan(middle)
    with np.errstate(divide="ignore", invalid="ignore"):
        held = np.where(asked, (early <= left) & (left <= late), np.nan)
        width = np.where(asked, np.log(np.minimum(late, 24) / np.maximum(early, 1 / 60)), np.nan)
        error = np.where(asked, np.abs(np.log(np.maximum(middle, 1 / 60) / left)), np.nan)
    return held, width, error


def report(seeds: Sequence[int] = SEEDS, count: int = COUNT) -> Iterator[str]:
    """Yield the tables."""
    sets = [usage(seed, count) for seed in seeds]
    kinds = np.concatenate([each.kinds for each in sets])
    full = np.concatenate([each.full for each in sets])
    days = len(full) * (24 - 4) / 24
    yield f"exhaustion: {len(full)} series of a day, {np.isfinite(full).sum()} fill; 20 h of each are judged"
    yield f"{'':22}{'recall':>8}{'median lead':>13}{'false alarms a series-day':>28}"
    told = [ours(each.values) for each in sets]
    rivals: list[tuple[str, list[Answers]]] = [
        ("forecast", told),
        ("predict_linear", [linear(each.values) for each in sets]),
    ]
    for name, answers in rivals:
        yield _line(name, _pooled(answers, sets), full, days)
    yield from _every_minute(sets[0])
    result = _pooled(told, sets)
    held, width, error = (
        np.concatenate(parts)
        for parts in zip(*(intervals(a, s.full) for a, s in zip(told, sets, strict=True)), strict=True)
    )
    yield _interval_line(held, width, error)
    yield "on line: " + ", ".join(f"{name} {value:.3g}" for name, value in told[0].quality.items())
    yield f"{'':14}{'recall':>8}{'lead h':>8}{'false/day':>11}{'coverage':>10}{'width':>8}"
    yield from _by_kind(result, kinds, full, held, width)
    yield from _speed()
    yield from _against_statsmodels(sets)


def _by_kind(result: Result, kinds: np.ndarray, full: Floats, held: Floats, width: Floats) -> Iterator[str]:
    for kind in KINDS:
        of = kinds == kind
        cells = f"{result.wrong[of].sum() / (of.sum() * 20 / 24):>11.4f}"
        if kind in FILLING:
            lead = result.lead[of & np.isfinite(full)]
            cells = f"{np.mean(~np.isnan(lead)):>8.3f}{np.nanmedian(lead):>8.2f}{cells}"
            cells += f"{np.nanmean(held[of]):>10.3f}{np.exp(np.nanmedian(width[of])):>8.2f}"
        else:
            cells = f"{'':16}{cells}"
        yield f"{kind:14}{cells}"


def _pooled(answers: Sequence[Answers], sets: Sequence[Usage]) -> Result:
    parts = [scored(each, of.full) for each, of in zip(answers, sets, strict=True)]
    return Result(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _every_minute(of: Usage) -> Iterator[str]:
    """Yield what is said on the first seed if asked every minute; every other series, for the time it takes."""
    part = Usage(of.values[::4], of.kinds[::4], of.full[::4])
    for every in (15, 1):
        result = scored(ours(part.values, every), part.full)
        yield _line(f"  every {every} min", result, part.full, len(part.full) * 20 / 24)


def _between(figure: Callable[[np.ndarray], float], size: int) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a figure, over the series."""
    rng = np.random.default_rng(0)
    found = [figure(rng.integers(0, size, size)) for _ in range(DRAWS)]
    return float(np.nanquantile(found, 0.025)), float(np.nanquantile(found, 0.975))


def _line(name: str, result: Result, full: Floats, days: float) -> str:
    lead = result.lead[np.isfinite(full)]
    recall = _between(lambda rows: float(np.mean(~np.isnan(lead[rows]))), len(lead))
    median = _between(lambda rows: float(np.nanmedian(lead[rows])), len(lead))
    wrong = _between(lambda rows: float(result.wrong[rows].sum() / days), len(result.wrong))
    return (
        f"{name:18} {np.mean(~np.isnan(lead)):.3f} ({recall[0]:.3f}-{recall[1]:.3f})"
        f"  {np.nanmedian(lead):.2f} h ({median[0]:.2f}-{median[1]:.2f})"
        f"  {result.wrong.sum() / days:.4f} ({wrong[0]:.4f}-{wrong[1]:.4f})"
    )


def _interval_line(held: Floats, width: Floats, error: Floats) -> str:
    cover = _between(lambda rows: float(np.nanmean(held[rows])), len(held))
    wide = np.exp(_between(lambda rows: float(np.nanmedian(width[rows])), len(width)))
    return (
        f"90 % interval: holds {np.nanmean(held):.3f} ({cover[0]:.3f}-{cover[1]:.3f}), "
        f"x{np.exp(np.nanmedian(width)):.2f} wide ({wide[0]:.2f}-{wide[1]:.2f}); "
        f"median error of the time {np.expm1(np.nanmedian(error)):.3f}"
    )


def _speed() -> Iterator[str]:
    """Yield what one judgement of ten thousand series takes, one in twenty of which fills."""
    rng = np.random.default_rng(1)
    values = 0.4 + rng.normal(0, 0.01, (SERIES, 240))
    values[: SERIES // 20] += np.linspace(0, 0.3, 240)
    values[rng.random(values.shape) < 0.003] = np.nan
    labels = tuple(Labels(instance=f"n{row}") for row in range(SERIES))
    example, memory, least = Forecast(bound=1.0), NOTHING, np.inf
    for turn in range(5):
        at = START + 900.0 * turn
        signal = Window.of(labels, at + 60.0 * np.arange(-239, 1), values)
        began = time.perf_counter()
        memory = example.judge(signal, {}, instant_of(at), memory).memory
        least = min(least, time.perf_counter() - began)
    yield f"{SERIES:,} series x 240 points, one core: {least:.3f} s"


def _against_statsmodels(sets: Sequence[Usage], sample: int = 96) -> Iterator[str]:
    """Yield error and coverage of fill times three and one and a half hours before, and what a series takes.

    Both see sixty medians of four minutes, and ask the same of mean and variance ahead.
    """
    ahead = np.arange(1.0, 361)
    rows, left = _before_the_end(sets, sample)
    began = time.perf_counter()
    means, deviations = zip(*(_statsmodels(row, len(ahead)) for row in rows), strict=True)
    theirs_takes = (time.perf_counter() - began) / len(rows)
    scores = (np.stack(means) - 1) / np.stack(deviations)
    theirs = np.maximum.accumulate(scores, axis=1)
    many = np.resize(rows, (SERIES, rows.shape[1]))
    began = time.perf_counter()
    trend = fit_trend(many)
    all_scores = trend.scores(np.ones(SERIES), np.geomspace(0.75, 360, 60))
    [crossing(all_scores, np.geomspace(0.75, 360, 60), z) for z in (-1.645, 0.0, 1.645)]
    ours_takes = (time.perf_counter() - began) / SERIES
    trend = fit_trend(rows)
    mine = trend.scores(np.ones(len(rows)), ahead)
    for name, found, takes in (
        ("statsmodels UC", theirs, theirs_takes),
        ("bank of trends", mine, ours_takes),
    ):
        early, middle, late = (crossing(found, ahead, z) / 15 for z in (-1.645, 0.0, 1.645))
        error = np.abs(np.log(np.minimum(middle, 24) / left))
        yield (
            f"{name}: median error {np.expm1(np.median(error)):.3f}, 90 % interval holds "
            f"{np.mean((early <= left) & (left <= late)):.3f}, {takes * 1e3:.4f} ms a series"
        )
    yield f"the bank is {theirs_takes / ours_takes:,.0f} times faster ({len(rows)} fits timed)"


def _before_the_end(sets: Sequence[Usage], sample: int) -> tuple[Floats, Floats]:
    """Return medians of four minutes `[k, 60]` before the fill, and the hours that are left."""
    rows, left = [], []
    for of in sets:
        for row, full in zip(of.values, of.full, strict=True):
            for hours in (3.0, 1.5):
                end = round((full - hours) * 60) if np.isfinite(full) else 0
                if end >= 240 and not np.isnan(row[end - 240 : end].reshape(60, 4)).all(axis=1).any():
                    rows.append(np.nanmedian(row[end - 240 : end].reshape(60, 4), axis=1))
                    left.append(hours)
    chosen = np.random.default_rng(0).permutation(len(rows))[:sample]
    return np.stack(rows)[chosen], np.array(left)[chosen]


def _statsmodels(row: Floats, steps: int) -> tuple[Floats, Floats]:
    from statsmodels.tsa.statespace.structural import UnobservedComponents  # noqa: PLC0415 - slow

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = UnobservedComponents(row, "lltrend").fit(disp=False)
        ahead = fitted.get_forecast(steps)
    noise = fitted.params[0]
    return ahead.predicted_mean, np.sqrt(np.maximum(ahead.var_pred_mean - noise, 1e-12))

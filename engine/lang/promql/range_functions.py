"""Functions of a range vector.

A kernel is given the windows of some series that hold enough samples, and the
scalar parameters at the same instants; it returns one value a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.lang.promql.statistics import mean, total, variance
from engine.lang.promql.storage import Ints
from engine.lang.promql.vector import Scalar, Vector, merge, nameless
from engine.lang.promql.windows import Extended, RangeVector, Windows
from engine.model.labels import Labels
from engine.model.series import Bools, Floats

Kernel = Callable[..., Floats]
_AT_ONCE = 1 << 20  # samples


@dataclass(frozen=True, slots=True)
class RangeFunction:
    """A kernel, how many samples it needs, and whether the metric keeps its name."""

    kernel: Kernel
    minimum: int = 1
    keeps_name: bool = False

    def apply(self, operand: RangeVector, parameters: Sequence[Scalar], instants: int) -> Vector:
        """Return the function's value wherever a window holds enough samples."""
        labels: list[Labels] = []
        blocks: list[tuple[Floats, Bools]] = []
        for names, windows in operand.batches():
            present = windows.counts >= self.minimum
            values = np.full(len(present), np.nan)
            if present.any():
                chosen = (np.tile(parameter, len(names))[present] for parameter in parameters)
                with np.errstate(all="ignore"):
                    values[present] = self.kernel(windows.where(present), *chosen)
            labels += names if self.keeps_name else map(nameless, names)
            blocks.append((values.reshape(-1, instants), present.reshape(-1, instants)))
        if not blocks:
            return Vector.of((), instants)
        columns = zip(*blocks, strict=True)
        return merge(Vector(labels, *(np.concatenate(column) for column in columns)))


def _difference(windows: Windows) -> Floats:
    return windows.values[windows.last] - windows.values[windows.first]


def _increase(windows: Windows) -> Floats:
    """Return how far a counter rose within each window, its resets made good."""
    values = windows.values
    fell = values[1:] < values[:-1]
    rise = _difference(windows)
    if (reset := windows.counted(fell) > 0).any():
        lost = np.concatenate([[0.0], np.where(fell, values[:-1], 0.0)])
        after_first = windows.where(reset)
        after_first = replace(after_first, first=after_first.first + 1)
        rise[reset] += _floats(*after_first.totals(lost))
    return rise


def _extrapolated(windows: Windows, change: Floats, *, counter: bool, per_second: bool) -> Floats:
    """Return `change` stretched to the whole range, as Prometheus' extrapolatedRate does.

    To each side it reaches the range's edge, or half the mean distance of samples if the edge is farther
    than 1.1 times that; a counter is never taken back beyond zero.
    """
    start = windows.times[windows.first]
    end = windows.times[windows.last]
    sampled = (end - start) / 1000
    distance = sampled / (windows.counts - 1)
    before = (start - (windows.ends - windows.length_ms)) / 1000
    after = (windows.ends - end) / 1000
    before = np.where(before >= distance * 1.1, distance / 2, before)
    after = np.where(after >= distance * 1.1, distance / 2, after)
    if counter:
        lowest = windows.values[windows.first]
        to_zero = np.where((change > 0) & (lowest >= 0), sampled * (lowest / change), np.inf)
        before = np.minimum(before, to_zero)
    factor = (sampled + before + after) / sampled
    if per_second:
        factor = factor / (windows.length_ms / 1000)
    return change * factor


def _rate(windows: Windows) -> Floats:
    return _extrapolated(windows, _increase(windows), counter=True, per_second=True)


def _whole_increase(windows: Windows) -> Floats:
    return _extrapolated(windows, _increase(windows), counter=True, per_second=False)


def _delta(windows: Windows) -> Floats:
    return _extrapolated(windows, _difference(windows), counter=False, per_second=False)


def _idelta(windows: Windows) -> Floats:
    return windows.values[windows.last] - windows.values[windows.last - 1]


def _irate(windows: Windows) -> Floats:
    last, before = windows.values[windows.last], windows.values[windows.last - 1]
    passed = (windows.times[windows.last] - windows.times[windows.last - 1]) / 1000
    return np.where(last < before, last, last - before) / passed


def _line(windows: Windows, origin_ms: Ints) -> tuple[Floats, Floats]:
    """Return slope (per second) and value at `origin_ms` of the least-squares line through each window."""
    count, y = windows.counts, windows.values
    start = windows.times[0]
    x = (windows.times - start).astype(np.longdouble) / 1000
    # Sums for times from `start`, then moved to each window's own origin.
    sums_x, sums_y, sums_xy, sums_xx = windows.totals(x, y, x * y, x * x)
    origin = (origin_ms - start).astype(np.longdouble) / 1000
    sum_x, sum_y = _floats(sums_x - count * origin), _floats(sums_y)
    sum_xy = _floats(sums_xy - origin * sums_y)
    for odd in np.flatnonzero(~np.isfinite(sum_y)):  # infinities cannot be moved
        inside = slice(windows.first[odd], windows.stop[odd])
        sum_xy[odd] = ((x[inside] - origin[odd]) * y[inside]).sum()
    sum_xx = _floats(sums_xx - origin * (2 * sums_x - count * origin))
    slope = (sum_xy - sum_x * sum_y / count) / (sum_xx - sum_x * sum_x / count)
    level = sum_y / count - slope * sum_x / count
    # A constant is a constant, whatever rounding says; of an infinite one nothing is known.
    first = y[windows.first]
    constant = windows.counted(y[1:] != y[:-1]) == 0
    slope = np.where(constant, np.where(np.isinf(first), np.nan, 0.0), slope)
    level = np.where(constant, np.where(np.isinf(first), np.nan, first), level)
    return slope, level


def _deriv(windows: Windows) -> Floats:
    return _line(windows, windows.times[windows.first])[0]


def _predict_linear(windows: Windows, ahead: Floats) -> Floats:
    slope, level = _line(windows, windows.at)
    return slope * ahead + level


def _reset_count(windows: Windows) -> Floats:
    return windows.counted(windows.values[1:] < windows.values[:-1]).astype(np.float64)


def _change_count(windows: Windows) -> Floats:
    before, after = windows.values[:-1], windows.values[1:]
    return windows.counted((before != after) & ~(np.isnan(before) & np.isnan(after))).astype(np.float64)


def _extreme(pick: np.ufunc) -> Kernel:
    return lambda windows: windows.folded(pick, windows.values)


def _sum(windows: Windows) -> Floats:
    quick, sizes = windows.totals(windows.values, np.abs(windows.values))
    return _doubted(total, windows, _floats(quick), sizes > 64 * np.abs(quick))


def _mean(windows: Windows) -> Floats:
    sums = _sum(windows)
    return _doubted(mean, windows, sums / windows.counts, np.isinf(sums))


def _variance(windows: Windows) -> Floats:
    offsets = windows.values.astype(np.longdouble) - windows.values[windows.first[0]]
    sums, squares = windows.totals(offsets, offsets * offsets)
    spread = squares - sums * sums / windows.counts
    return _doubted(variance, windows, _floats(spread / windows.counts), ~(squares < 2**20 * spread))


def _doubted(
    exact: Callable[[list[float]], float], windows: Windows, quick: Floats, doubtful: Bools
) -> Floats:
    """Return `quick`, with those values made anew that lost too many digits to cancellation."""
    if doubtful.any():
        quick[doubtful] = [exact(values) for values in windows.where(doubtful).lists()]
    return quick


def _quantile(windows: Windows, q: Floats) -> Floats:
    """Return quantiles, those of windows of equally many samples at once; NaN sorts lowest."""
    found = np.empty(len(q))
    counts = windows.counts
    for chosen in _alike(counts):
        count = counts[chosen[0]]
        samples = windows.values[windows.first[chosen, None] + np.arange(count)]
        ordered = -np.sort(-samples, axis=1)[:, ::-1]
        rank = np.clip(q[chosen], 0, 1) * (count - 1)
        lower = np.floor(np.nan_to_num(rank)).astype(np.int64)
        upper = np.minimum(count - 1, lower + 1)
        weight = rank - lower
        rows = np.arange(len(chosen))
        found[chosen] = ordered[rows, lower] * (1 - weight) + ordered[rows, upper] * weight
    return np.where((q < 0) | (q > 1), np.copysign(np.inf, q), found)


def _alike(counts: Ints) -> Iterator[Ints]:
    """Yield the indices of windows of equally many samples, as many as memory should hold at once."""
    for count in np.unique(counts):
        alike = np.flatnonzero(counts == count)
        portion = max(1, _AT_ONCE // int(count))
        yield from (alike[start : start + portion] for start in range(0, len(alike), portion))


def _floats(extended: Extended | Floats) -> Floats:
    return extended.astype(np.float64)


RANGE_FUNCTIONS = {
    "avg_over_time": RangeFunction(_mean),
    "changes": RangeFunction(_change_count),
    "count_over_time": RangeFunction(lambda windows: windows.counts.astype(np.float64)),
    "delta": RangeFunction(_delta, minimum=2),
    "deriv": RangeFunction(_deriv, minimum=2),
    "idelta": RangeFunction(_idelta, minimum=2),
    "increase": RangeFunction(_whole_increase, minimum=2),
    "irate": RangeFunction(_irate, minimum=2),
    "last_over_time": RangeFunction(lambda windows: windows.values[windows.last], keeps_name=True),
    "max_over_time": RangeFunction(_extreme(np.fmax)),
    "min_over_time": RangeFunction(_extreme(np.fmin)),
    "predict_linear": RangeFunction(_predict_linear, minimum=2),
    "present_over_time": RangeFunction(lambda windows: np.ones(len(windows.first))),
    "quantile_over_time": RangeFunction(_quantile),
    "rate": RangeFunction(_rate, minimum=2),
    "resets": RangeFunction(_reset_count),
    "stddev_over_time": RangeFunction(lambda windows: np.sqrt(_variance(windows))),
    "stdvar_over_time": RangeFunction(_variance),
    "sum_over_time": RangeFunction(_sum),
}

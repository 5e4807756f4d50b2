"""Functions of a range vector.

A kernel is given one series' windows that hold enough samples, and the scalar
parameters at the same instants; it returns one value a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.lang.promql.statistics import mean, quantile, total, variance
from engine.lang.promql.storage import Ints
from engine.lang.promql.vector import Row, Scalar, Vector, merge
from engine.lang.promql.windows import RangeVector, Windows, running_total
from engine.model.labels import METRIC_NAME
from engine.model.series import Floats

Kernel = Callable[..., Floats]


@dataclass(frozen=True, slots=True)
class RangeFunction:
    """A kernel, how many samples it needs, and whether the metric keeps its name."""

    kernel: Kernel
    minimum: int = 1
    keeps_name: bool = False

    def apply(self, operand: RangeVector, parameters: Sequence[Scalar], instants: int) -> Vector:
        """Return the function's value wherever a window holds enough samples."""
        rows = []
        for labels, windows in zip(operand.labels, operand.windows, strict=True):
            present = windows.counts >= self.minimum
            if not present.any():
                continue
            values = np.full(instants, np.nan)
            with np.errstate(all="ignore"):
                chosen = (parameter[present] for parameter in parameters)
                values[present] = self.kernel(windows.where(present), *chosen)
            rows.append(Row(labels if self.keeps_name else labels.without(METRIC_NAME), values, present))
        return merge(Vector.of(rows, instants))


def _difference(windows: Windows) -> Floats:
    return windows.values[windows.last] - windows.values[windows.first]


def _increase(windows: Windows) -> Floats:
    """Return how far a counter rose within each window, its resets made good."""
    values = windows.values
    lost = np.where(values[1:] < values[:-1], values[:-1], 0.0)
    if not np.isfinite(lost).all():  # prefix sums would carry an infinity into every later window
        parts = zip(windows.first, windows.last, strict=True)
        return _difference(windows) + _floats(float(np.sum(lost[first:last])) for first, last in parts)
    upto = running_total(lost)
    return _difference(windows) + (upto[windows.last] - upto[windows.first])


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
    flat, count = windows.flat, windows.counts
    x = (flat.times - origin_ms[flat.window]) / 1000
    y = flat.values
    sum_x, sum_y = flat.totals(x), flat.totals(y)
    covariance = flat.totals(x * y) - sum_x * sum_y / count
    spread = flat.totals(x * x) - sum_x * sum_x / count
    slope = covariance / spread
    level = sum_y / count - slope * sum_x / count
    # A constant is a constant, whatever rounding says; of an infinite one nothing is known.
    first = windows.values[windows.first]
    constant = np.logical_and.reduceat(y == first[flat.window], flat.starts)
    slope = np.where(constant, np.where(np.isinf(first), np.nan, 0.0), slope)
    level = np.where(constant, np.where(np.isinf(first), np.nan, first), level)
    return slope, level


def _deriv(windows: Windows) -> Floats:
    return _line(windows, windows.times[windows.first])[0]


def _predict_linear(windows: Windows, ahead: Floats) -> Floats:
    slope, level = _line(windows, windows.at)
    return slope * ahead + level


def _reset_count(windows: Windows) -> Floats:
    return windows.counted(windows.values[1:] < windows.values[:-1])


def _change_count(windows: Windows) -> Floats:
    before, after = windows.values[:-1], windows.values[1:]
    return windows.counted((before != after) & ~(np.isnan(before) & np.isnan(after)))


def _extreme(pick: np.ufunc) -> Kernel:
    def kernel(windows: Windows) -> Floats:
        # reduceat of [first, stop, first, stop, …] has each window at the even places.
        bounds = np.column_stack([windows.first, windows.stop]).ravel()
        padded = np.append(windows.values, np.nan)  # so that a stop at the end is an index
        found: Floats = pick.reduceat(padded, bounds)[::2]
        return found

    return kernel


def _each(statistic: Callable[[list[float]], float]) -> Kernel:
    def kernel(windows: Windows) -> Floats:
        return _floats(statistic(values) for values in windows.lists())

    return kernel


def _quantile(windows: Windows, q: Floats) -> Floats:
    return _floats(
        quantile(wanted, values) for wanted, values in zip(q.tolist(), windows.lists(), strict=True)
    )


def _floats(values: Iterable[float]) -> Floats:
    return np.fromiter(values, dtype=np.float64)


RANGE_FUNCTIONS = {
    "avg_over_time": RangeFunction(_each(mean)),
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
    "stddev_over_time": RangeFunction(lambda windows: np.sqrt(_each(variance)(windows))),
    "stdvar_over_time": RangeFunction(_each(variance)),
    "sum_over_time": RangeFunction(_each(total)),
}

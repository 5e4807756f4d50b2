"""Classic histograms: quantiles and fractions from cumulative buckets labelled `le`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from engine.lang.promql.vector import Row, Scalar, Vector, any_row, merge
from engine.model.labels import METRIC_NAME, Labels

Buckets = list[tuple[float, float]]
"""Upper bounds and cumulative counts, in rising order of the bounds."""

_NOISE = 1e-12  # counts that differ relatively by less are the same, as in Prometheus


def histogram_quantile(q: Scalar, buckets: Vector) -> Vector:
    """Return the q-quantile of every histogram in `buckets`."""
    return _per_histogram(buckets, lambda instant, found: _quantile(float(q[instant]), found))


def histogram_fraction(lower: Scalar, upper: Scalar, buckets: Vector) -> Vector:
    """Return which share of each histogram's observations lies between `lower` and `upper`."""
    return _per_histogram(
        buckets, lambda instant, found: _fraction(float(lower[instant]), float(upper[instant]), found)
    )


def _per_histogram(buckets: Vector, statistic: Callable[[int, Buckets], float]) -> Vector:
    instants = buckets.values.shape[1]
    rows = []
    for labels, members in _histograms(buckets).items():
        bounds = [bound for bound, _ in members]
        indices = [index for _, index in members]
        counts, there = buckets.values[indices], buckets.present[indices]
        present = any_row(there)
        values = np.full(instants, np.nan)
        for instant in np.flatnonzero(present):
            found = zip(bounds, counts[:, instant].tolist(), there[:, instant].tolist(), strict=True)
            merged = _merge_bounds((bound, count) for bound, count, is_there in found if is_there)
            values[instant] = statistic(int(instant), merged)
        rows.append(Row(labels, values, present))
    return merge(Vector.of(rows, instants))


def _histograms(buckets: Vector) -> dict[Labels, list[tuple[float, int]]]:
    """Return each histogram's (bound, row) pairs; rows without a readable `le` are left out."""
    found: dict[Labels, list[tuple[float, int]]] = {}
    for index, labels in enumerate(buckets.labels):
        try:
            bound = float(labels.get("le", ""))
        except ValueError:
            continue
        found.setdefault(labels.without("le", METRIC_NAME), []).append((bound, index))
    return found


def _merge_bounds(pairs: Iterator[tuple[float, float]]) -> Buckets:
    """Return buckets with the counts of equal bounds added, such as `le="1"` and `le="1.0"`."""
    counts: dict[float, float] = {}
    for bound, count in pairs:
        counts[bound] = counts.get(bound, 0.0) + count
    return sorted(counts.items())


def _monotonic(buckets: Buckets) -> Buckets:
    """Return buckets whose counts never fall and differ by more than rounding noise."""
    highest = buckets[0][1]
    repaired = [buckets[0]]
    for bound, count in buckets[1:]:
        same = abs(count - highest) < _NOISE * (abs(count) + abs(highest))
        if not same and not count < highest:
            highest = count
        repaired.append((bound, highest))
    return repaired


def _quantile(q: float, buckets: Buckets) -> float:
    if q < 0 or q > 1:
        return math.copysign(math.inf, q)
    buckets = _monotonic(buckets)
    observations = buckets[-1][1]
    complete = buckets[-1][0] == math.inf and len(buckets) >= 2
    if not complete or observations == 0 or math.isnan(q * observations):
        return math.nan
    return _interpolated(q * observations, buckets)


def _interpolated(rank: float, buckets: Buckets) -> float:
    """Return the value below which `rank` observations lie if each bucket's are spread evenly."""
    index = next((i for i, (_, count) in enumerate(buckets[:-1]) if count >= rank), len(buckets) - 1)
    bound, count = buckets[index]
    if index == len(buckets) - 1:
        return buckets[-2][0]  # all that is known of the last bucket is where it begins
    if index == 0 and bound <= 0:
        return bound
    start, below = buckets[index - 1] if index else (0.0, 0.0)
    if count == below:  # rank 0 in an empty bucket
        return math.nan
    return start + (bound - start) * ((rank - below) / (count - below))


def _fraction(lower: float, upper: float, buckets: Buckets) -> float:
    """Return the share of observations between two values, of the counts as they are, without repair."""
    bound, observations = buckets[-1]
    if bound != math.inf or observations == 0 or math.isnan(lower) or math.isnan(upper):
        return math.nan
    if lower >= upper:
        return 0.0
    return (_rank(upper, buckets) - _rank(lower, buckets)) / observations


def _rank(value: float, buckets: Buckets) -> float:
    """Return how many observations lie below `value` if each bucket's are spread evenly.

    The first bucket begins at minus infinity, so of a value inside it nothing is known (Prometheus 3.5).
    """
    observations = buckets[-1][1]
    start, below = -math.inf, 0.0
    for bound, count in buckets:
        if start >= value:
            break
        if bound > value:
            share = (value - start) / (bound - start) if math.isfinite(start) else math.nan
            below += (count - below) * share
            break
        start, below = bound, count
    else:
        below = observations
    return min(below, observations)

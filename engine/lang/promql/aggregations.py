"""Aggregations: many elements become one a group, or the best few of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from engine.errors import ExpressionError
from engine.lang.promql.statistics import mean, quantile, total, variance
from engine.lang.promql.syntax import Grouping
from engine.lang.promql.vector import Row, Scalar, Value, Vector, any_row, merge
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Bools, Floats


class Group(NamedTuple):
    """The elements of one group: their rows in the vector, values[k, m] and where they are there."""

    indices: list[int]
    values: Floats
    present: Bools


def aggregate(operator: str, vector: Vector, parameter: Value | None, grouping: Grouping) -> Vector:
    """Return `operator by (…) (parameter, vector)`."""
    instants = vector.values.shape[1]
    groups = _groups(vector, grouping)
    if operator in _STATISTICS:
        rows = [_summary(_STATISTICS[operator], labels, group) for labels, group in groups.items()]
    elif operator == "count_values":
        assert isinstance(parameter, str)
        rows = _count_values(parameter, vector, grouping)
    else:
        assert isinstance(parameter, np.ndarray)
        if operator == "quantile":
            rows = [_quantile(parameter, labels, group) for labels, group in groups.items()]
        else:
            rows = _extremes(vector, groups.values(), parameter, highest=operator == "topk")
    return merge(Vector.of(rows, instants))


@lru_cache(maxsize=1 << 16)
def grouped(labels: Labels, grouping: Grouping) -> Labels:
    """Return the labels that tell a group from others."""
    if grouping.by:
        return labels.only(*grouping.labels)
    return labels.without(METRIC_NAME, *grouping.labels)


def _groups(vector: Vector, grouping: Grouping) -> dict[Labels, Group]:
    members: dict[Labels, list[int]] = {}
    for index, labels in enumerate(vector.labels):
        members.setdefault(grouped(labels, grouping), []).append(index)
    return {
        labels: Group(indices, vector.values[indices], vector.present[indices])
        for labels, indices in members.items()
    }


def _summary(statistic: Callable[[Group], Floats], labels: Labels, group: Group) -> Row:
    with np.errstate(all="ignore"):
        return Row(labels, statistic(group), any_row(group.present))


def _instants(group: Group) -> Iterable[tuple[int, list[float]]]:
    """Yield every instant at which there is something, and the values there."""
    everything = group.present.all()
    for instant in np.flatnonzero(any_row(group.present)):
        column = group.values[:, instant]
        yield int(instant), (column if everything else column[group.present[:, instant]]).tolist()


def _each(statistic: Callable[[list[float]], float]) -> Callable[[Group], Floats]:
    def per_instant(group: Group) -> Floats:
        found = np.full(group.values.shape[1], np.nan)
        for instant, values in _instants(group):
            found[instant] = statistic(values)
        return found

    return per_instant


def _extreme(pick: np.ufunc) -> Callable[[Group], Floats]:
    def per_instant(group: Group) -> Floats:
        found: Floats = pick.reduce(np.where(group.present, group.values, np.nan), axis=0)
        return found

    return per_instant


def _quantile(q: Scalar, labels: Labels, group: Group) -> Row:
    values = np.full(len(q), np.nan)
    for instant, found in _instants(group):
        values[instant] = quantile(float(q[instant]), found)
    return Row(labels, values, any_row(group.present))


def _count_values(name: str, vector: Vector, grouping: Grouping) -> list[Row]:
    """Return how many elements have each value, which becomes a label before the elements are grouped."""
    if grouping.by:
        grouping = Grouping(by=True, labels=(*grouping.labels, name))
    counts: dict[Labels, Floats] = {}
    for row in vector.rows:
        for instant in np.flatnonzero(row.present):
            labels = grouped(row.labels.updated({name: _formatted(float(row.values[instant]))}), grouping)
            counts.setdefault(labels, np.zeros(len(row.values)))[instant] += 1
    return [Row(labels, column, column > 0) for labels, column in counts.items()]


def _formatted(value: float) -> str:
    """Return `value` as Prometheus prints it into a label: the shortest digits, never an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return np.format_float_positional(value, trim="-")


def _extremes(vector: Vector, groups: Iterable[Group], count: Scalar, *, highest: bool) -> list[Row]:
    """Return the `count` elements of each group with the highest or lowest values, the best first, NaN last.

    Of equal values the one stored first is taken; Prometheus takes any.
    """
    counted = count[any_row(vector.present)]  # nobody asks for the count of nothing
    if np.isnan(counted).any() or (np.abs(counted) >= 2.0**63).any():
        raise ExpressionError("topk() and bottomk() need a count that is a whole number; give one such as 3")
    rows = []
    for group in groups:
        keep = np.zeros_like(group.present)
        best_first = list(range(len(group.indices)))
        for instant in np.flatnonzero(any_row(group.present)):
            ranked = -group.values[:, instant] if highest else group.values[:, instant]
            best_first = [i for i in np.argsort(ranked, kind="stable").tolist() if group.present[i, instant]]
            keep[best_first[: max(0, int(count[instant]))], instant] = True
        # At one instant the order of the rows is the answer's order; over a range there is none.
        order = best_first if len(count) == 1 else range(len(group.indices))
        rows += [Row(vector.labels[group.indices[i]], group.values[i], keep[i]) for i in order]
    return rows


_STATISTICS: dict[str, Callable[[Group], Floats]] = {
    "avg": _each(mean),
    "count": lambda group: group.present.sum(axis=0).astype(np.float64),
    "group": lambda group: np.ones(group.values.shape[1]),
    "max": _extreme(np.fmax),
    "min": _extreme(np.fmin),
    "stddev": lambda group: np.sqrt(_each(variance)(group)),
    "stdvar": _each(variance),
    "sum": _each(total),
}
AGGREGATIONS = frozenset({*_STATISTICS, "count_values", "quantile", "topk", "bottomk"})

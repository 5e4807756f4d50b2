"""Binary operators: arithmetic, comparisons, sets, and which elements of two vectors belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.errors import ExpressionError
from engine.lang.promql.aggregations import grouped
from engine.lang.promql.syntax import COMPARISONS, SET_OPERATORS, Binary, Cardinality, Grouping
from engine.lang.promql.vector import Row, Scalar, Value, Vector, any_row, merge
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Bools, Floats

_OPERATIONS: dict[str, Callable[[Floats, Floats], Floats | Bools]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}


def combine(node: Binary, left: Value, right: Value) -> Value:
    """Return `left operator right`."""
    if isinstance(left, Vector) and isinstance(right, Vector):
        if node.operator in SET_OPERATORS:
            return _combine_sets(node, left, right)
        return _Join(node, left, right).result()
    if isinstance(left, Vector):
        assert isinstance(right, np.ndarray)
        return _with_scalar(node, left, _apply(node.operator, left.values, right))
    assert isinstance(left, np.ndarray)
    if isinstance(right, Vector):
        return _with_scalar(node, right, _apply(node.operator, left, right.values))
    assert isinstance(right, np.ndarray)
    return _apply(node.operator, left, right)


def _apply(operator: str, left: Floats, right: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return _OPERATIONS[operator](left, right).astype(np.float64)


def _filters(node: Binary) -> bool:
    return node.operator in COMPARISONS and not node.returns_bool


def _with_scalar(node: Binary, vector: Vector, outcome: Scalar) -> Vector:
    if _filters(node):
        return merge(Vector(vector.labels, vector.values, vector.present & (outcome == 1)))
    return merge(Vector(vector.nameless(), outcome, vector.present))


def _presence(vector: Vector, grouping: Grouping) -> dict[Labels, Bools]:
    """Return where each group of `vector` has at least one element."""
    found: dict[Labels, Bools] = {}
    for row in vector.rows:
        key = grouped(row.labels, grouping)
        found[key] = found[key] | row.present if key in found else row.present
    return found


def _combine_sets(node: Binary, left: Vector, right: Vector) -> Vector:
    grouping = node.matching.grouping
    instants = left.values.shape[1]
    if node.operator == "or":
        return merge(Vector.of([*left.rows, *_only_where(right, left, grouping, there=False)], instants))
    return merge(Vector.of(_only_where(left, right, grouping, there=node.operator == "and"), instants))


def _only_where(vector: Vector, other: Vector, grouping: Grouping, *, there: bool) -> Iterator[Row]:
    """Return the rows of `vector` where `other` has, or has not, an element of the same group."""
    presence = _presence(other, grouping)
    nowhere = np.zeros(vector.values.shape[1], bool)
    for row in vector.rows:
        match = presence.get(grouped(row.labels, grouping), nowhere)
        yield Row(row.labels, row.values, row.present & (match if there else ~match))


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    """An arithmetic operator or comparison between two vectors.

    Every error is one only at an instant where the elements concerned are all there.
    """

    node: Binary
    left: Vector
    right: Vector

    def result(self) -> Vector:
        rows = []
        partners = self._partners()
        # Of a one-to-one match, where each group has had its result.
        matched: dict[Labels, Bools] = {}
        for row in self._many.rows:
            key = grouped(row.labels, self._grouping)
            for partner in partners.get(key, ()):
                combined = self._combined(row, partner)
                if self._one_to_one:
                    if key in matched and (matched[key] & combined.present).any():
                        raise ExpressionError(
                            f"several elements on the left side match {partner.labels} on the right; "
                            "write group_left or group_right, or match on more labels"
                        )
                    matched[key] = matched[key] | combined.present if key in matched else combined.present
                rows.append(combined)
        joined = Vector.of(rows, self.left.values.shape[1])
        return merge(joined, "several matches give one labelset; group by labels that tell them apart")

    @property
    def _grouping(self) -> Grouping:
        return self.node.matching.grouping

    @property
    def _one_to_one(self) -> bool:
        return self.node.matching.cardinality is Cardinality.ONE_TO_ONE

    @property
    def _swapped(self) -> bool:
        return self.node.matching.cardinality is Cardinality.ONE_TO_MANY

    @property
    def _many(self) -> Vector:
        return self.right if self._swapped else self.left

    @property
    def _one(self) -> Vector:
        return self.left if self._swapped else self.right

    def _partners(self) -> dict[Labels, list[Row]]:
        """Return the rows of the one side by group; at no instant may two of a group be there."""
        needed = any_row(self._many.present)
        found: dict[Labels, list[Row]] = {}
        for row in self._one.rows:
            others = found.setdefault(grouped(row.labels, self._grouping), [])
            for other in others:
                if (other.present & row.present & needed).any():
                    side = "left" if self._swapped else "right"
                    raise ExpressionError(
                        f"{other.labels} and {row.labels} on the {side} side match the same elements; "
                        "match on more labels or aggregate that side"
                    )
            others.append(row)
        return found

    def _combined(self, many: Row, one: Row) -> Row:
        left, right = (one, many) if self._swapped else (many, one)
        outcome = _apply(self.node.operator, left.values, right.values)
        present = many.present & one.present
        labels = self._labels(many.labels, one.labels)
        if _filters(self.node):
            return Row(labels, left.values, present & (outcome == 1))
        return Row(labels, outcome, present)

    def _labels(self, many: Labels, one: Labels) -> Labels:
        labels = many if _filters(self.node) else many.without(METRIC_NAME)
        if self._one_to_one:
            names: Sequence[str] = self._grouping.labels
            return labels.only(*names) if self._grouping.by else labels.without(*names)
        return labels.updated({name: one.get(name, "") for name in self.node.matching.include})

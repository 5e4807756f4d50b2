"""Evaluate an expression at many instants at once.

Every part of an expression comes to a value for all instants: an array for a
scalar, a matrix of series and instants for a vector. A single instant is the
case of one column, so a range and the instants it is made of cannot disagree.

Semantics are those of Prometheus 3: ranges and the lookback are open on the
left, stale markers end a series. Differences that remain are listed in
`tests/integration/test_promql_differential.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from engine.errors import ExpressionError
from engine.lang.promql.aggregations import aggregate
from engine.lang.promql.functions import FUNCTIONS, Arguments, absent, computed, negated, single
from engine.lang.promql.operators import combine
from engine.lang.promql.parse import parse
from engine.lang.promql.places import placed
from engine.lang.promql.range_functions import RANGE_FUNCTIONS
from engine.lang.promql.storage import Ints, Storage
from engine.lang.promql.syntax import (
    Aggregation,
    Binary,
    Call,
    Edge,
    Negation,
    Node,
    Number,
    RangeSelector,
    Selector,
    Shift,
    Subquery,
    Text,
)
from engine.lang.promql.vector import Row, Scalar, Value, Vector, merge
from engine.lang.promql.windows import RangeVector
from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME, Labels, MatchOp
from engine.model.series import Floats, Window

LOOKBACK = Duration(minutes=5)
SUBQUERY_STEP = Duration(minutes=1)


def evaluate(
    expr: str,
    storage: Storage,
    times: Sequence[float] | Floats,
    *,
    lookback: Duration = LOOKBACK,
    subquery_step: Duration = SUBQUERY_STEP,
) -> Window:
    """Return `expr` at `times`, rising Unix seconds; raise ExpressionError if it has no answer.

    A scalar is one series without labels. At a single instant the rows are in the order that the expression
    gives them by sort() or topk(). `subquery_step` holds for subqueries that name none; Prometheus takes its
    evaluation interval.
    """
    instants = np.round(np.asarray(times, dtype=np.float64) * 1000).astype(np.int64)
    if len(instants) == 0:
        return Window.of((), (), ())
    node = parse(expr)
    scope = _Scope(
        expr=expr,
        root=node,
        storage=storage,
        times=instants,
        start=int(instants[0]),
        end=int(instants[-1]),
        lookback_ms=_milliseconds(lookback),
        subquery_step_ms=_milliseconds(subquery_step),
    )
    if isinstance(node, RangeSelector | Subquery | Text):
        kind = "a string" if isinstance(node, Text) else "a range vector"
        raise ExpressionError(
            f"the expression is {kind}, which has no value at an instant; give a vector or a scalar"
        )
    value = scope.value(node)
    assert not isinstance(value, str)
    vector = merge(single(value) if isinstance(value, np.ndarray) else value)
    values = np.where(vector.present, vector.values, np.nan)
    return Window(tuple(vector.labels), instants / 1000, values, vector.present)


@dataclass(frozen=True, slots=True, eq=False)
class _Scope:
    """The expression, the samples, the instants in milliseconds, and the ends of the whole evaluation."""

    expr: str
    root: Node
    storage: Storage
    times: Ints
    start: int
    end: int
    lookback_ms: int
    subquery_step_ms: int

    def value(self, node: Node) -> Value:  # noqa: PLR0911, one for each form
        """Return what `node` comes to at every instant."""
        match node:
            case Number(value):
                return np.full(len(self.times), value)
            case Text(text):
                return text
            case Selector():
                return self._selected(node)[0]
            case Negation(operand):
                inner = self.value(operand)
                return negated(inner) if isinstance(inner, Vector) else -_number(inner)
            case Call():
                return self._called(node)
            case Aggregation(operator, operand, parameter, grouping):
                extra = None if parameter is None else self.value(parameter)
                vector = self._vector(operand)
                with self._blame(node):
                    return aggregate(operator, vector, extra, grouping)
            case Binary():
                left, right = self.value(node.left), self.value(node.right)
                with self._blame(node):
                    return combine(node, left, right)
            case RangeSelector() | Subquery():
                raise AssertionError("the parser lets a range stand only where ranges() takes it")

    @contextmanager
    def _blame(self, node: Node) -> Iterator[None]:
        """Give an error of `node` itself, not of a part of it, its place."""
        try:
            yield
        except ExpressionError as error:
            raise placed(error, node, self.root, self.expr) from None

    def _vector(self, node: Node) -> Vector:
        value = self.value(node)
        assert isinstance(value, Vector)
        return value

    def _shifted(self, shift: Shift) -> Ints:
        """Return the instants that `@` and `offset` make of the evaluation's."""
        match shift.at:
            case None:
                times = self.times
            case Edge.START:
                times = np.full_like(self.times, self.start)
            case Edge.END:
                times = np.full_like(self.times, self.end)
            case at:
                times = np.full_like(self.times, at)
        return times - shift.offset_ms

    def _selected(self, node: Selector) -> tuple[Vector, Floats]:
        """Return the newest sample within the lookback, and the times of those samples in seconds."""
        times = self._shifted(node.shift)
        oldest = times - self.lookback_ms
        rows, sampled = [], []
        for series in self.storage.select(node.matchers):
            samples = series.samples
            found = samples.times.searchsorted(times, side="right") - 1
            at = samples.times[found]  # the last one where there is none before
            present = (found >= 0) & (at > oldest) & ~samples.stale[found]
            if present.any():
                rows.append(Row(series.labels, samples.values[found], present))
                sampled.append(at)
        return Vector.of(rows, len(times)), np.array(sampled).reshape(len(rows), len(times)) / 1000

    def _ranges(self, node: Node) -> RangeVector:
        """Return the windows of a range selector or a subquery."""
        if isinstance(node, RangeSelector):
            ends, length = self._shifted(node.selector.shift), node.length_ms
            series = list(self.storage.select(node.selector.matchers))
            labels = [one.labels for one in series]
            samples = [one.live[:2] for one in series]
        else:
            assert isinstance(node, Subquery)
            ends, length = self._shifted(node.shift), node.length_ms
            labels, samples = self._resampled(node, ends)
        return RangeVector(labels, samples, ends, self.times, length)

    def _resampled(self, node: Subquery, ends: Ints) -> tuple[list[Labels], list[tuple[Ints, Floats]]]:
        """Return a subquery's samples: its operand at every multiple of the step within reach of `ends`."""
        step = self.subquery_step_ms if node.step_ms is None else node.step_ms
        first = ((int(ends.min()) - node.length_ms) // step + 1) * step
        times = np.arange(first, int(ends.max()) + 1, step, dtype=np.int64)
        if len(times) == 0:
            return [], []
        inner = replace(self, times=times)._vector(node.operand)  # noqa: SLF001
        rows = list(inner.rows)
        return [row.labels for row in rows], [(times[row.present], row.values[row.present]) for row in rows]

    def _called(self, node: Call) -> Value:
        match node:
            case Call("timestamp", (Selector() as selector,)):
                return computed(*self._selected(selector))
            case Call("timestamp", (operand,)):
                vector = self._vector(operand)
                return computed(vector, np.broadcast_to(self.times / 1000, vector.values.shape))
            case Call("absent", (operand,)):
                return absent(self._vector(operand), _known_labels(operand))
            case Call("absent_over_time", (operand,)):
                present = RANGE_FUNCTIONS["present_over_time"]
                vector = present.apply(self._ranges(operand), (), len(self.times))
                return absent(vector, _known_labels(operand))
        if node.function in RANGE_FUNCTIONS:
            return self._over_range(node)
        values = [self.value(argument) for argument in node.arguments]
        with self._blame(node):
            return FUNCTIONS[node.function](Arguments(values, self.times))

    def _over_range(self, node: Call) -> Vector:
        ranges = [argument for argument in node.arguments if isinstance(argument, RangeSelector | Subquery)]
        parameters = [_number(self.value(other)) for other in node.arguments if other not in ranges]
        windows = self._ranges(ranges[0])
        with self._blame(node):
            return RANGE_FUNCTIONS[node.function].apply(windows, parameters, len(self.times))


def _number(value: Value) -> Scalar:
    assert isinstance(value, np.ndarray)
    return value


def _known_labels(node: Node) -> Labels:
    """Return the labels that an absent element would have: those that a selector demands, each once."""
    selector = node.selector if isinstance(node, RangeSelector) else node
    if not isinstance(selector, Selector):
        return Labels()
    names = [matcher.name for matcher in selector.matchers]
    return Labels(
        {
            matcher.name: matcher.value
            for matcher in selector.matchers
            if matcher.op is MatchOp.EQUAL and matcher.name != METRIC_NAME and names.count(matcher.name) == 1
        }
    )


def _milliseconds(length: Duration) -> int:
    return round(length / Duration(milliseconds=1))

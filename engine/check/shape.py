"""Which labels the elements of an expression have: certainly, possibly, certainly not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from engine.check.subject import World
from engine.lang.promql.syntax import (
    SET_OPERATORS,
    Aggregation,
    Binary,
    Call,
    Cardinality,
    Negation,
    Node,
    Number,
    RangeSelector,
    Selector,
    Subquery,
    Text,
    selected_metric,
)
from engine.model.labels import METRIC_NAME, MatchOp
from engine.ray.contract import RELABELLED, TARGET_LABELS

_SCALARS = frozenset({"scalar", "time", "pi"})
_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Shape:
    """The labels of a vector's elements. `possible` is None where any other may be there, except `never`."""

    certain: frozenset[str] = _NONE
    possible: frozenset[str] | None = None
    never: frozenset[str] = _NONE

    def lacks(self, label: str) -> bool:
        """Tell whether no element can have the label."""
        return label in self.never or (self.possible is not None and label not in self.possible)

    def has(self, label: str) -> bool:
        """Tell whether every element has the label."""
        return label in self.certain

    def with_label(self, label: str) -> Shape:
        """Return the shape with a label that some elements may have."""
        possible = None if self.possible is None else self.possible | {label}
        return Shape(self.certain, possible, self.never - {label})


_EMPTY = Shape(possible=_NONE)


def shape(node: Node, world: World) -> Shape | None:
    """Return the labels of the elements of `node`; None for a scalar or a text."""
    match node:
        case Selector():
            return _selected(node, world)
        case RangeSelector(selector=inner) | Subquery(operand=inner) | Negation(operand=inner):
            return shape(inner, world)
        case Aggregation():
            return _aggregated(node, world)
        case Call():
            return _called(node, world)
        case Binary():
            return _combined(node, world)
        case Number() | Text():
            return None


def _selected(node: Selector, world: World) -> Shape:
    demanded = frozenset(
        each.name for each in node.matchers if each.name != METRIC_NAME and not each.matches({})
    )
    series = world.series(node)
    if series is None:
        return Shape(certain=demanded)
    never = world.contract.vocabulary() - series.labels - TARGET_LABELS - RELABELLED
    emptied = {each.name for each in node.matchers if each.op is MatchOp.EQUAL and not each.value}
    return Shape((series.always | TARGET_LABELS | demanded) - emptied - never, None, never | emptied)


def _aggregated(node: Aggregation, world: World) -> Shape:
    inner = shape(node.operand, world) or _EMPTY
    if node.operator in ("topk", "bottomk"):
        return inner
    labels = frozenset(node.grouping.labels)
    if node.grouping.by:
        kept = Shape(inner.certain & labels, frozenset(each for each in labels if not inner.lacks(each)))
    else:
        possible = None if inner.possible is None else inner.possible - labels
        kept = Shape(inner.certain - labels, possible, inner.never | labels)
    if node.operator == "count_values" and isinstance(node.parameter, Text):
        return kept.with_label(node.parameter.value)
    return kept


def _called(node: Call, world: World) -> Shape | None:
    if node.function in _SCALARS:
        return None
    if node.function in ("absent", "absent_over_time"):
        return _absent(node.arguments[0])
    shapes = [found for each in node.arguments if (found := shape(each, world)) is not None]
    inner = shapes[0] if shapes else _EMPTY
    if node.function == "histogram_quantile":
        return Shape(inner.certain - {"le"}, inner.possible, inner.never | {"le"})
    if node.function in ("label_replace", "label_join"):
        target = next(each.value for each in node.arguments if isinstance(each, Text))
        return replace(inner.with_label(target), certain=inner.certain - {target})
    return inner


def _absent(argument: Node) -> Shape:
    """Return what `absent()` answers with: the labels that the selector demands to be equal to something."""
    selector = argument.selector if isinstance(argument, RangeSelector) else argument
    if not isinstance(selector, Selector):
        return _EMPTY
    equal = frozenset(
        each.name for each in selector.matchers if each.op is MatchOp.EQUAL and each.name != METRIC_NAME
    )
    return Shape(equal, equal)


def _combined(node: Binary, world: World) -> Shape | None:
    left, right = shape(node.left, world), shape(node.right, world)
    if left is None or right is None:
        return left or right
    if node.operator == "or":
        possible = None if left.possible is None or right.possible is None else left.possible | right.possible
        return Shape(left.certain & right.certain, possible, left.never & right.never)
    if node.operator in SET_OPERATORS:
        return left
    matching = node.matching
    if matching.cardinality is Cardinality.ONE_TO_MANY:
        left, right = right, left
    if matching.cardinality in (Cardinality.MANY_TO_ONE, Cardinality.ONE_TO_MANY):
        for label in matching.include:
            left = left.with_label(label)
        return left
    labels = frozenset(matching.grouping.labels)
    if matching.grouping.by:
        return Shape(left.certain & labels, frozenset(each for each in labels if not left.lacks(each)))
    possible = None if left.possible is None else left.possible - labels
    return Shape((left.certain | right.certain) - labels, possible, left.never | right.never | labels)


def mismatch(node: Binary, world: World) -> Mapping[str, bool]:
    """Return the labels because of which no element of one side can match one of the other.

    For each it says whether it is the left side that has it.
    """
    left, right = shape(node.left, world), shape(node.right, world)
    if left is None or right is None or node.operator == "or":
        return {}
    labels = frozenset(node.matching.grouping.labels)
    compared = labels if node.matching.grouping.by else (left.certain | right.certain) - labels
    found = {}
    for label in sorted(compared - {METRIC_NAME}):
        if left.has(label) and right.lacks(label):
            found[label] = True
        elif right.has(label) and left.lacks(label):
            found[label] = False
    return found


def metric_of(node: Node) -> str:
    """Return the name of the only metric in a part that is a selector or a range of one; else nothing."""
    selector = node.selector if isinstance(node, RangeSelector) else node
    return (selected_metric(selector.matchers) or "") if isinstance(selector, Selector) else ""

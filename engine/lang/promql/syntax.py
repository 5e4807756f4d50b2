"""A PromQL expression as frozen values: what `parse` makes of the parser's tree, and all that is evaluated.

Parentheses are gone, durations are milliseconds, and only what can be
evaluated has a form here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.lang.promql.regex import compile_regex
from engine.model.labels import METRIC_NAME, MatchOp


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """A test on one label, with RE2's regular expressions (alert routing has Python's)."""

    name: str
    op: MatchOp
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` pass; a missing label counts as empty."""
        value = labels.get(self.name, "")
        match self.op:
            case MatchOp.EQUAL:
                return value == self.value
            case MatchOp.NOT_EQUAL:
                return value != self.value
            case MatchOp.REGEX:
                return compile_regex(self.value).fullmatch(value) is not None
            case MatchOp.NOT_REGEX:
                return compile_regex(self.value).fullmatch(value) is None


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar literal."""

    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


class Edge(Enum):
    """`@ start()` and `@ end()`: the first and the last instant of the whole evaluation."""

    START = "start"
    END = "end"


@dataclass(frozen=True, slots=True)
class Shift:
    """What `@` and `offset` do to the time of evaluation: `at` replaces it, `offset_ms` is subtracted."""

    at: int | Edge | None = None  # milliseconds
    offset_ms: int = 0


@dataclass(frozen=True, slots=True)
class Selector:
    """An instant vector: the series that pass all matchers."""

    matchers: tuple[LabelMatcher, ...]
    shift: Shift = Shift()


@dataclass(frozen=True, slots=True)
class RangeSelector:
    """`selector[length]`."""

    selector: Selector
    length_ms: int


@dataclass(frozen=True, slots=True)
class Subquery:
    """`operand[length:step]`; without a step the evaluation's default holds."""

    operand: Node
    length_ms: int
    step_ms: int | None
    shift: Shift = Shift()


@dataclass(frozen=True, slots=True)
class Negation:
    """`-operand`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Call:
    """`function(arguments)`."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which labels tell groups apart: the named ones, or all but the named ones and the metric's name."""

    by: bool
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Aggregation:
    """`operator by (labels) (parameter, operand)`."""

    operator: str
    operand: Node
    parameter: Node | None
    grouping: Grouping


class Cardinality(Enum):
    """How many elements of each side may match one of the other."""

    ONE_TO_ONE = "one to one"
    MANY_TO_ONE = "group_left"
    ONE_TO_MANY = "group_right"
    MANY_TO_MANY = "set operation"


@dataclass(frozen=True, slots=True)
class Matching:
    """Which elements of two vectors belong together, and which labels of the one side are taken over."""

    cardinality: Cardinality = Cardinality.ONE_TO_ONE
    grouping: Grouping = Grouping(by=False, labels=())  # `on` or `ignoring`
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    """`left operator right`; with `bool` a comparison gives 0 or 1 and filters nothing."""

    operator: str
    left: Node
    right: Node
    returns_bool: bool
    matching: Matching


Node = Number | Text | Selector | RangeSelector | Subquery | Negation | Call | Aggregation | Binary

COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
SET_OPERATORS = frozenset({"and", "or", "unless"})


def children(node: Node) -> tuple[Node, ...]:
    """Return the expressions directly inside `node`."""
    match node:
        case RangeSelector(selector=inner) | Subquery(operand=inner) | Negation(operand=inner):
            return (inner,)
        case Call(arguments=arguments):
            return arguments
        case Aggregation(operand=operand, parameter=parameter):
            return (operand,) if parameter is None else (parameter, operand)
        case Binary(left=left, right=right):
            return (left, right)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """Return `node` and everything inside it, outer first."""
    yield node
    for child in children(node):
        yield from walk(child)


def selected_metric(matchers: Sequence[LabelMatcher]) -> str | None:
    """Return the metric's name that `matchers` demand, if they name one."""
    for matcher in matchers:
        if matcher.name == METRIC_NAME and matcher.op is MatchOp.EQUAL:
            return matcher.value
    return None

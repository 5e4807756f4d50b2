"""Two vectors that can never match, because one has a label that the other has not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.check.registering import query_check
from engine.check.shape import metric_of, mismatch
from engine.check.subject import Note, Query, Severity, World
from engine.lang.promql.syntax import SET_OPERATORS, Aggregation, Binary, Grouping, walk

_FULLNESS = (
    "sum by (instance) (ray_object_store_used_memory)"
    " / sum by (instance) (ray_object_store_used_memory + ray_object_store_available_memory)"
)
_SHARED = ("instance", "SessionName")


@query_check("promql/matching")
def matching(query: Query, world: World) -> Iterator[Note]:
    """Note operators whose sides have nothing in common."""
    for node in walk(query.root):
        if isinstance(node, Binary) and (labels := mismatch(node, world)):
            yield from _impossible(query, node, labels)


def _impossible(query: Query, node: Binary, labels: Mapping[str, bool]) -> Iterator[Note]:
    left, right = query.places.of(node.left), query.places.of(node.right)
    sides = []
    for is_left, name in ((True, "left"), (False, "right")):
        if only := [label for label, at in labels.items() if at is is_left]:
            sides.append(f"only the {name} has {', '.join(only)}")
    consequence = "unless takes nothing away" if node.operator == "unless" else "the answer is always empty"
    message = f"the sides of {node.operator} never match: {'; '.join(sides)}; {consequence}"
    shared = next((each for each in _SHARED if each not in labels), "")
    rewrite = f"sum by ({shared}) ({query.written(left)}) {node.operator} sum by ({shared}) ({query.written(right)})"
    if metric_of(node.left) == "ray_object_store_memory" and node.operator == "/":
        rewrite = _FULLNESS
    elif isinstance(node.right, Aggregation) and node.right.grouping == Grouping(by=True, labels=()):
        group = "" if node.operator in SET_OPERATORS else "group_left () "
        rewrite = f"{query.written(left)} {node.operator} on () {group}{query.written(right)}"
    elif node.matching.grouping.by or node.operator in ("and", "unless") or not shared:
        rewrite = (
            f"{query.written(left)} {node.operator} on ({shared}) {query.written(right)}" if shared else ""
        )
    yield Note(Severity.ERROR, message, query.at(query.places.head(node)), rewrite)

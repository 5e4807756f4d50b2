"""A template that reads a label which the expression's result does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.shape import Shape, shape
from engine.check.subject import Note, Severity, Spot, Subject, World
from engine.lang.promql.syntax import Aggregation, Node, children
from engine.lang.template import variables
from engine.load.nodes import MappingNode, ScalarNode
from engine.model.rule import AlertingRule


@rule_check("alerts/template")
def template(subject: Subject, world: World) -> Iterator[Note]:
    """Hold what labels and annotations read of `$labels` against the labels of the result."""
    found = shape(subject.expr.root, world)
    if found is None or not isinstance(subject.rule, AlertingRule):
        return
    for key in ("labels", "annotations"):
        node = subject.node.get(key)
        for entry in node.entries.values() if isinstance(node, MappingNode) else ():
            if isinstance(entry.value, ScalarNode):
                yield from _read(subject, found, entry.value)


def _read(subject: Subject, found: Shape, node: ScalarNode) -> Iterator[Note]:
    for name in sorted({path[1] for path in variables(node.value) if path[0] == "labels" and len(path) > 1}):
        if not found.lacks(name):
            continue
        where = re.search(rf"\$?labels\.{re.escape(name)}\b|\"{re.escape(name)}\"", node.value, re.IGNORECASE)
        spot = Spot(node, *(where.span() if where else (0, len(node.value))))
        message = f"the result of the expression has no label {name}: this is empty"
        yield Note(Severity.ERROR, message, spot, _kept(subject.expr.root, name))


def _kept(root: Node, name: str) -> str:
    """Return how to keep a label that the outermost aggregation drops."""
    node = root
    while not isinstance(node, Aggregation):
        inner = children(node)
        if not inner:
            return ""
        node = inner[0]
    if node.grouping.by and name not in node.grouping.labels:
        return f"{node.operator} by ({', '.join((*node.grouping.labels, name))}) (…)"
    return ""

"""PromQL and templates inside YAML: what can be told about them before they are used."""

from __future__ import annotations

import re
from collections.abc import Iterator

from engine.errors import ExpressionError, TemplateError
from engine.load.nodes import Node, ScalarNode, SequenceNode, offset_of
from engine.load.records import Decoder

_OF_RUNS = frozenset({"plan", "identity"})


def check_expr(decoder: Decoder, node: Node | None, what: str = "'expr'") -> None:
    """Note a problem if the PromQL of a scalar is plainly wrong.

    The real server decides what it answers, and it may know more than our parser. So a refusal counts only if
    it is not `beyond` us.
    """
    if not isinstance(node, ScalarNode):
        return  # a problem already, of the field
    if not node.value.strip():
        decoder.report(node, f"{what} is empty; write PromQL")
        return
    from engine.lang.promql import validate  # noqa: PLC0415 - loaded only when needed

    try:
        validate(node.value)
    except ExpressionError as error:
        message = str(error).replace(f" at {error.line}:{error.column}", "", 1)  # it is that of the file here
        report = decoder.report_beyond if error.beyond else decoder.report_inside
        report(node, offset_of(node.value, error.line, error.column), f"{what}: {message}")


def check_template(decoder: Decoder, node: Node | None, what: str, *, of_run: bool = False) -> None:
    """Note problems of every template below `node`. Only those of a run may read what was planned."""
    from engine.lang.template import VARIABLES, parse  # noqa: PLC0415 - as above

    names = VARIABLES if of_run else VARIABLES - _OF_RUNS
    for scalar in _scalars(node):
        try:
            parse(scalar.value, names)
        except TemplateError as error:
            offset = offset_of(scalar.value, error.line, error.column)
            decoder.report_inside(scalar, offset, f"{what}: {error}")


def detect_names(node: Node | None) -> Iterator[tuple[ScalarNode, int, str]]:
    """Yield each detail of a detector that templates below `node` read, and where: scalar, index, name."""
    from engine.lang.template import variables  # noqa: PLC0415 - as above

    for scalar in _scalars(node):
        try:
            paths = variables(scalar.value)
        except TemplateError:
            continue  # noted by check_template
        for name in sorted({path[1] for path in paths if path[0] == "detect" and len(path) > 1}):
            where = re.search(rf"detect\.{re.escape(name)}\b", scalar.value, re.IGNORECASE)
            yield scalar, where.start() - 1 if where else 0, name


def _scalars(node: Node | None) -> Iterator[ScalarNode]:
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from _scalars(item)
    elif node is not None:
        for entry in node.entries.values():
            yield from _scalars(entry.value)

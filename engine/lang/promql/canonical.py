"""An expression as Prometheus prints it, so that links and answers of both are the same."""

from __future__ import annotations

from functools import lru_cache

import promql_parser as pp

from engine.errors import ExpressionError
from engine.lang.promql.parse import validate


@lru_cache(maxsize=4096)
def canonical(expr: str) -> str:
    """Return `expr` on one line in Prometheus' spelling; as it is written where the parser does not know it.

    Two things stay different: a duration as a number becomes seconds, and a plus sign is dropped.
    """
    try:
        validate(expr)
    except ExpressionError:
        return expr.strip()
    line = ""
    # The printer breaks long expressions. No string holds a line's end: it is escaped there.
    for part in map(str.strip, pp.parse(expr).prettify().splitlines()):
        glued = not line or line.endswith("(") or part.startswith((")", ","))
        line += part if glued else f" {part}"
    return line

"""Go's text/template as Prometheus' rules use it.

`parse` is cached, so callers keep texts rather than templates. A template can
look things up in the data it is given and can do nothing else: it reaches no
Python attribute, and the only thing it can call from outside is `query`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from engine.errors import TemplateError
from engine.lang.template.evaluate import Escape, Template
from engine.lang.template.functions import Query
from engine.lang.template.parser import parse_tree
from engine.lang.template.reads import paths_read

__all__ = ["VARIABLES", "Escape", "Query", "Template", "expand", "parse", "variables"]

VARIABLES = frozenset({"labels", "value", "externalLabels", "externalURL", "detect", "plan", "identity"})
"""The variables that the engine may inject. The first four are Prometheus' own."""


@lru_cache(maxsize=4096)
def parse(text: str, names: frozenset[str] = VARIABLES) -> Template:
    """Return the parsed template, or raise TemplateError with line and column in `text`.

    `names` are the variables that may be read without having been set.
    """
    return Template(parse_tree(text, sorted(names)))


def expand(
    text: str,
    data: Mapping[str, object],
    *,
    query: Query | None = None,
    now: float | None = None,
    escape: Escape | None = None,
) -> str:
    """Return the expanded text; as in Prometheus, a template that fails gives a text that says so and why."""
    if "{{" not in text:
        return text
    try:
        return parse(text).render(data, query=query, now=now, escape=escape)
    except TemplateError as error:
        return f"<error expanding template: line {error.line}, column {error.column}: {error}>"


def variables(text: str) -> set[tuple[str, ...]]:
    """Return what a template reads: `$detect.eta` and `.Detect.eta` both give ("detect", "eta").

    What it reads in part it also reads in whole: `with $plan.owner` gives ("plan", "owner"), and `.id` in it
    ("plan", "owner", "id"). Raises TemplateError.
    """
    return paths_read(parse(text).tree)

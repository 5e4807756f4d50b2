"""Alerts put together by their names, `A and (B unless C)`: PromQL over `ALERTS`, written shorter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import ExpressionError
from engine.lang.promql.parse import parse
from engine.lang.promql.syntax import SET_OPERATORS, Binary, Node, Selector, Shift, selected_metric
from engine.model.labels import ALERT_NAME, METRIC_NAME, quote


class Combination(NamedTuple):
    """What a combination of alerts means: PromQL whose result has the labels asked for, and the alerts named."""

    expr: str
    names: tuple[str, ...]


def combine(text: str, on: Sequence[str]) -> Combination:
    """Return what names of alerts joined by `and`, `or` and `unless` mean, for firing alerts with equal labels `on`.

    Precedence and parentheses are PromQL's; a name may have further matchers in braces. ExpressionError for
    anything else.
    """
    names: list[str] = []
    expr = _render(parse(text), on, names)
    return Combination(expr, tuple(dict.fromkeys(names)))


def _render(node: Node, on: Sequence[str], names: list[str]) -> str:
    match node:
        case Binary(operator=operator, left=left, right=right) if operator in SET_OPERATORS:
            return f"({_render(left, on, names)} {operator} {_render(right, on, names)})"
        case Selector(matchers=found, shift=shift) if shift == Shift() and (name := selected_metric(found)):
            names.append(name)
            matchers = [
                f"{each.name}{each.op}{quote(each.value)}" for each in found if each.name != METRIC_NAME
            ]
            of_alert = [f"{ALERT_NAME}={quote(name)}", 'alertstate="firing"', *matchers]
            return f"max by ({', '.join(on)}) (ALERTS{{{', '.join(of_alert)}}})"
        case _:
            raise ExpressionError("alerts are named, and joined by and, or, unless and parentheses")

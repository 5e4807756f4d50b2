"""Expressions that are wrong in one place, and expressions that filter nothing."""

from __future__ import annotations

import pytest

from engine.lang.promql import Storage, evaluate, validate
from engine.lang.promql.mutants import mutants, needed_metrics, unfiltered
from engine.model.labels import Labels


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("a > 5", [("> 5", "> 2.5"), ("> 5", "> 10"), ("> 5", "< 5")]),
        ("rate(a[5m]) >= 50e6", [(">= 50e6", ">= 25e6"), (">= 50e6", ">= 100e6"), (">= 50e6", "<= 50e6")]),
        ("5 < a", [("> 5", "> 2.5"), ("> 5", "> 10"), ("> 5", "< 5")]),
        ("a < -5", [("< -5", "< -2.5"), ("< -5", "< -10"), ("< -5", "> -5")]),
        ("a == 0", [("== 0", "!= 0")]),  # nought stays nought
        (
            "a > 1 and b < 2",
            [
                ("> 1", "> 0.5"),
                ("> 1", "> 2"),
                ("> 1", "< 1"),
                ("< 2", "< 1"),
                ("< 2", "< 4"),
                ("< 2", "> 2"),
            ],
        ),
        (
            "count(a > bool 3) == 2",
            [
                ("> 3", "> 1.5"),
                ("> 3", "> 6"),
                ("> 3", "< 3"),
                ("== 2", "== 1"),
                ("== 2", "== 4"),
                ("== 2", "!= 2"),
            ],
        ),
        ("a > b", []),
        ("absent(a)", []),
    ],
)
def test_each_comparison_with_a_number_has_three_mutants(expr: str, expected: list[tuple[str, str]]) -> None:
    found = list(mutants(expr))
    assert [(each.before, each.after) for each in found] == expected
    for each in found:
        validate(each.expr)


VALUES = [1.0, 4.0, 6.0, 11.0, -3.0, -7.0]


@pytest.mark.parametrize(
    ("expr", "kept"),
    [
        ("a > 5", [[4, 6, 11], [11], [1, 4, -3, -7]]),
        ("5 < a", [[4, 6, 11], [11], [1, 4, -3, -7]]),
        ("a < -5", [[-3, -7], [], [1, 4, 6, 11, -3]]),
    ],
)
def test_mutants_answer_as_they_are_described(expr: str, kept: list[list[float]]) -> None:
    storage = Storage()
    for value in VALUES:
        storage.add(Labels(__name__="a", n=str(value)), [0], [value])
    for mutant, expected in zip(mutants(expr), kept, strict=True):
        assert sorted(evaluate(mutant.expr, storage, [0]).last()) == sorted(expected), mutant


@pytest.mark.parametrize(
    "expr",
    [
        "a > 5",
        "a > on (n) a",
        "sum by (n) (a) > 50",
        "a > 5 and a < 0",
        "a unless a",
        "absent(a)",
        "(a > 7) * 2 > 100",
        "a == bool 3",
    ],
)
def test_an_unfiltered_expression_has_series_whatever_is_compared(expr: str) -> None:
    storage = Storage()
    storage.add(Labels(__name__="a", n="1"), [0], [1.0])
    assert len(evaluate(unfiltered(expr), storage, [0])) == 1
    empty = unfiltered(expr.replace("a ", "b ").replace("(a)", "(b)"))
    assert len(evaluate(empty, storage, [0])) == (1 if "absent" in expr else 0)


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ("rate(a[5m]) / b > 5", {"a", "b"}),
        ("a unless b", {"a"}),
        ("a or vector(0)", {"a"}),
        ("a or b", {"a"}),
        ("absent(a)", set()),
        ("b and absent_over_time(a[5m])", {"b"}),
        ('{__name__="a", x="y"} + max_over_time(b[5m:1m])', {"a", "b"}),
        ('{x="y"}', set()),
    ],
)
def test_needed_metrics(expr: str, names: set[str]) -> None:
    assert needed_metrics(expr) == names

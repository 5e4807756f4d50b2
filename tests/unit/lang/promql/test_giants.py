"""Expressions that would use up the parser's stack are refused before it sees them."""

import pytest

from engine.errors import ExpressionError
from engine.lang.promql import split_comparison, validate
from engine.lang.promql.rewrite import over_presence

GIANTS = {
    "powers": "^".join(["2"] * 5000),
    "sums": "+".join(["1"] * 50_000),
    "brackets": "(" * 5000 + "1" + ")" * 5000,
    "calls": "sum(" * 800 + "up" + ")" * 800,
    "or": " or ".join(["up"] * 5000),
}


@pytest.mark.parametrize(
    "ask", [validate, split_comparison, lambda expr: over_presence(expr, lambda _: "1m")]
)
@pytest.mark.parametrize("expr", GIANTS.values(), ids=GIANTS)
def test_an_expression_that_is_too_deep_is_left_to_a_real_server(expr, ask):
    with pytest.raises(ExpressionError, match="too deep") as refusal:
        ask(expr)
    assert refusal.value.beyond


@pytest.mark.parametrize(
    "expr", [" or ".join(f'x{{a="{i}"}}' for i in range(200)), "(" * 50 + "up" + ")" * 50, "2 ^ 2 ^ 2"]
)
def test_what_people_write_is_read(expr):
    validate(expr)

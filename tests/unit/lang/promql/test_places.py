"""An operator or call is found in the text by counting, whatever stands around it."""

import pytest

from engine.errors import ExpressionError
from engine.lang.promql.parse import parse
from engine.lang.promql.places import placed
from engine.lang.promql.syntax import Aggregation, Binary, Call, walk


@pytest.mark.parametrize(
    "expr",
    [
        "a ^ b",
        "-a ^ -b",
        "x offset -5m ^ y @ 5",
        'x{a!="b",c=~"^",d!~"e"} ^ y',
        "sum(x) by (a) ^ on (a) group_left (b) -y",
        "(a + b) * topk by (a) (1 + 2, x - y) - (p ^ bool_metric) / z",
        "x == bool 3 ^ 4 or x",
        "max_over_time((x - y)[5m:1m] offset -1m) / rate(x[5m]) ^ # a ^ b\n z",
    ],
)
def test_the_power_in_it_is_found(expr):
    root = parse(expr)
    node = next(part for part in walk(root) if isinstance(part, Binary) and part.operator == "^")
    error = placed(ExpressionError("bad; mend it"), node, root, expr)
    column = expr.replace('"^"', '"_"').index("^") + 1
    assert (error.line, error.column, str(error)) == (1, column, f"bad at 1:{column}; mend it")


@pytest.mark.parametrize(
    "expr",
    [
        "abs(x)",
        "sum by (abs) (abs(x))",
        "x and on (abs) (y or abs(x))",
        "rate(abs[5m]) + x @ start() - abs(x)",
        'topk without (a) (scalar(abs), abs(x{abs="abs("}))',
    ],
)
def test_the_call_of_abs_in_it_is_found(expr):
    root = parse(expr)
    node = next(part for part in walk(root) if isinstance(part, Call) and part.function == "abs")
    assert placed(ExpressionError("bad"), node, root, expr).column == expr.index("abs(x") + 1


def test_an_aggregation_is_found_before_its_labels():
    root = parse("a +\n  sum by (b) (c)")
    node = next(part for part in walk(root) if isinstance(part, Aggregation))
    error = placed(ExpressionError("bad"), node, root, "a +\n  sum by (b) (c)")
    assert (error.line, error.column) == (2, 3)

"""An operator or call is found in the text by counting, whatever stands around it."""

import pytest

from engine.errors import ExpressionError
from engine.lang.promql.parse import parse
from engine.lang.promql.places import Places, placed
from engine.lang.promql.syntax import Aggregation, Binary, Call, Selector, walk


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


def pieces(expr):
    """Every selector, call, aggregation and operator with its head, all of it, and its matchers or labels."""
    places = Places(expr)

    def cut(span):
        return expr[span.start : span.end]

    for node in walk(places.root):
        if isinstance(node, Selector):
            inner = [cut(places.matcher(node, index)) for index in range(len(node.matchers))]
            yield cut(places.head(node)), cut(places.of(node)), inner
        elif isinstance(node, Aggregation | Binary):
            yield cut(places.head(node)), cut(places.of(node)), cut(places.grouping(node))
        elif isinstance(node, Call):
            yield cut(places.head(node)), cut(places.of(node)), None


def test_selectors_calls_and_operators_are_placed():
    left = 'sum by (le) (rate({__name__="foo",a="b"}[5m]))'
    assert list(pieces(f"{left} / on(x) group_left (y) max(foo) by (x)")) == [
        ("/", f"{left} / on(x) group_left (y) max(foo) by (x)", "on(x)"),
        ("sum", left, "by (le)"),
        ("rate", 'rate({__name__="foo",a="b"}[5m])', None),
        ('{__name__="foo",a="b"}', '{__name__="foo",a="b"}', ['__name__="foo"', 'a="b"']),
        ("max", "max(foo) by (x)", "by (x)"),
        ("foo", "foo", ["foo"]),
    ]


def test_equal_parts_have_places_of_their_own():
    places = Places("up + up{} - up offset 5m")
    starts = [places.of(node).start for node in walk(places.root) if isinstance(node, Selector)]
    assert starts == [0, 5, 12]


@pytest.mark.parametrize(
    "expr",
    [
        'topk(3, -x{a="b",} offset 5m) unless on() x',
        "y > bool inf and x @ start()",
        "start + end{a=~'b'} # x\n * x",
        'label_replace(x, "x", "$1", "y", "(.*)")',
        "sum without (x) (x) / ignoring (x) group_right () y",
        "max_over_time(x[5m:1m] offset 1h)",
    ],
)
def test_the_x_in_it_is_a_selector(expr):
    places = Places(expr)
    found = next(
        node
        for node in walk(places.root)
        if isinstance(node, Selector) and places.expr[slice(*places.head(node))] == "x"
    )
    assert found.matchers[0].value == "x"


@pytest.mark.parametrize("expr", ["x > 5", "5 < x", "x > bool -5", "sum(x) == 0", "x * 1e9 >= inf"])
def test_an_operand_that_is_a_number_belongs_to_its_operator(expr):
    places = Places(f"y unless ({expr})")
    inner = places.root.right
    assert places.expr[slice(*places.of(inner))] == expr

"""What is not answered is refused with its name, its place and a way out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ExpressionError
from engine.lang.promql import Comparison, metric_names, split_comparison, validate
from engine.lang.promql.parse import parse

REFUSED = [
    # expression, line, column, what the message says
    ("a\n + foo(x)", 2, 4, "unknown function with name 'foo'"),
    ("rat(x[5m])", 1, 1, "did you mean 'rate'?"),
    ("sum(rate(x[5m])) + rate(y)", 1, 20, "give the selector a range, such as [5m]"),
    ("abs(x[5m])", 1, 1, "wrap the range in a function"),
    ("sum(a", 1, 4, "unclosed left parenthesis"),
    ("a + b)", 1, 6, "unexpected right parenthesis"),
    ("sum(x) + {}", 1, 10, "name the metric or give one label a value"),
    ("a b", 1, 3, "missing operator"),
    ("a > ", 1, 3, "missing operator, operand"),
    ("a +\n* b", 2, 1, "missing operator, operand"),
    ("sum(x[5m:1m]) + max(a *)", 1, 24, "missing operator, operand"),
    ("rate((x)[5m:]) + foo(y)", 1, 18, "unknown function with name 'foo'"),
    ("sum(a *)", 1, 8, "missing operator, operand"),
    ('"a b" "c"', 1, 7, "missing operator"),
    ("1 > 2", 1, 1, "write `bool`"),
    ('x{a=~"("}', 1, 1, "write it in RE2 syntax"),
    ('x{a=~"b"} + y{a=~"\\\\C"}', 1, 13, "RE2 syntax"),
    ("x[2*5m]", 1, 2, "one duration, such as [5m]"),
    ("y + x @ -5", 1, 7, "@ with a time before 1970"),
    ("y + sum(x offset NaN)", 1, 18, "cannot convert"),
    ("x @ 1e20", 1, 3, "out of range"),
    ("limitk(1, x)", 1, 1, "limitk() is experimental"),
    ("y + limit_ratio(0.5, x)", 1, 5, "limit_ratio() is experimental"),
    ("y + mad_over_time(x[5m])", 1, 5, "mad_over_time() is experimental"),
    ("info(x)", 1, 1, "info() is experimental"),
    ("histogram_avg(x)", 1, 1, "works on native histograms"),
    ('x{a="1" or b="2"}', 1, 9, "VictoriaMetrics"),
    ("a + fill(1) b", 1, 5, "fill() is experimental"),
    ("a + fill_left(0) b", 1, 5, "fill_left() is experimental"),
    ("step()", 1, 1, "step() is"),
]


@pytest.mark.parametrize(("expr", "line", "column", "says"), REFUSED)
def test_a_refusal_says_what_where_and_how_to_go_on(expr, line, column, says):
    with pytest.raises(ExpressionError) as refusal:
        validate(expr)
    assert says in str(refusal.value)
    assert (refusal.value.line, refusal.value.column) == (line, column)


def refusal_of(expr):
    try:
        validate(expr)
    except ExpressionError as error:
        return error
    return None


WORDS = (
    "x", "sum", "by", "rate", "(", ")", "[5m]", "[5m:1m]", "{", "}", "a", "=", "=~", '"b"', '"("', ",", "+", "-", ">", "bool",
    "on", "group_left", "and", "offset", "@", "5m", "-1", "3", "1e400", "NaN", "Inf", "start()", "#", "\n", "é", "fill", "topk",
    "label_replace", '"', "1d", "^", "without", ":", "99999999999999999999y",
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_text_is_taken_or_refused_at_a_place_inside_it(expr):
    refusal = refusal_of(expr)
    if refusal is not None:
        lines = expr.split("\n")
        assert 1 <= refusal.line <= len(lines)
        assert 1 <= refusal.column <= len(lines[refusal.line - 1]) + 1


def test_what_only_a_server_answers_is_refused_with_the_way_to_ask_one():
    with pytest.raises(ExpressionError, match="--engine prometheus"):
        validate("limitk(1, x)")


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ("1 + time()", set()),
        ("x", {"x"}),
        ('{__name__="x", a="b"}', {"x"}),
        ('{"my.metric", a="b"}', {"my.metric"}),
        ('{__name__=~"x|y"}', set()),
        ('x + rate(y{a="b"}[5m]) / max_over_time(sum(z)[5m:]) unless -(v)', {"x", "y", "z", "v"}),
        ("topk(scalar(k), x)", {"k", "x"}),
    ],
)
def test_the_metrics_of_an_expression_are_those_that_its_selectors_name(expr, names):
    assert metric_names(expr) == names


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("sum(x) > 5", ("sum(x)", ">", 5)),
        ("((sum(x)) >= (5e6))", ("sum(x)", ">=", 5e6)),
        ("-3 >= x", ("x", "<=", -3)),
        ("0 < x", ("x", ">", 0)),
        ("1 == x", ("x", "==", 1)),
        ("x != NaN", ("x", "!=", None)),
        ("(x > 3) > 4", ("x > 3", ">", 4)),
        ("x > bool 3", None),
        ("x > 3 and y", None),
        ("x > y", None),
        ("x > 1 / 2", None),
        ("x + 3", None),
        ("x", None),
        ("3 > bool 2", None),
    ],
)
def test_a_comparison_with_a_number_is_taken_apart(expr, expected):
    found = split_comparison(expr)
    if expected is None:
        assert found is None
        return
    signal, operator, threshold = expected
    assert found is not None
    assert (found.signal, found.operator) == (signal, operator)
    assert found.threshold == threshold or threshold is None


@pytest.mark.parametrize(
    "signal",
    [
        'x{a=~"b.*",c!="d\\"\\n\\\\"} offset -5m',
        "x @ 12.5 offset 1m",
        "x @ start() + on (a, b) group_left (c) y",
        "rate(x[5m:30s] @ end())",
        "sum without (a) (x) / ignoring (b) group_right () y",
        'label_replace(topk by (a) (3, -x), "a", "$1", "b", "(.*)") or vector(1e-9)',
        "2 ^ 3 ^ x - (a - b) * -c",
        "x and on () (y > bool 3)",
        "sum by (le) (rate(a_very_long_metric_name_bucket[5m])) / on (instance) group_left (node) another_very_long_name",
        '{__name__="a.b"}',
    ],
)
def test_the_text_of_a_signal_means_the_signal(signal):
    comparison = split_comparison(f"({signal}) > 3")
    assert comparison == Comparison(comparison.signal, ">", 3.0)
    assert parse(comparison.signal) == parse(signal)

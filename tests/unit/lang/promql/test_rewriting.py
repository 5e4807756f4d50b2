"""PromQL made of PromQL."""

import pytest

from engine.errors import ExpressionError
from engine.lang.promql import shape
from engine.lang.promql.alerts import combine
from engine.lang.promql.rewrite import over_range


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("rate(a[5m])", "rate(a[1h])"),
        (
            'sum by (x) (rate(a{b=~"[5m]"}[5m])) / rate(c[30s])',
            'sum by (x) (rate(a{b=~"[5m]"}[1h])) / rate(c[1h])',
        ),
        ("increase(a[5m] offset 10m) > 3", "increase(a[1h] offset 10m) > 3"),
    ],
)
def test_every_range_is_replaced_and_nothing_else(expr, expected):
    assert shape(over_range(expr, "1h")) == shape(over_range(expected, "1h"))
    assert over_range(expected, "1h") == over_range(expr, "1h")
    assert "5m])" not in over_range(expr, "1h").replace('"[5m]"', "")


@pytest.mark.parametrize("expr", ["a", "a > 1", "max_over_time(a[1h:5m])", "rate(a[5m", ""])
def test_what_has_no_range_is_refused(expr):
    with pytest.raises(ExpressionError):
        over_range(expr, "1h")


def test_names_of_alerts_become_promql():
    found = combine('A or B{x="y"} unless C', ["n", "m"])
    assert found.names == ("A", "B", "C")
    assert found.expr == (
        '(max by (n, m) (ALERTS{alertname="A", alertstate="firing"}) or '
        '(max by (n, m) (ALERTS{alertname="B", alertstate="firing", x="y"}) unless '
        'max by (n, m) (ALERTS{alertname="C", alertstate="firing"})))'
    )

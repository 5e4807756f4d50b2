"""An expression in Prometheus' spelling: what a Prometheus 3 shows of a rule with it."""

from __future__ import annotations

import pytest

from engine.lang.promql.canonical import canonical


@pytest.mark.parametrize(
    ("expr", "shown"),
    [
        ("temperature>50", "temperature > 50"),
        ("a offset 5m", "a offset 5m"),
        ("-x^2", "-x ^ 2"),
        (
            "histogram_quantile(.9,sum(rate(x[1m:30s]))by(le))",
            "histogram_quantile(0.9, sum by (le) (rate(x[1m:30s])))",
        ),
        ("x @ start()", "x @ start()"),
        ("topk(3,x) or vector(1)", "topk(3, x) or vector(1)"),
        ("{__name__='a b'}", '{__name__="a b"}'),
        ("x unless on() y", "x unless on () y"),
        ("m < 1e9", "m < 1000000000"),
        ("m>1.5e7", "m > 15000000"),
        ("m>1234567", "m > 1234567"),
        ("m > 1e21", "m > 1000000000000000000000"),
        ("m > 1e-7", "m > 0.0000001"),
        ("absent(m{a!=''})", 'absent(m{a!=""})'),
        ("quantile(0.5,x) without(a)", "quantile without (a) (0.5, x)"),
        ("(a+b)*c", "(a + b) * c"),
        ("a==bool b", "a == bool b"),
        ('count_values("v", x)', 'count_values("v", x)'),
        ("x > NaN", "x > NaN"),
        ("x> -Inf", "x > -Inf"),
        ('x{a="\\n\\"q"}', 'x{a="\\n\\"q"}'),
        ("x{a='é\\\\d'}", 'x{a="é\\\\d"}'),
        ("sum(x)", "sum(x)"),
        ("sum by() (x)", "sum(x)"),
        ("sum without() (x)", "sum without () (x)"),
        ("max_over_time(x[1d])", "max_over_time(x[1d])"),
        ("max_over_time(x[90m])", "max_over_time(x[1h30m])"),
        ("x> 0x1F", "x > 31"),
        ("x offset -1h30m", "x offset -1h30m"),
        ("rate(x[5m] @ 100 offset 1m)", "rate(x[5m] @ 100.000 offset 1m)"),
        (
            'sum by (instance, job, cluster, namespace, pod, container) (rate(container_cpu_usage_seconds_total{job="kubelet", image!=""}[5m])) / on (instance, job) group_left (node) sum by (instance, job) (kube_pod_container_resource_limits{resource="cpu"}) > 0.9 and on (instance) (up == 1)',
            'sum by (instance, job, cluster, namespace, pod, container) (rate(container_cpu_usage_seconds_total{image!="",job="kubelet"}[5m])) / on (instance, job) group_left (node) sum by (instance, job) (kube_pod_container_resource_limits{resource="cpu"}) > 0.9 and on (instance) (up == 1)',
        ),
        ("time()", "time()"),
        ("x>bool 1000000", "x > bool 1000000"),
        ("x > +5", "x > 5"),
        ("-1 + x", "-1 + x"),
        ("- (x)", "-(x)"),
        ('{"a b"}', '{__name__="a b"}'),
        ("{\"foo\",b='c'}", '{__name__="foo",b="c"}'),
        ("x{a=~'a|b',b!~\".*c\"} ", 'x{a=~"a|b",b!~".*c"}'),
        ("clamp(x,0,1)", "clamp(x, 0, 1)"),
        ("foo{`l.x`='v'}", 'foo{"l.x"="v"}'),
        ("a and ignoring(b) c", "a and ignoring (b) c"),
        ("sum by (`a.b`) (x)", 'sum by ("a.b") (x)'),
        ("a * on(x) group_right(y,z) b", "a * on (x) group_right (y, z) b"),
        ("max_over_time((a+b)[5m:1m] offset 1h)", "max_over_time((a + b)[5m:1m] offset 1h)"),
        ("count(x) by (a)", "count by (a) (x)"),
        ("x > 86400 * 7", "x > 86400 * 7"),
        ("x==1 # comment", "x == 1"),
        ("a\n  +\n  b", "a + b"),
        ("label_replace(x, 'a','$1','b','(.*)')", 'label_replace(x, "a", "$1", "b", "(.*)")'),
        ("x{a='b',}", 'x{a="b"}'),
        ("((x))", "((x))"),
        ("time() - y > (5*60)", "time() - y > (5 * 60)"),
    ],
)
def test_an_expression_is_spelled_as_prometheus_spells_it(expr, shown):
    assert canonical(expr) == shown
    assert canonical(shown) == shown


@pytest.mark.parametrize("expr", ["limitk(2, x)", "sum(x", "", "x @ -1"])
def test_what_the_parser_does_not_know_stays_as_it_is(expr):
    assert canonical(f" {expr}\n") == expr


@pytest.mark.parametrize(("expr", "shown"), [("x > 5m", "x > 300"), ("+x", "x"), ("x < Inf", "x < Inf")])
def test_what_the_parser_does_not_keep_is_spelled_otherwise_but_means_the_same(expr, shown):
    assert canonical(expr) == shown

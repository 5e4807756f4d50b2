"""Expressions come to what Prometheus 3 makes of them; expected values are worked out by hand."""

import math

import numpy as np
import pytest

from engine.errors import ExpressionError
from engine.lang.promql import Storage, evaluate
from engine.model.duration import Duration
from engine.model.labels import Labels

NAN, INF = math.nan, math.inf
STALE = object()


def load(**series):
    """Return a storage with series `name` or `name__label_value`, a sample each minute; None is a gap."""
    storage = Storage()
    for key, values in series.items():
        name, *pairs = key.split("__")
        labels = Labels(dict(pair.split("_") for pair in pairs), __name__=name)
        there = [index for index, value in enumerate(values) if value is not None]
        storage.add(
            labels,
            [60_000 * index for index in there],
            [NAN if values[index] is STALE else values[index] for index in there],
            [values[index] is STALE for index in there],
        )
    return storage


def at(storage, expr, minutes, **options):
    """Return {labels as text: value} at one instant, in the order of the answer."""
    window = evaluate(expr, storage, [minutes * 60], **options)
    assert window.present.all()
    return {
        str(labels): float(values[0]) for labels, values in zip(window.labels, window.values, strict=True)
    }


SERIES = load(
    ramp=[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100],
    reset=[0, 10, 20, 5, 15, 25, 0, 10, 20, 30, 40],
    odd=[1, NAN, 3, INF, 5],
    flat=[7, 7, 7, 7, 7],
    sunk=[0, 1, 2, -INF],
    cpu__n_1__c_a=[1, 2, 3],
    cpu__n_1__c_b=[4, 5, 6],
    cpu__n_2__c_a=[7, 8, 9],
    limit__n_1=[10, 10, 10],
    limit__n_2=[20, 20, 20],
    twin__n_1__t_x=[1, 1, 1],
    twin__n_1__t_y=[2, 2, 2],
)


@pytest.mark.parametrize(
    ("expr", "minutes", "expected"),
    [
        ("ramp", 2.5, 20),
        ("ramp", 14.99, 100),  # the lookback reaches five minutes back …
        ("ramp", 15, None),  # … without its left end
        ("ramp", -1, None),
        ("ramp offset 2m", 5, 30),
        ("ramp offset -2m", 5, 70),
        ("ramp @ 120", 9, 20),
        ("ramp @ 120 offset 1m", 9, 10),
        ("ramp @ end()", 3, 30),
        ("count_over_time(ramp[5m])", 5, 5),  # the window is open on the left
        ("count_over_time(ramp[5m])", 5.5, 5),
        ("sum_over_time(ramp[2m])", 5, 90),
        ("avg_over_time(ramp[2m])", 5, 45),
        ("last_over_time(ramp[2m])", 5, 50),
        ("present_over_time(ramp[2m])", 5, 1),
        ("stdvar_over_time(ramp[2m])", 5, 25),
        ("stddev_over_time(flat[5m])", 4, 0),
        ("quantile_over_time(0.25, ramp[5m])", 5, 20),
        ("quantile_over_time(2, ramp[5m])", 5, INF),
        ("max_over_time(odd[5m])", 4, INF),
        ("min_over_time(odd[4m])", 4, 3),  # the first sample is outside, NaN does not count
        ("sum_over_time(odd[2m])", 2, NAN),
        ("changes(odd[10m])", 4, 4),
        ("resets(reset[10m])", 9, 2),
        # 4 minutes are sampled, a rise of 40; the window reaches 1 minute before the first sample.
        ("increase(ramp[5m])", 5, 50),
        ("rate(ramp[5m])", 5, 50 / 300),
        ("delta(ramp[5m])", 5, 50),
        # 35 in 4 minutes; it would reach zero 8/7 minutes before the first sample, which is farther than 1.
        ("increase(reset[5m])", 5, 43.75),
        ("rate(ramp[1m])", 5, None),  # one sample in the left-open window
        ("irate(reset[5m])", 3, 5 / 60),
        ("idelta(reset[5m])", 3, -15),
        ("deriv(ramp[5m])", 5, 10 / 60),
        ("predict_linear(ramp[5m], 60)", 5, 60),
        ("predict_linear(ramp[5m] offset 1m, 60)", 5, 60),  # from the instant of evaluation
        ("predict_linear(sunk[5m] offset -30s, 60)", 2.5, -INF),
        ("deriv(flat[5m])", 4, 0),
        ("max_over_time(ramp[3m:1m])", 5.5, 50),  # at whole minutes: 3, 4, 5
        ("sum_over_time(ramp[3m:1m])", 5.5, 120),
        ("count_over_time(ramp[2m:30s])", 5, 4),
        ("sum_over_time(ramp[2m:])", 5, 90),
        ("rate(sum_over_time(ramp[1m:30s])[2m:1m])", 5, 20 / 60),
        ("timestamp(ramp)", 2.5, 120),
        ("timestamp(ramp * 1)", 2.5, 150),
        ("scalar(ramp)", 2, 20),
        ("scalar(cpu)", 2, NAN),
        ("absent(nothing)", 2, 1),
        ("absent(ramp)", 2, None),
        ("absent_over_time(ramp[1m])", 12, 1),
        ("time()", 2, 120),
        ("-ramp", 2, -20),
        ("2 ^ 3 ^ 2", 0, 512),
        ("7 % -4", 0, 3),
        ("1 / 0", 0, INF),
        ("3 > bool 2", 0, 1),
        ("ramp > 15", 2, 20),
        ("15 < ramp", 2, 20),
        ("ramp > 25", 2, None),
        ("ramp > bool 25", 2, 0),
        ("round(ramp / 7, 0.5)", 2, 3),
        ("clamp(ramp, 30, 25)", 2, None),
        ("clamp_max(ramp, 15)", 2, 15),
        ("sgn(-ramp)", 2, -1),
        ("quantile(0.5, cpu)", 0, 4),
        ("avg(cpu)", 0, 4),
        ("stdvar(cpu)", 0, 6),
        ("group(cpu)", 0, 1),
        ("sum(cpu) or vector(0)", 0, 12),
        ("sum(nothing) or vector(0)", 0, 0),
        ("count(cpu) by ()", 0, 3),
        ("day_of_week(vector(1709164800))", 0, 4),  # Thursday, 29 February 2024
        ("day_of_month(vector(1709164800))", 0, 29),
        ("days_in_month(vector(1709164800))", 0, 29),
        ("day_of_year(vector(1709164800))", 0, 60),
        ("month(vector(1709164800))", 0, 2),
        ("year(vector(1709164800))", 0, 2024),
        ("hour()", 61, 1),
        ("minute()", 61, 1),
    ],
)
def test_an_expression_of_one_element(expr, minutes, expected):
    found = list(at(SERIES, expr, minutes).values())
    assert found == ([] if expected is None else pytest.approx([expected], rel=1e-12, nan_ok=True))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("sum by (n) (cpu)", {'{n="1"}': 5, '{n="2"}': 7}),
        ("sum without (n) (cpu)", {'{c="a"}': 8, '{c="b"}': 4}),
        ("max by (n, none) (cpu)", {'{n="1"}': 4, '{n="2"}': 7}),
        ("topk(2, cpu)", {'cpu{c="a", n="2"}': 7, 'cpu{c="b", n="1"}': 4}),
        ("bottomk by (n) (1, cpu)", {'cpu{c="a", n="1"}': 1, 'cpu{c="a", n="2"}': 7}),
        ("topk(0, cpu)", {}),
        ("sort(cpu)", {'cpu{c="a", n="1"}': 1, 'cpu{c="b", n="1"}': 4, 'cpu{c="a", n="2"}': 7}),
        ("sort_desc(cpu)", {'cpu{c="a", n="2"}': 7, 'cpu{c="b", n="1"}': 4, 'cpu{c="a", n="1"}': 1}),
        ('count_values("v", cpu > bool 3)', {'{v="0"}': 1, '{v="1"}': 2}),
        ('count_values by (n) ("v", limit)', {'{n="1", v="10"}': 1, '{n="2", v="20"}': 1}),
        ('cpu{c="a"} / on (n) limit', {'{n="1"}': 0.1, '{n="2"}': 0.35}),
        (
            "cpu / on (n) group_left () limit",
            {'{c="a", n="1"}': 0.1, '{c="b", n="1"}': 0.4, '{c="a", n="2"}': 0.35},
        ),
        ('cpu{c="b"} + on (n) group_left (t) twin{t="x"}', {'{c="b", n="1", t="x"}': 5}),
        ('twin{t="x"} + on (n) group_right (t) cpu{c="b"}', {'{c="b", n="1", t="x"}': 5}),
        ('cpu{c="a"} > ignoring (c) limit', {}),
        ('cpu{c="b"} < ignoring (c) limit', {'cpu{n="1"}': 4}),
        ('cpu{c="b"} < on (n) limit', {'{n="1"}': 4}),
        ('cpu{c="b"} < bool on (n) limit', {'{n="1"}': 1}),
        ('cpu and on (n) limit{n="2"}', {'cpu{c="a", n="2"}': 7}),
        ('cpu unless on (n) limit{n="2"}', {'cpu{c="a", n="1"}': 1, 'cpu{c="b", n="1"}': 4}),
        ('limit or on (n) twin{t="x"}', {'limit{n="1"}': 10, 'limit{n="2"}': 20}),
        ('limit{n="2"} or twin{t="x"}', {'limit{n="2"}': 20, 'twin{n="1", t="x"}': 1}),
        ("last_over_time(limit[1m])", {'limit{n="1"}': 10, 'limit{n="2"}': 20}),
        ("sum_over_time(limit[1m])", {'{n="1"}': 10, '{n="2"}': 20}),
        ('absent(nothing{a="1", b=~"x", c!="y", d="2", d!="3"})', {'{a="1"}': 1}),
        ('label_replace(limit{n="1"}, "m", "$1-${2}-$$", "n", "(.)(x)?")', {'limit{m="1--$", n="1"}': 10}),
        ('label_replace(limit{n="1"}, "m", "z", "n", "nomatch")', {'limit{n="1"}': 10}),
        ('label_replace(limit{n="1"}, "n", "", "n", ".*")', {"limit": 10}),
        ('label_join(limit{n="1"}, "m", "-", "n", "none", "n")', {'limit{m="1--1", n="1"}': 10}),
        ("abs(limit)", {'{n="1"}': 10, '{n="2"}': 20}),
        ('{__name__=~"limit|ramp", n=~"1|"}', {"ramp": 0, 'limit{n="1"}': 10}),
    ],
)
def test_an_expression_of_several_elements_keeps_the_right_labels_in_the_right_order(expr, expected):
    found = at(SERIES, expr, 0)
    assert found == pytest.approx(expected)
    if expr.startswith(("sort", "topk(")):
        assert list(found) == list(expected)


@pytest.mark.parametrize(
    ("expr", "says"),
    [
        ("limit / on (n) cpu", "on the right side match the same elements"),
        ("cpu / on (n) limit", "write group_left or group_right"),
        ("limit + on (n) group_left () twin", "match on more labels"),
        (
            'abs(label_replace(cpu, "c", "", "n", ".*"))',
            "vector cannot contain metrics with the same labelset",
        ),
        ("topk(NaN, cpu)", "give one such as 3"),
        ('label_replace(cpu, "", "x", "n", ".*")', "invalid label name"),
        ('label_replace(cpu, "x", "x", "n", "(")', "bad regular expression"),
        ('count_values("", cpu)', "invalid label name"),
        ("cpu[5m]", "the expression is a range vector"),
        ('"text"', "the expression is a string"),
    ],
)
def test_what_has_no_answer_is_an_error_that_says_why(expr, says):
    with pytest.raises(ExpressionError) as error:
        at(SERIES, expr, 0)
    assert says in str(error.value)


def test_two_elements_that_match_the_same_are_no_error_while_only_one_is_there():
    storage = load(one__t_x=[1, None, None], one__t_y=[None, 2, 2], many=[10, 10, 10])
    window = evaluate("many + on () one", storage, [0], lookback=Duration(seconds=30))
    assert window.values.tolist() == [[11]]
    window = evaluate("many + on () one", storage, [0, 60, 120], lookback=Duration(seconds=30))
    assert window.values.tolist() == [[11, 12, 12]]


def test_a_stale_marker_ends_a_series_at_once_and_leaves_ranges_alone():
    storage = load(up=[1, 1, STALE, None, 1])
    window = evaluate("up", storage, [60, 119, 120, 180, 240])
    assert window.present.tolist() == [[True, True, False, False, True]]
    assert np.isnan(window.values[0, 2])
    assert at(storage, "count_over_time(up[10m])", 4) == {"{}": 3}


def test_a_sample_that_is_nan_is_there():
    window = evaluate("odd", SERIES, [60])
    assert np.isnan(window.values[0, 0])
    assert window.present[0, 0]


def test_a_scalar_is_one_series_without_labels():
    window = evaluate("1 + time()", Storage(), [10, 20])
    assert window.labels == (Labels(),)
    assert window.values.tolist() == [[11, 21]]
    assert window.times.tolist() == [10, 20]


def test_start_and_end_are_those_of_the_whole_evaluation_within_a_subquery_too():
    window = evaluate(
        "max_over_time((ramp @ start())[2m:1m]) + (ramp @ end()) * 1000", SERIES, [120, 180, 240]
    )
    assert window.values.tolist() == [[40_020, 40_020, 40_020]]


def test_a_subquery_without_a_step_takes_the_one_that_the_evaluation_names():
    assert at(SERIES, "count_over_time(ramp[2m:])", 5, subquery_step=Duration(seconds=15)) == {"{}": 8}


@pytest.mark.parametrize(
    ("quantile", "expected"),
    [(0.5, 2), (0.2, 1), (0.1, 0.5), (0.9, 4), (1, 4), (0, 0), (-1, -INF), (2, INF), (NAN, NAN)],
)
def test_a_quantile_is_interpolated_in_its_bucket(quantile, expected):
    storage = Storage()
    for bound, count in (("1", 2), ("2", 5), ("4", 8), ("+Inf", 10)):
        storage.add(Labels(__name__="s_bucket", le=bound), [0], [count])
    assert at(storage, f"histogram_quantile({quantile}, s_bucket)", 0) == pytest.approx(
        {"{}": expected}, nan_ok=True
    )


@pytest.mark.parametrize(
    ("buckets", "expected"),
    [
        ({"1": 5, "2": 4, "+Inf": 10}, 1),  # a count that falls is lifted to the one before
        ({"1": 5, "2": 5, "+Inf": 5 + 1e-13}, 0.5),  # what differs by rounding is the same
        ({"1": 3, "1.0": 2, "2": 5, "+Inf": 5}, 0.5),  # one bound, written in two ways
        ({"-1": 10, "+Inf": 10}, -1),  # below a negative first bound nothing is known
        ({"1": 0, "2": 0, "+Inf": 0}, NAN),
        ({"1": 5, "2": 10}, NAN),  # not without the bucket of everything
        ({"+Inf": 10}, NAN),
        ({"1": 5, "x": 7, "": 9, "+Inf": 5}, 0.5),
    ],
)
def test_buckets_are_repaired_as_prometheus_repairs_them(buckets, expected):
    storage = Storage()
    for bound, count in buckets.items():
        storage.add(Labels(__name__="s_bucket", le=bound), [0], [count])
    assert at(storage, "histogram_quantile(0.5, s_bucket)", 0) == pytest.approx({"{}": expected}, nan_ok=True)


RANGED = [
    "rate(reset[3m])", "increase(ramp[150s])", "deriv(reset[4m])", "predict_linear(ramp[4m], 600)", "avg_over_time(odd[3m])",
    "stddev_over_time(reset[5m])", "changes(odd[3m])", "max_over_time(rate(reset[2m])[5m:30s])", "cpu / on (n) group_left () limit",
    "topk(1, cpu)", "sum by (n) (cpu)", "quantile(0.3, cpu)", "timestamp(ramp)", "absent(cpu)", "ramp > reset",
    "odd or ramp", "count_over_time(up[2m:20s] offset 1m)", "histogram_quantile(0.5, ramp)", "hour()", "irate(odd[2m])",
]  # fmt: skip


@pytest.mark.parametrize("expr", RANGED)
def test_a_range_is_the_same_as_its_instants_one_by_one(expr):
    times = np.arange(-90, 1200, 17.25)
    whole = {}
    window = evaluate(expr, SERIES, times)
    for labels, values, present in zip(window.labels, window.values, window.present, strict=True):
        for time, value, there in zip(times, values, present, strict=True):
            if there:
                whole[labels, time] = value
    single = {}
    for time in times:
        instant = evaluate(expr, SERIES, [time])
        single |= {
            (labels, time): values[0] for labels, values in zip(instant.labels, instant.values, strict=True)
        }
    assert whole.keys() == single.keys()
    for key, value in whole.items():
        assert value == single[key] or (math.isnan(value) and math.isnan(single[key])), key

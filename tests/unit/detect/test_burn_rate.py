"""The burn rate beside the rules of Prometheus that it stands for."""

import numpy as np
import pytest

from engine.detect.burn_rate import Burn, BurnRate
from engine.errors import ExpressionError
from engine.flow.evaluate import evaluate
from engine.lang.promql import Storage
from engine.load.rules import read_rules
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.query.embedded import EmbeddedSource

NOW = 1_800_000_000.0
HOUR = 3600.0
RATIO = "sum by (cluster) (rate(errors_total[{0}])) / sum by (cluster) (rate(requests_total[{0}]))"
PLAIN_RATIO = RATIO.format("5m")
PAIRS = ((14.4, "1h", "5m"), (6, "6h", "30m"), (1, "3d", "6h"))
PLAIN = " or ".join(
    f"({RATIO.format(long)} > {factor} * 0.001 and {RATIO.format(short)} > {factor} * 0.001)"
    for factor, long, short in PAIRS
)
RULES = """
groups:
  - name: slo
    rules:
      - alert: Burns
        expr: %s
        detect: {burn_rate: {objective: 0.999%s}}
"""


def rule_of(expr=PLAIN_RATIO, more=""):
    problems = []
    groups = read_rules("r.yaml", (RULES % (expr, more)).encode(), problems).groups
    assert problems == []
    return groups[0].rules[0]


def source_of(errors_a_minute, days=3.2):
    """Clusters with a hundred requests a minute, a reset on the way, and errors by the minute before now."""
    minutes = np.arange(-round(days * 1440), 1)
    times = [round((NOW + 60 * minute) * 1000) for minute in minutes]
    storage = Storage()
    for cluster, errors in errors_a_minute.items():
        wrong = np.cumsum([errors(-minute) for minute in minutes])
        every = 100.0 * np.arange(len(minutes))
        every[len(every) // 2 :] -= every[len(every) // 2]
        for name, values in (("errors_total", wrong), ("requests_total", every)):
            storage.add(
                Labels(__name__=name, cluster=cluster), times, values.astype(float), [False] * len(times)
            )
    storage.add(
        Labels(__name__="errors_total", cluster="idle"), times, np.zeros(len(times)), [False] * len(times)
    )
    storage.add(
        Labels(__name__="requests_total", cluster="idle"),
        times,
        np.full(len(times), 9.0),
        [False] * len(times),
    )
    return EmbeddedSource(storage)


STORIES = {
    "fine": lambda _ago: 0.0,
    "within budget": lambda _ago: 0.09,
    "slowly": lambda _ago: 0.15,
    "an hour ago": lambda ago: 10.0 * (60 < ago < 120),
    "fast": lambda ago: 5.0 * (ago < 60),
    "just now": lambda ago: 50.0 * (ago < 3),
    "all": lambda _ago: 100.0,
    "for hours": lambda ago: 1.0 * (ago < 400),
}


def test_it_is_the_same_as_the_plain_rules():
    source, rule, seen = source_of(STORIES), rule_of(), set()
    for back in (0, 10, 30, 45, 90, 240, 500):
        at = instant_of(NOW - 60 * back)
        plain = {each["cluster"] for each in source.instant(PLAIN, at).labels}
        verdicts = evaluate(rule, rule.expr, source, at).verdicts
        assert {
            each["cluster"] for each, bad in zip(verdicts.labels, verdicts.bad, strict=True) if bad
        } == plain
        assert {each["cluster"] for each in verdicts.labels} >= {*STORIES, "idle"}
        seen |= {(name, name in plain) for name in STORIES}
    assert {("fast", True), ("fast", False), ("slowly", True), ("within budget", False)} <= seen
    assert ("fine", True) not in seen


def test_the_figures():
    verdicts = evaluate(rule_of(), PLAIN_RATIO, source_of(STORIES), instant_of(NOW)).verdicts
    rows = {each["cluster"]: index for index, each in enumerate(verdicts.labels)}
    fast = verdicts.details_of(rows["fast"])
    assert fast["burn_rate"] == pytest.approx(50, rel=0.05)
    assert fast["window"] == HOUR
    assert fast["budget_left"] == pytest.approx(1 - 50 / 30 / 24, rel=0.01)
    assert fast["exhausted_in"] == pytest.approx(fast["budget_left"] * 30 * 24 * HOUR / fast["burn_rate"])
    assert verdicts.details_of(rows["all"])["budget_left"] == 0
    assert verdicts.details_of(rows["all"])["exhausted_in"] == 0
    assert verdicts.details_of(rows["fine"]) == {"burn_rate": 0, "window": HOUR, "budget_left": 1}
    assert verdicts.details_of(rows["idle"]) == {}
    assert verdicts.values[rows["fast"]] == pytest.approx(0.05, rel=0.05)


def test_a_series_that_only_the_long_windows_have_is_judged_all_the_same():
    example = BurnRate(
        objective=0.9, windows=(Burn(long=Duration(hours=1), short=Duration(minutes=5), factor=2.0),)
    )
    inputs = {name: Window.of([Labels(job="a")], [NOW], [[0.3]]) for name in ("1h", "5m")}
    verdicts = example.judge(Window.of([], [NOW], np.empty((0, 1))), inputs, instant_of(NOW))
    assert verdicts.labels == (Labels(job="a"),)
    assert verdicts.bad[0]
    assert verdicts.values[0] == 0.3


def test_windows_of_ones_own():
    rule = rule_of(more=", windows: [{long: 30m, short: 5m, factor: 2}], period: 1d")
    assert set(rule.inputs) == {"5m", "30m"}
    assert rule.inputs["30m"] == rule_of(RATIO.format("30m")).inputs["5m"].replace("[5m]", "[30m]")


@pytest.mark.parametrize("expr", ["errors_total", "max_over_time(rate(errors_total[5m])[1h:1m])"])
def test_an_expression_whose_window_cannot_be_changed_is_refused_where_it_is(expr):
    with pytest.raises(ExpressionError):
        _ = BurnRate(objective=0.99).inputs_of(expr)
    problems = []
    read_rules("r.yaml", (RULES % (expr, "")).encode(), problems)
    ((file, line, column, message),) = [tuple(problem) for problem in problems]
    assert (file, line, column) == ("r.yaml", 7, 17)
    assert message.startswith("detector 'burn_rate': ")


def test_an_expression_that_is_no_promql_is_one_mistake():
    problems = []
    read_rules("r.yaml", (RULES % ("rate(errors_total[5m]", "")).encode(), problems)
    assert len(problems) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"objective": 99.9}, "such as 0.999"),
        ({"windows": ()}, "windows is empty"),
        ({"windows": (Burn(long=Duration(hours=1), short=Duration(hours=1), factor=2),)}, "shorter"),
        ({"windows": (Burn(long=Duration(hours=2), short=Duration(hours=1), factor=0),)}, "factor"),
        ({"period": Duration(days=1)}, "period"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        BurnRate(**{"objective": 0.999, **wrong})

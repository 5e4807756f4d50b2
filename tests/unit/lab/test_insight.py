"""What stands between a series and an alert is said in words."""

from __future__ import annotations

import json

import pytest

from engine.errors import EngineError
from engine.lab.backtest import Course, Walk, slots
from engine.lab.insight import find_rule, look
from engine.lab.insight_report import as_json, lines
from engine.store.memory import MemoryStore
from tests.unit.lab.lives import settings_of
from tests.unit.lab.test_backtest import HOT, HOUR, MINUTE, T0, groups_of, storage_of, temperature

FULL = """
    groups:
      - name: g
        interval: 1m
        rules:
          - alert: Full
            expr: temperature
            detect: {forecast: {bound: "capacity", lookback: 1h, horizon: 1h}}
    """
STEP = """
    groups:
      - name: g
        interval: 1m
        rules:
          - alert: Step
            expr: temperature
            detect: {rate_of_change: {per_hour: 60, lookback: 20m, persist: {m: 3, n: 5}}}
    """


def seen(rules, source, minutes, *, state=None, warm_up=6 * HOUR):
    groups = groups_of(rules)
    end = T0 + minutes * MINUTE
    course = Course(settings=settings_of(), playbooks={}, start=end - warm_up, end=end)
    alerting = next(rule for group in groups for rule in group.rules)
    return look(alerting, groups, course, source, state)


def why(insight):
    return {row.labels["node"]: (row.state, row.gates) for row in insight.rows}


def test_a_plain_rule_says_of_each_series_how_far_it_is():
    source = storage_of(
        temperature((0, 240, 20)),
        temperature((0, 100, 20), (100, 240, 70), node="b"),
        temperature((0, 119, 20), (119, 240, 70), node="c"),
    )
    found = seen(HOT, source, 120.99)
    said = why(found)
    assert said["a"] == ("inactive", ("not > 50",))
    assert said["b"][0] == "firing"
    assert said["b"][1][0].startswith("since 01:4")
    assert said["c"][0] == "pending"
    assert said["c"][1][0] in ("for 2m: 1m to go", "for 2m: 2m to go")
    assert [row.labels["node"] for row in found.rows] == ["b", "c", "a"]


def test_a_detector_that_cannot_say_tells_what_it_has():
    capacity = [({"__name__": "capacity", "node": node}, [(0, 240, 1000)]) for node in ("a", "b")]
    source = storage_of(
        *capacity,
        temperature((0, 240, 20)),
        temperature((115, 240, 20), node="b"),
        temperature((0, 240, 20), node="c"),
    )
    said = why(seen(FULL, source, 120))
    assert said["a"][0] == "inactive"
    assert said["b"] == ("unknown", ("cannot say: 5 of 61 samples in the last 1h",))
    assert said["c"] == ("unknown", ("cannot say: no bound for this series",))


def test_votes_are_counted_until_there_are_enough():
    rising = [(i, i + 1, 20 + 2 * max(0, i - 100)) for i in range(240)]
    source = storage_of(temperature(*rising))
    said = [why(seen(STEP, source, minutes, warm_up=MINUTE * 30))["a"] for minutes in range(100, 120)]
    states = [state for state, _ in said]
    first = states.index("firing")
    assert states[first:] == ["firing"] * (20 - first)
    assert said[first - 1] == ("inactive", ("2 of 3 votes needed of the last 5",))
    assert said[first - 2] == ("inactive", ("1 of 3 votes needed of the last 5",))
    assert said[first - 3] == ("inactive", ())


def test_it_goes_on_with_what_the_running_engine_has_saved():
    source = storage_of(temperature((0, 60, 20), (60, 240, 70)))
    groups = groups_of(HOT)
    store = MemoryStore()
    course = Course(settings=settings_of(), playbooks={}, start=T0, end=T0 + 119 * MINUTE)
    running = Walk(course, groups, source, store)
    for slot, group in slots(groups, course.start, course.end):
        running.tick(group, slot)
    (alert,) = store.alerts(groups[0].rules[0].id)
    found = seen(HOT, source, 120, state=store, warm_up=MINUTE)
    assert found.from_state
    assert found.rows[0].gates == (f"since {alert.fired_at:%H:%M} UTC",)
    later = seen(HOT, source, 180, state=store, warm_up=MINUTE)
    assert not later.from_state  # that was an hour ago
    assert later.rows[0].state == "pending"


def test_the_report_has_a_chart_and_a_row_for_each_series_that_fits():
    source = storage_of(*(temperature((0, 240, 20 + i), node=f"n{i}") for i in range(4)))
    found = seen(HOT, source, 120)
    text = "\n".join(lines(found, 2))
    assert "dotted: threshold 50" in text
    assert "… 2 more" in text
    parsed = json.loads(as_json(found))
    assert [each["value"] for each in parsed["series"]] == [20, 21, 22, 23]


def test_a_rule_without_series_says_so():
    assert list(lines(seen(HOT, storage_of(), 120), 5))[-1] == "no series"


def test_a_rule_that_is_misspelt_is_suggested():
    with pytest.raises(EngineError, match="did you mean 'Hot'"):
        find_rule(groups_of(HOT), "Hott")
    assert find_rule(groups_of(HOT), "rules.yaml;g;Hot").alert == "Hot"

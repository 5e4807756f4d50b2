"""The engine counts what it does, and shows how things are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.errors import QueryUnavailable
from engine.model.event import Event, Kind
from engine.serve.metrics import Metrics, State
from tests.flow.stage import RULES, T0, Stage
from tests.flow.test_healing import APPROVE, asking

AT = datetime(2026, 1, 1, tzinfo=UTC)


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples of a scrape, by name and labels."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def counted(metrics: Metrics) -> dict[str, float]:
    """The engine's counters that have counted, `name{label="value"}`."""
    return {
        name.removeprefix("engine_")
        + "{"
        + ",".join(f'{key}="{value}"' for key, value in labels)
        + "}": value
        for (name, labels), value in samples(metrics).items()
        if name.startswith("engine_") and name.endswith("_total") and value
    }


def event(kind: Kind, subject: str = "s", **data: str) -> Event:
    return Event(at=AT, kind=kind, subject=subject, reason="because", data=data)


TO = {"receiver": "oncall", "integration": "slack", "group": "{}"}
COUNTED: dict[Kind, list[tuple[dict[str, str], dict[str, float]]]] = {
    Kind.EVALUATED: [
        ({"health": "ok"}, {'rule_evaluations_total{rule="s"}': 1}),
        (
            {"health": "err"},
            {'rule_evaluations_total{rule="s"}': 1, 'rule_evaluation_failures_total{rule="s"}': 1},
        ),
    ],
    Kind.MISSED: [({"missed": "3"}, {'group_slots_missed_total{group="s"}': 3})],
    Kind.TRANSITION: [
        (
            {"alert": "Hot", "before": "pending", "after": "firing"},
            {'alert_transitions_total{alertname="Hot",to="firing"}': 1},
        )
    ],
    Kind.NOTIFIED: [(TO, {'notifications_total{integration="slack",receiver="oncall"}': 1})],
    Kind.NOT_NOTIFIED: [
        (
            {**TO, "why": "timeout"},
            {'notifications_failed_total{integration="slack",reason="timeout",receiver="oncall"}': 1},
        )
    ],
    Kind.TROUBLE: [({"traceback": "…"}, {'troubles_total{part="s"}': 1})],
    Kind.RUN: [
        (
            {"playbook": "cool", "state": "helped"},
            {'remediation_runs_total{playbook="cool",state="helped"}': 1},
        ),
        ({"playbook": "cool"}, {}),  # nothing was begun
    ],
    # These are told, and not counted: other counters say as much.
    Kind.FAILED: [({}, {})],
    Kind.RECOVERED: [({}, {})],
    Kind.MUTED: [({}, {})],
    Kind.STEP: [({"playbook": "cool"}, {})],
}


def test_it_is_known_of_every_kind_of_event_what_it_counts() -> None:
    assert set(COUNTED) == set(Kind)


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [(kind, data, expected) for kind, cases in COUNTED.items() for data, expected in cases],
)
def test_an_event_is_counted(kind: Kind, data: dict[str, str], expected: dict[str, float]) -> None:
    metrics = Metrics()
    assert counted(metrics) == {}
    metrics.observe(event(kind, **data))
    assert counted(metrics) == expected
    metrics.observe(event(kind, **data))
    assert counted(metrics) == {name: 2 * value for name, value in expected.items()}


def test_wake_ups_are_counted_by_what_happened_to_them() -> None:
    metrics = Metrics()
    for what in ("missed", "overlap", "overlap"):
        metrics.count_job(what, "f;g")
    assert counted(metrics) == {
        'scheduler_events_total{event="missed",job="f;g"}': 1,
        'scheduler_events_total{event="overlap",job="f;g"}': 2,
    }


def test_labels_of_any_text_can_be_scraped() -> None:
    metrics = Metrics()
    metrics.observe(event(Kind.TROUBLE, 'a "quoted" \\ part\nof two lines, é'))
    assert ("engine_troubles_total", (("part", 'a "quoted" \\ part\nof two lines, é'),)) in samples(metrics)


def gauges(stage: Stage, overdue: int = 0) -> dict[str, Any]:
    metrics = Metrics()
    metrics.registry.register(State(lambda: stage.engine, lambda: overdue))
    found: dict[str, Any] = {}
    for (name, labels), value in samples(metrics).items():
        if name.startswith("engine_") and not name.endswith(("_total", "_created")):
            found.setdefault(name.removeprefix("engine_"), {})[tuple(value for _, value in labels)] = value
    return found


def test_alerts_and_rules_are_shown_as_they_are() -> None:
    stage = Stage()
    rule = next(iter(stage.engine.status))
    before = gauges(stage)
    assert before["rule_healthy"][(rule,)] == 1.0, "not evaluated is not unhealthy"
    assert "rule_last_evaluation_timestamp_seconds" not in before
    stage.hot("n1", "n2")
    stage.run(25)
    stage.hot("n1", "n2", "n3")
    stage.run(10)
    after = gauges(stage)
    assert after["alerts"] == {("Hot", "firing"): 2.0, ("Hot", "pending"): 1.0}
    assert after["rule_last_evaluation_timestamp_seconds"][(rule,)] == T0.timestamp() + 30
    stage.hot()
    stage.run(60)
    assert stage.states == {"n1": "resolved", "n2": "resolved"}
    assert "alerts" not in gauges(stage), "what has resolved is no alert"


def test_a_rule_that_fails_and_groups_that_are_overdue_are_shown() -> None:
    stage = Stage()
    stage.source.error = QueryUnavailable("down")
    stage.run(11)
    shown = gauges(stage, overdue=2)
    assert shown["rule_healthy"][("rules.yaml;g;Hot",)] == 0.0
    assert shown["groups_overdue"] == {(): 2.0}


def test_what_a_detector_says_of_itself_is_shown_by_rule() -> None:
    stage = Stage()
    stage.run(11)
    rule = "rules.yaml;g;Hot"
    assert "forecast_coverage" not in gauges(stage)
    stage.engine.status[rule].quality = {"forecast_coverage": 0.9, "forecast_scored": 120.0}
    shown = gauges(stage)
    assert shown["forecast_coverage"] == {(rule,): 0.9}
    assert shown["forecast_scored"] == {(rule,): 120.0}


def test_what_waits_and_what_is_open_is_shown() -> None:
    stage = asking(APPROVE)
    stage.run(35)
    shown = gauges(stage)
    assert shown["remediation_runs_open"] == {(): 1.0}
    assert shown["notifications_waiting"] == {(): 0.0}


def test_gauges_follow_the_engine_that_a_reload_put_in_place() -> None:
    present = [Stage()]
    metrics = Metrics()
    metrics.registry.register(State(lambda: present[0].engine, lambda: 0))
    present[0] = Stage(rules=RULES.replace(b"Hot", b"Cold"))
    names = {dict(labels).get("rule") for name, labels in samples(metrics) if name == "engine_rule_healthy"}
    assert names == set(present[0].engine.status)


def test_the_process_is_measured_too() -> None:
    assert any(name == "process_resident_memory_bytes" for name, _ in samples(Metrics()))

"""What fires, what is told, and that nothing is forgotten, on virtual time."""

from __future__ import annotations

import pytest

from engine.errors import NotifyError, QueryRejected, QueryUnavailable, StoreError
from engine.model.event import Kind
from engine.model.labels import Labels
from tests.flow.stage import ROUTES, RULES, Stage


def test_an_alert_is_pending_then_firing_then_resolved_and_told_twice() -> None:
    stage = Stage()
    stage.hot("n1")
    stage.run(11)
    assert stage.states == {"n1": "pending"}
    assert stage.r.sent == []
    stage.run(10)
    assert stage.states == {"n1": "firing"}
    assert stage.r.sent[0].alerts[0].annotations == {"summary": "n1 is at 60"}
    stage.hot()
    stage.run(10)
    assert stage.states == {"n1": "firing"}, "keep_firing_for holds it"
    stage.run(30)
    assert stage.states == {"n1": "resolved"}
    assert stage.r.told == [("FIRST", ["n1"], []), ("ALL_RESOLVED", [], ["n1"])]
    stage.run(120)
    assert len(stage.r.sent) == 2


@pytest.mark.parametrize(
    "error", [QueryUnavailable("prometheus:9090: connection refused"), QueryRejected("bad_data: parse error")]
)
def test_a_failed_query_leaves_alerts_as_they_are_and_says_so_once(error: Exception) -> None:
    stage = Stage()
    stage.hot("n1")
    stage.run(25)
    stage.source.error = error
    stage.run(300)
    assert stage.states == {"n1": "firing"}
    assert stage.r.told == [("FIRST", ["n1"], [])]
    assert stage.reasons(Kind.FAILED) == [str(error)]
    rule = next(iter(stage.engine.status.values()))
    assert (rule.health.value, rule.error) == ("err", str(error))
    stage.source.error = None
    stage.run(20)
    assert stage.reasons(Kind.RECOVERED) == ["evaluates again"]
    assert stage.states == {"n1": "firing"}


def test_a_fault_in_a_detector_or_its_data_costs_one_rule_only() -> None:
    stage = Stage(rules=RULES + RULES[RULES.index(b"      - alert") :].replace(b"Hot", b"Hot2"))
    stage.hot("n1")
    ask = stage.source.instant

    def broken(expr: str, at: object) -> object:
        if len(stage.source.asked) % 2 == 0:
            stage.source.asked.append(expr)
            raise ZeroDivisionError("inside")
        return ask(expr, at)  # type: ignore[arg-type]

    stage.source.instant = broken  # type: ignore[method-assign, assignment]
    stage.run(25)
    assert {alert.name for alert in stage.alerts} == {"Hot2"}
    assert any("ZeroDivisionError" in reason for reason in stage.reasons(Kind.FAILED))
    assert "Traceback" in next(e for e in stage.events if e.kind is Kind.TROUBLE).data["traceback"]


def test_two_results_with_the_same_labels_are_an_error_of_the_rule() -> None:
    stage = Stage(rules=RULES.replace(b"labels: {severity: warning}", b"labels: {instance: all}"))
    stage.hot("n1", "n2")
    stage.run(25)
    assert stage.alerts == []
    assert "two results have the same labels" in stage.reasons(Kind.FAILED)[0]


def test_more_alerts_than_the_groups_limit_are_an_error_and_none() -> None:
    stage = Stage(rules=RULES.replace(b"interval: 10s", b"interval: 10s\n    limit: 1"))
    stage.hot("n1")
    stage.run(25)
    assert stage.states == {"n1": "firing"}
    stage.hot("n1", "n2")
    stage.run(10)
    assert stage.states == {}
    assert "limit of 1" in stage.reasons(Kind.FAILED)[0]


def test_slack_that_fails_is_told_the_truth_when_it_comes_back() -> None:
    stage = Stage()
    stage.r.failures.extend(NotifyError("HTTP 500", retryable=True, reason="server_error") for _ in range(4))
    stage.hot("n1")
    stage.run(40)
    assert stage.r.sent == []
    assert stage.engine.dispatcher.waiting == 1
    stage.run(60)
    assert stage.r.told[0] == ("FIRST", ["n1"], [])
    assert stage.engine.dispatcher.waiting == 0
    assert len(stage.reasons(Kind.NOT_NOTIFIED)) == 4


def test_what_fired_and_resolved_while_slack_was_away_is_told_all_the_same() -> None:
    stage = Stage()
    stage.r.failures.extend(NotifyError("timeout", retryable=True, reason="timeout") for _ in range(6))
    stage.hot("n1")
    stage.run(25)
    stage.hot()
    stage.run(300)
    assert stage.r.told == [("FIRST", [], ["n1"])]


def test_a_notifier_asked_to_wait_is_left_alone_that_long() -> None:
    stage = Stage()
    stage.r.failures.append(NotifyError("HTTP 429", retryable=True, reason="rate_limited", retry_after=30))
    stage.hot("n1")
    stage.run(50)
    assert stage.r.sent == []
    stage.run(10)
    assert len(stage.r.sent) == 1


def test_a_bug_in_a_notifier_is_a_failed_delivery_and_nothing_worse() -> None:
    stage = Stage()
    stage.r.failures.append(KeyError("oops"))  # type: ignore[arg-type]
    stage.hot("n1")
    stage.run(60)
    assert stage.r.told == [("FIRST", ["n1"], [])]


def test_a_restart_forgets_nothing_and_tells_nothing_twice() -> None:
    stage = Stage()
    stage.hot("n1")
    stage.run(25)
    fired_at = stage.alerts[0].fired_at
    stage.restart()
    stage.run(25)
    assert stage.alerts[0].fired_at == fired_at
    assert stage.r.told == [("FIRST", ["n1"], [])]
    stage.hot()
    stage.restart()
    stage.run(40)
    assert stage.r.told[-1] == ("ALL_RESOLVED", [], ["n1"])


def test_a_restart_keeps_what_is_pending() -> None:
    stage = Stage()
    stage.hot("n1")
    stage.run(11)
    active_at = stage.alerts[0].active_at
    stage.restart()
    assert stage.states == {"n1": "pending"}
    stage.run(10)
    assert stage.states == {"n1": "firing"}
    assert stage.alerts[0].active_at == active_at


def test_a_store_that_fails_stops_no_evaluation_and_is_said() -> None:
    stage = Stage()

    def full(*_args: object) -> None:
        raise StoreError("engine.db: disk full")

    stage.store.save_alerts = full  # type: ignore[method-assign]
    stage.store.save_sent = full  # type: ignore[method-assign]
    stage.hot("n1")
    stage.run(25)
    assert stage.states == {"n1": "firing"}
    assert "engine.db: disk full" in stage.reasons(Kind.TROUBLE)


INHIBITED = (
    ROUTES
    + """
inhibit_rules:
  - {source_matchers: [severity="page"], target_matchers: [severity="warning"], equal: [instance]}
"""
)


def test_an_inhibited_alert_is_not_told_until_the_other_is_gone() -> None:
    two = RULES + RULES[RULES.index(b"      - alert") :].replace(b"Hot", b"Fire").replace(
        b"warning", b"page"
    ).replace(b"temperature", b"temperature_page")
    stage = Stage(rules=two, settings=INHIBITED)
    stage.hot("n1")
    page = stage.source.by_expr["temperature_page > 50"] = {Labels(instance="n1"): 90.0}
    stage.run(40)
    assert {one.alerts[0].name for one in stage.r.sent} == {"Fire"}
    assert stage.reasons(Kind.MUTED)
    page.clear()
    stage.run(60)
    assert "Hot" in {alert.name for one in stage.r.sent for alert in one.firing}


def test_templates_may_query() -> None:
    stage = Stage(
        rules=RULES.replace(
            b"is at {{ $value }}", b"{{ range query `up` }}{{ .Labels.job }}={{ .Value }}{{ end }}"
        )
    )
    stage.source.by_expr["up"] = {Labels(job="ray"): 1.0}
    stage.hot("n1")
    stage.run(25)
    assert stage.alerts[0].annotations["summary"] == "n1 ray=1"

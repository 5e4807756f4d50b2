"""When an Alertmanager is told of an alert, and in what words; the same rules are held against Prometheus itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.notify.alertmanager import graph_link, needs_sending, payload

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def alert(
    state: AlertState = AlertState.FIRING, *, resolved: datetime | None = None, **more: object
) -> Alert:
    given = {
        "rule_id": "f;g;Hot",
        "labels": Labels(alertname="Hot", room="a", cluster="own"),
        "signal": Labels(room="a", cluster="own"),
        "annotations": {"b": "2", "a": "1 ≥ <0>"},
        "state": state,
        "value": 60.0,
        "active_at": T0,
        "fired_at": None if state is AlertState.PENDING else T0 + 2 * MINUTE,
        "resolved_at": resolved,
    }
    return Alert(**{**given, **more})


def body(found: Alert, *, at: datetime = T0 + 5 * MINUTE, **more: object) -> dict[str, object]:
    given = {"interval": MINUTE, "resend_delay": MINUTE, "generator_url": lambda it: f"http://x/{it.name}"}
    (made,) = payload([found], at=at, **{**given, **more})
    return made


def test_a_firing_alert_is_told_with_an_end_that_lies_ahead():
    assert body(alert()) == {
        "labels": {"alertname": "Hot", "cluster": "own", "room": "a"},
        "annotations": {"a": "1 ≥ <0>", "b": "2"},
        "startsAt": "2026-01-01T00:02:00.000Z",
        "endsAt": "2026-01-01T00:09:00.000Z",
        "generatorURL": "http://x/Hot",
    }


def test_a_resolved_alert_ends_when_it_resolved():
    resolved = alert(AlertState.RESOLVED, resolved=T0 + timedelta(minutes=4, milliseconds=250))
    assert body(resolved)["endsAt"] == "2026-01-01T00:04:00.250Z"


@pytest.mark.parametrize(
    ("interval", "resend_delay", "ahead"),
    [("1m", "30s", 4), ("15s", "1m", 4), ("5m", "1m", 20)],
)
def test_three_messages_may_be_lost_before_an_alert_ends_by_itself(interval, resend_delay, ahead):
    made = body(alert(), interval=Duration.parse(interval), resend_delay=Duration.parse(resend_delay))
    assert made["endsAt"] == f"2026-01-01T00:{5 + ahead:02}:00.000Z"


def test_external_labels_lie_under_the_alerts_own():
    made = body(alert(), external_labels={"cluster": "external", "region": "eu", "none": ""})
    assert made["labels"] == {"alertname": "Hot", "cluster": "own", "region": "eu", "room": "a"}


def test_without_annotations_their_key_is_left_out():
    assert "annotations" not in body(alert(annotations={}))


@pytest.mark.parametrize(
    ("state", "resolved", "last_sent", "at", "sends"),
    [
        (AlertState.PENDING, None, None, 5, False),
        (AlertState.FIRING, None, None, 5, True),
        (AlertState.FIRING, None, 4, 5, False),
        (AlertState.FIRING, None, 3.99, 5, True),
        (AlertState.FIRING, None, 3, 5, True),
        (AlertState.RESOLVED, 5, 4, 5, True),  # at once
        (AlertState.RESOLVED, 5, 5, 5, False),
        (AlertState.RESOLVED, 5, 5, 6, False),
        (AlertState.RESOLVED, 5, 5, 6.5, True),  # and again and again, as long as it is remembered
        (AlertState.RESOLVED, 5, None, 9, True),
    ],
)
def test_when_an_evaluation_tells_of_an_alert(state, resolved, last_sent, at, sends):
    def minute(number: float | None) -> datetime | None:
        return None if number is None else T0 + number * MINUTE

    found = alert(state, resolved=minute(resolved))
    assert needs_sending(found, last_sent=minute(last_sent), at=minute(at), resend_delay=MINUTE) is sends


def test_the_link_is_prometheus_own():
    link = graph_link("http://prometheus.example/", 'sum by(a)(x{b="c d"})>1')
    assert link == (
        "http://prometheus.example/graph?g0.expr=sum+by+%28a%29+%28x%7Bb%3D%22c+d%22%7D%29+%3E+1&g0.tab=1"
    )

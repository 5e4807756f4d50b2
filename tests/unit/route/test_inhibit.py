"""Inhibition follows Alertmanager."""

from datetime import UTC, datetime

import pytest

from engine.model.alert import Alert, AlertState
from engine.model.labels import Labels, Matcher, Matchers, MatchOp
from engine.model.route import InhibitRule
from engine.route.inhibit import inhibitors

AT = datetime(2024, 5, 1, tzinfo=UTC)


def alert(state: AlertState = AlertState.FIRING, **labels: str) -> Alert:
    return Alert(rule_id="r", labels=Labels(labels), signal=Labels(), state=state, value=1.0, active_at=AT)


def matchers(**labels: str) -> Matchers:
    return Matchers(Matcher(name, MatchOp.EQUAL, value) for name, value in labels.items())


RULE = InhibitRule(
    source_matchers=matchers(severity="critical"),
    target_matchers=matchers(severity="warning"),
    equal=("cluster", "node"),
)
BOTH = InhibitRule(source_matchers=matchers(a="1"), target_matchers=matchers(b="1"), equal=("node",))


@pytest.mark.parametrize(
    ("rule", "source", "target", "muted"),
    [
        (RULE, {"severity": "critical", "node": "n"}, {"severity": "warning", "node": "n"}, True),
        (RULE, {"severity": "critical", "node": "n"}, {"severity": "warning", "node": "m"}, False),
        (RULE, {"severity": "critical", "node": "n"}, {"severity": "warning"}, False),
        (RULE, {"severity": "critical", "node": "n"}, {"severity": "info", "node": "n"}, False),
        (RULE, {"severity": "info"}, {"severity": "warning"}, False),
        (RULE, {"severity": "critical", "cluster": ""}, {"severity": "warning"}, True),
        (BOTH, {"a": "1"}, {"b": "1"}, True),
        (BOTH, {"a": "1", "b": "1"}, {"b": "1", "x": "y"}, True),
        (BOTH, {"a": "1"}, {"a": "1", "b": "1"}, True),
        (BOTH, {"a": "1", "b": "1", "x": "y"}, {"a": "1", "b": "1"}, False),
    ],
)
def test_a_source_mutes_targets_with_equal_labels(
    rule: InhibitRule, source: dict[str, str], target: dict[str, str], muted: bool
) -> None:
    one, other = alert(**source), alert(**target)
    found = inhibitors([rule], [one, other])
    assert found.get(other.fingerprint) == (one if muted else None)


def test_an_alert_that_matches_both_sides_is_not_muted_by_itself() -> None:
    assert not inhibitors([BOTH], [alert(a="1", b="1")])


def test_a_one_sided_source_is_found_behind_a_two_sided_one() -> None:
    two_sided, one_sided, target = alert(a="1", b="1"), alert(a="1"), alert(a="1", b="1", x="y")
    found = inhibitors([BOTH], [two_sided, one_sided, target])
    assert found == {target.fingerprint: one_sided, two_sided.fingerprint: one_sided}


@pytest.mark.parametrize("state", [AlertState.PENDING, AlertState.RESOLVED])
def test_only_firing_alerts_mute(state: AlertState) -> None:
    assert not inhibitors([RULE], [alert(state, severity="critical"), alert(severity="warning")])


def test_resolved_alerts_are_muted_too() -> None:
    target = alert(AlertState.RESOLVED, severity="warning")
    assert target.fingerprint in inhibitors([RULE], [alert(severity="critical"), target])


def test_a_muted_alert_still_mutes_others() -> None:
    chain = [
        InhibitRule(source_matchers=matchers(level="3"), target_matchers=matchers(level="2")),
        InhibitRule(source_matchers=matchers(level="2"), target_matchers=matchers(level="1")),
    ]
    top, middle, bottom = (alert(level=level) for level in "321")
    assert inhibitors(chain, [bottom, middle, top]) == {middle.fingerprint: top, bottom.fingerprint: middle}


def test_no_rules_mute_nothing() -> None:
    assert not inhibitors([], [alert(severity="critical")])

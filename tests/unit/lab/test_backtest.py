"""Rules over the past: what fired, for how much of it there was data, what people remember, what would have been done."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from textwrap import dedent

import numpy as np
import pytest

from engine.errors import QueryUnavailable
from engine.flow.slots import interval_of
from engine.lab.availability import availability, questions
from engine.lab.backtest import Course, chosen, walk
from engine.lab.hindsight import look_back
from engine.lang.promql import Storage
from engine.load.incidents import read_incidents
from engine.load.overrides import read_axes, variants
from engine.load.rules import read_rules
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.ports import Answer, Progress
from engine.query.embedded import EmbeddedSource
from engine.query.history import HistorySource
from tests.unit.lab.lives import playbooks_of, settings_of

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)

HOT = """
    groups:
      - name: g
        interval: 1m
        rules:
          - {alert: Hot, expr: temperature > 50, for: 2m, labels: {severity: page}}
    """


def groups_of(text):
    problems = []
    loaded = read_rules("rules.yaml", dedent(text).encode(), problems)
    assert problems == []
    return list(loaded.groups)


def storage_of(*series):
    """Each series is labels and (start, end, value) in minutes from T0."""
    storage = Storage()
    for labels, spans in series:
        for start, end, value in spans:
            times = [round((T0 + i * MINUTE).timestamp() * 1000) for i in range(start, end)]
            storage.add(Labels(labels), times, np.full(len(times), float(value)))
            storage.add(Labels(labels), [times[-1] + 30_000], [0.0], [True])
    return EmbeddedSource(storage)


def temperature(*spans, node="a"):
    return {"__name__": "temperature", "node": node}, spans


def walked(rules, source, *, minutes=240, settings="", playbooks=(), sweep=()):
    groups = groups_of(rules)
    changed = [each for _, each in variants(groups, read_axes(sweep))] if sweep else []
    found = {
        name: replace(each, steps=tuple(replace(step, act=NeverCall()) for step in each.steps))
        for name, each in playbooks_of(*map(dedent, playbooks)).items()
    }
    end = T0 + minutes * MINUTE
    course = Course(settings=settings_of(settings), playbooks=found, start=T0, end=end)
    history = HistorySource(source, course.end, interval_of(groups[0]))
    found = [list(each.values()) for each in walk(course, [groups, *changed], history)]
    return found if sweep else found[0]


def minutes_of(at):
    return (at - T0) // MINUTE


def test_an_episode_lasts_from_the_slot_at_which_it_fires_to_that_at_which_it_does_not():
    source = storage_of(temperature((0, 60, 20), (60, 90, 70), (90, 240, 20)))
    (record,) = walked(HOT, source)
    (episode,) = record.episodes
    assert minutes_of(episode.since) in (62, 63)  # slots lie somewhere in their minute
    assert minutes_of(episode.until) in (90, 91)
    assert record.firing == (episode.until - episode.since) // MINUTE
    assert record.slots == 240
    assert (record.pendings, record.flaps, record.errors) == (1, 0, 0)


def test_an_alert_that_fires_again_within_the_hour_flaps():
    spans = [
        (0, 10, 20),
        (10, 20, 70),
        (20, 40, 20),
        (40, 50, 70),
        (50, 150, 20),
        (150, 160, 70),
        (160, 240, 20),
    ]
    (record,) = walked(HOT, storage_of(temperature(*spans), temperature(*spans[:3], node="b")))
    assert len(record.episodes) == 4
    assert record.flaps == 1


def test_what_still_fires_at_the_end_has_no_end():
    (record,) = walked(HOT, storage_of(temperature((0, 200, 20), (200, 300, 70))))
    (episode,) = record.episodes
    assert episode.until is None
    assert episode.end(T0 + 4 * HOUR) == T0 + 4 * HOUR


def test_conditions_that_passed_before_they_fired_are_counted():
    source = storage_of(temperature((0, 30, 20), (30, 31, 70), (31, 100, 20), (100, 101, 70), (101, 240, 20)))
    (record,) = walked(HOT, source)
    assert (len(record.episodes), record.pendings) == (0, 2)


def test_variants_are_the_rule_with_other_values():
    source = storage_of(temperature((0, 60, 20), (60, 70, 70), (70, 240, 20)))
    base, short, long = walked(HOT, source, sweep=["for=0s,30m"])
    assert [len(each[0].episodes) for each in (base, short, long)] == [1, 1, 0]
    assert base[0].episodes[0].since - short[0].episodes[0].since == 2 * MINUTE


def test_rules_read_what_other_rules_made():
    rules = HOT.replace("expr: temperature", "expr: warm").replace(
        "rules:", "rules:\n          - {record: warm, expr: temperature * 2}", 1
    )
    (record,) = walked(rules, storage_of(temperature((0, 60, 20), (60, 90, 30), (90, 240, 20))))
    assert len(record.episodes) == 1


def test_a_rule_that_cannot_be_evaluated_says_so():
    rules = HOT.replace("temperature > 50", "temperature + on() temperature > 1")
    source = storage_of(temperature((0, 240, 1)), temperature((0, 240, 1), node="b"))
    (record,) = walked(rules, source, minutes=20)
    assert record.errors == record.slots == 20
    assert "match the same elements" in record.error


def test_a_server_that_goes_away_ends_it():
    class Away:
        def instant(self, expr, at):
            raise QueryUnavailable("away")

        def range(self, expr, start, end, step):
            raise QueryUnavailable("away")

    with pytest.raises(QueryUnavailable, match="away"):
        walked(HOT, Away())


def test_a_detector_that_cannot_say_is_counted():
    rules = """
    groups:
      - name: g
        interval: 1m
        rules:
          - alert: Full
            expr: temperature
            detect: {forecast: {bound: 100, lookback: 1h, horizon: 1h}}
    """
    (record,) = walked(rules, storage_of(temperature((120, 240, 20)), temperature((0, 240, 10), node="b")))
    begins = 120 + 15  # a quarter of the lookback's samples
    assert record.judged == 240 + 120
    assert 14 <= record.abstained <= 120
    assert record.blind < begins
    assert record.episodes == []


# ── Data ─────────────────────────────────────────────────────────────────────


def rule_of(text):
    return groups_of(text)[0].rules[0]


def held(source, rules=HOT, minutes=240):
    return availability(rule_of(rules), source, T0, T0 + minutes * MINUTE, MINUTE)


def test_gaps_are_what_lies_between_samples_and_not_what_comes_before_the_first():
    found = held(storage_of(temperature((40, 100, 20), (130, 200, 20))))
    assert found.starts_late
    assert minutes_of(found.first) == 40
    assert [(minutes_of(gap.start), minutes_of(gap.end)) for gap in found.gaps] == [(100, 130), (200, 241)]
    assert found.length == 130 * MINUTE
    assert found.share == pytest.approx(130 / 241)
    assert found.within(T0 + 90 * MINUTE, T0 + 109 * MINUTE) == pytest.approx(0.5)
    assert found.within(T0 + 300 * MINUTE, T0 + 400 * MINUTE) == 0


def test_a_gap_that_prometheus_bridges_is_none_and_a_whole_period_has_none():
    found = held(storage_of(temperature((0, 100, 20), (104, 241, 20))))
    assert found.gaps == []
    assert not found.starts_late
    assert found.share == pytest.approx(237 / 241)


def test_without_any_sample_nothing_is_there():
    found = held(storage_of())
    assert (found.first, found.share, found.gaps, found.starts_late) == (None, 0.0, [], True)


def test_a_threshold_that_was_not_crossed_is_not_missing_data():
    assert held(storage_of(temperature((0, 241, 1)))).share == 1.0


@pytest.mark.parametrize(
    ("expr", "asked"),
    [
        ("m > 5", ["count(m\n)"]),
        ("a > 1 and b < 2", ["count(a{}\n)", "count(b{}\n)"]),
        ("absent(up)", ["count(up{}\n)"]),
        ("vector(1)", ["vector(1)"]),
    ],
)
def test_each_kind_of_rule_is_asked_for_in_its_own_way(expr, asked):
    assert [each.replace("{}", "") for each in questions(rule_of(HOT.replace("temperature > 50", expr)))] == [
        each.replace("{}", "") for each in asked
    ]


# ── Incidents ────────────────────────────────────────────────────────────────


def incidents_of(text):
    problems = []
    found = read_incidents("i.yaml", dedent(text).encode(), problems)
    assert problems == []
    return found


INCIDENTS = """
    incidents:
      - {name: seen, start: 2026-01-01T01:30:00Z, end: 2026-01-01T01:40:00Z, matchers: node="a"}
      - {name: late, start: 2026-01-01T00:50:00Z, end: 2026-01-01T01:05:00Z, early: 5m}
      - {name: other node, start: 2026-01-01T01:30:00Z, end: 2026-01-01T01:40:00Z, matchers: node="c"}
      - {name: other alert, start: 2026-01-01T01:30:00Z, end: 2026-01-01T01:40:00Z, alertname: Cold}
      - {name: long ago, start: 2025-12-01T00:00:00Z, end: 2025-12-01T01:00:00Z}
    """


def test_incidents_are_seen_missed_or_not_judged():
    source = storage_of(
        temperature((0, 60, 20), (60, 90, 70), (90, 241, 20)),
        temperature((0, 200, 20), (200, 220, 70), (220, 241, 20), node="b"),
    )
    (record,) = walked(HOT, source)
    found = look_back(record, incidents_of(INCIDENTS), held(source), T0 + 4 * HOUR)
    assert [each.incident.name for each in found.hits] == ["late", "seen"]
    assert [each.incident.name for each in found.misses] == ["other node"]
    assert [each.incident.name for each in found.unjudged] == ["long ago"]
    (alarm,) = found.false_alarms
    assert alarm.alert.labels["node"] == "b"
    late, seen = found.hits
    assert late.lead < timedelta() < seen.lead
    assert seen.lead == seen.incident.start - record.episodes[0].since
    assert found.lead == (late.lead + seen.lead) / 2


def test_without_incidents_about_a_rule_nothing_is_said_of_them():
    source = storage_of(temperature((0, 241, 20)))
    (record,) = walked(HOT, source)
    only = [each for each in incidents_of(INCIDENTS) if each.alertname == "Cold"]
    assert look_back(record, only, held(source), T0 + 4 * HOUR) is None


# ── Sweeps ───────────────────────────────────────────────────────────────────


def test_a_sweep_is_every_combination_in_the_order_that_was_written():
    rules = """
    groups:
      - name: g
        rules:
          - {alert: Hot, expr: t > 1, for: 1m}
          - alert: Full
            expr: used
            detect: {forecast: {bound: 100, horizon: 4h}}
    """
    found = list(variants(groups_of(rules), read_axes(["for=2m,3m", "urgent.probability=0.6,0.7"])))
    assert [values for values, _ in found] == [
        {"for": hold, "urgent.probability": odds} for hold in ("2m", "3m") for odds in ("0.6", "0.7")
    ]
    hot, full = found[1][1][0].rules
    assert (hot.hold, full.hold) == (Duration(minutes=2), Duration(minutes=2))
    assert full.detect.urgent.probability == 0.7
    assert full.detect.horizon == Duration(hours=4)


def test_rules_are_chosen_by_their_name_and_recorded_ones_stay():
    rules = """
    groups:
      - name: g
        rules: [{record: a, expr: b}, {alert: One, expr: c}, {alert: Two, expr: d}]
      - name: h
        rules: [{alert: Three, expr: e}]
    """
    found = chosen(groups_of(rules), lambda name: name == "Two")
    assert [[rule.name for rule in group.rules] for group in found] == [["a", "Two"]]


# ── Remedies ─────────────────────────────────────────────────────────────────

HEALED = HOT.replace("severity: page}", "severity: page}, remediate: {playbook: cool, after: 3m}")
COOL = """
    playbook: cool
    match: [alertname="Hot"]
    target: "{{ $labels.node }}"
    mode: auto
    guardrails: {cooldown: 1h}
    verify: {within: 15m}
    steps:
      - {name: cool, action: ray_job, with: {entrypoint: [python, -m, cool]}}
    """


CALLS = []


@dataclass(frozen=True)
class NeverCall:
    """Notes every call."""

    def fix(self, folder):
        CALLS.append("fix")
        return self

    def describe(self):
        return "call"

    def start(self, ray, key):
        CALLS.append("start")
        return Answer(progress=Progress.SUCCEEDED, message="")

    def poll(self, ray, key):
        CALLS.append("poll")
        return Answer(progress=Progress.SUCCEEDED, message="")

    def cancel(self, ray, key):
        CALLS.append("cancel")


@pytest.fixture
def calls():
    CALLS.clear()
    return CALLS


def test_playbooks_are_asked_for_and_never_begun(calls):
    spans = [
        (0, 10, 20),
        (10, 20, 70),
        (20, 40, 20),
        (40, 50, 70),
        (50, 150, 20),
        (150, 160, 70),
        (160, 240, 20),
    ]
    (record,) = walked(
        HEALED, storage_of(temperature(*spans)), settings="remediation: {mode: auto}", playbooks=[COOL]
    )
    assert len(record.episodes) == 3
    assert [(each.decision.split(":")[0], each.refused_by) for each in record.remedies] == [
        ("would run", ""),
        ("refused", "cooldown"),
        ("would run", ""),
    ]
    assert all(
        3 * MINUTE <= each.at - episode.since <= 4 * MINUTE
        for each, episode in zip(record.remedies, record.episodes, strict=True)
    )
    assert calls == []


def test_the_strictest_mode_is_told(calls):
    source = storage_of(temperature((0, 10, 20), (10, 30, 70), (30, 240, 20)))
    told = {}
    for mode in ("off", "dry_run", "approve"):
        (record,) = walked(HEALED, source, settings=f"remediation: {{mode: {mode}}}", playbooks=[COOL])
        told[mode] = [each.decision for each in record.remedies]
    assert told == {
        "off": ["mode is off"],
        "dry_run": ["would be shown, mode is dry_run"],
        "approve": ["would ask for approval"],
    }
    assert calls == []


def test_a_playbook_that_serves_others_refuses(calls):
    playbook = COOL.replace('alertname="Hot"', 'alertname="Cold"')
    source = storage_of(temperature((0, 10, 20), (10, 30, 70), (30, 240, 20)))
    (record,) = walked(HEALED, source, playbooks=[playbook])
    assert [each.refused_by for each in record.remedies] == ["match"]

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from engine.errors import LoadError
from engine.load.rules import load_rules, read_rules
from engine.model.alert import AlertState
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.rule import AlertingRule, RecordingRule
from engine.model.testing import Match
from engine.registry import detector

FILES = Path(__file__).parents[2] / "fixtures" / "load" / "rules"


def load(name, **options):
    return load_rules([FILES / name], **options)


def problems_of(text):
    problems = []
    read_rules("f", text.encode(), problems)
    return [f"{problem.line}:{problem.column}: {problem.message}" for problem in problems]


@pytest.fixture
def plain():
    return load("plain.good.yaml", interval=Duration(seconds=45)).groups


def test_groups_keep_what_prometheus_reads(plain):
    first, empty, emptier = plain
    assert (first.name, first.interval, first.query_offset, first.limit) == (
        "everything",
        Duration(seconds=30),
        Duration(seconds=10),
        100,
    )
    assert first.file == str(FILES / "plain.good.yaml")
    assert empty.rules == emptier.rules == ()


def test_a_group_without_an_interval_has_the_one_of_the_settings(plain):
    assert plain[1].interval == Duration(seconds=45)


def test_label_values_are_the_text_that_was_written_and_the_groups_labels_lie_under_them(plain):
    _, down, other = plain[0].rules
    assert down.labels == {
        "team": "ray",
        "severity": "page",
        "version": "1.0",
        "code": "0x1F",
        "on": "off",
        "nothing": "",
    }
    assert other.labels == {"team": "ray", "severity": "none"}


def test_a_rule_without_detect_is_prometheus_own(plain):
    _, down, _ = plain[0].rules
    assert isinstance(down, AlertingRule)
    assert detector.name_of(down.detect) == "present"
    assert (down.hold, down.keep_firing_for) == (Duration(minutes=5), Duration(minutes=90))
    assert down.expr == "up\n  == 0\n"


def test_a_recording_rule_is_one(plain):
    recording = plain[0].rules[0]
    assert isinstance(recording, RecordingRule)
    assert recording.labels == {"team": "ray", "severity": "none", "aggregated": "true"}


def test_ids_are_file_group_and_name_and_namesakes_are_numbered(plain):
    file = str(FILES / "plain.good.yaml")
    ids = [rule.id for rule in plain[0].rules]
    assert ids == [f"{file};everything;job:up:sum", f"{file};everything;Down", f"{file};everything;Down#2"]


def test_a_rule_knows_where_it_was_written(plain):
    assert str(plain[0].rules[1].origin) == f"{FILES / 'plain.good.yaml'}:12:9"


def test_explicit_keys_win_over_merged_ones():
    first, second = load("merge_keys.good.yaml").groups[0].rules
    assert (first.alert, first.hold) == ("A", Duration(minutes=5))
    assert (second.alert, second.expr, second.hold) == ("B", "up == 0", Duration(minutes=1))
    assert second.labels == {"severity": "info", "team": "a", "zone": "z"}


def test_a_prometheus_rule_object_is_its_groups():
    (group,) = load("prometheus_rule_object.good.yaml").groups
    assert [rule.name for rule in group.rules] == ["Down"]


def test_the_strategy_of_thanos_is_known_in_objects_only():
    assert problems_of("groups: [{name: g, partial_response_strategy: warn}]")


def test_only_the_first_document_is_read():
    assert [group.name for group in load("first_document.good.yaml").groups] == ["first"]


def test_all_rules_of_newer_promql_are_there():
    assert len(load("newer_promql.good.yaml").groups[0].rules) == 8


def test_plug_ins_are_built_from_a_name_a_mapping_or_a_value():
    text = """
groups:
  - name: g
    rules:
      - {alert: A, expr: x, detect: {rising: 3}, enrich: [picture, {picture: 5m}, {picture: {range: 2h}}]}
      - {alert: B, expr: x, detect: {rising: {per_hour: 1, bound: sum(y)}}, remediate: {playbook: p, after: 5m}}
"""
    problems = []
    first, second = read_rules("f", text.encode(), problems).groups[0].rules
    assert problems == []
    assert first.detect.per_hour == 3
    assert [str(each.range) for each in first.enrich] == ["1h", "5m", "2h"]
    assert second.detect.bound == "sum(y)"
    assert (second.remediate.playbook, second.remediate.after) == ("p", Duration(minutes=5))


@pytest.mark.parametrize(
    ("expr", "problem"),
    [
        ("rat(x[5m])", "unknown function"),
        ("sum(", "unclosed left parenthesis"),
        ("rate(x)", "expected type matrix"),
        ('"1_000" + x', ""),
        ('x{a="anchored"} + rate(y)', "expected type matrix"),
        ("x > 1_000", None),
        ("rate(x[5m * 2])", None),
        ("rate(x[5m] anchored)", None),
        ("x offset (1m)", None),
        ("max_of(x, y)", None),
        ("WITH (a = b) a", None),
        ("limitk(3, x)", None),
        ("histogram_stddev(x)", None),
    ],
)
def test_only_what_no_server_would_read_is_refused(expr, problem):
    found = problems_of(f"groups: [{{name: g, rules: [{{record: a, expr: '{expr}'}}]}}]")
    assert len(found) == (problem is not None)
    assert all(problem in message for message in found)


@pytest.fixture
def inline():
    (file,) = load("inline_tests.good.yaml").tests
    return file


def test_inline_tests_belong_to_the_groups_of_their_file(inline):
    assert inline.evaluation_interval is None
    assert [group.name for group in inline.groups] == ["g"]
    assert inline.file == str(FILES / "inline_tests.good.yaml")


def test_a_test_group_is_read_whole(inline):
    (test,) = inline.tests
    assert (test.name, test.interval) == ("rises", Duration(seconds=30))
    assert test.start == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert test.external_labels == {"cluster": "c"}
    pending, inactive = test.alert_rule_test
    assert (pending.state, pending.match) == (AlertState.PENDING, Match.SUBSET)
    assert pending.exp_alerts[0].labels == Labels(a="b")
    assert inactive.state is None
    assert test.promql_expr_test[0].exp_samples[0].labels == Labels(__name__="m", a="b")
    assert test.promql_expr_test[0].exp_samples[1].labels == Labels()
    assert test.route_test[0].exp_receivers == ("r",)
    assert test.remediation_test[1].refused_by == "cooldown"
    assert (test.forecast_test[0].eta, test.forecast_test[0].within) == (
        Duration(hours=1),
        Duration(minutes=5),
    )
    assert [(never.alertname, dict(never.labels)) for never in test.never] == [
        ("Low", {}),
        ("High", {"a": "z"}),
    ]
    assert test.never[0].origin.line == 32


def test_series_are_written_out_or_generated(inline):
    written, generated = inline.tests[0].input_series
    assert written.labels == Labels(__name__="m", a="b")
    np.testing.assert_array_equal(written.values, [0, 10, 20, 30, np.nan, np.nan, np.nan, 1])
    assert written.stale == (False,) * 6 + (True, False)
    np.testing.assert_array_equal(generated.values, [1, 1, 3, 3, np.nan, 3, 3])
    assert generated.present == (True, True, True, True, False, True, True)
    assert inline.tests[0].input_signal[0].labels == Labels(a="c")


def test_annotations_that_are_not_mentioned_are_compared_by_promtool_alone(inline):
    (promtool,) = load("promtool.good.yaml").tests
    assert inline.tests[0].alert_rule_test[0].exp_alerts[0].annotations is None
    assert [alert.annotations for alert in promtool.tests[0].alert_rule_test[0].exp_alerts] == [
        {"summary": "i is down: 0"},
        {},
    ]


def test_a_promtool_file_brings_its_rules_and_adds_none_to_the_engines():
    loaded = load("promtool.good.yaml")
    (file,) = loaded.tests
    assert loaded.groups == ()
    assert [group.name for group in file.groups] == ["everything", "empty", "emptier"]
    assert (file.evaluation_interval, file.fuzzy_compare) == (Duration(seconds=15), True)
    assert file.group_eval_order == ("everything",)
    assert file.tests[0].interval == Duration(seconds=15)
    assert file.tests[0].start == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "written", ["1772366400", "'1772366400'", "2026-03-01T12:00:00Z", "2026-03-01T13:00:00+01:00"]
)
def test_a_test_starts_at_unix_seconds_or_at_a_time(written):
    problems = []
    loaded = read_rules("f", f"tests: [{{start_timestamp: {written}}}]".encode(), problems)
    assert problems == []
    assert loaded.tests[0].tests[0].start == datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_folders_globs_and_paths_name_each_file_once(tmp_path):
    for name in ("a.yaml", "sub/b.yml", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"groups: [{{name: {name}}}]")
    assert len(load_rules([tmp_path]).groups) == 2
    assert (
        len(
            load_rules([tmp_path, tmp_path / "a.yaml", tmp_path / "*.yaml", tmp_path / "**" / "*.yml"]).groups
        )
        == 2
    )
    assert load_rules([tmp_path / "*.none"]).groups == ()


@pytest.mark.parametrize("name", ["missing.yaml", "a\0b", "x" * 300])
def test_a_path_that_cannot_be_read_is_a_problem(tmp_path, name):
    with pytest.raises(LoadError):
        load_rules([tmp_path / name])


def test_a_detector_is_surer_where_a_playbook_follows_unless_the_rule_says_how_sure():
    text = """
groups:
  - name: g
    rules:
      - {alert: A, expr: x, detect: leak}
      - {alert: B, expr: x, detect: leak, remediate: {playbook: p}}
      - {alert: C, expr: x, detect: {leak: {preset: sensitive}}, remediate: {playbook: p}}
"""
    (group,) = read_rules("f", text.encode(), []).groups
    assert [rule.detect.preset for rule in group.rules] == [None, "strict", "sensitive"]


def test_the_promql_of_a_detectors_histories_is_checked():
    text = "groups: [{name: g, rules: [{alert: A, expr: x, detect: {leak: {load: 'sum(', bound: 'y('}}}]}]"
    first, second = problems_of(text)
    assert "'bound'" in first or "'load'" in first
    assert first != second


@pytest.mark.parametrize(
    ("detect", "points"),
    [("anomaly: {step: 1ms}", "1,209,600,000"), ("forecast: {bound: 1, lookback: 1y, step: 1m}", "525,600")],
)
def test_a_history_that_nobody_would_want_sent_is_refused(detect, points):
    content = f"groups: [{{name: g, rules: [{{alert: A, expr: x, detect: {{{detect}}}}}]}}]"
    problems = []
    read_rules("rules.yaml", content.encode(), problems)
    (problem,) = problems
    assert f"is {points} points a series, where 50,000 are allowed; take a coarser step" in problem.message

"""What is told beside the verdict: coverage, mutants, differences, timelines, charts, files for programs."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.lab.charts import drawn, picture_writer
from engine.lab.coverage import Coverage, measure
from engine.lab.crosscheck import differences
from engine.lab.files import Choice, FileResult, bench_of, run_file
from engine.lab.formats import as_json, as_junit
from engine.lab.mutation import Mutation, mutate
from engine.lab.report import Report
from engine.lab.tester import live, run_test
from engine.lab.weakness import Rules
from engine.lab.witnesses import lives
from engine.load.rules import Loaded
from tests.unit.lab.lives import FIRES_AT_3M, HOT, failures, loaded, settings_of
from tests.unit.lab.lives import bench_of as bench

ROOT = Path(__file__).parents[3]
HOT_A = "exp_alerts: [{exp_labels: {severity: page, room: a}}]"
FIRES = f"{FIRES_AT_3M}alert_rule_test: [{{eval_time: 3m, alertname: Hot, {HOT_A}}}]\n"
QUIET = FIRES_AT_3M + "alert_rule_test: [{eval_time: 2m, alertname: Hot}]\n"


# ── Timelines ────────────────────────────────────────────────────────────────

BURST = """
interval: 1m
input_series: [{series: 'temperature{room="a"}', values: "20 60x4 20x4 60 20"}]
timeline: [{alertname: Hot, %s}]
"""


@pytest.mark.parametrize(
    "spans",
    [
        "pending: [1m..3m, 11m..12m], firing: 3m..6m",
        "pending: [11m..12m, 1m..3m], firing: 3m..6m, labels: {room: a}",
    ],
)
def test_a_life_as_expected_passes(spans: str) -> None:
    assert failures(HOT, BURST % spans) == []


@pytest.mark.parametrize(
    ("spans", "lines"),
    [
        ("pending: 1m..3m, firing: 3m..6m", ["- pending  1m..3m", "+ pending  1m..3m, 11m..12m"]),
        ("pending: [1m..3m, 11m..12m]", ["- firing   at no time", "+ firing   3m..6m"]),
        ("pending: [1m..3m, 11m..12m], firing: 3m..7m", ["- firing   3m..7m", "+ firing   3m..6m"]),
        ("pending: [1m..3m, 11m..12m], firing: 4m..6m", ["- firing   4m..6m", "+ firing   3m..6m"]),
    ],
)
def test_a_life_that_is_another_is_shown(spans: str, lines: list[str]) -> None:
    ((what, said),) = failures(HOT, BURST % spans)
    assert what == "timeline Hot"
    assert list(said[:-1]) == lines
    assert said[-1].startswith("  timeline 0s .ppFFF...")


def test_a_life_lasts_to_the_end_of_its_spans() -> None:
    series = "interval: 1m\ninput_series: [{series: 'temperature{room=\"a\"}', values: '60x3'}]\n"
    # Four samples, and the series lives on for five minutes after the last.
    life = "timeline: [{alertname: Hot, pending: 0s..2m, firing: 2m..8m}]\n"
    assert failures(HOT, series + life) == []
    assert len(failures(HOT, series + life.replace("8m", "7m"))) == 1


# ── Coverage ─────────────────────────────────────────────────────────────────

COLD = (
    HOT
    + "      - {alert: Cold, expr: temperature < 0}\n      - {record: 'room:temperature', expr: temperature}\n"
)


def covered(found: Loaded) -> Coverage:
    files = []
    for file in found.tests:
        results = [run_test(test, bench(found)) for test in file.tests]
        files.append((file, FileResult(file=file.file, results=tuple(results))))
    return measure(found.groups, files)


@pytest.mark.parametrize(
    ("tests", "missing"),
    [
        ([FIRES, QUIET], {}),
        ([FIRES], {"Hot": "no test asserts that it does not fire"}),
        ([QUIET], {"Hot": "no test makes it fire"}),
        (
            [QUIET.replace("temperature", "humidity")],
            {"Hot": "no test makes it fire and no test asserts that it does not fire"},
        ),
        ([BURST % "pending: [1m..3m, 11m..12m], firing: 3m..6m"], {}),
        ([FIRES_AT_3M + "timeline: [{alertname: Hot, pending: 1m..3m, firing: 3m..}]\n"], {}),
        ([FIRES, FIRES_AT_3M.replace("60x9", "20x9") + "never: [Hot]\n"], {}),
        (
            [
                FIRES.replace("exp_labels", "exp_labelz".replace("z", "s")).replace("room: a", "room: b"),
                QUIET,
            ],
            {"Hot": "no test makes it fire"},
        ),
    ],
)
def test_a_rule_is_tested_when_it_is_seen_firing_and_quiet(tests: list[str], missing: dict[str, str]) -> None:
    coverage = covered(loaded(HOT, *tests))
    assert {each.name: each.missing for each in coverage.untested} == missing
    assert (coverage.rules, coverage.tested) == (1, 1 - len(missing))


def test_untested_rules_are_named_and_a_recording_rule_is_tested_when_it_is_read() -> None:
    coverage = covered(loaded(COLD, FIRES, QUIET))
    assert [(each.name, each.missing) for each in coverage.untested] == [
        ("Cold", "no test makes it fire and no test asserts that it does not fire"),
        ("room:temperature", "no test reads what it records"),
    ]
    assert round(coverage.percent) == 33
    asked = (
        FIRES_AT_3M
        + "promql_expr_test: [{expr: 'sum(room:temperature)', eval_time: 1m, exp_samples: [{value: 60}]}]\n"
    )
    assert [each.name for each in covered(loaded(COLD, FIRES, QUIET, asked)).untested] == ["Cold"]


def test_no_rules_are_covered_whole() -> None:
    assert measure([], []).percent == 100


# ── Mutants ──────────────────────────────────────────────────────────────────


def mutated(rules: str, *tests: str) -> Mutation:
    found = loaded(rules, *tests)
    return mutate([(bench(found), list(found.tests[0].tests))])


SHARP = """
interval: 1m
input_series:
  - {series: 'temperature{room="a"}', values: "20 60x9"}
  - {series: 'temperature{room="b"}', values: "49x10"}
timeline: [{alertname: Hot, pending: 1m..3m, firing: 3m..}]
"""


def test_tests_that_look_closely_notice_every_mutant() -> None:
    assert mutated(HOT, SHARP) == Mutation(5, ())
    assert mutated(HOT, SHARP).score == 100


def test_what_no_test_notices_is_named_with_its_rule() -> None:
    mutation = mutated(HOT, FIRES)
    assert [(each.rule, each.what) for each in mutation.survivors] == [
        ("Hot", "`> 50` → `> 25`"),
        ("Hot", "`for: 2m` → none"),
    ]
    assert {each.origin.line for each in mutation.survivors} == {6}
    assert (mutation.made, mutation.score) == (5, 60)


def test_a_rule_without_tests_has_only_survivors_and_a_failing_test_notices_nothing() -> None:
    assert len(mutated(COLD, SHARP).survivors) == 1  # `< 0` turned round
    broken = mutated(HOT, FIRES.replace("room: a}}", "room: c}}"))
    assert len(broken.survivors) == broken.made == 5


def test_a_forecast_has_mutants_of_its_own() -> None:
    rules = HOT.replace(
        "        for: 2m\n", "        detect: {forecast: {bound: 100, horizon: 4h, lookback: 1h}}\n"
    )
    found = loaded(rules.replace("temperature > 50", "temperature"), FIRES)
    mutation = mutate([(bench(found), [])])
    assert [each.what for each in mutation.survivors] == [
        "`horizon: 4h` → `horizon: 2h`",
        "`horizon: 4h` → `horizon: 8h`",
        "`probability: 0.8` → `probability: 0.4`",
        "`probability: 0.8` → `probability: 0.99`",
    ]


# ── Differences ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (HOT, []),
        (HOT.replace("50", "70"), ["@ 1m: {%s}: embedded: pending since 00:01:00; Prometheus: nothing"]),
        (HOT.replace("for: 2m", "for: 1m"), ["@ 2m: {%s}: embedded: pending since 00:01:00; Prometheus: firing since 00:01:00"]),
        (HOT.replace("is at", "has"), ["@ 1m: {%s}: embedded: summary: a is at 60; Prometheus: a has 60"]),
        (HOT.replace("temperature >", "temperature + 1 >"), ["@ 1m: {%s}: embedded: value 60.0; Prometheus: 61.0"]),
        (HOT.replace("temperature >", "temperature * on () group_left () vector(1) * ignoring (room) temperature >"), []),
    ],
)  # fmt: skip
def test_stories_are_compared_at_every_slot(changed: str, expected: list[str]) -> None:
    stories = []
    for rules in (HOT, changed):
        found = loaded(rules, FIRES)
        (test,) = found.tests[0].tests
        stories.append(live(test, bench(found)))
    found_differences = list(differences(test, *stories))
    labels = 'alertname="Hot", room="a", severity="page"'
    if expected or changed == HOT:
        assert found_differences[: len(expected)] == [text % labels for text in expected]
    assert bool(found_differences) is (changed != HOT)


# ── Charts ───────────────────────────────────────────────────────────────────


def test_a_chart_shows_signal_threshold_and_states() -> None:
    found = loaded(HOT, FIRES)
    (test,) = found.tests[0].tests
    chart = list(drawn(test, live(test, bench(found)), Rules(found.groups)))
    assert chart[0] == "Hot: temperature"
    assert sum("┤" in line for line in chart) == 10
    assert any("⠤" in line or "⠒" in line or "⠉" in line for line in chart)
    assert chart[-2].strip() == "dotted: threshold 50"
    assert chart[-1] == "timeline 0s .ppF| 3m   (. nothing, p pending, F firing, | here)"


def test_a_chart_of_nothing_says_so() -> None:
    found = loaded(HOT, FIRES.replace("temperature", "humidity"))
    (test,) = found.tests[0].tests
    assert list(drawn(test, live(test, bench(found)), Rules(found.groups))) == [
        "Hot: nothing to draw, temperature has no samples"
    ]


def test_a_forecast_is_drawn_beyond_the_test() -> None:
    rules = """
groups:
  - {name: g, interval: 1m, rules: [{alert: Full, expr: used, detect: {forecast: {bound: 100, horizon: 4h, lookback: 1h, step: 1m}}}]}
"""
    test_text = """
interval: 1m
input_series: [{series: 'used{node="n"}', values: "0+0.5x120"}]
forecast_test: [{eval_time: 2h, alertname: Full, eta: 80m, within: 5m}]
"""
    found = loaded(rules, test_text)
    (test,) = found.tests[0].tests
    chart = list(drawn(test, live(test, bench(found)), Rules(found.groups)))
    assert any(line.strip().startswith("dotted: forecast, 100 at 3h") for line in chart), chart


@pytest.mark.parametrize("text", [FIRES, QUIET, FIRES_AT_3M.replace("60x9", "20x9") + "never: [Hot]\n"])
def test_a_picture_is_written_for_each_test_also_where_nothing_fires(text: str, tmp_path: Path) -> None:
    found = loaded(HOT, "name: it's hot / or not\n" + text)
    (test,) = found.tests[0].tests
    run_test(test, bench(found), [picture_writer(tmp_path / "charts", bench(found))])
    (file,) = (tmp_path / "charts").iterdir()
    assert file.name == "rules-it-s-hot-or-not-Hot.png"
    assert file.read_bytes().startswith(b"\x89PNG")


# ── For programs ─────────────────────────────────────────────────────────────


def report_of(*tests: str) -> Report:
    found = loaded(COLD, *tests)
    (file,) = found.tests
    told: dict[Any, Any] = {}
    result = run_file(file, bench_of(file, settings_of(), {}), Choice(witnesses=[lives(file.file, told)]))
    return Report(
        files=[result], seconds=1.23456, coverage=measure(found.groups, [(file, result)]), lives=told
    )


FAILS = FIRES.replace("room: a}}", 'room: "<b>&\\""}}')
REPORTS = [
    [FIRES, QUIET],
    [FAILS],
    [FIRES_AT_3M + "never: [Hit]\n"],
    ['name: "x \\a ]]> y"\n' + FAILS, FIRES],
]  # fmt: skip


@pytest.mark.parametrize("tests", REPORTS)
def test_json_has_the_shape_of_its_schema(tests: list[str]) -> None:
    report = report_of(*tests)
    document = json.loads(as_json(replace(report, mutation=mutated(HOT, FIRES), differences=["DIFF x"])))
    schema = json.loads((ROOT / "docs" / "test-report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)
    jsonschema.validate(json.loads(as_json(replace(report, coverage=None))), schema)
    assert document["summary"]["tests"] == len(tests) == len(document["tests"])
    assert [each["passed"] for each in document["tests"]] == [not each.failures for each in report.results]
    assert document["mutation"]["score"] == 60


def test_json_tells_when_alerts_fired() -> None:
    (told,) = json.loads(as_json(report_of(FIRES)))["tests"]
    assert told["timelines"] == {
        "Hot": [
            {"state": "pending", "from": 60.0, "to": 180.0},
            {"state": "firing", "from": 180.0, "to": None},
        ]
    }


@pytest.mark.parametrize("tests", REPORTS)
def test_junit_is_as_its_readers_expect_it(tests: list[str]) -> None:
    report = report_of(*tests)
    root = ET.fromstring(as_junit(report))
    assert root.tag == "testsuites"
    (suite,) = root
    assert suite.attrib["name"] == "rules.yaml"
    order = ["properties", *["testcase"] * (len(suite) - 1)]
    assert [each.tag for each in suite] == order
    cases = suite.findall("testcase")
    failed = [each for each in cases if each.find("failure") is not None]
    for element in (root, suite):
        assert (element.attrib["tests"], element.attrib["failures"]) == (str(len(cases)), str(len(failed)))
    for case in cases:
        assert {*case.attrib} == {"classname", "name", "time"}
        float(case.attrib["time"])
        assert "::" in case.attrib["name"]
    assert len(failed) == sum(len(each.failures) for each in report.results)
    properties = {each.attrib["name"]: each.attrib["value"] for each in suite.iter("property")}
    assert properties["coverage.rules"] == "3"
    assert "no test reads" in properties["coverage.untested.room:temperature"]


def test_the_text_of_a_failure_in_junit_is_the_block_of_the_report() -> None:
    root = ET.fromstring(as_junit(report_of(FAILS)))
    (failure,) = root.iter("failure")
    assert failure.text is not None
    assert failure.text.splitlines()[0].endswith(": Hot @ 3m")
    assert any(line.startswith("    - firing") for line in failure.text.splitlines())

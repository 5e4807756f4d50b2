"""Each kind of assertion passes when it holds, and when it does not says what there was instead."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.lab.tester import run_test
from tests.unit.lab.lives import FIRES_AT_3M, HOT, bench_of, failures, loaded, playbooks_of, result_of

HOT_A = "{exp_labels: {severity: page, room: a}}"


def alert_at(eval_time: str, rest: str = "") -> str:
    return FIRES_AT_3M + f"alert_rule_test: [{{eval_time: {eval_time}, alertname: Hot{rest}}}]\n"


def expecting(*alerts: str) -> str:
    return f", exp_alerts: [{', '.join(alerts)}]"


@pytest.mark.parametrize(
    ("eval_time", "rest"),
    [
        ("3m", expecting(HOT_A)),
        ("2m", expecting()),
        ("2m", ", state: pending" + expecting(HOT_A)),
        ("3m", ", state: pending" + expecting()),
        ("0m", ", state: inactive"),
        ("3m", ", match: subset" + expecting("{exp_labels: {room: a}}")),
        ("3m", expecting(HOT_A.replace("}}", "}, exp_annotations: {summary: a is at 60}}"))),
        ("3m", expecting(HOT_A.replace("}}", "}, exp_annotations: {summary: a is at 60.0000000001}}"))),
    ],
)
def test_alerts_as_expected_pass(eval_time: str, rest: str) -> None:
    assert failures(HOT, alert_at(eval_time, rest)) == []


PENDING = ["  temperature > 50 returns:", '    temperature{room="a"} 60']
LEGEND = "(. nothing, p pending, F firing, | here)"


@pytest.mark.parametrize(
    ("eval_time", "rest", "lines"),
    [
        (
            "2m",
            expecting(HOT_A),
            [
                "expected firing, at the evaluation @ 2m",
                '- firing   {room="a", severity="page"}',
                '+ pending  {room="a", severity="page"}  since 1m, for: 2m → fires at 3m',
                *PENDING,
                f"  timeline 0s .pp| 2m   {LEGEND}",
            ],
        ),
        (
            "3m",
            expecting(),
            [
                "expected firing, at the evaluation @ 3m",
                '+ firing   {room="a", severity="page"}  (not expected)',
                *PENDING,
                f"  timeline 0s .ppF| 3m   {LEGEND}",
            ],
        ),
        (
            "3m",
            expecting(HOT_A.replace("room: a", "room: b")),
            [
                "expected firing, at the evaluation @ 3m",
                '- firing   {room="b", severity="page"}',
                '+ inactive {room="b", severity="page"}',
                '+ firing   {room="a", severity="page"}  (not expected)',
                *PENDING,
                f"  timeline 0s .ppF| 3m   {LEGEND}",
            ],
        ),
        (
            "0m",
            expecting(HOT_A),
            [
                "expected firing, at the evaluation @ 0s",
                '- firing   {room="a", severity="page"}',
                '+ inactive {room="a", severity="page"}',
                "  temperature > 50 returns nothing",
                f"  timeline 0s .| 0s   {LEGEND}",
            ],
        ),
        (
            "3m",
            expecting(HOT_A.replace("}}", "}, exp_annotations: {summary: a is at 61, more: x}}")),
            [
                "expected firing, at the evaluation @ 3m",
                '  firing   {room="a", severity="page"}  with other annotations:',
                "- more: x",
                "+ more: (none)",
                "- summary: a is at 61",
                "+ summary: a is at 60",
                *PENDING,
                f"  timeline 0s .ppF| 3m   {LEGEND}",
            ],
        ),
        (
            "3m",
            expecting(HOT_A.replace("}}", "}, exp_annotations: {}}")),
            [
                "expected firing, at the evaluation @ 3m",
                '  firing   {room="a", severity="page"}  with other annotations:',
                "- summary: (none)",
                "+ summary: a is at 60",
                *PENDING,
                f"  timeline 0s .ppF| 3m   {LEGEND}",
            ],
        ),
        (
            "3m",
            ", state: inactive",
            [
                "expected active, at the evaluation @ 3m",
                '+ firing   {room="a", severity="page"}  (not expected)',
                *PENDING,
                f"  timeline 0s .ppF| 3m   {LEGEND}",
            ],
        ),
        (
            "3m",
            ", state: pending" + expecting(HOT_A),
            [
                "expected pending, at the evaluation @ 3m",
                '- pending  {room="a", severity="page"}',
                '+ firing   {room="a", severity="page"}  since 1m',
                *PENDING,
                f"  timeline 0s .ppF| 3m   {LEGEND}",
            ],
        ),
    ],
)
def test_alerts_that_are_not_as_expected_are_shown_with_what_there_was(
    eval_time: str, rest: str, lines: Sequence[str]
) -> None:
    ((what, said),) = failures(HOT, alert_at(eval_time, rest))
    assert what == f"Hot @ {eval_time.replace('0m', '0s')}"
    assert list(said) == lines


def test_two_alerts_that_are_expected_alike_are_two() -> None:
    test = alert_at(
        "3m",
        ", match: subset" + expecting("{exp_labels: {severity: page}}", "{exp_labels: {severity: page}}"),
    )
    assert len(failures(HOT, test)) == 1
    two = test.replace("}]\nalert", '}, {series: \'temperature{room="b"}\', values: "20 60x9"}]\nalert')
    assert failures(HOT, two) == []


def test_a_long_life_is_drawn_in_sixty_signs_and_marks_the_place() -> None:
    test = FIRES_AT_3M.replace("60x9", "20x299 60x300")
    test += (
        "alert_rule_test: [{eval_time: 310m, alertname: Hot}, {eval_time: 599m, alertname: Hot, exp_alerts: [HOT_A]}]"
    ).replace("HOT_A", HOT_A)
    ((_, said),) = failures(HOT, test)
    assert said[-1] == f"  timeline 0s {'.' * 30}FF|{'F' * 28} 9h59m   {LEGEND}"


def test_a_signal_of_many_series_is_shown_in_part() -> None:
    series = ", ".join(f"{{series: 'temperature{{room=\"{n}\"}}', values: '60x9'}}" for n in range(9))
    test = f"interval: 1m\ninput_series: [{series}]\n" + "alert_rule_test: [{eval_time: 3m, alertname: Hot}]"
    ((_, said),) = failures(HOT, test)
    assert "    … and 4 more" in said
    assert sum("(not expected)" in line for line in said) == 9


ASKING_FOR = "promql_expr_test: [{expr: %s, eval_time: 3m, exp_samples: [%s]}]\n"
EXPRESSION = FIRES_AT_3M + ASKING_FOR


@pytest.mark.parametrize(
    ("expr", "samples"),
    [
        ("temperature", "{labels: 'temperature{room=\"a\"}', value: 60}"),
        ("sum(temperature)", "{value: 60}"),
        ("sum(temperature) / 3", "{value: 20.0000000001}"),  # in the tests of a rule file
        ("temperature > 60", ""),
        ("time()", "{value: 180}"),
    ],
)
def test_samples_as_expected_pass(expr: str, samples: str) -> None:
    assert failures(HOT, EXPRESSION % (expr, samples)) == []


@pytest.mark.parametrize(
    ("expr", "samples", "lines"),
    [
        (
            "temperature + 1",
            "{labels: 'temperature{room=\"a\"}', value: 61}",
            ['- temperature{room="a"} 61', '+ {room="a"} 61'],
        ),
        ("sum(temperature)", "{value: 61}", ["- {} 61", "+ {} 60"]),
        ("sum(temperature)", "", ["+ {} 60"]),
        ("temperature > 60", "{value: 1}", ["- {} 1"]),
        ("sum(temperature) / 3", "{value: 20.00001}", ["- {} 20", "+ {} 20"]),
    ],
)
def test_samples_that_are_not_as_expected_are_shown(expr: str, samples: str, lines: list[str]) -> None:
    ((what, said),) = failures(HOT, EXPRESSION % (expr, samples))
    assert what == "promql_expr_test @ 3m"
    assert list(said) == [expr, *lines]


def test_an_expression_without_an_answer_is_a_failure_in_its_own_words() -> None:
    test = EXPRESSION % ("temperature * on () temperature", "")
    both = test.replace("}]\npromql", "}, {series: 'temperature{room=\"b\"}', values: '20x9'}]\npromql")
    assert both != test
    ((_, said),) = failures(HOT, both)
    assert len(said) == 1
    assert "temperature * on () temperature" in said[0]


def test_values_are_compared_to_the_last_bit_when_asked() -> None:
    close = EXPRESSION % ("vector(0.1 + 0.2)", "{value: 0.3}")
    assert failures(HOT, close) == []
    assert len(failures(HOT, close, float_tolerance=0.0)) == 1


ROUTES = """
route: {receiver: day, routes: [{matchers: [severity="page"], receiver: oncall, continue: true}, {matchers: [room="a"], receiver: a}]}
receivers: [{name: day}, {name: oncall}, {name: a}]
"""


def route_at(eval_time: str, *receivers: str) -> str:
    text = (
        f"route_test: [{{eval_time: {eval_time}, alertname: Hot, exp_receivers: [{', '.join(receivers)}]}}]\n"
    )
    return FIRES_AT_3M + text


def test_receivers_are_those_that_would_be_told() -> None:
    assert failures(HOT, route_at("3m", "oncall", "a"), settings=ROUTES) == []
    ((what, said),) = failures(HOT, route_at("3m", "day", "a"), settings=ROUTES)
    assert what == "route_test Hot @ 3m"
    assert list(said) == ["- day", "+ oncall"]


def test_an_alert_that_does_not_fire_reaches_nobody_and_that_is_no_way_to_pass() -> None:
    ((_, said),) = failures(HOT, route_at("2m"), settings=ROUTES)
    assert said[0] == "no Hot fires then, so it reaches nobody"


ASKING = HOT + "        remediate: {playbook: cool, after: 1m}\n"
COOL = """
playbook: cool
match: [alertname="Hot"]
mode: %s
steps: [{name: stop, action: ray_stop_job, with: {job: "{{ $plan.largest_owner.submission_id }}"}}]
verify: {within: 15m}
"""


def heal_at(eval_time: str, rest: str) -> str:
    return FIRES_AT_3M + f"remediation_test: [{{eval_time: {eval_time}, {rest}}}]\n"


@pytest.mark.parametrize(
    ("mode", "eval_time", "rest"),
    [
        ("auto", "4m", "exp_playbooks: [cool]"),
        ("auto", "3m", "exp_playbooks: []"),  # `after` has not passed
        ("approve", "4m", "exp_playbooks: [cool]"),
        ("dry_run", "4m", "exp_playbooks: [cool], refused_by: mode"),
        ("off", "4m", "exp_playbooks: []"),
    ],
)
def test_playbooks_as_expected_pass(mode: str, eval_time: str, rest: str) -> None:
    assert failures(ASKING, heal_at(eval_time, rest), playbooks=playbooks_of(COOL % mode)) == []


@pytest.mark.parametrize(
    ("match", "eval_time", "rest", "lines"),
    [
        ("Hot", "4m", "exp_playbooks: []", ["+ cool"]),
        ("Hot", "3m", "exp_playbooks: [cool]", ["- cool"]),
        ("Hot", "4m", "exp_playbooks: [warm]", ["- warm", "+ cool"]),
        ("Hot", "4m", "exp_playbooks: [cool], refused_by: cooldown", ["- cooldown"]),
        ("Cold", "4m", "exp_playbooks: [cool]", ["- cool"]),
        ("Cold", "4m", "exp_playbooks: [], refused_by: mode", ["- mode", "+ match"]),
    ],
)
def test_playbooks_that_are_not_as_expected_are_shown_with_the_runs(
    match: str, eval_time: str, rest: str, lines: list[str]
) -> None:
    playbooks = playbooks_of((COOL % "auto").replace('"Hot"', f'"{match}"'))
    ((what, said),) = failures(ASKING, heal_at(eval_time, rest), playbooks=playbooks)
    assert what == f"remediation_test @ {eval_time}"
    assert list(said[: len(lines)]) == lines
    assert len(said) == len(lines) + (eval_time == "4m"), "each run with its reason"


FORECAST = """
groups:
  - name: g
    interval: 1m
    rules:
      - alert: Full
        expr: used
        detect: {forecast: {bound: 100, horizon: 4h, lookback: 1h, step: 1m}}
"""


def forecast(eta: str, within: str, eval_time: str = "2h", rest: str = "") -> str:
    return f"""
interval: 1m
input_series: [{{series: 'used{{node="n"}}', values: "0+0.5x300"}}]
forecast_test: [{{eval_time: {eval_time}, alertname: Full, eta: {eta}, within: {within}{rest}}}]
"""


def test_a_forecast_is_right_within_what_is_allowed() -> None:
    # 60 used after two hours, half a unit a minute: 80 minutes are left.
    assert failures(FORECAST, forecast("80m", "5m")) == []
    assert failures(FORECAST, forecast("80m", "5m", rest=", labels: {node: n}")) == []
    ((what, said),) = failures(FORECAST, forecast("40m", "5m"))
    assert what == "forecast_test Full @ 2h"
    assert said[0] == "- eta 40m, within 5m"
    assert said[1].startswith("+ eta 1h")


@pytest.mark.parametrize(
    "test", [forecast("80m", "5m", eval_time="1m"), forecast("80m", "5m", rest=", labels: {node: m}")]
)
def test_a_forecast_that_is_not_there_is_none(test: str) -> None:
    ((_, said),) = failures(FORECAST, test)
    assert list(said[:2]) == ["- eta 1h20m", "+ no Full with an eta"]


def test_what_must_never_fire_is_looked_for_at_every_moment() -> None:
    short = FIRES_AT_3M.replace("60x9", "60x3 20x9")
    ((what, said),) = failures(HOT, short + "never: [Hot]\n")
    assert what == "never Hot"
    assert said[0] == '+ firing {room="a", severity="page"} @ 3m'
    assert failures(HOT, short.replace("60x3", "60x1") + "never: [Hot]\n") == [], "pending is allowed"
    both = short.replace("}]", "}, {series: 'temperature{room=\"b\"}', values: '20x9'}]")
    assert failures(HOT, both + "never: [{alertname: Hot, labels: {room: b}}]\n") == []
    assert len(failures(HOT, short + "never: [{alertname: Hot, labels: {room: a}}]\n")) == 1


def test_a_rule_that_cannot_be_evaluated_fails_the_test_once_and_says_when() -> None:
    rules = HOT.replace("temperature > 50", "temperature * on (room) humidity")
    test = FIRES_AT_3M.replace(
        '60x9"}]',
        '60x9"}, {series: \'humidity{room="a", n="1"}\', values: \'1x9\'}, {series: \'humidity{room="a", n="2"}\', values: \'_ 1x9\'}]',
    )
    assert test != FIRES_AT_3M
    ((what, said),) = failures(rules, test + "alert_rule_test: [{eval_time: 5m, alertname: Hot}]\n")
    assert what == "Hot cannot be evaluated @ 1m"
    assert "humidity" in said[0]


@pytest.mark.parametrize(
    ("test", "what", "line"),
    [
        (
            alert_at("3m").replace("Hot", "Hit"),
            "Hit",
            "no rule of this file is called 'Hit'; did you mean 'Hot'?",
        ),
        (FIRES_AT_3M + "never: [Cold]\n", "Cold", "no rule of this file is called 'Cold'; known: Hot"),
        (FIRES_AT_3M, "nothing is expected", "nothing is expected; add an alert_rule_test"),
        (
            alert_at("11m", expecting(HOT_A)),
            "Hot @ 11m",
            "input ends at 10m, before eval_time 11m; make the series longer, or end it with stale",
        ),
        (
            alert_at("3m30s", expecting(HOT_A)),
            "Hot @ 3m30s",
            "eval_time 3m30s is between two evaluations, which are 1m apart; the one at 3m is looked at",
        ),
        (
            FIRES_AT_3M + "never: [{alertname: Hot, labels: {room: b}}]\n",
            "never Hot",
            (
                'this cannot fail: temperature > 50 has no series with {room="b"} during the whole test, '
                "whatever is compared; check the names and labels of the input"
            ),
        ),
    ],
)
def test_what_can_only_pass_by_mistake_fails_and_in_promtools_files_is_a_warning(
    test: str, what: str, line: str
) -> None:
    assert failures(HOT, test) == [(what, (line,))]
    assert result_of(HOT, test).warnings == (), "said once"
    assert failures(HOT, test, own_intervals=False) == []
    assert line in result_of(HOT, test, own_intervals=False).warnings


def test_a_metric_without_input_is_said() -> None:
    test = alert_at("3m").replace("temperature", "temprature")
    assert ("Hot", ("Hot: no input series for temperature",)) in failures(HOT, test)


def test_a_result_counts_its_assertions_and_names_its_test() -> None:
    test = "name: the story\n" + alert_at("3m", expecting(HOT_A)) + ASKING_FOR % ("time()", "{value: 180}")
    result = result_of(HOT, test)
    assert (result.name, result.assertions, result.failures) == ("the story", 2, ())
    rules = loaded(HOT, alert_at("3m"))
    (group,) = rules.tests[0].tests
    result = run_test(group, bench_of(rules))
    assert result.name == f"line {group.origin.line}"
    assert [failure.test for failure in result.failures] == [result.name]
    assert result.failures[0].origin.line > group.origin.line

"""A test file of promtool's gets the same verdict here as there, from a real promtool."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli.main import cli

HOT = """
groups:
  - name: g
    rules:
      - alert: Hot
        expr: temperature > 50
        for: 2m
        labels: {severity: page}
        annotations: {summary: "{{ $labels.room }} is at {{ $value }}"}
"""
COLD_THEN_HOT = """
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "20 60x9"}]
"""
FIRES_AT_3M = COLD_THEN_HOT + "    alert_rule_test:\n      - eval_time: 3m\n        alertname: Hot\n"
HOT_A = "exp_labels: {severity: page, room: a}, exp_annotations: {summary: a is at 60}"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One rule file, one test file, and whether promtool passes it."""

    rules: str = HOT
    tests: str
    passes: bool


VERDICTS = {
    "the exact set of alerts": Verdict(
        tests=FIRES_AT_3M + f"        exp_alerts: [{{{HOT_A}}}]\n", passes=True
    ),
    "an alert is missing": Verdict(
        tests=FIRES_AT_3M + f"        exp_alerts: [{{{HOT_A}}}, {{{HOT_A.replace('room: a', 'room: b')}}}]\n",
        passes=False,
    ),
    "an alert too many": Verdict(tests=FIRES_AT_3M + "        exp_alerts: []\n", passes=False),
    "a wrong annotation": Verdict(
        tests=FIRES_AT_3M + f"        exp_alerts: [{{{HOT_A.replace('60', '61')}}}]\n", passes=False
    ),
    "annotations that are not mentioned have to be none": Verdict(
        tests=FIRES_AT_3M + "        exp_alerts: [{exp_labels: {severity: page, room: a}}]\n", passes=False
    ),
    "a label too few": Verdict(
        tests=FIRES_AT_3M + f"        exp_alerts: [{{{HOT_A.replace('severity: page, ', '')}}}]\n",
        passes=False,
    ),
    "a pending alert is no alert": Verdict(
        tests=FIRES_AT_3M.replace("3m", "2m") + "        exp_alerts: []\n", passes=True
    ),
    "a pending alert does not count as one": Verdict(
        tests=FIRES_AT_3M.replace("3m", "2m") + f"        exp_alerts: [{{{HOT_A}}}]\n", passes=False
    ),
    "between two evaluations the earlier one counts": Verdict(
        tests=FIRES_AT_3M.replace("3m", "2m59s") + "        exp_alerts: []\n", passes=True
    ),
    "between two evaluations, after it has fired": Verdict(
        tests=FIRES_AT_3M.replace("3m", "3m59s") + f"        exp_alerts: [{{{HOT_A}}}]\n", passes=True
    ),
    "the expected alerts are left out altogether": Verdict(
        tests=FIRES_AT_3M.replace("3m", "1m"), passes=True
    ),
    "a name that no rule has": Verdict(
        tests=FIRES_AT_3M.replace("Hot", "Hit") + "        exp_alerts: []\n", passes=True
    ),
    "a test group that asks nothing": Verdict(tests=COLD_THEN_HOT, passes=True),
    "a group that has no interval of its own is evaluated at the file's": Verdict(
        rules=HOT.replace("    rules:", "    interval: 10m\n    rules:"),
        tests=FIRES_AT_3M + f"        exp_alerts: [{{{HOT_A}}}]\n",
        passes=True,
    ),
    "samples may lie closer than evaluations": Verdict(
        rules=HOT.replace("for: 2m", "for: 0s"),
        tests="""
evaluation_interval: 1m
tests:
  - interval: 15s
    input_series: [{series: 'temperature{room="a"}', values: "20 20 60 20x20"}]
    alert_rule_test: [{eval_time: 30s, alertname: Hot}, {eval_time: 1m, alertname: Hot}]
""",
        passes=True,
    ),
    "samples may lie further apart than evaluations": Verdict(
        rules=HOT.replace("for: 2m", "for: 1m"),
        tests="""
evaluation_interval: 30s
tests:
  - interval: 2m
    input_series: [{series: 'temperature{room="a"}', values: "20 60x9"}]
    alert_rule_test:
      - {eval_time: 2m30s, alertname: Hot}
      - {eval_time: 3m, alertname: Hot, exp_alerts: [{HOT_A}]}
""".replace("HOT_A", HOT_A),
        passes=True,
    ),
    "external labels and the external address in templates": Verdict(
        rules=HOT.replace(
            "{{ $value }}",
            "{{ $value }} in {{ $externalLabels.site }} of {{ .ExternalLabels.site }}, {{ $externalURL }}",
        ),
        tests=FIRES_AT_3M
        + "        exp_alerts: [{exp_labels: {severity: page, room: a}, "
        + 'exp_annotations: {summary: "a is at 60 in x of x, http://p"}}]\n'
        + "    external_labels: {site: x}\n    external_url: http://p\n",
        passes=True,
    ),
    "without external labels there are none": Verdict(
        rules=HOT.replace("{{ $value }}", "{{ $value }}{{ $externalLabels.site }}"),
        tests=FIRES_AT_3M + f"        exp_alerts: [{{{HOT_A}}}]\n",
        passes=True,
    ),
    "a stale marker ends a series at once": Verdict(
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "60x3 stale _x5"}]
    alert_rule_test:
      - {eval_time: 3m, alertname: Hot, exp_alerts: [{HOT_A}]}
      - {eval_time: 4m, alertname: Hot}
""".replace("HOT_A", HOT_A),
        passes=True,
    ),
    "a missing sample does not": Verdict(
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "60x3 _x9"}]
    alert_rule_test:
      - {eval_time: 4m, alertname: Hot, exp_alerts: [{HOT_A}]}
      - {eval_time: 7m, alertname: Hot, exp_alerts: [{HOT_A}]}
      - {eval_time: 8m, alertname: Hot}
""".replace("HOT_A", HOT_A),
        passes=True,
    ),
    "keep_firing_for holds an alert and lets it go": Verdict(
        rules=HOT.replace("for: 2m", "for: 0s\n        keep_firing_for: 3m"),
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "60 60 20x20"}]
    alert_rule_test:
      - {eval_time: 4m, alertname: Hot, exp_alerts: [{HOT_A}]}
      - {eval_time: 5m, alertname: Hot}
""".replace("HOT_A", HOT_A),
        passes=True,
    ),
    "a dip begins `for` anew": Verdict(
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "60 60 20 60x9"}]
    alert_rule_test:
      - {eval_time: 4m, alertname: Hot}
      - {eval_time: 5m, alertname: Hot, exp_alerts: [{HOT_A}]}
""".replace("HOT_A", HOT_A),
        passes=True,
    ),
}

EXPRESSIONS = """
tests:
  - interval: 1m
    input_series:
      - {series: 'requests{room="a"}', values: "0+60x10"}
      - {series: 'requests{room="b"}', values: "0+120x10"}
      - {series: 'latency_bucket{le="0.1"}', values: "0+10x10"}
      - {series: 'latency_bucket{le="1"}', values: "0+20x10"}
      - {series: 'latency_bucket{le="+Inf"}', values: "0+20x10"}
    promql_expr_test:
"""


def _asks(text: str, *samples: str, at: str = "10m") -> str:
    return f"{EXPRESSIONS}      - {{expr: '{text}', eval_time: {at}, exp_samples: [{', '.join(samples)}]}}\n"


RECORDING = """
groups:
  - name: g
    rules:
      - {record: "room:temperature:max", expr: max by (room) (temperature), labels: {kind: max}}
      - {alert: Hot, expr: "room:temperature:max > 50", labels: {severity: page}}
"""
CROSSED = """
groups:
  - name: reader
    rules: [{record: copy, expr: original}]
  - name: writer
    rules: [{record: original, expr: vector(time())}]
"""
VERDICTS |= {
    "a vector": Verdict(
        tests=_asks(
            "rate(requests[5m])",
            '{labels: "{room=\\"a\\"}", value: 1}',
            '{labels: "{room=\\"b\\"}", value: 2}',
        ),
        passes=True,
    ),
    "a sample too few": Verdict(
        tests=_asks("rate(requests[5m])", '{labels: "{room=\\"a\\"}", value: 1}'), passes=False
    ),
    "a sample with another value": Verdict(
        tests=_asks("sum(rate(requests[5m]))", "{value: 3.1}"), passes=False
    ),
    "a name that is left out of the labels": Verdict(
        tests=_asks("requests > 1000", '{labels: "{room=\\"b\\"}", value: 1200}'), passes=False
    ),
    "a scalar": Verdict(tests=_asks("time() / 60", "{value: 10}"), passes=True),
    "a scalar that is wrong": Verdict(
        tests=_asks("scalar(sum(requests)) + 1", "{value: 1800}"), passes=False
    ),
    "a quantile of a histogram": Verdict(
        tests=_asks("histogram_quantile(0.75, latency_bucket)", "{value: 0.55}"), passes=True
    ),
    "nothing at all": Verdict(tests=_asks("requests > 1e9"), passes=True),
    "nothing, where something was expected": Verdict(
        tests=_asks("requests > 1e9", "{value: 1}"), passes=False
    ),
    "a subquery without a step takes the evaluation interval": Verdict(
        tests="evaluation_interval: 30s" + _asks("count_over_time(sum(requests)[5m:])", "{value: 10}"),
        passes=True,
    ),
    "time, between two evaluations": Verdict(tests=_asks("time()", "{value: 90}", at="1m30s"), passes=True),
    "floats are compared to the last bit": Verdict(
        tests=_asks("vector(0.1 + 0.2)", "{value: 0.3}"), passes=False
    ),
    "unless comparison is fuzzy": Verdict(
        tests="fuzzy_compare: true" + _asks("vector(0.1 + 0.2)", "{value: 0.3}"), passes=True
    ),
    "and fuzzy is not sloppy": Verdict(
        tests="fuzzy_compare: true" + _asks("vector(0.3)", "{value: 0.3000001}"), passes=False
    ),
    "a recording rule feeds an alert at the same instant": Verdict(
        rules=RECORDING,
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a", sensor="1"}', values: "20 60x9"}]
    alert_rule_test:
      - {eval_time: 0m, alertname: Hot}
      - {eval_time: 1m, alertname: Hot, exp_alerts: [{exp_labels: {severity: page, room: a, kind: max}}]}
    promql_expr_test:
      - expr: 'room:temperature:max'
        eval_time: 5m
        exp_samples: [{labels: 'room:temperature:max{room="a", kind="max"}', value: 60}]
""",
        passes=True,
    ),
    "a recorded series ends when the rule makes it no more": Verdict(
        rules=RECORDING.replace("(temperature)", "(temperature > 50)"),
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "60 60 20x9"}]
    alert_rule_test:
      - {eval_time: 1m, alertname: Hot, exp_alerts: [{exp_labels: {severity: page, room: a, kind: max}}]}
      - {eval_time: 2m, alertname: Hot}
    promql_expr_test: [{expr: 'room:temperature:max', eval_time: 3m, exp_samples: []}]
""",
        passes=True,
    ),
    "a recorded series is found by a selector that does not name it": Verdict(
        rules=RECORDING.replace('"room:temperature:max > 50"', "'{__name__=~\"room:.*\"} > 50'"),
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "20 60x9"}]
    alert_rule_test:
      - {eval_time: 3m, alertname: Hot, exp_alerts: [{exp_labels: {severity: page, room: a, kind: max}}]}
""",
        passes=True,
    ),
    "groups in the order given": Verdict(
        rules=CROSSED,
        tests="""
group_eval_order: [writer, reader]
tests:
  - interval: 1m
    promql_expr_test: [{expr: copy, eval_time: 3m, exp_samples: [{labels: copy, value: 180}]}]
""",
        passes=True,
    ),
    "groups in the other order": Verdict(
        rules=CROSSED,
        tests="""
group_eval_order: [reader, writer]
tests:
  - interval: 1m
    promql_expr_test: [{expr: copy, eval_time: 3m, exp_samples: [{labels: copy, value: 120}]}]
""",
        passes=True,
    ),
    "a rule that cannot be evaluated": Verdict(
        rules="""
groups:
  - name: g
    rules: [{alert: Hot, expr: "temperature * on (room) other"}]
""",
        tests="""
tests:
  - interval: 1m
    input_series:
      - {series: 'temperature{room="a"}', values: "1x9"}
      - {series: 'other{room="a", n="1"}', values: "1x9"}
      - {series: 'other{room="a", n="2"}', values: "1x9"}
    alert_rule_test: [{eval_time: 3m, alertname: Hot}]
""",
        passes=False,
    ),
    "two results that become one alert": Verdict(
        rules=HOT.replace("{severity: page}", "{room: all}"),
        tests="""
tests:
  - interval: 1m
    input_series:
      - {series: 'temperature{room="a"}', values: "60x9"}
      - {series: 'temperature{room="b"}', values: "60x9"}
    alert_rule_test: [{eval_time: 3m, alertname: Hot}]
""",
        passes=False,
    ),
    "more alerts than the group's limit": Verdict(
        rules=HOT.replace("    rules:", "    limit: 1\n    rules:"),
        tests="""
tests:
  - interval: 1m
    input_series:
      - {series: 'temperature{room="a"}', values: "60x9"}
      - {series: 'temperature{room="b"}', values: "60x9"}
    alert_rule_test: [{eval_time: 3m, alertname: Hot}]
""",
        passes=False,
    ),
    "ALERTS as Prometheus writes them": Verdict(
        tests=COLD_THEN_HOT
        + """
    promql_expr_test:
      - expr: ALERTS
        eval_time: 2m
        exp_samples: [{labels: 'ALERTS{alertname="Hot", alertstate="pending", room="a", severity="page"}', value: 1}]
      - expr: ALERTS
        eval_time: 4m
        exp_samples: [{labels: 'ALERTS{alertname="Hot", alertstate="firing", room="a", severity="page"}', value: 1}]
      - expr: ALERTS_FOR_STATE
        eval_time: 4m
        exp_samples: [{labels: 'ALERTS_FOR_STATE{alertname="Hot", room="a", severity="page"}', value: 60}]
""",
        passes=True,
    ),
    "an alert on another's firing": Verdict(
        rules=HOT.replace("for: 2m", "for: 0s")
        + '      - {alert: Any, expr: \'count(ALERTS{alertstate="firing", alertname!="Any"}) > 0\'}\n',
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "60 60 20x9"}]
    alert_rule_test:
      - {eval_time: 1m, alertname: Any, exp_alerts: [{}]}
      - {eval_time: 3m, alertname: Any}
""",
        passes=True,
    ),
    "templates query what is there at that time": Verdict(
        rules=HOT.replace(
            "{{ $value }}", "{{ range query `sort_desc(humidity)` }}{{ .Labels.room }}{{ .Value }} {{ end }}"
        ),
        tests="""
tests:
  - interval: 1m
    input_series:
      - {series: 'temperature{room="a"}', values: "60x9"}
      - {series: 'humidity{room="a"}', values: "10 20 4x9"}
      - {series: 'humidity{room="b"}', values: "10 20 50x9"}
      - {series: 'humidity{room="c"}', values: "0+3x9"}
    alert_rule_test:
      - eval_time: 3m
        alertname: Hot
        exp_alerts: [{exp_labels: {severity: page, room: a}, exp_annotations: {summary: "a is at b50 c9 a4 "}}]
""",
        passes=True,
    ),
    "a query offset shifts all that a group reads and records": Verdict(
        rules=RECORDING.replace("    rules:", "    query_offset: 1m\n    rules:"),
        tests="""
tests:
  - interval: 1m
    input_series: [{series: 'temperature{room="a"}', values: "20 60x9"}]
    alert_rule_test:
      - {eval_time: 1m, alertname: Hot}
      - {eval_time: 2m, alertname: Hot, exp_alerts: [{exp_labels: {severity: page, room: a, kind: max}}]}
    promql_expr_test:
      - expr: ALERTS
        eval_time: 2m
        exp_samples: [{labels: 'ALERTS{alertname="Hot", alertstate="firing", room="a", severity="page", kind="max"}', value: 1}]
      - {expr: 'timestamp(ALERTS)', eval_time: 3m, exp_samples: [{labels: '{alertname="Hot", alertstate="firing", room="a", severity="page", kind="max"}', value: 120}]}
""",
        passes=True,
    ),
    "two results that become one recorded series": Verdict(
        rules=RECORDING.replace("max by (room) (temperature)", "temperature").replace(
            "kind: max", "room: all"
        ),
        tests="""
tests:
  - interval: 1m
    input_series:
      - {series: 'temperature{room="a"}', values: "60x9"}
      - {series: 'temperature{room="b"}', values: "60x9"}
    promql_expr_test: [{expr: vector(1), eval_time: 1m, exp_samples: [{value: 1}]}]
""",
        passes=False,
    ),
    "a file without rules": Verdict(
        rules="groups: []",
        tests="""
tests:
  - interval: 1m
    alert_rule_test: [{eval_time: 1m, alertname: Hot}]
    promql_expr_test: [{expr: vector(1), eval_time: 1m, exp_samples: [{value: 1}]}]
""",
        passes=True,
    ),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_test_file_gets_promtools_verdict(name: str, prometheus_bin: Path, tmp_path: Path) -> None:
    case = VERDICTS[name]
    (tmp_path / "rules.yml").write_text(case.rules)
    (tmp_path / "tests.yml").write_text("rule_files: [rules.yml]\n" + case.tests)
    (tmp_path / "engine.yaml").write_text(
        "external_labels: {site: of the engine}\nexternal_url: http://engine\n"
    )
    theirs = subprocess.run(
        [prometheus_bin / "promtool", "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = theirs.stdout + theirs.stderr
    assert (theirs.returncode == 0) is case.passes, said
    ours = CliRunner().invoke(
        cli,
        ["test-rule", str(tmp_path / "tests.yml"), "--config", str(tmp_path / "engine.yaml"), "--no-color"],
    )
    assert ours.exit_code == (0 if case.passes else 1), f"{ours.output}{ours.exception!r}\npromtool:\n{said}"

"""What each check says of one expression, and what it leaves alone."""

from datetime import date

import pytest

from engine.check.files import check_files
from engine.check.subject import Severity

RULE = """\
groups:
  - name: g
    rules:
      - alert: A
        expr: '{expr}'
"""


def found(expr, tmp_path, *, more="", version=""):
    path = tmp_path / "rules.yaml"
    path.write_text(RULE.format(expr=expr) + more)
    checked = check_files([str(path)], today=date(2026, 1, 1), ray_version=version)
    assert checked.problems == []
    return [each for each in checked.findings if each.severity is not Severity.ADVICE]


def marked(finding):
    """The characters that are marked, as they stand in the file."""
    return finding.source[finding.column - 1 : finding.end_column]


@pytest.mark.parametrize(
    ("expr", "check", "severity", "mark", "rewrite"),
    [
        ("ray_taks > 5", "ray/metric", "error", "ray_taks", "ray_tasks"),
        ("my_up > 0 and ray_app_of_mine > 5", "ray/metric", "warning", "ray_app_of_mine", ""),
        (
            "rate(ray_finished_jobs[5m]) > 1",
            "ray/metric",
            "error",
            "ray_finished_jobs",
            "ray_finished_jobs_total",
        ),
        (
            'ray_tasks{state="FAILED"} > 1',
            "ray/label",
            "error",
            'state="FAILED"',
            "State",
        ),
        (
            'ray_tasks{State="Failed",Source="owner"} > 1',
            "ray/label",
            "error",
            'State="Failed"',
            'State="FAILED"',
        ),
        ('ray_node_mem_used{NodeAddress="a"} > 1', "ray/label", "error", 'NodeAddress="a"', "ip"),
        (
            "sum by (NodeAddress) (ray_node_mem_used) > 1",
            "ray/label",
            "warning",
            "by (NodeAddress)",
            "ip",
        ),
        (
            "ray_node_mem_used / sum(ray_node_mem_total) > 1",
            "promql/matching",
            "error",
            "/",
            "ray_node_mem_used / on () group_left () sum(ray_node_mem_total)",
        ),
        (
            "ray_node_mem_used > 1 unless on (NodeAddress) ray_running_jobs",
            "promql/matching",
            "error",
            "unless",
            "ray_node_mem_used > 1 unless on (instance) ray_running_jobs",
        ),
        (
            "deriv(ray_finished_jobs_total[5m]) > 1",
            "promql/counter",
            "warning",
            "deriv(ray_finished_jobs_total[5m])",
            "rate(ray_finished_jobs_total[5m])",
        ),
        (
            "sum(ray_finished_jobs_total) > 10",
            "promql/counter",
            "warning",
            "ray_finished_jobs_total",
            "increase(ray_finished_jobs_total[15m])",
        ),
        (
            "histogram_quantile(0.9, rate(ray_node_mem_used[5m])) > 1",
            "promql/histogram",
            "error",
            "ray_node_mem_used",
            "",
        ),
        ("absent(ray_tasks) == 0", "alerts/comparison", "error", "==", ""),
        ("ray_node_mem_used < 0", "alerts/comparison", "error", "<", ""),
        ("0 <= ray_node_mem_used", "alerts/comparison", "warning", "<=", ""),
        ("ray_node_mem_used > bool 5", "alerts/comparison", "error", ">", ""),
        ("ray_node_mem_used", "alerts/comparison", "warning", "ray_node_mem_used", "ray_node_mem_used > 0"),
    ],
)
def test_a_fault_is_marked_and_rewritten(expr, check, severity, mark, rewrite, tmp_path):
    said = [
        (each.check, str(each.severity), marked(each), each.rewrite)
        for each in found(expr, tmp_path)
        if each.check == check
    ]
    assert said == [(check, severity, mark, rewrite)]


@pytest.mark.parametrize(
    "expr",
    [
        'ray_tasks{State="FAILED",instance="n1",namespace="ray"} > 1',
        'ray_node_mem_used{team="a"} > 1',
        'sum(ray_tasks{State="FAILED"}) > 1',
        "sum by (Source) (ray_actors) > 1",
        "max(ray_actors) > 1",
        "sum without (Name) (ray_actors) > 1",
        "ray:pending:sum > 5",
        "ray_team:pending:sum > 5",
        "engine_ray_gcs_up == 0",
        "ray_node_mem_used / on (instance) group_left () sum by (instance) (ray_node_mem_total) > 0.9",
        'ray_node_mem_used / on (ip) label_replace(ray_running_jobs, "ip", "$1", "NodeAddress", "(.*)") > 1',
        "ray_object_store_used_memory / (ray_object_store_used_memory + ray_object_store_available_memory) > 0.8",
        "ray_object_store_available_memory < 0",
        'ray_tasks{Source=""} > 5 or ray_tasks < 0'.replace('{Source=""}', ""),
        "histogram_quantile(0.9, sum without (Method) (rate(ray_grpc_server_req_process_time_ms_bucket[5m]))) > 1",
        "histogram_quantile(0.9, job:latency:rate5m) > 1",
        "count(ray_running_jobs > 5) > 2",
        "abs(ray_running_jobs > 5)",
        "ray_running_jobs unless ray_node_failure_total",
        "(ray_node_failure_total - ray_node_failure_total offset 1m) > 0",
        "deriv(ray_object_store_used_memory[20s]) > 1",
        "ray_node_gpus_utilization > 90",
    ],
)
def test_what_is_right_is_left_alone(expr, tmp_path):
    assert found(expr.replace("'", '"'), tmp_path) == []


def test_a_metric_is_held_against_the_version_that_is_asked_for(tmp_path):
    expr = "ray_component_mem_shared_bytes > 1e9"
    assert found(expr, tmp_path, version="2.49.2") == []
    assert [each.rewrite for each in found(expr, tmp_path)] == ["ray_component_shared_bytes"]


def test_a_label_that_an_alert_reads_must_be_in_the_result(tmp_path):
    more = '        annotations: {summary: "{{ $labels.ip }} {{ $labels.instance }} {{ .Labels.job }}"}\n'
    said = found("sum by (instance) (ray_node_mem_used) > 1", tmp_path, more=more)
    assert [(each.check, marked(each), each.rewrite) for each in said] == [
        ("alerts/template", "$labels.ip", "sum by (instance, ip) (…)"),
        ("alerts/template", ".Labels.job"[1:], "sum by (instance, job) (…)"),
    ]


def test_places_are_right_in_a_block_of_several_lines(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(
        RULE.format(expr="X").replace(
            "'X'", "|\n          ray_running_jobs > 5\n            or ray_node_count < 3"
        )
    )
    (said,) = check_files([str(path)], today=date(2026, 1, 1)).findings[-1:]
    assert (said.line, said.column, marked(said)) == (7, 16, "ray_node_count")


@pytest.mark.parametrize(
    ("detect", "severity"),
    [
        ("{forecast: {bound: 1, lookback: 1h, horizon: 5h}}", "warning"),
        ("{seasonal: {seasons: [1d, 1w], history: 8d}}", "error"),
        ("{seasonal: {history: 16d}}", "warning"),
        ("{stale: {after: 15s, step: 5s}}", "warning"),
    ],
)
def test_durations_of_a_detector_must_fit(detect, severity, tmp_path):
    said = found("ray_object_store_used_memory", tmp_path, more=f"        detect: {detect}\n")
    assert {(each.check, str(each.severity)) for each in said} == {("detect/windows", severity)}


@pytest.mark.parametrize(
    "detect", ["{forecast: {bound: 1}}", "seasonal", "stale", "changepoint", "{burn_rate: {objective: 0.99}}"]
)
def test_the_defaults_of_detectors_fit(detect, tmp_path):
    more = f"        detect: {detect}\n"
    expr = "ray_running_jobs" if "burn" not in detect else "sum(rate(ray_finished_jobs_total[$window]))"
    path = tmp_path / "rules.yaml"
    path.write_text(RULE.format(expr=expr) + more)
    checked = check_files([str(path)], today=date(2026, 1, 1))
    assert [each for each in checked.findings if each.check == "detect/windows"] == []

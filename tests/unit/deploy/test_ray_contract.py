"""A version's file is made of what pages of metrics show, and keeps what they cannot."""

from deploy.ray_contract import merged, panel_names, read_page, read_rows, targets, write_rows

PAGE = """\
# HELP ray_tasks Tasks by state.
# TYPE ray_tasks gauge
ray_tasks{Component="core_worker",NodeAddress="10.0.0.1",State="RUNNING",JobId="01",Version="2.60.0"} 1
ray_tasks{Component="core_worker",NodeAddress="10.0.0.1",State="FAILED",JobId="",Version="2.60.0"} 1
ray_tasks{otel_metric_overflow="true"} 8
# HELP ray_wait_ms Waiting.
# TYPE ray_wait_ms histogram
ray_wait_ms_bucket{ip="10.0.0.1",le="1.0"} 1
ray_wait_ms_bucket{ip="10.0.0.1",le="+Inf"} 2
ray_wait_ms_count{ip="10.0.0.1"} 2
ray_wait_ms_sum{ip="10.0.0.1"} 3
# HELP process_open_fds Files.
# TYPE process_open_fds gauge
process_open_fds 5
"""


def rows():
    found = {}
    assert read_page(PAGE, found) == "2.60.0"
    return {name: seen.row(name) for name, seen in found.items()}


def test_labels_and_values_of_all_series_are_merged():
    assert set(rows()) == {"ray_tasks", "ray_wait_ms"}
    tasks = rows()["ray_tasks"]
    assert tasks["labels"] == "Component JobId? NodeAddress State Version"
    assert tasks["values"] == "State=FAILED|RUNNING"
    assert (tasks["type"], tasks["period"], tasks["help"]) == ("gauge", "10", "Tasks by state.")


def test_a_histogram_is_one_row_without_its_buckets_label():
    wait = rows()["ray_wait_ms"]
    assert (wait["type"], wait["labels"], wait["unit"], wait["period"]) == ("histogram", "ip", "ms", "5")


def test_what_was_seen_before_and_what_was_judged_is_kept():
    kept = {**rows()["ray_tasks"], "labels": "Component NodeAddress WorkerId", "values": "State=FINISHED"}
    row = merged(
        {**kept, "flags": "offsets", "dropped": "WorkerId", "source": "Source=owner"}, rows()["ray_tasks"]
    )
    assert row["labels"] == "Component JobId? NodeAddress State? Version? WorkerId?"
    assert row["values"] == "State=FAILED|FINISHED|RUNNING"
    assert (row["flags"], row["dropped"], row["source"]) == ("offsets", "WorkerId", "Source=owner")


def test_a_file_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "2.60.tsv"
    write_rows(path, rows().values())
    assert [row["name"] for row in read_rows(path)] == ["ray_tasks", "ray_wait_ms"]
    assert read_rows(path)[0]["labels"] == rows()["ray_tasks"]["labels"]


def test_dashboards_name_metrics_and_histograms_by_their_own_name():
    panels = (
        'expr="sum(rate(ray_wait_ms_bucket{{{x}}}[5m])) / ray_vllm:requests_total{{}}", title="ray_nothing"'
    )
    assert panel_names(panels) == {"ray_wait_ms", "ray_vllm:requests_total"}


def test_the_targets_are_those_of_rays_discovery(tmp_path):
    path = tmp_path / "sd.json"
    path.write_text('[{"labels": {"job": "ray"}, "targets": ["10.0.0.2:1", "10.0.0.1:2"]}]')
    assert targets(str(path)) == ["10.0.0.1:2", "10.0.0.2:1"]

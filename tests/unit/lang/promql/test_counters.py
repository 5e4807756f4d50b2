"""Bare counters are told by their names."""

import pytest

from engine.lang.promql.counters import bare_counter


@pytest.mark.parametrize(
    ("expr", "metric"),
    [
        ("tasks_total", "tasks_total"),
        ('sum by (node) (tasks_total{state="FAILED"})', "tasks_total"),
        ("-max(latency_seconds_count)", "latency_seconds_count"),
        ("rate(tasks_total[5m])", None),
        ("ray_node_mem_used / ray_node_mem_total", None),
        ("memory_bytes", None),
        ('{__name__=~".*_total"}', None),
        ("1", None),
    ],
)
def test_a_counter_as_it_stands_or_summed(expr, metric):
    assert bare_counter(expr) == metric

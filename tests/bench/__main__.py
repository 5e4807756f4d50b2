"""Runs every benchmark: `python -m tests.bench`, by hand, on a quiet machine."""

import sys

from tests.bench import (
    bench_anomaly,
    bench_forecast,
    bench_latency,
    bench_leak,
    bench_peers,
    bench_probe,
    bench_promql,
    bench_seasonal,
    bench_shifts,
    bench_speed,
    bench_test_rule,
)

if __name__ == "__main__":
    # Processes first: a child's peak of memory begins with that of its parent, which is small as yet.
    for table in (
        bench_test_rule.rows,
        bench_promql.report,
        bench_probe.report,
        bench_leak.report,
        bench_peers.report,
        bench_anomaly.report,
        bench_latency.report,
        bench_shifts.report,
        bench_seasonal.report,
        bench_forecast.report,
        bench_speed.report,
    ):
        for line in table():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

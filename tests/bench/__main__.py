"""Runs every benchmark: `python -m tests.bench`, by hand, on a quiet machine."""

import sys

from tests.bench import bench_promql, bench_test_rule

if __name__ == "__main__":
    for table in (bench_promql.report, bench_test_rule.rows):
        for line in table():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

"""Runs every benchmark: `python -m tests.bench`, by hand, on a quiet machine."""

import sys

from tests.bench import bench_promql

if __name__ == "__main__":
    for line in bench_promql.report():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

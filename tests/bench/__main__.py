"""Runs every benchmark: `python -m tests.bench`, by hand, on a quiet machine."""

from tests.bench import bench_promql

if __name__ == "__main__":
    bench_promql.main()

"""Make every worker of the cluster collect its garbage, so that objects held only by reference cycles are freed.

Live references are not touched. Run as a Ray job: `python -m ray_ops.global_gc`. What it freed is for the
engine to measure: Ray's own view of the bytes in use lags behind by seconds.
"""

from __future__ import annotations

import time

import ray
from ray._private.internal_api import global_gc

SETTLE = 3.0  # seconds; workers collect within two, and a job's driver is the last to be asked


def main() -> None:
    """Ask every worker, and stay until they have done it."""
    ray.init(log_to_driver=False)
    nodes = sum(node["Alive"] for node in ray.nodes())
    global_gc()
    time.sleep(SETTLE)
    print(f"asked the workers of {nodes} nodes to collect their garbage")


if __name__ == "__main__":
    main()

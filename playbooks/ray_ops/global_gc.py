"""Make every worker of the cluster collect its garbage, so that objects held only by reference cycles are freed.

Live references are not touched. Run as a Ray job: `python -m ray_ops.global_gc`.
"""

from __future__ import annotations

import time

import ray
from ray._private.internal_api import global_gc

SETTLE = 3.0  # seconds; workers collect within two, and the last log line should say what came of it


def held_bytes() -> int:
    """Return the bytes of plasma in use over all nodes, by the resource view."""
    total = ray.cluster_resources().get("object_store_memory", 0)
    free = ray.available_resources().get("object_store_memory", 0)
    return int(total - free)


def main() -> None:
    """Collect, and say what came of it."""
    ray.init(log_to_driver=False)
    before = held_bytes()
    global_gc()
    time.sleep(SETTLE)
    print(
        f"global gc: {before / 2**20:.0f} MiB of objects pinned before, {held_bytes() / 2**20:.0f} MiB after"
    )


if __name__ == "__main__":
    main()

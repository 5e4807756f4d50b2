"""Hold objects in reference cycles, which only a garbage collection frees: a leak that a global gc relieves.

The collector of this process is off, as it is in effect where few Python objects hold large buffers.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

import ray  # type: ignore[import-not-found]  # Ray has its own environment


class Knot:
    """An object that refers to itself, and holds a reference to something large."""

    def __init__(self, megabytes: float) -> None:
        self.itself = self
        self.held = ray.put(os.urandom(int(megabytes * 1e6)))


def main() -> None:
    """Tie knots, keep some objects in honest use, and hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb-per-put", type=float, default=2.0)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two knots")
    parser.add_argument("--knots", type=int, default=10)
    parser.add_argument("--live", type=int, default=4, help="objects that stay in use, which no gc may free")
    parser.add_argument("--hold", type=float, default=3600.0, help="seconds to hold on after the last knot")
    arguments = parser.parse_args()

    # With several nodes on one machine, a driver joins the head unless it is told which node is its own.
    ray.init(log_to_driver=False, _node_ip_address=os.environ.get("DEMO_NODE_IP"))
    gc.disable()
    live = [ray.put(os.urandom(int(arguments.mb_per_put * 1e6))) for _ in range(arguments.live)]
    for tied in range(1, arguments.knots + 1):
        Knot(arguments.mb_per_put)
        print(f"knot {tied}: {tied * arguments.mb_per_put:g} MB out of reach", flush=True)
        time.sleep(arguments.pause)
    print("holding", flush=True)
    time.sleep(arguments.hold)
    print("released", len(live), flush=True)


if __name__ == "__main__":
    main()

"""Fill the object store of the node that this job runs on, until it spills; then hold everything.

Submit it with the Job API, on a chosen node if need be. What it puts stays in memory or on disk as long as
it holds the references, so stopping the job is what frees it.
"""

from __future__ import annotations

import argparse
import os
import time

import ray  # type: ignore[import-not-found]  # Ray has its own environment


def main() -> None:
    """Put objects of a given size, one after the other, and keep the references."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb-per-put", type=float, default=5.0)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two puts")
    parser.add_argument("--total-mb", type=float, default=200.0)
    parser.add_argument("--hold", type=float, default=3600.0, help="seconds to hold on after the last put")
    arguments = parser.parse_args()

    # With several nodes on one machine, a driver joins the head unless it is told which node is its own.
    ray.init(log_to_driver=False, _node_ip_address=os.environ.get("DEMO_NODE_IP"))
    print("filling the store of", ray.util.get_node_ip_address(), flush=True)
    held: list[ray.ObjectRef] = []
    while len(held) * arguments.mb_per_put < arguments.total_mb:
        # Random bytes, since pages of zeros might cost nothing; bytes, since numpy is not here.
        held.append(ray.put(os.urandom(int(arguments.mb_per_put * 1e6))))
        print(f"put {len(held)}: {len(held) * arguments.mb_per_put:g} MB held", flush=True)
        time.sleep(arguments.pause)
    print("holding", flush=True)
    time.sleep(arguments.hold)
    print("released", len(held), flush=True)


if __name__ == "__main__":
    main()

"""Stable names over session churn.

`SessionName`, pids and worker ids change at every restart; the cluster (by its name in engine.yaml) and
the node (by its address) stay. Guardrails count by these.
"""

from __future__ import annotations

from collections.abc import Mapping

NODE_LABELS = ("ip", "NodeAddress", "node", "instance")  # the first that is there; `instance` less its port


def node_of(labels: Mapping[str, str]) -> str:
    """Return the address of the node that labels of Ray's metrics speak of; "" if of none."""
    for name in NODE_LABELS:
        if value := labels.get(name, ""):
            return _host(value)
    return ""


def _host(address: str) -> str:
    """Return an address less its port: `10.0.0.1:8080`, `[fd00::1]:8080`, `fd00::1`."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    host, colon, port = address.rpartition(":")
    return host if colon and ":" not in host and port.isdigit() else address

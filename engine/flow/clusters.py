"""Which Ray cluster an alert is about, and the client to reach it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from engine.errors import EngineError
from engine.lang.template import parse
from engine.model.labels import Labels
from engine.model.ports import RayApi
from engine.model.settings import RayCluster

Connect = Callable[[RayCluster, str], RayApi]
"""Makes the client of a cluster at an address; opens no connection."""


class Cluster(NamedTuple):
    """A cluster's name, and its APIs (None: no entry of engine.yaml fits)."""

    name: str
    ray: RayApi | None
    missing: str = ""  # why there are no APIs


class Clusters:
    """The clusters of engine.yaml; the first whose matchers fit an alert's labels is the alert's."""

    def __init__(self, entries: Sequence[RayCluster], connect: Connect) -> None:
        self._entries = tuple(entries)
        self._connect = connect
        self._clients: dict[tuple[RayCluster, str], RayApi] = {}

    def of(self, labels: Labels) -> Cluster:
        """Return the cluster that labels speak of."""
        for entry in self._entries:
            if entry.matchers.matches(labels):
                return self._open(entry, labels)
        return Cluster("", None, "no entry of ray.clusters in engine.yaml fits the alert's labels")

    def _open(self, entry: RayCluster, labels: Labels) -> Cluster:
        data = {"labels": labels}
        try:
            name, address = parse(entry.name).render(data), parse(entry.address).render(data)
        except EngineError as error:
            return Cluster(entry.name, None, f"ray.clusters in engine.yaml: {entry.name}: {error}")
        known = entry, address  # two entries may reach one address with tokens of their own
        if known not in self._clients:
            self._clients[known] = self._connect(entry, address)
        return Cluster(name, self._clients[known])

"""The probes of all clusters whose address engine.yaml spells out, each on a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from engine.clients.ray import RayClient
from engine.flow.engine import Engine
from engine.model.event import Kind
from engine.model.settings import RayCluster
from engine.probe.export import render
from engine.probe.probe import ClusterProbe, Condition


class Probes:
    """What is probed; outlives reloads, and so do the counts of clusters that stay as they were."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine
        self._probes: dict[RayCluster, ClusterProbe] = {}

    def set(self, clusters: tuple[RayCluster, ...]) -> None:
        """Probe these clusters from now on: those that are wanted, and at a known address."""
        wanted = [entry for entry in clusters if entry.probe.enabled and not _is_template(entry)]
        self._probes = {entry: self._probes.get(entry) or _probe(entry) for entry in wanted}

    def jobs(self) -> Mapping[str, Callable[[datetime], None]]:
        """Return what is to be done at every pulse, by name."""
        return {f"probe {probe.name}": self._job(probe) for probe in self._probes.values()}

    def render(self) -> bytes:
        """Return all readings in Prometheus' text format."""
        return render(tuple(self._probes.values()))

    def _job(self, probe: ClusterProbe) -> Callable[[datetime], None]:
        def work(at: datetime) -> None:
            for api, condition, error in probe.probe(at, lambda: self._engine().halted):
                subject, where = f"probe {probe.name}", {"cluster": probe.name, "api": api.value}
                if condition is not Condition.OK:
                    self._engine().events.tell(at, Kind.TROUBLE, subject, f"{condition}: {error}", **where)
                elif probe.asked[api].codes.total() > 1:
                    self._engine().events.tell(at, Kind.RECOVERED, subject, f"{api} answers again", **where)

        return work


def _is_template(entry: RayCluster) -> bool:
    return "{{" in entry.name or "{{" in entry.address


def _probe(entry: RayCluster) -> ClusterProbe:
    client = RayClient(entry.address, token_file=entry.token_file, timeout=entry.probe.timeout)
    return ClusterProbe(entry.name, client, entry.probe)

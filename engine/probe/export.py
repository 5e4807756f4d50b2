"""The readings of all clusters in Prometheus' text format, for it to scrape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine.probe.actors import Use
from engine.probe.probe import BUCKETS, Api, Asked, ClusterProbe, Condition

_OF_ACTORS = ("cluster", "node", "actor_id", "class_name", "actor_name", "ray_job_id")


def render(probes: Sequence[ClusterProbe]) -> bytes:
    """Return everything that the probes know now."""
    registry = CollectorRegistry()
    registry.register(_Readings(probes))
    return generate_latest(registry)


class _Readings(Collector):
    def __init__(self, probes: Iterable[ClusterProbe]) -> None:
        self._probes = tuple(probes)

    def collect(self) -> Iterator[Metric]:
        yield from self._gcs()
        yield from self._apis()
        yield from self._actors()
        yield from self._work()

    def _gcs(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "engine_ray_gcs_up",
            "1 if GCS answered the dashboard's health check, 0 if not; missing where the dashboard cannot be asked",
            labels=["cluster"],
        )
        seconds = GaugeMetricFamily(
            "engine_ray_gcs_health_seconds",
            "Seconds that GCS' health check took from outside; a hang counts up to the timeout",
            labels=["cluster"],
        )
        for probe in self._probes:
            asked = probe.asked[Api.GCS]
            if asked.condition in (None, Condition.GONE) or _dashboard_hangs(probe):
                continue
            up.add_metric([probe.name], float(asked.condition is Condition.OK))
            seconds.add_metric([probe.name], asked.newest)
        yield up
        yield seconds

    def _apis(self) -> Iterator[Metric]:
        condition = GaugeMetricFamily(
            "engine_ray_api_condition",
            "1 for how a part of Ray answered last: " + ", ".join(each.value for each in Condition),
            labels=["cluster", "api", "condition"],
        )
        total = CounterMetricFamily(
            "engine_ray_api_requests", "Requests to Ray's APIs by status", labels=["cluster", "api", "code"]
        )
        seconds = HistogramMetricFamily(
            "engine_ray_api_request_seconds", "Seconds that Ray's APIs took", labels=["cluster", "api"]
        )
        for probe in self._probes:
            for api, asked in probe.asked.items():
                if asked.condition is None:
                    continue
                for each in Condition:
                    condition.add_metric([probe.name, api, each], float(each is asked.condition))
                for code, count in sorted(asked.codes.items()):
                    total.add_metric([probe.name, api, code], count)
                seconds.add_metric([probe.name, api], _buckets(asked), asked.seconds)
        yield condition
        yield total
        yield seconds

    def _actors(self) -> Iterator[Metric]:
        cores = GaugeMetricFamily(
            "engine_ray_actor_cpu_cores",
            "Cores that an actor's process uses",
            labels=_OF_ACTORS,
        )
        rss = GaugeMetricFamily(
            "engine_ray_actor_rss_bytes", "Resident memory of an actor's process", labels=_OF_ACTORS
        )
        tasks = GaugeMetricFamily(
            "engine_ray_actor_tasks_per_second",
            "Tasks that an actor executes",
            labels=_OF_ACTORS,
        )
        for probe in self._probes:
            for use in probe.readings.uses:
                labels = _labels(probe.name, use)
                for family, value in ((cores, use.cores), (rss, use.rss), (tasks, use.tasks)):
                    if not math.isnan(value):
                        family.add_metric(labels, value)
        yield cores
        yield rss
        yield tasks

    def _work(self) -> Iterator[Metric]:
        version = InfoMetricFamily("engine_ray", "Ray's version", labels=["cluster"])
        jobs = GaugeMetricFamily(
            "engine_ray_jobs", "Jobs of the Job API by state", labels=["cluster", "state"]
        )
        owned = GaugeMetricFamily(
            "engine_ray_object_owner_bytes",
            "Bytes of objects by the job that owns them",
            labels=["cluster", "ray_job_id", "submission_id"],
        )
        dropped = GaugeMetricFamily(
            "engine_ray_probe_dropped",
            "What is not exported, to bound the series",
            labels=["cluster", "kind"],
        )
        for probe in self._probes:
            readings = probe.readings
            if readings.version:
                version.add_metric([probe.name], {"version": readings.version})
            for state, count in sorted((readings.jobs or {}).items()):
                jobs.add_metric([probe.name, state], count)
            for owner in readings.owners:
                owned.add_metric([probe.name, owner.job_id, owner.submission_id or ""], owner.bytes)
            for kind, count in sorted(readings.dropped.items()):
                dropped.add_metric([probe.name, kind], count)
        yield version
        yield jobs
        yield owned
        yield dropped


def _dashboard_hangs(probe: ClusterProbe) -> bool:
    """Tell whether the dashboard itself answers nothing, so that its word on GCS says nothing of GCS."""
    return probe.asked[Api.DASHBOARD].condition in (Condition.HUNG, Condition.GONE)


def _labels(cluster: str, use: Use) -> list[str]:
    return [cluster, *(use.labels.get(name, "") for name in _OF_ACTORS[1:])]


def _buckets(asked: Asked) -> list[tuple[str, float]]:
    """Return cumulative counts by upper bound."""
    total, found = 0, []
    for bound in (*BUCKETS, math.inf):
        total += asked.buckets[bound]
        found.append(("+Inf" if math.isinf(bound) else f"{bound:g}", float(total)))
    return found

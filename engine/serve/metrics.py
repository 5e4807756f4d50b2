"""The engine's own metrics: counters from its events, gauges from its state when scraped."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.clients.write_queue import Fate, WriteQueue
from engine.flow.engine import Engine
from engine.flow.evaluator import Health
from engine.model.alert import AlertState
from engine.model.event import Event, Kind


class Metrics:
    """Counts what happens, and shows how things are. Outlives reloads: counters never go back."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._evaluations = self._counter("engine_rule_evaluations", "Evaluations of rules", "rule")
        self._failures = self._counter("engine_rule_evaluation_failures", "Evaluations that failed", "rule")
        self._missed = self._counter(
            "engine_group_slots_missed", "Slots that passed without an evaluation", "group"
        )
        self._jobs = self._counter(
            "engine_scheduler_events", "Wake-ups missed, overlapping or failed", "event", "job"
        )
        self._transitions = self._counter(
            "engine_alert_transitions", "Changes of alerts' state", "alertname", "to"
        )
        self._sent = self._counter(
            "engine_notifications", "Notifications delivered", "receiver", "integration"
        )
        self._unsent = self._counter(
            "engine_notifications_failed", "Deliveries that failed", "receiver", "integration", "reason"
        )
        self._troubles = self._counter("engine_troubles", "What the engine itself could not do", "part")
        self._runs = self._counter(
            "engine_remediation_runs", "States that runs have reached", "playbook", "state"
        )

        self._written = {
            Fate.WRITTEN: self._counter("engine_remote_write_samples", "Samples delivered", "receiver"),
            Fate.FAILED: self._counter("engine_remote_write_failed", "Samples refused", "receiver"),
            Fate.DROPPED: self._counter(
                "engine_remote_write_dropped", "Samples for which there was no room", "receiver"
            ),
        }

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def observe(self, event: Event) -> None:
        """Count one event."""
        data = event.data
        match event.kind:
            case Kind.EVALUATED:
                self._evaluations.labels(event.subject).inc()
                if data.get("health") == Health.ERROR:
                    self._failures.labels(event.subject).inc()
            case Kind.MISSED:
                self._missed.labels(event.subject).inc(int(data["missed"]))
            case Kind.TRANSITION:
                self._transitions.labels(data["alert"], data["after"]).inc()
            case Kind.NOTIFIED:
                self._sent.labels(data["receiver"], data["integration"]).inc()
            case Kind.NOT_NOTIFIED:
                self._unsent.labels(data["receiver"], data["integration"], data["why"]).inc()
            case Kind.TROUBLE:
                self._troubles.labels(event.subject).inc()
            case Kind.RUN if "state" in data:
                self._runs.labels(data["playbook"], data["state"]).inc()
            case _:
                pass

    def count_job(self, event: str, job: str) -> None:
        """Count a wake-up that was missed, overlapped or failed."""
        self._jobs.labels(event, job).inc()

    def count_written(self, receiver: str, fate: Fate, samples: int) -> None:
        """Count samples that a receiver of remote write was to be given."""
        self._written[fate].labels(receiver).inc(samples)

    def render(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


class State(Collector):
    """Gauges of one engine, read when scraped. `engine` returns the present one: a reload replaces it."""

    def __init__(
        self,
        engine: Callable[[], Engine],
        overdue: Callable[[], int],
        queues: Callable[[], Iterable[WriteQueue]] = tuple,
    ) -> None:
        self._engine = engine
        self._overdue = overdue
        self._queues = queues

    def collect(self) -> Iterator[Metric]:
        engine = self._engine()
        alerts = GaugeMetricFamily("engine_alerts", "Alerts by name and state", labels=["alertname", "state"])
        tally = Tally((alert.name, alert.state) for alert in engine.alerts())
        for (name, state), count in sorted(tally.items()):
            if state is not AlertState.RESOLVED:
                alerts.add_metric([name, state.value], count)
        yield alerts
        healthy = GaugeMetricFamily(
            "engine_rule_healthy", "1 if the rule's last evaluation worked, 0 if not", labels=["rule"]
        )
        last = GaugeMetricFamily(
            "engine_rule_last_evaluation_timestamp_seconds", "Slot of the last evaluation", labels=["rule"]
        )
        for rule_id, status in engine.status.items():
            healthy.add_metric([rule_id], float(status.health is not Health.ERROR))
            if status.evaluated_at is not None:
                last.add_metric([rule_id], status.evaluated_at.timestamp())
        yield healthy
        yield last
        yield from _qualities(engine)
        yield GaugeMetricFamily(
            "engine_notifications_waiting",
            "Integrations that did not take their last delivery",
            value=engine.dispatcher.waiting,
        )
        yield GaugeMetricFamily(
            "engine_remediation_runs_open", "Runs that are not over", value=len(engine.healer.open_runs)
        )
        pending = GaugeMetricFamily(
            "engine_remote_write_pending", "Samples that wait for their receiver", labels=["receiver"]
        )
        for queue in self._queues():
            pending.add_metric([queue.name], queue.pending)
        yield pending
        yield GaugeMetricFamily(
            "engine_groups_overdue", "Groups not evaluated for three intervals", value=self._overdue()
        )


def _qualities(engine: Engine) -> Iterator[Metric]:
    """Yield what the rules' detectors say of themselves, such as the achieved coverage of their forecasts."""
    figures: dict[str, GaugeMetricFamily] = {}
    for rule_id, status in engine.status.items():
        for name, value in status.quality.items():
            text = f"What the rule's detector says of itself: {name.replace('_', ' ')}"
            family = figures.setdefault(name, GaugeMetricFamily(f"engine_{name}", text, labels=["rule"]))
            family.add_metric([rule_id], value)
    yield from figures.values()

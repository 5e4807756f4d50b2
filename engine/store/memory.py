"""A store that forgets: for tests, `test-rule` and `backtest`. It behaves as the others do."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from threading import Lock
from types import MappingProxyType

from engine.errors import StoreError
from engine.model.alert import Alert
from engine.model.event import Event
from engine.model.notification import Sent
from engine.model.playbook import Run
from engine.model.verdict import NOTHING, Memory

KEPT_EVENTS = 100_000
"""How many events a store keeps; the oldest go."""


class MemoryStore:
    """State that ends with the process."""

    def __init__(self, *, kept_events: int = KEPT_EVENTS) -> None:
        self._lock = Lock()
        self._alerts: dict[str, tuple[Alert, ...]] = {}
        self._memories: dict[str, Memory] = {}
        self._slots: dict[str, datetime] = {}
        self._sent: dict[str, Sent] = {}
        self._runs: dict[str, Run] = {}
        self._decisions: dict[str, tuple[bool, str]] = {}
        self._events: deque[Event] = deque(maxlen=kept_events)

    def alerts(self, rule_id: str) -> Sequence[Alert]:
        return self._alerts.get(rule_id, ())

    def save_alerts(
        self,
        group_id: str,
        slot: datetime,
        alerts: Mapping[str, Sequence[Alert]],
        memories: Mapping[str, Memory] = MappingProxyType({}),
    ) -> None:
        with self._lock:
            self._memories.update(memories)
            self._alerts.update({rule_id: tuple(of_rule) for rule_id, of_rule in alerts.items()})
            self._slots[group_id] = slot

    def memory(self, rule_id: str) -> Memory:
        return self._memories.get(rule_id, NOTHING)

    def forget_alerts_except(self, rule_ids: Collection[str]) -> Sequence[Alert]:
        with self._lock:
            self._memories = {id_: memory for id_, memory in self._memories.items() if id_ in rule_ids}
            gone = [rule_id for rule_id in self._alerts if rule_id not in rule_ids]
            return tuple(alert for rule_id in gone for alert in self._alerts.pop(rule_id))

    def last_slot(self, group_id: str) -> datetime | None:
        return self._slots.get(group_id)

    def sent(self, key: str) -> Sent | None:
        return self._sent.get(key)

    def save_sent(self, entry: Sent) -> None:
        self._sent[entry.key] = entry

    def add_run(self, run: Run) -> bool:
        with self._lock:
            if run.id in self._runs:
                return False
            self._runs[run.id] = run
            return True

    def save_run(self, run: Run) -> None:
        with self._lock:
            known = self._runs.get(run.id)
            if known is None:
                raise StoreError(no_such_run(run.id))
            if run.state.terminal or not known.state.terminal:
                self._runs[run.id] = run

    def run(self, run_id: str) -> Run | None:
        return self._runs.get(run_id)

    def runs(self, *, since: datetime | None = None, open_only: bool = False) -> Sequence[Run]:
        with self._lock:
            found = [
                run
                for run in self._runs.values()
                if (since is None or run.created_at >= since) and not (open_only and run.state.terminal)
            ]
        return tuple(sorted(found, key=lambda run: (run.created_at, run.id), reverse=True))

    def decide(self, run_id: str, *, approve: bool, by: str, at: datetime) -> None:
        with self._lock:
            if run_id not in self._runs:
                raise StoreError(no_such_run(run_id))
            self._decisions.setdefault(run_id, (approve, by))

    def decision(self, run_id: str) -> tuple[bool, str] | None:
        return self._decisions.get(run_id)

    def add_events(self, events: Iterable[Event]) -> None:
        with self._lock:
            self._events.extend(events)

    def events(self, *, subject: str | None = None, limit: int = 1000) -> Sequence[Event]:
        with self._lock:
            found = [event for event in self._events if subject is None or event.subject == subject]
        return tuple(found[max(len(found) - limit, 0) :])

    def close(self) -> None:
        pass


def no_such_run(run_id: str) -> str:
    """Return the words for a run that the store does not have."""
    return f"no run is called {run_id!r}; `engine playbook list` lists them"

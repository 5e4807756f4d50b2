"""Every decision, told to whoever listens and kept in the store.

The core writes no log: logging and metrics are observers that `serve` brings.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Sequence
from datetime import datetime

from engine.errors import EngineError, StoreError
from engine.model.event import LASTING, Event, Kind
from engine.model.ports import Observer, Store


class Events:
    """Where decisions go: to observers (the log, metrics) at once, to the store with `keep`."""

    def __init__(self, store: Store, observers: Sequence[Observer] = ()) -> None:
        self._store = store
        self._observers = tuple(observers)
        self._waiting: list[Event] = []
        self._lock = threading.Lock()

    def tell(self, at: datetime, kind: Kind, subject: str, reason: str, **data: str) -> None:
        """Make one event known."""
        event = Event(at=at, kind=kind, subject=subject, reason=reason, data=data)
        for observer in self._observers:
            observer(event)
        if kind in LASTING:
            with self._lock:
                self._waiting.append(event)

    def trouble(self, at: datetime, part: str, error: Exception, **data: str) -> None:
        """Say that a part of the engine could not do its work. A fault of the code comes with its traceback."""
        if not isinstance(error, EngineError):
            data["traceback"] = "".join(traceback.format_exception(error))
        self.tell(at, Kind.TROUBLE, part, f"{error}" or type(error).__name__, **data)

    def keep(self, at: datetime) -> None:
        """Write what was told since the last time, in one transaction."""
        with self._lock:
            events, self._waiting = self._waiting, []
        if not events:
            return
        try:
            self._store.add_events(events)
        except StoreError as error:
            self.trouble(at, "store", error, lost=f"{len(events)} events")

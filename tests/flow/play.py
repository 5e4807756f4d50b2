"""An engine on series in promtool's notation, ten seconds apart, evaluated every ten seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from engine.flow.build import Loaded, build
from engine.flow.engine import Engine
from engine.lang.promql import Storage
from engine.load.matchers import parse_series
from engine.load.rules import read_rules
from engine.load.settings import read_settings
from engine.load.signals import parse_values
from engine.model.event import Event
from engine.model.ports import Source, Store
from engine.query.embedded import EmbeddedSource
from engine.store.memory import MemoryStore

T0 = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=10)


class Play:
    """Drives the engine that `engine run` would build, on series that are all there from the start."""

    def __init__(
        self,
        rules: str,
        series: Mapping[str, str],
        *,
        settings: str = "",
        store: Store | None = None,
        wrap: Callable[[Source], Source] = lambda source: source,
    ) -> None:
        storage = Storage()
        for text, values in series.items():
            samples = parse_values(values)
            there = np.asarray(samples.present) | np.asarray(samples.stale)
            times = round(T0.timestamp() * 1000) + np.flatnonzero(there) * 10_000
            storage.add(parse_series(text), times, samples.values[there], np.asarray(samples.stale)[there])
        self.source = wrap(EmbeddedSource(storage))
        self.store = store or MemoryStore()
        self.events: list[Event] = []
        self.at = T0
        self._rules, self._settings = rules, settings
        self.engine = self._build()

    def _build(self) -> Engine:
        problems: list[Any] = []
        settings = read_settings(
            "engine.yaml",
            (self._settings or "route: {receiver: r}\nreceivers: [{name: r}]\n").encode(),
            problems,
        )
        groups = read_rules("rules.yaml", self._rules.encode(), problems).groups
        assert problems == []
        assert settings is not None
        loaded = Loaded(settings=settings, groups=groups, playbooks={})
        return build(loaded, source=self.source, store=self.store, observers=[self.events.append])

    def restart(self) -> None:
        self.engine = self._build()

    def states(self, steps: int, alert: str = "A") -> str:
        """Evaluate so often, and return a letter each: `.` nothing, `p` pending, `F` firing, `r` resolved."""
        signs = []
        for _ in range(steps):
            for group in self.engine.groups:
                self.engine.tick(group, self.at)
            signs.append(self.sign(alert))
            self.at += STEP
        return "".join(signs)

    def sign(self, alert: str = "A") -> str:
        found = [one.state.value for one in self.engine.alerts() if one.name == alert]
        for state, sign in (("firing", "F"), ("pending", "p"), ("resolved", "r")):
            if state in found:
                return sign
        return "."

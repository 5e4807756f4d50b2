"""What a person would look at next, fetched once an episode and within a time budget."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from engine.clock import Stopwatch
from engine.errors import EngineError
from engine.flow.clusters import Clusters
from engine.flow.events import Events
from engine.model.alert import Alert, Evidence, Picture, Text
from engine.model.ports import Scene, Source
from engine.model.rule import AlertingRule
from engine.registry import enricher

# Seconds that one alert may take, and all together within twice as many: a slow Ray must not hold up deliveries.
BUDGET = 10.0
_KEEP = 500  # episodes remembered


class EvidenceBox:
    """The evidence of the firing alerts, by episode."""

    def __init__(
        self,
        source: Source,
        clusters: Clusters,
        rule_of: Callable[[str], AlertingRule | None],
        events: Events,
        halted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._halted = halted
        self._events = events
        self._source = source
        self._clusters = clusters
        self._rule_of = rule_of
        self._box: OrderedDict[str, tuple[Evidence, ...]] = OrderedDict()
        self._lock = threading.Lock()
        self._since, self._spent = Stopwatch(), 0.0  # seconds spent since then
        self.folder: Path | None = None  # charts are also written here

    def of(self, alert: Alert, at: datetime) -> tuple[Evidence, ...]:
        """Return the evidence of an alert's episode, collecting it if that has not been done and it still fires."""
        with self._lock:  # both the notifications and the remediation ask; one of them fetches
            known = self._box.get(alert.episode)
            if known is not None or not alert.firing:
                return known or ()
            rule = self._rule_of(alert.rule_id)
            if rule is None:
                return ()
            if self._since.seconds() > 2 * BUDGET:
                self._since, self._spent = Stopwatch(), 0.0
            if self._spent > BUDGET or self._halted():
                return ()  # many fire at once and what is asked is slow: told now, with evidence at the next chance
            watch = Stopwatch()
            found = self._collect(alert, rule, at)
            self._spent += watch.seconds()
            self._box[alert.episode] = found
            while len(self._box) > _KEEP:
                self._box.popitem(last=False)
            return found

    def _collect(self, alert: Alert, rule: AlertingRule, at: datetime) -> tuple[Evidence, ...]:
        scene = Scene(
            alert=alert, rule=rule, at=at, source=self._source, ray=self._clusters.of(alert.labels).ray
        )
        watch, found = Stopwatch(), list[Evidence]()
        for wanted in rule.enrich:
            title = enricher.name_of(wanted)
            if watch.seconds() > BUDGET or self._halted():
                found.append(Text(title, f"left out: the {BUDGET:.0f} s for evidence were spent"))
                continue
            try:
                piece = wanted.collect(scene)
            except EngineError as error:
                piece = Text(title, f"not available: {error}")
            except Exception as error:  # noqa: BLE001  evidence is a help; its faults must not cost the alert
                self._events.trouble(at, "enricher", error, enricher=title, alert=alert.fingerprint)
                piece = Text(title, f"not available: {type(error).__name__}: {error}")
            found.append(piece)
            self._keep(piece, len(found), alert, at)
        return tuple(found)

    def _keep(self, piece: Evidence, number: int, alert: Alert, at: datetime) -> None:
        if self.folder is None or not isinstance(piece, Picture):
            return
        assert alert.fired_at is not None
        plain = re.sub(r"[^\w.-]", "_", alert.name)
        name = f"{plain}-{alert.fingerprint}-{alert.fired_at:%Y%m%dT%H%M%S}-{number}.png"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(piece.png)
        except OSError as error:
            self._events.trouble(at, "evidence_dir", error, path=str(self.folder / name))

"""The engine over the past: the same evaluator, on virtual time, on the history of a real server.

Slots are those at which `engine run` would have evaluated, and each expression is asked as it would have been, only
ahead of time (`query/history.py`). What detectors remember begins at the period's start. Of the engine only the
evaluator is made: there is nothing here that could tell anybody or act on anything.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from engine.errors import EngineError
from engine.flow.build import with_made
from engine.flow.evaluator import Evaluator, Health, RuleStatus
from engine.flow.events import Events
from engine.flow.slots import interval_of, slot_at
from engine.lab.remedies import Remedies, Remedy
from engine.model.alert import Alert, AlertState
from engine.model.duration import Duration
from engine.model.playbook import Playbook
from engine.model.ports import Source, Store
from engine.model.rule import AlertingRule, RuleGroup
from engine.model.settings import EngineAlerts, Settings
from engine.query.history import HistorySource
from engine.route.inhibit import inhibitors
from engine.store.memory import MemoryStore

FLAP = timedelta(hours=1)
"""An alert that fires again so soon after it had resolved flaps."""

_FEW_EVENTS = 10  # nobody reads them here


@dataclass(frozen=True, slots=True)
class Episode:
    """One time of firing. `alert` is as it was when it began; `until` is None if it still fired at the end."""

    alert: Alert
    until: datetime | None = None

    @property
    def since(self) -> datetime:
        """When it began to fire."""
        assert self.alert.fired_at is not None
        return self.alert.fired_at

    def end(self, end: datetime) -> datetime:
        """Return when it was over, `end` at the latest."""
        return end if self.until is None else self.until


@dataclass(slots=True)
class Record:
    """What a rule did over a period."""

    rule: AlertingRule
    interval: timedelta
    first: datetime  # slot
    slots: int = 0
    pendings: int = 0  # conditions that began to hold
    errors: int = 0  # slots at which it could not be evaluated
    error: str = ""  # the first of them
    judged: int = 0  # verdicts, one a series and slot
    abstained: int = 0  # of them, "cannot say"
    blind: int = 0  # slots at which it could say nothing of any series, though there were some
    firing: int = 0  # slots at which it fired
    episodes: list[Episode] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    _open: dict[str, int] = field(default_factory=dict)  # by episode: its place

    def note(self, status: RuleStatus, slot: datetime) -> None:
        """Take note of one evaluation."""
        self.slots += 1
        if status.health is Health.ERROR:
            self.errors += 1
            self.error = self.error or status.error
        elif status.conditions:
            unknown = sum(bad is None for bad in status.conditions.values())
            self.judged += len(status.conditions)
            self.abstained += unknown
            self.blind += unknown == len(status.conditions)
        if status.alerts or self._open:
            self._note_alerts(status.alerts, slot)

    def _note_alerts(self, alerts: Sequence[Alert], slot: datetime) -> None:
        firing = {alert.episode: alert for alert in alerts if alert.firing}
        self.firing += bool(firing)
        self.pendings += sum(
            alert.active_at == slot and alert.state is not AlertState.RESOLVED for alert in alerts
        )
        for key in [key for key in self._open if key not in firing]:
            place = self._open.pop(key)
            self.episodes[place] = replace(self.episodes[place], until=slot)
        for key, alert in firing.items():
            if key not in self._open:
                self._open[key] = len(self.episodes)
                self.episodes.append(Episode(alert))

    @property
    def flaps(self) -> int:
        """How many episodes began within `FLAP` after the same alert's last one."""
        ended: dict[str, datetime] = {}
        count = 0
        for episode in self.episodes:
            before = ended.get(episode.alert.fingerprint)
            count += before is not None and episode.since - before < FLAP
            if episode.until is not None:
                ended[episode.alert.fingerprint] = episode.until
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is walked through: from `start` to `end`, with these settings and playbooks."""

    settings: Settings
    playbooks: Mapping[str, Playbook]
    start: datetime
    end: datetime


Progress = Callable[[datetime], None]
"""Is told how far it has come."""


class Walk:
    """One set of rules on its way through time."""

    def __init__(
        self, course: Course, groups: Sequence[RuleGroup], source: Source, store: Store | None = None
    ) -> None:
        self.source, _ = with_made(groups, source)
        settings = replace(
            course.settings,
            engine_alerts=EngineAlerts(rule_failing_for=Duration(), rule_no_data_for=Duration()),
        )
        store = store or MemoryStore(kept_events=_FEW_EVENTS)
        self.evaluator = Evaluator(
            settings=settings,
            groups=groups,
            source=self.source,
            store=store,
            events=Events(store),
            lazy=True,
        )
        self._inhibit = settings.routing.inhibit_rules
        self._remedies = Remedies(settings, course.playbooks, self.source)
        self.records = {
            rule.id: Record(rule, interval_of(group), first_slot(group, course.start))
            for group in groups
            for rule in group.rules
            if isinstance(rule, AlertingRule)
        }

    def tick(self, group: RuleGroup, slot: datetime) -> None:
        """Evaluate a group, and note what its rules did."""
        self.evaluator.tick(group.id, slot)
        for rule in group.rules:
            if (record := self.records.get(rule.id)) is not None:
                status = self.evaluator.status[rule.id]
                record.note(status, slot)
                if record.rule.remediate is not None and any(alert.firing for alert in status.alerts):
                    self._heal(record, status, slot)

    def _heal(self, record: Record, status: RuleStatus, slot: datetime) -> None:
        """Note what would have been done, as the engine's own `heal` chooses."""
        muted = inhibitors(self._inhibit, self.evaluator.alerts()) if self._inhibit else {}
        for alert in status.alerts:
            held_back = alert.over_budget or alert.fingerprint in muted or status.health is not Health.OK
            if alert.firing and not held_back:
                self._remedies.consider(alert, record.rule, slot)
        record.remedies += self._remedies.found
        self._remedies.found.clear()


def first_slot(group: RuleGroup, start: datetime) -> datetime:
    """Return a group's first slot that is not before `start`."""
    slot = slot_at(group, start)
    return slot if slot >= start else slot + interval_of(group)


def slots(
    groups: Sequence[RuleGroup], start: datetime, end: datetime
) -> Iterator[tuple[datetime, RuleGroup]]:
    """Yield the slots of groups from `start` to `end`, in the order of time."""
    due = []
    for place, group in enumerate(groups):
        due.append((first_slot(group, start), place))
    heapq.heapify(due)
    while due and due[0][0] <= end:
        slot, place = due[0]
        yield slot, groups[place]
        heapq.heapreplace(due, (slot + interval_of(groups[place]), place))


def walk(
    course: Course,
    variants: Sequence[Sequence[RuleGroup]],
    source: HistorySource,
    progress: Progress = lambda _at: None,
) -> list[dict[str, Record]]:
    """Evaluate every variant of the same rules over the period, side by side; return their records by rule id.

    Side by side, so that what they ask in common is fetched once. Raises QueryUnavailable once the server is.
    """
    walks = [Walk(course, groups, source) for groups in variants]
    places = {group.id: place for place, group in enumerate(variants[0])}
    for slot, group in slots(variants[0], course.start, course.end):
        source.every = interval_of(group)
        for each, groups in zip(walks, variants, strict=True):
            each.tick(groups[places[group.id]], slot)
        if source.unavailable is not None:
            raise source.unavailable
        progress(slot)
    return [each.records for each in walks]


def chosen(groups: Sequence[RuleGroup], wanted: Callable[[str], bool]) -> list[RuleGroup]:
    """Return the groups with the alerting rules whose name is wanted; recording rules stay, for these may need them."""
    found = []
    for group in groups:
        rules = tuple(
            rule for rule in group.rules if not isinstance(rule, AlertingRule) or wanted(rule.alert)
        )
        found.append(replace(group, rules=rules))
    if not any(isinstance(rule, AlertingRule) for group in found for rule in group.rules):
        raise EngineError("there is no alerting rule to try")
    return [group for group in found if group.rules]

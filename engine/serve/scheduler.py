"""When what runs. APScheduler only wakes the engine; which slot is evaluated, the engine computes itself.

Every group is one job and never overlaps itself. A wake-up that comes late is not lost
(`misfire_grace_time=None`), several at once are one (`coalesce=True`); slots that passed meanwhile are
counted. The first evaluation of each group is for its latest past slot, at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import structlog
from apscheduler.events import (
    EVENT_JOB_ERROR,
    EVENT_JOB_MAX_INSTANCES,
    EVENT_JOB_MISSED,
    JobExecutionEvent,
    JobSubmissionEvent,
)
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger
from apscheduler.triggers.interval import IntervalTrigger

from engine.clock import Clock
from engine.errors import EngineError
from engine.flow.engine import Engine
from engine.flow.evaluator import slots_between
from engine.flow.slots import interval_of, missed_between, slot_at
from engine.model.event import Kind
from engine.model.rule import RuleGroup

_log = structlog.get_logger("engine")

MOST_CAUGHT_UP = timedelta(hours=1)  # slots longer ago are not evaluated any more

Count = Callable[[str, str], None]
"""Told what happened to a job (missed, overlap, error) and the job's id."""


class _AtSlots(BaseTrigger):  # type: ignore[misc]
    """At once, and then at every slot of a group. It never ends: a job that does is a race with `stop`."""

    def __init__(self, group: RuleGroup) -> None:
        self._group = group

    def get_next_fire_time(self, previous: datetime | None, now: datetime) -> datetime:
        if previous is None:
            return now
        return slot_at(self._group, max(previous, now)) + interval_of(self._group)


class Scheduler:
    """Drives an engine by a clock, on a pool of threads."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        pulse: timedelta,
        count: Count,
        more: Mapping[str, Callable[[datetime], None]] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._pulse = pulse  # between two flushes, and between two rounds of remediation
        self._count = count
        self._busy = {group_id: threading.Lock() for group_id in engine.groups}
        # What is done at every pulse has a thread of its own each: a slow Slack must not hold up an evaluation,
        # nor the reverse.
        self._pulses = {"flush": engine.flush, "heal": engine.heal, **(more or {})}
        self._passes = {name: threading.Lock() for name in self._pulses}
        pools = {name: ThreadPoolExecutor(1) for name in self._pulses}
        pools["default"] = ThreadPoolExecutor(min(32, len(engine.groups) + 2))
        defaults = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler = BackgroundScheduler(executors=pools, job_defaults=defaults, timezone="UTC")
        self._scheduler.add_listener(
            self._heard, EVENT_JOB_MISSED | EVENT_JOB_MAX_INSTANCES | EVENT_JOB_ERROR
        )
        # The events above are counted, which says more than a line of log for each.
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)

    def start(self) -> None:
        """Evaluate every group's latest past slot now, and then each at its own slots."""
        self._plan()
        self._scheduler.start()

    def _plan(self) -> None:
        now = self._clock.now()
        for group in self._engine.groups.values():
            self._scheduler.add_job(self._tick, _AtSlots(group), args=[group], id=group.id)
        for name, verb in self._pulses.items():
            trigger = IntervalTrigger(seconds=self._pulse.total_seconds(), start_date=now, timezone="UTC")
            self._scheduler.add_job(self._pulse_of, trigger, args=[name, verb], id=name, executor=name)

    def stop(self) -> None:
        """Let running work end, and begin no more. Evaluations go on until flush and heal have ended."""
        self._engine.halt()
        for name, lock in self._passes.items():
            with suppress(JobLookupError):
                self._scheduler.remove_job(name)
            with lock:
                pass
        self._scheduler.shutdown(wait=True)

    @property
    def running(self) -> bool:
        """Whether it wakes the engine."""
        return bool(self._scheduler.running)

    def overdue(self) -> Sequence[str]:
        """Return the groups whose last evaluation lies more than three intervals back."""
        now = self._clock.now()
        return [
            group.id
            for group in self._engine.groups.values()
            if now - (self._engine.last_slot(group.id) or now) > 3 * interval_of(group) + timedelta(seconds=5)
        ]

    def _tick(self, group: RuleGroup) -> None:
        lock = self._busy[group.id]
        if not lock.acquire(blocking=False):
            self._count("overlap", group.id)
            return
        try:
            now = self._clock.now()
            slot = slot_at(group, now)
            last = self._engine.last_slot(group.id)
            if last is not None and last - interval_of(group) < slot <= last:
                return  # a restart within the slot; a slot much earlier means that the clock went back
            if last is not None:
                self._catch_up(group, last, slot)
            self._engine.tick(group.id, slot)
        finally:
            lock.release()

    def _catch_up(self, group: RuleGroup, last: datetime, slot: datetime) -> None:
        """Evaluate the slots that passed while nobody did, as far back as is of use, and count the others."""
        missed = missed_between(group, last, slot)
        slots = slots_between(group, last, slot, MOST_CAUGHT_UP)
        done = self._engine.catch_up(group.id, slots) if slots else 0
        if missed > done:
            self._engine.events.tell(
                slot,
                Kind.MISSED,
                group.id,
                f"{missed - done} slots passed without an evaluation",
                missed=str(missed - done),
            )

    def _pulse_of(self, name: str, verb: Callable[[datetime], None]) -> None:
        try:
            with self._passes[name]:
                verb(self._clock.now())
        except EngineError as error:
            self._count("error", name)
            _log.warning("job_failed", job=name, error=str(error))

    def _heard(self, event: JobExecutionEvent | JobSubmissionEvent) -> None:
        if event.code == EVENT_JOB_MAX_INSTANCES:
            if event.job_id not in self._pulses:  # these are slow when the other side is; nothing is lost
                self._count("overlap", event.job_id)
        elif event.code == EVENT_JOB_MISSED:
            self._count("missed", event.job_id)
        else:
            self._count("error", event.job_id)
            traceback = getattr(event, "traceback", "")
            _log.error("job_failed", job=event.job_id, error=repr(event.exception), traceback=traceback)

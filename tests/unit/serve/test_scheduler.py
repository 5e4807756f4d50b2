"""Every group is evaluated for its own slots, never twice at once, and what is missed is counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest

from engine.clock import SystemClock, VirtualClock
from engine.errors import StoreError
from engine.flow.engine import Engine
from engine.flow.events import Events
from engine.flow.slots import slot_at
from engine.model.duration import Duration
from engine.model.event import Event, Kind
from engine.model.rule import RuleGroup
from engine.serve.scheduler import Scheduler
from engine.store.memory import MemoryStore

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)  # an interval at which nothing happens by itself while a test runs
PATIENCE = 20  # seconds, after which a test has failed


def a_group(name: str = "g", interval: timedelta = HOUR) -> RuleGroup:
    return RuleGroup(name=name, file="f", interval=Duration.of(interval))


@dataclass
class FakeEngine:
    """An engine that notes what it is asked to do."""

    groups: dict[str, RuleGroup]
    ticks: list[tuple[str, datetime, bool]] = field(default_factory=list)
    told: list[Event] = field(default_factory=list)
    slots: dict[str, datetime] = field(default_factory=dict)
    rounds: dict[str, list[datetime]] = field(default_factory=lambda: {"flush": [], "heal": []})
    caught_up: list[Sequence[datetime]] = field(default_factory=list)
    catches_up: int | None = None  # how many slots it can catch up with; None: all
    before_tick: Callable[[], object] = lambda: None
    before_round: Callable[[], object] = lambda: None
    flush_error: Exception | None = None
    halted: bool = False

    def __post_init__(self) -> None:
        self.events = Events(MemoryStore(), [self.told.append])
        self.happened = threading.Condition()

    def tick(self, group_id: str, slot: datetime, *, late: bool = False) -> None:
        with self.happened:
            self.ticks.append((group_id, slot, late))
            self.happened.notify_all()
        self.before_tick()
        self.slots[group_id] = slot

    def catch_up(self, group_id: str, slots: Sequence[datetime]) -> int:
        self.caught_up.append(slots)
        return len(slots) if self.catches_up is None else self.catches_up

    def last_slot(self, group_id: str) -> datetime | None:
        return self.slots.get(group_id)

    def halt(self) -> None:
        self.halted = True

    def flush(self, at: datetime) -> None:
        self._round("flush", at)
        if self.flush_error is not None:
            raise self.flush_error

    def heal(self, at: datetime) -> None:
        self._round("heal", at)

    def _round(self, verb: str, at: datetime) -> None:
        with self.happened:
            self.rounds[verb].append(at)
            self.happened.notify_all()
        self.before_round()

    def wait_for(self, holds: Callable[[], bool]) -> None:
        with self.happened:
            assert self.happened.wait_for(holds, timeout=PATIENCE), "it did not come"


@dataclass
class Desk:
    """A scheduler, the engine it drives, its clock, and what it counted."""

    engine: FakeEngine
    clock: VirtualClock
    scheduler: Scheduler
    counted: list[tuple[str, str]]
    heard: threading.Condition

    def tick(self, group: RuleGroup) -> None:
        """Wake the engine up, as the schedule would."""
        self.scheduler._tick(group)

    def wait_until_counted(self, *wanted: tuple[str, str]) -> None:
        with self.heard:
            assert self.heard.wait_for(lambda: set(wanted) <= set(self.counted), timeout=PATIENCE), (
                self.counted
            )


def a_desk(*groups: RuleGroup, pulse: timedelta = HOUR) -> Desk:
    engine = FakeEngine({group.id: group for group in groups})
    clock, counted, heard = VirtualClock(NOW), list[tuple[str, str]](), threading.Condition()

    def count(event: str, job: str) -> None:
        with heard:
            counted.append((event, job))
            heard.notify_all()

    scheduler = Scheduler(cast(Engine, engine), clock, pulse=pulse, count=count)
    return Desk(engine, clock, scheduler, counted, heard)


@contextmanager
def started(desk: Desk) -> Iterator[Desk]:
    desk.scheduler.start()
    try:
        yield desk
    finally:
        desk.scheduler.stop()


def test_every_group_is_evaluated_at_once_for_its_latest_past_slot() -> None:
    one, other = a_group("one"), a_group("other", timedelta(hours=2))
    with started(a_desk(one, other)) as desk:
        desk.engine.wait_for(lambda: len(desk.engine.ticks) == 2)
    assert sorted(desk.engine.ticks) == [(group.id, slot_at(group, NOW), False) for group in (one, other)], (
        "and stopping waits for what is under way"
    )
    assert all(slot <= NOW for _, slot, _ in desk.engine.ticks)


def test_a_group_is_evaluated_again_at_its_own_slots() -> None:
    group = a_group(interval=timedelta(milliseconds=200))
    desk = a_desk(group)

    def pass_time() -> None:
        desk.clock.sleep(timedelta(milliseconds=200))

    desk.engine.before_tick = pass_time
    with started(desk):
        desk.engine.wait_for(lambda: len(desk.engine.ticks) >= 3)
    slots = [slot for _, slot, _ in desk.engine.ticks]
    assert [later - earlier for earlier, later in pairwise(slots)] == [timedelta(milliseconds=200)] * (
        len(slots) - 1
    )
    assert desk.engine.told == [], "none was missed"


def test_notifying_and_healing_go_on_at_the_pulse_and_by_the_clock() -> None:
    desk = a_desk(a_group(), pulse=timedelta(milliseconds=50))
    with started(desk):
        rounds = desk.engine.rounds
        desk.engine.wait_for(lambda: len(rounds["flush"]) > 1 and len(rounds["heal"]) > 1)
    assert {*rounds["flush"], *rounds["heal"]} == {NOW}


def test_a_group_never_overlaps_itself_and_that_is_counted() -> None:
    group = a_group()
    desk, may_end = a_desk(group), threading.Event()
    desk.engine.before_tick = lambda: may_end.wait(PATIENCE)
    first = threading.Thread(target=desk.tick, args=[group])
    first.start()
    desk.engine.wait_for(lambda: len(desk.engine.ticks) == 1)
    desk.tick(group)
    assert len(desk.engine.ticks) == 1
    assert desk.counted == [("overlap", group.id)]
    may_end.set()
    first.join(PATIENCE)
    desk.clock.sleep(HOUR)
    desk.tick(group)
    assert len(desk.engine.ticks) == 2, "the next slot is evaluated as ever"


def test_a_slow_group_does_not_hold_up_another_nor_the_telling() -> None:
    slow, quick = a_group("slow"), a_group("quick")
    desk, may_end = a_desk(slow, quick, pulse=timedelta(milliseconds=50)), threading.Event()

    def hold() -> None:
        if desk.engine.ticks[-1][0] == slow.id:
            may_end.wait(PATIENCE)

    desk.engine.before_tick = hold
    with started(desk):
        desk.engine.wait_for(
            lambda: (
                {id_ for id_, _, _ in desk.engine.ticks} == {slow.id, quick.id}
                and bool(desk.engine.rounds["flush"])
                and bool(desk.engine.rounds["heal"])
            )
        )
        may_end.set()


TEN = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("intervals", "can", "caught_up", "missed"),
    [
        (1, None, 0, 0),
        (2, None, 1, 0),
        (5, None, 4, 0),
        (5, 1, 4, 3),  # Prometheus went away meanwhile
        (5, 0, 4, 4),
        (7, None, 6, 0),
        (20, None, 6, 13),  # nobody needs what is more than an hour old
    ],
)
def test_slots_that_passed_are_caught_up_with_and_the_others_counted(
    intervals: int, can: int | None, caught_up: int, missed: int
) -> None:
    group = a_group(interval=TEN)
    desk = a_desk(group)
    slot = slot_at(group, NOW)
    desk.engine.slots[group.id] = slot - intervals * TEN
    desk.engine.catches_up = can
    desk.tick(group)
    expected = [slot - back * TEN for back in range(caught_up, 0, -1)]
    assert [slots for slots in desk.engine.caught_up if slots] == ([expected] if expected else []), (
        "oldest first"
    )
    assert desk.engine.ticks == [(group.id, slot, False)], "and then the newest, which is not late"
    assert [(event.kind, event.subject, event.data) for event in desk.engine.told] == (
        [(Kind.MISSED, group.id, {"missed": str(missed)})] if missed else []
    )


def test_a_restart_within_a_slot_does_not_evaluate_it_again() -> None:
    group = a_group()
    desk = a_desk(group)
    desk.engine.slots[group.id] = slot_at(group, NOW)
    desk.tick(group)
    assert desk.engine.ticks == []


def test_a_wake_up_that_comes_early_evaluates_nothing_twice() -> None:
    group = a_group()
    desk = a_desk(group)
    desk.tick(group)
    desk.clock.sleep(timedelta(seconds=1))
    desk.tick(group)
    assert len(desk.engine.ticks) == 1


def test_after_the_clock_went_back_groups_are_evaluated_for_what_it_says_now() -> None:
    group = a_group()
    desk = a_desk(group)
    desk.engine.slots[group.id] = slot_at(group, NOW) + 5 * HOUR
    desk.tick(group)
    assert desk.engine.ticks == [(group.id, slot_at(group, NOW), False)]
    assert desk.engine.told == []


def test_groups_are_woken_at_their_slots_and_not_beside_them() -> None:
    group = a_group()
    with started(a_desk(group)) as desk:
        desk.engine.wait_for(lambda: len(desk.engine.ticks) == 1)
        job = desk.scheduler._scheduler.get_job(group.id)
        assert job.next_run_time == slot_at(group, job.next_run_time), "it is a slot"
        assert timedelta() < job.next_run_time - SystemClock().now() <= HOUR, "the next one"


def test_stopping_while_jobs_are_handed_out_breaks_nothing() -> None:
    for _ in range(20):
        with started(a_desk(*[a_group(str(number)) for number in range(30)])):
            pass


def test_an_evaluation_that_raises_is_counted_and_the_next_takes_place() -> None:
    group = a_group(interval=timedelta(milliseconds=200))
    desk = a_desk(group)

    def fail() -> None:
        raise RuntimeError("a fault")

    desk.engine.before_tick = fail
    with started(desk):
        desk.wait_until_counted(("error", group.id))
        desk.engine.before_tick = lambda: None
        count = len(desk.engine.ticks)
        desk.engine.wait_for(lambda: len(desk.engine.ticks) > count or bool(desk.engine.slots))
    assert desk.engine.slots


@pytest.mark.parametrize("error", [StoreError("disk full"), RuntimeError("a fault")])
def test_a_round_of_telling_that_raises_is_counted_logged_and_goes_on(
    error: Exception, logs: list[MutableMapping[str, Any]]
) -> None:
    desk = a_desk(a_group(), pulse=timedelta(milliseconds=50))
    desk.engine.flush_error = error
    with started(desk):
        desk.wait_until_counted(("error", "flush"))
        count = len(desk.engine.rounds["flush"])
        desk.engine.wait_for(lambda: len(desk.engine.rounds["flush"]) > count + 1)
    assert desk.engine.rounds["heal"], "and healing is not affected"
    entry = next(entry for entry in logs if entry["event"] == "job_failed")
    assert entry["job"] == "flush"
    assert str(error) in entry["error"]


def test_a_group_is_overdue_after_three_intervals() -> None:
    group = a_group()
    desk = a_desk(group)
    assert desk.scheduler.overdue() == [], "nobody knows yet"
    for ago, overdue in ((3 * HOUR, []), (3 * HOUR + timedelta(seconds=6), [group.id])):
        desk.engine.slots[group.id] = NOW - ago
        assert desk.scheduler.overdue() == overdue


def test_it_runs_from_start_to_stop() -> None:
    desk = a_desk(a_group())
    assert not desk.scheduler.running
    with started(desk):
        assert desk.scheduler.running
        assert not desk.engine.halted
    assert not desk.scheduler.running
    assert desk.engine.halted, "what is slow is asked to end"


def test_evaluations_go_on_until_a_slow_round_of_telling_has_ended() -> None:
    group = a_group(interval=timedelta(milliseconds=100))
    desk, may_end = a_desk(group, pulse=timedelta(milliseconds=50)), threading.Event()
    desk.engine.before_tick = lambda: desk.clock.sleep(timedelta(milliseconds=100))
    desk.engine.before_round = lambda: may_end.wait(PATIENCE)
    desk.scheduler.start()
    desk.engine.wait_for(lambda: bool(desk.engine.rounds["flush"]))
    stopping = threading.Thread(target=desk.scheduler.stop)
    stopping.start()
    count = len(desk.engine.ticks)
    desk.engine.wait_for(lambda: len(desk.engine.ticks) > count + 1)
    assert desk.scheduler.running
    may_end.set()
    stopping.join(PATIENCE)
    assert not desk.scheduler.running

"""The grid on which groups are evaluated: Prometheus' way, spread by the group's name."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.flow.slots import interval_of, missed_between, offset_of, slot_at
from engine.model.duration import Duration
from engine.model.rule import RuleGroup

MINUTE = timedelta(minutes=1)
INTERVALS = st.sampled_from(["100ms", "1s", "10s", "30s", "1m", "7m", "1h", "1d"]).map(Duration.parse)
INSTANTS = st.integers(946_684_800_000, 4_102_444_800_000).map(
    lambda milliseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
)


def a_group(name: str = "g", interval: timedelta = MINUTE, file: str = "rules/a.yaml") -> RuleGroup:
    return RuleGroup(name=name, file=file, interval=Duration.of(interval))


@given(st.text(max_size=8), INTERVALS, INSTANTS)
def test_a_slot_is_the_newest_on_the_grid_that_is_not_later(
    name: str, interval: Duration, now: datetime
) -> None:
    group = a_group(name, interval)
    slot = slot_at(group, now)
    assert slot <= now < slot + interval
    assert slot_at(group, slot) == slot
    assert slot_at(group, slot - timedelta(microseconds=1)) == slot - interval
    assert slot_at(group, slot + interval) == slot + interval


@given(st.text(max_size=8), INTERVALS, INSTANTS, INSTANTS)
def test_all_slots_lie_on_one_grid(name: str, interval: Duration, one: datetime, other: datetime) -> None:
    group = a_group(name, interval)
    assert (slot_at(group, one) - slot_at(group, other)) % interval == timedelta()


def test_the_offset_is_the_same_after_every_restart_and_release() -> None:
    assert offset_of(a_group()) == timedelta(seconds=52.437)
    assert slot_at(a_group(), datetime(2026, 1, 1, 12, tzinfo=UTC)) == datetime(
        2026, 1, 1, 11, 59, 52, 437_000, UTC
    )


def test_groups_of_one_name_in_two_files_have_grids_of_their_own() -> None:
    assert offset_of(a_group(file="a")) != offset_of(a_group(file="b"))
    assert offset_of(a_group("a")) != offset_of(a_group("b"))


def test_groups_are_spread_over_the_interval() -> None:
    offsets = [offset_of(a_group(f"group {number}")) for number in range(600)]
    assert all(timedelta() <= offset < MINUTE for offset in offsets)
    by_second = Counter(offset // timedelta(seconds=10) for offset in offsets)
    assert set(by_second) == set(range(6))
    assert max(by_second.values()) < 150, "a hundred in each part, give or take"


@pytest.mark.parametrize(("intervals", "missed"), [(-3, 0), (0, 0), (1, 0), (2, 1), (3, 2), (100, 99)])
def test_slots_between_two_evaluations_were_missed(intervals: int, missed: int) -> None:
    group = a_group()
    slot = slot_at(group, datetime(2026, 1, 1, tzinfo=UTC))
    assert missed_between(group, slot - intervals * interval_of(group), slot) == missed


def test_before_the_first_evaluation_nothing_was_missed() -> None:
    assert missed_between(a_group(), None, datetime(2026, 1, 1, tzinfo=UTC)) == 0


def test_the_grid_of_another_interval_is_counted_as_nearly_as_can_be() -> None:
    # A reload changed the interval: the last slot lies beside the new grid.
    group = a_group()
    slot = slot_at(group, datetime(2026, 1, 1, tzinfo=UTC))
    assert missed_between(group, slot - timedelta(seconds=70), slot) == 0
    assert missed_between(group, slot - timedelta(seconds=115), slot) == 1

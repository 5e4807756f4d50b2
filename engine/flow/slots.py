"""The grid on which a group is evaluated."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

from engine.model.rule import RuleGroup

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def interval_of(group: RuleGroup) -> timedelta:
    """Return the time between two slots of a group."""
    assert group.interval is not None
    return group.interval


def offset_of(group: RuleGroup) -> timedelta:
    """Return where within the interval a group's slots lie: spread by its name, the same after every restart."""
    digest = hashlib.sha256(group.id.encode()).digest()
    milliseconds = int(interval_of(group).total_seconds() * 1000)
    return timedelta(milliseconds=int.from_bytes(digest[:8]) % milliseconds)


def slot_at(group: RuleGroup, now: datetime) -> datetime:
    """Return the newest slot that is not later than `now`."""
    interval, offset = interval_of(group), offset_of(group)
    return _EPOCH + ((now - _EPOCH - offset) // interval) * interval + offset


def passed_at(group: RuleGroup, slot: datetime) -> timedelta:
    """Return the time since the first of all slots: the same grid after every restart, wherever its slots lie."""
    return (slot - _EPOCH) // interval_of(group) * interval_of(group)


def missed_between(group: RuleGroup, last: datetime | None, slot: datetime) -> int:
    """Return how many slots lie between the last evaluation and this one."""
    if last is None or slot <= last:
        return 0
    return max(0, round((slot - last) / interval_of(group)) - 1)

"""A real Prometheus and the engine tell the same story, but for what is said here.

What the story is, and how both are made to tell it, is in `same_story`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from engine.model.labels import Labels
from tests.integration.same_story import (
    RESEND_DELAY,
    SECONDS_BEFORE,
    SPANNING,
    Message,
    Side,
    State,
    Story,
    told_by_both,
)


@pytest.fixture(scope="module")
def story(prometheus_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return told_by_both(prometheus_bin, tmp_path_factory.mktemp("story"))


# ── States ───────────────────────────────────────────────────────────────────


def names(states: Iterable[State]) -> set[str]:
    return {labels["alertname"] for labels, _ in states}


def without(states: Iterable[State], names: Iterable[str]) -> set[State]:
    return {state for state in states if state[0]["alertname"] not in names}


def only(states: Iterable[State], name: str) -> set[State]:
    return {state for state in states if state[0]["alertname"] == name}


def test_until_the_restart_the_same_alerts_are_in_the_same_state_at_every_evaluation(story: Story) -> None:
    theirs, ours = story.theirs.states[0], story.ours.states[0]
    assert len(ours) > 2 * SECONDS_BEFORE
    for slot, states in ours.items():
        # Of a rule that fails Prometheus writes no samples; what became of its alerts shows at the next evaluation.
        failing = story.ours.failing[slot]
        assert theirs.get(slot, set()) == without(states, failing)


def test_a_rule_that_cannot_be_evaluated_leaves_its_alerts_as_they_are(story: Story) -> None:
    for name in ("Broken", "Same"):
        pairs = list(pairwise(story.slots[0]["story"]))
        failing = [(before, slot) for before, slot in pairs if name in story.ours.failing[slot]]
        assert len(failing) >= 3
        for before, slot in failing:
            found = only(story.ours.states[0][slot], name)
            assert [state for _, state in found] == ["firing"]
            assert found == only(story.ours.states[0][before], name)


def test_more_alerts_than_the_limit_are_all_forgotten(story: Story) -> None:
    slots = [slot for slot, failing in story.ours.failing.items() if "Limited" in failing]
    assert slots
    for slot in slots:
        assert not only(story.ours.states[0][slot], "Limited")


def test_the_story_has_everything_in_it(story: Story) -> None:
    told = {
        (labels["alertname"], state) for states in story.theirs.states[0].values() for labels, state in states
    }
    assert {("Short", "pending"), ("For", "pending"), ("For", "firing"), ("Long", "pending")} <= told
    assert ("Short", "firing") not in told
    assert {name for name, state in told if state == "firing"} == {
        "For", "Keep", "KeepLong", "Flap", "Templates", "Two", "Broken", "Same", "Limited",
    }  # fmt: skip
    severities = {labels["severity"] for labels, _ in states_named(story.theirs, "Templates")}
    assert severities == {"warning", "critical"}


def states_named(side: Side, name: str) -> list[State]:
    return [state for part in side.states for states in part.values() for state in only(states, name)]


def test_prometheus_writes_alerts_only_from_the_third_evaluation_after_a_restart_on(story: Story) -> None:
    """It restores what it knew after the second; the engine goes on with what the store remembers at the first."""
    for slots in story.slots[1].values():
        for slot in slots[:2]:
            assert story.theirs.states[1].get(slot, set()) == set()
    first = story.ours.states[1][story.slots[1]["story"][0]]
    assert {(labels["alertname"], state) for labels, state in first} == {
        ("For", "firing"),
        ("KeepLong", "firing"),
        ("Long", "pending"),
    }


def test_from_then_on_they_agree_but_for_what_prometheus_forgot(story: Story) -> None:
    for slots in story.slots[1].values():
        for slot in slots[2:]:
            states, failing = story.ours.states[1][slot], story.ours.failing[slot]
            expected = without(states, failing | {"KeepLong", "Long"})
            assert without(story.theirs.states[1].get(slot, set()), {"Long"}) == expected


def test_prometheus_forgets_an_alert_that_was_only_kept_firing(story: Story) -> None:
    """It restores alerts whose condition holds, so `keep_firing_for` ends with a restart; the engine's goes on."""
    assert not any(only(states, "KeepLong") for states in story.theirs.states[1].values())
    ours = [only(story.ours.states[1][slot], "KeepLong") for slot in story.slots[1]["story"]]
    assert all(state == "firing" for states in ours for _, state in states)
    assert all(ours)


def test_prometheus_does_not_count_the_down_time_towards_for_and_the_engine_does(story: Story) -> None:
    """The condition held before and after; the engine takes it for having held in between."""
    active_at = min(slot for slot in story.slots[0]["story"] if only(story.ours.states[0][slot], "Long"))
    theirs, ours = (
        [
            slot
            for slot in story.slots[1]["story"]
            if "firing" in dict(only(side.states[1][slot], "Long")).values()
        ]
        for side in (story.theirs, story.ours)
    )
    assert ours[0] == min(slot for slot in story.slots[1]["story"] if slot >= active_at + 10_000)
    assert theirs[0] > ours[0]


# ── Messages ─────────────────────────────────────────────────────────────────


def by_alert(messages: Iterable[Message]) -> dict[Labels, list[Message]]:
    found: dict[Labels, list[Message]] = {}
    for message in messages:
        found.setdefault(message.labels, []).append(message)
    return found


def in_rule_order(messages: Iterable[Message]) -> list[list[Message]]:
    """Messages in runs of one rule's; within a run they come from a Go map, in any order."""
    return [sorted(run, key=str) for _, run in groupby(messages, key=lambda message: message.name)]


def test_until_the_restart_the_same_is_sent_as_often_and_in_the_same_order(story: Story) -> None:
    theirs, ours = story.theirs.messages[0], story.ours.messages[0]
    assert len(ours) > 40
    assert by_alert(ours) == by_alert(theirs)
    assert in_rule_order(ours) == in_rule_order(theirs)
    assert story.ours.kinds == story.theirs.kinds


def test_an_alert_that_resolves_is_told_at_once_and_then_again_and_again(story: Story) -> None:
    (warning,) = (
        messages
        for labels, messages in by_alert(story.ours.messages[0]).items()
        if labels["alertname"] == "Templates" and labels["severity"] == "warning"
    )
    resolved = [message for message in warning if message.ends_at == warning[-1].ends_at]
    assert len(resolved) >= 2
    assert {message.starts_at for message in warning} == {warning[0].starts_at}


def test_external_labels_lie_under_the_alerts_own(story: Story) -> None:
    for message in (*story.theirs.messages[0], *story.ours.messages[0]):
        assert message.labels["cluster"] == "demo"
        assert message.labels["tier"] == ("external" if message.name == "Limited" else "test")
        assert message.labels["room"] == ("LAB" if message.name == "Templates" else "external")


def test_after_the_restart_the_same_is_sent_of_what_began_after_it(story: Story) -> None:
    restart = instant(min(story.ours.states[1]))
    theirs, ours = (
        by_alert(m for m in side.messages[1] if m.name not in SPANNING and m.starts_at >= restart)
        for side in (story.theirs, story.ours)
    )
    assert theirs.keys() == ours.keys()
    assert {labels["alertname"] for labels in ours} == {
        "Keep",
        "Flap",
        "Templates",
        "Two",
        "Broken",
        "Same",
        "Limited",
    }
    end = instant(max(story.ours.states[1]) + 4 * int(RESEND_DELAY.total_seconds()) * 1000)
    for labels, messages in ours.items():
        told, more = theirs[labels][: len(messages)], theirs[labels][len(messages) :]
        assert told == messages
        # Prometheus went on for a moment after the last evaluation that was compared.
        assert all(message.ends_at > end or message == messages[-1] for message in more)


def instant(slot: int) -> str:
    return (
        datetime.fromtimestamp(slot / 1000, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    )


def test_the_engine_tells_again_what_resolved_before_the_restart(story: Story) -> None:
    """Prometheus has forgotten it. An Alertmanager that missed it hears of it from the engine."""
    restart = instant(min(story.ours.states[1]))
    again = {m for m in story.ours.messages[1] if m.ends_at < restart}
    assert {m.name for m in again} >= {"Keep", "Flap", "Templates", "Two"}
    assert again <= set(story.ours.messages[0])
    assert not [m for m in story.theirs.messages[1] if m.ends_at < restart]


def test_the_engine_remembers_since_when_an_alert_fires_and_prometheus_begins_anew(story: Story) -> None:
    before, theirs, ours = (
        [message for message in part if message.name == "For"]
        for part in (story.ours.messages[0], story.theirs.messages[1], story.ours.messages[1])
    )
    since = before[-1].starts_at
    still = [message for message in ours if message.starts_at == since]
    anew = [message for message in theirs if message.starts_at == theirs[0].starts_at]
    assert anew[0].starts_at == instant(story.slots[1]["story"][2])
    assert still[-1].ends_at == anew[-1].ends_at, "both tell the same end"

"""A test group is lived through as the engine and promtool would."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from engine.lab.story import Story, last_question
from tests.unit.lab.lives import FIRES_AT_3M, HOT, MINUTE, loaded, story_of


def states(story: Story, name: str = "Hot") -> str:
    """One sign an evaluation: `.` nothing, p pending, F firing, r resolved."""
    return "".join(
        "".join(alert.state.value[0].replace("f", "F") for alert in moment.alerts if alert.name == name)
        or "."
        for moment in story.moments
    )


def minutes(story: Story) -> list[float]:
    return [(moment.at - story.start) / MINUTE for moment in story.moments]


def asks(until: str, **more: str) -> str:
    """A test whose only question is at `until`."""
    text = FIRES_AT_3M + f"alert_rule_test: [{{eval_time: {until}, alertname: Hot}}]\n"
    for old, new in more.items():
        text = text.replace({"values": '"20 60x9"', "interval": "interval: 1m"}[old], new)
    return text


def test_a_test_runs_from_its_start_to_its_last_question() -> None:
    story = story_of(HOT, asks("4m30s"))
    assert minutes(story) == [0, 1, 2, 3, 4]
    assert states(story) == ".ppFF"


def test_a_moment_is_the_newest_evaluation_that_is_not_later() -> None:
    story = story_of(HOT, asks("4m"))
    for after, expected in (("0:00", 0), ("2:59", 2), ("3:00", 3), ("9:00", 4)):
        minute, _, seconds = after.partition(":")
        moment = story.at(timedelta(minutes=int(minute), seconds=int(seconds)))
        assert moment is story.moments[expected]


def test_each_group_runs_at_its_own_interval() -> None:
    slow = HOT[HOT.index("  - name: g") :].replace("name: g", "name: slow").replace("Hot", "Slow")
    rules = HOT.replace("interval: 1m", "interval: 30s") + slow.replace("interval: 1m", "interval: 2m")
    story = story_of(rules, asks("6m"))
    assert minutes(story) == [half / 2 for half in range(13)]
    # Hot from the first minute on, and two minutes of `for`.
    assert states(story) == "..ppppFFFFFFF"
    slots = {moment.at for moment in story.moments for alert in moment.alerts if alert.name == "Slow"}
    assert min(slots) == story.start + 2 * MINUTE
    (slow_alert,) = [alert for alert in story.moments[-1].alerts if alert.name == "Slow"]
    assert (slow_alert.active_at, slow_alert.fired_at) == (story.start + 2 * MINUTE, story.start + 4 * MINUTE)


def test_in_promtools_way_every_group_runs_at_the_files_interval() -> None:
    rules = HOT.replace("interval: 1m", "interval: 10m")
    assert states(story_of(rules, asks("3m"), own_intervals=False)) == ".ppF"
    assert states(story_of(rules, asks("3m"), own_intervals=True)) == "."


def test_samples_and_evaluations_have_intervals_of_their_own() -> None:
    story = story_of(HOT, asks("6m", interval="interval: 3m"), own_intervals=False)
    assert minutes(story) == [0, 1, 2, 3, 4, 5, 6]
    assert states(story) == "...ppFF"


def test_the_start_of_a_test_is_its_own() -> None:
    story = story_of(HOT, "start_timestamp: 2026-01-01T20:40:00Z\n" + asks("3m"))
    assert story.start == datetime.fromisoformat("2026-01-01T20:40:00Z")
    assert states(story) == ".ppF"


RECORDING = """
groups:
  - name: g
    interval: 1m
    rules:
      - {record: "room:temperature:max", expr: max by (room) (temperature), labels: {kind: max}}
      - {alert: Hot, expr: "room:temperature:max > 50"}
      - {record: copy, expr: later}
      - {record: later, expr: vector(time())}
"""


def test_recording_rules_feed_the_later_rules_of_their_group() -> None:
    story = story_of(RECORDING, asks("3m"))
    assert states(story) == ".FFF"
    (alert,) = story.moments[-1].alerts
    assert alert.labels == {"alertname": "Hot", "room": "a", "kind": "max"}
    end = story.moments[-1].at
    assert story.source.instant("copy", end).values[0, 0] == end.timestamp() - 60, (
        "an earlier rule reads the last one"
    )


@pytest.mark.parametrize("name", ["ALERTS", "ALERTS_FOR_STATE"])
def test_alerts_are_series_too_and_end_with_the_alert(name: str) -> None:
    read = f"promql_expr_test: [{{expr: {name}, eval_time: 6m}}]\n"
    story = story_of(HOT, asks("6m", values='"20 60x3 20x9"') + read)
    assert states(story) == ".ppFFrr"
    found = [len(story.source.instant(name, moment.at)) for moment in story.moments]
    assert found == [0, 1, 1, 1, 1, 0, 0]


SIGNAL = """
interval: 1m
input_signal:
  - {labels: {room: a}, values: "1x3 _ 1x3"}
  - {labels: {room: b}, values: "_x2 1x9"}
alert_rule_test: [{eval_time: 6m, alertname: Hot}]
"""


def test_an_input_signal_stands_for_what_expr_returns() -> None:
    story = story_of(HOT.replace("for: 2m", "for: 0s"), SIGNAL)
    firing = [
        "".join(sorted(alert.labels["room"] for alert in moment.alerts if alert.firing))
        for moment in story.moments
    ]
    assert firing == ["a", "a", "ab", "ab", "b", "ab", "ab"]


def test_a_signal_that_is_asked_between_its_samples_gives_the_newest_and_nothing_old() -> None:
    rules = HOT.replace("for: 2m", "for: 0s").replace("interval: 1m", "interval: 20s")
    test = SIGNAL.replace("1x3 _ 1x3", "1x1 _x9").replace("6m", "4m").replace('"_x2 1x9"', '"_x9"')
    assert states(story_of(rules, test)) == "FFFFFF" + "r" * 7


def test_a_rule_that_fails_is_noted_at_the_moment_it_does() -> None:
    rules = HOT.replace("temperature > 50", "temperature * on (room) humidity")
    test = FIRES_AT_3M.replace(
        "}]",
        "}, {series: 'humidity{room=\"a\", n=\"1\"}', values: '1x9'}, {series: 'humidity{room=\"a\", n=\"2\"}', values: '_ 1x9'}]",
    )
    story = story_of(rules, test + "alert_rule_test: [{eval_time: 2m, alertname: Hot}]")
    assert [bool(moment.errors) for moment in story.moments] == [False, True, True]


def test_never_alone_asks_to_the_end_of_the_series() -> None:
    test = FIRES_AT_3M + "never: [Hot]\n"
    (group,) = loaded(HOT, test).tests[0].tests
    assert last_question(group, MINUTE) == 10 * MINUTE
    assert minutes(story_of(HOT, test))[-1] == 10


def test_without_rules_there_is_one_moment_without_alerts() -> None:
    story = story_of("groups: []", "promql_expr_test: [{expr: time(), eval_time: 2m, exp_samples: []}]")
    assert len(story.moments) == 1
    assert story.at(2 * MINUTE).alerts == ()

"""What the engine asks for when a detector looks back."""

from datetime import timedelta

from tests.flow.play import STEP, Play

RULES = """
groups:
  - name: g
    interval: 10s
    rules:
      - record: twice
        expr: m * 2
      - alert: A
        expr: m
        detect: {forecast: {bound: 100, lookback: 20m, step: 10s, horizon: 10m}}
      - alert: B
        expr: twice
        detect: {forecast: {bound: 200, lookback: 20m, step: 10s, horizon: 10m}}
"""


class Counted:
    """Notes how many instants each range had."""

    def __init__(self, source):
        self.source, self.points = source, []

    def instant(self, expr, at):
        return self.source.instant(expr, at)

    def range(self, expr, start, end, step):
        self.points.append((expr, (end - start) // step + 1))
        return self.source.range(expr, start, end, step)


def test_a_history_is_fetched_once_and_then_its_end():
    counted = []

    def wrap(source):
        counted.append(Counted(source))
        return counted[-1]

    play = Play(RULES, {"m": "0+0.3x500"}, wrap=wrap)
    play.at += timedelta(minutes=20)
    states = play.states(220)
    assert states.startswith(".")
    assert "F" in states
    (source,) = counted
    assert {expr for expr, _ in source.points} == {"m"}  # what rules record is worked out here
    points = [count for _, count in source.points]
    assert points[0] == 121
    assert set(points[1:]) == {31}
    assert timedelta(minutes=5) // STEP == 30


def test_a_restart_fetches_it_whole():
    counted = []

    def wrap(source):
        counted.append(Counted(source))
        return counted[-1]

    play = Play(RULES, {"m": "0+0.2x400"}, wrap=wrap)
    play.states(2)
    play.restart()
    play.states(2)
    assert [count for _, count in counted[0].points] == [121, 31, 121, 31]


def test_slots_that_passed_are_caught_up_with_from_what_is_kept():
    counted = []

    def wrap(source):
        counted.append(Counted(source))
        return counted[-1]

    play = Play(RULES.replace("step: 10s", "step: 20s"), {"m": "0+0.2x400"}, wrap=wrap)
    play.states(2)
    slots = [play.at + number * STEP for number in range(20)]
    assert play.engine.catch_up("rules.yaml;g", slots) == 20
    points = [count for expr, count in counted[0].points if expr == "m"]
    assert points[0] == 61
    assert set(points[1:]) == {15, 16}, "five minutes, and the step that has passed at every second slot"

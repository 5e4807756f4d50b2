"""Detectors within the engine that `engine run` builds: alerts of alerts, of series that are gone, of groups."""

from datetime import timedelta
from typing import ClassVar

import numpy as np
import pytest

from engine.flow.build import Loaded, build
from engine.lab.tester import Bench, run_test
from engine.load.rules import read_rules
from engine.load.settings import load_settings, read_settings
from engine.model.labels import Labels
from engine.model.series import Window
from engine.store.memory import MemoryStore
from tests.flow.play import T0, Play

COMPOSITE = """
groups:
  - name: g
    interval: 10s
    rules:
      - {alert: Latency, expr: latency > 5, for: 20s}
      - {alert: NodeLost, expr: lost > 0}
      - alert: A
        expr: latency
        detect: {composite: {when: Latency unless NodeLost, on: [cluster]}}
"""


def test_a_composite_follows_the_alerts_that_it_is_made_of():
    play = Play(
        COMPOSITE,
        {'latency{cluster="a"}': "1x2 9x8 1x4", 'lost{cluster="a"}': "0x6 1x1 0x10"},
    )
    assert play.states(15) == ".....FFrrFFFrrr"


def test_a_composite_is_told_apart_by_its_labels():
    play = Play(
        COMPOSITE, {'latency{cluster="a"}': "9x9", 'latency{cluster="b"}': "9x9", 'lost{cluster="b"}': "1x9"}
    )
    play.states(6)
    assert [alert.labels["cluster"] for alert in play.engine.alerts() if alert.name == "A"] == ["a"]


ABSENT = """
groups:
  - name: g
    interval: 10s
    rules:
      - alert: A
        expr: up
        detect: {absent: {after: 20s, forget: 1m, lookback: 1m, step: 10s}}
"""


def test_a_series_that_is_gone_fires_until_it_is_forgotten_or_comes_back():
    assert Play(ABSENT, {'up{i="1"}': "1x3 stale _x20", 'up{i="2"}': "1x30"}).states(12) == "......FFFFrr"
    assert Play(ABSENT, {'up{i="1"}': "1x3 stale _x3 1x9"}).states(10) == "......FFrr"


def test_it_fires_too_when_nothing_at_all_is_left_and_after_a_restart():
    play = Play(ABSENT, {'up{i="1"}': "1x3 stale _x20"})
    assert play.states(7) == "......F"
    play.restart()
    assert play.states(4) == "FFFr"


OUTLIER = """
groups:
  - name: g
    interval: 5m
    rules:
      - alert: A
        expr: latency
        detect: {outlier: {by: [cluster]}}
        labels: {severity: "{{ if $labels.instance }}warning{{ else }}critical{{ end }}"}
"""


class Fleet:
    """A source of twenty nodes, of which some are slow from noon on."""

    def __init__(self, slow: int) -> None:
        self.noise = np.random.default_rng(1).normal(0, 0.05, (20, 1000))
        self.slow = slow

    def range(self, expr, start, end, step):
        index = np.arange((end - start) // step + 1) + round((start - T0) / timedelta(minutes=5)) + 300
        logs = self.noise[:, index]
        logs[: self.slow, index > 600] += 1.0
        labels = [Labels(cluster="c", instance=f"n{node:02}") for node in range(20)]
        return Window.of(labels, [(start + i * step).timestamp() for i in range(len(index))], np.exp(logs))

    def instant(self, expr, at):
        return self.range(expr, at, at, timedelta(minutes=5))


def alerts_of(slow):
    problems = []
    settings = read_settings("e.yaml", b"route: {receiver: r}\nreceivers: [{name: r}]\n", problems)
    groups = read_rules("r.yaml", OUTLIER.encode(), problems).groups
    assert problems == []
    engine = build(
        Loaded(settings=settings, groups=groups, playbooks={}), source=Fleet(slow), store=MemoryStore()
    )
    found = []
    for slot in range(296, 306):
        engine.tick(groups[0].id, T0 + slot * timedelta(minutes=5))
        found.append(sorted(str(alert.labels.without("alertname", "cluster")) for alert in engine.alerts()))
    return found


def test_a_slow_node_is_an_alert_of_its_own():
    assert alerts_of(1) == [[]] * 5 + [['{instance="n00", severity="warning"}']] * 5


def test_a_common_event_is_one_alert_and_not_one_for_each_node():
    assert alerts_of(9) == [[]] * 5 + [['{severity="critical"}']] * 5


def outlier_test(kind):
    """A rule file whose test has ten nodes, of which one is slow from hour ten on."""
    nodes = []
    for node in range(10):
        slow = ", {step: {at: 10h, by: 3}}" if node == 7 else ""
        labels = f"cluster: c, instance: n{node}" if kind == "input_signal" else ""
        key = f"labels: {{{labels}}}" if labels else f'series: \'latency{{cluster="c", instance="n{node}"}}\''
        nodes.append(
            f"      - {{{key}, generate: [{{constant: {5 + node}}}, {{noise: {{sd: 0.2, seed: {node}}}}}{slow}], until: 11h}}"
        )
    series = "\n".join(nodes)
    return f"""{OUTLIER}
tests:
  - interval: 5m
    {kind}:
{series}
    never: [{{alertname: A, labels: {{instance: n6}}}}]
    timeline: [{{alertname: A, labels: {{instance: n7}}, firing: [10h..]}}]
"""


@pytest.mark.parametrize("kind", ["input_signal", "input_series"])
def test_a_rule_about_peers_is_tested_like_any_other(kind):
    problems = []
    (file,) = read_rules("r.yaml", outlier_test(kind).encode(), problems).tests
    assert problems == []
    bench = Bench(
        groups=file.groups,
        settings=load_settings(None),
        playbooks={},
        interval=timedelta(minutes=5),
        own_intervals=True,
    )
    assert run_test(file.tests[0], bench).failures == ()


SEASONAL = """
groups:
  - name: g
    interval: 15m
    rules:
      - alert: A
        expr: load
        detect: {seasonal: {seasons: [1d], history: 5d, direction: down}}
"""
DAYS = 7


def test_a_season_is_learned_from_the_history_and_what_is_unlike_it_fires():
    """What is learned counts from the second evaluation on, and survives a restart."""

    class Load:
        """Follows the day; on the last one it is gone for two hours."""

        asked: ClassVar[list[timedelta]] = []

        def range(self, expr, start, end, step):
            self.asked.append(end - start)
            times = np.arange(start.timestamp(), end.timestamp() + 0.001, step.total_seconds())
            noise = np.sin(times * 7.1) + np.cos(times * 3.3)
            values = 100 + 40 * np.sin(2 * np.pi * times / 86_400) + noise
            begin = T0.timestamp() + DAYS * 86_400
            values = np.where((times >= begin) & (times < begin + 7200), 0.2 * values, values)
            return Window.of([Labels(__name__="load", service="s")], times, values[None])

    source, store = Load(), MemoryStore()
    settings = read_settings("engine.yaml", b"", [])
    problems = []
    groups = read_rules("rules.yaml", SEASONAL.encode(), problems).groups
    assert problems == []

    def engine():
        return build(Loaded(settings=settings, groups=groups, playbooks={}), source=source, store=store)

    def bad(it, steps):
        found = []
        for step in steps:
            it.tick(groups[0].id, T0 + timedelta(days=DAYS - 1, minutes=15 * step))
            status = next(iter(it.status.values()))
            assert status.error == ""
            found += [step] if any(alert.firing for alert in status.alerts) else []
        return found, next(iter(it.status.values())).quality["fitted"]

    first = engine()
    assert bad(first, [0]) == ([], 0.0)
    assert bad(first, [1]) == ([], 1.0)
    assert source.asked.count(timedelta(days=5)) == 1
    found, fitted = bad(engine(), range(2, 120))
    assert (found, fitted) == (list(range(97, 106)), 1.0)
    assert source.asked.count(timedelta(days=5)) == 2  # again after a day, not after the restart


LEAKS = """
groups:
  - name: g
    interval: 10s
    rules:
      - alert: A
        expr: memory
        detect: {leak: {load: work, lookback: 24m, step: 15s, bound: 1e3}}
"""


def test_a_leak_is_told_from_growth_that_comes_of_the_work_whose_history_it_asks_for():
    play = Play(
        LEAKS,
        {
            'memory{pod="leaky"}': "100+1x400",
            'memory{pod="busy"}': "100+1x400",
            'work{pod="leaky"}': "40 44 38 42x100 41x300",
            'work{pod="busy"}': "40+0.4x400",
        },
    )
    play.states(160)
    firing = [alert for alert in play.engine.alerts() if alert.name == "A"]
    assert [alert.labels["pod"] for alert in firing] == ["leaky"]
    assert firing[0].details["slope_per_hour"] == pytest.approx(360, rel=0.01)
    play.restart()
    assert play.states(1) == "F"


FORECAST = """
groups:
  - name: g
    interval: 10s
    rules:
      - alert: A
        expr: held
        detect: {forecast: {bound: 100, lookback: 5m, step: 10s, horizon: 5m}}
"""


def test_an_episode_of_a_forecast_goes_on_over_restarts_and_ends_in_its_own_time():
    """From 40 on it fills at 9 a minute, for five minutes; then it stands still."""
    held = {"held": "40x10 40+1.5x30 85x60"}
    straight = Play(FORECAST, held).states(90)
    assert "F" in straight[20:40], straight
    assert straight.endswith("r"), straight
    assert straight.count(".F") == 1, "one episode"
    play = Play(FORECAST, held)
    restarted = ""
    for _ in range(9):  # every 100 s, in the middle of whatever is going on
        restarted += play.states(10)
        play.restart()
    assert restarted == straight

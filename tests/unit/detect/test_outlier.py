"""Nodes of a fleet whose truth is known."""

import math

import numpy as np
import pytest

from engine.detect.outlier import Direction, Outlier, Scale
from engine.errors import DetectError
from engine.lang.promql.rewrite import over_step
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING

NAN = math.nan
NOW = 1_800_000_000.0
STEP = 300.0
SIZE = 289
ALL = Outlier(by=())


def fleet(nodes=20, *, seed=1, sd=0.05):
    """Latencies of a day: a daily course that all share, levels of their own, noise."""
    rng = np.random.default_rng(seed)
    course = 0.4 * np.sin(2 * np.pi * np.arange(SIZE) / 288)
    return np.exp(rng.normal(0, 0.3, (nodes, 1)) + course + rng.normal(0, sd, (nodes, SIZE)))


def labels_of(nodes, **more):
    return [Labels(instance=f"n{index}", **more) for index in range(nodes)]


def judge(values, example=ALL, *, labels=None, at=NOW, memory=NOTHING):
    times = at + STEP * np.arange(1 - values.shape[1], 1)
    signal = Window.of(labels or labels_of(len(values)), times, values)
    return example.judge(signal, {}, instant_of(at), memory)


def bad(verdicts):
    return [
        each.get("instance", "group")
        for each, is_bad in zip(verdicts.labels, verdicts.bad, strict=True)
        if is_bad
    ]


def test_a_slow_node_is_bad_and_nobody_else_is():
    values = fleet()
    values[7, -1] *= 1.5
    verdicts = judge(values)
    assert bad(verdicts) == ["n7"]
    assert verdicts.known.all()
    details = verdicts.details_of(7)
    assert details["expected"] == pytest.approx(values[7, -1] / 1.5, rel=0.1)
    assert details["low"] < details["expected"] < details["high"] < values[7, -1]
    assert details["score"] > 4.5
    assert details["share"] == pytest.approx(1 / 20)
    assert details["members"] == 20
    assert verdicts.values[7] == values[7, -1]


def test_what_all_do_is_no_outlier_however_large():
    values = fleet()
    values[:, -30:] *= 4
    assert bad(judge(values)) == []


def test_what_many_do_is_one_alert_of_the_group():
    values = fleet()
    values[:8, -1] *= 2  # 40 %
    verdicts = judge(values, labels=labels_of(20, cluster="c"), example=Outlier(by=("cluster",)))
    assert verdicts.labels[-1] == Labels(cluster="c")
    assert verdicts.bad.tolist() == [False] * 20 + [True]
    assert not verdicts.known[:20].any()  # alerts of members stay as they are
    assert verdicts.details_of(20)["share"] == pytest.approx(0.4)
    assert verdicts.details_of(20)["members"] == 20
    assert verdicts.values[20] == pytest.approx(np.median(verdicts.details["expected"][:20]))


def test_a_small_deviation_that_lasts_is_seen_where_a_single_step_of_it_is_not():
    lasting, short = fleet(sd=0.1), fleet(sd=0.1)
    lasting[3, -6:] *= 1.35
    short[3, -1] *= 1.35
    assert bad(judge(lasting)) == ["n3"]
    assert bad(judge(short)) == []


def test_what_is_over_is_over_at_once():
    values = fleet()
    values[3, -6:-1] *= 3
    assert bad(judge(values)) == []


def test_a_node_that_is_always_slow_is_like_itself():
    values = fleet()
    values[3] *= 5
    assert bad(judge(values)) == []


def test_each_group_is_held_against_itself():
    values = np.vstack([fleet(10), 1000 * fleet(10, seed=2)])
    labels = [*labels_of(10, kind="a"), *[Labels(instance=f"m{i}", kind="b") for i in range(10)]]
    values[13, -1] *= 2
    verdicts = judge(values, Outlier(by=("kind",)), labels=labels)
    assert bad(verdicts) == ["m3"]
    assert set(verdicts.labels[20:]) == {Labels(kind="a"), Labels(kind="b")}


def test_directions():
    values = fleet()
    values[3, -1] *= 2
    values[4, -1] /= 2
    assert bad(judge(values)) == ["n3"]
    assert bad(judge(values, Outlier(by=(), direction=Direction.DOWN))) == ["n4"]
    assert bad(judge(values, Outlier(by=(), direction=Direction.BOTH))) == ["n3", "n4"]


def test_values_around_zero_are_compared_by_differences():
    values = np.random.default_rng(3).normal(0, 1, (20, SIZE))
    values[5, -1] = 9.0
    verdicts = judge(values)
    assert bad(verdicts) == ["n5"]
    assert verdicts.details_of(5)["expected"] == pytest.approx(0, abs=1)
    by_ratio = judge(values, Outlier(by=(), scale=Scale.LOG))  # half of them have no logarithm
    assert not by_ratio.known[5] or by_ratio.details_of(5)["expected"] > 0


def test_below_what_anybody_cares_about_nothing_is_bad():
    values = fleet()
    values[7, -1] *= 1.5
    assert bad(judge(values, Outlier(by=(), min_dev=0.1))) == ["n7"]
    assert bad(judge(values, Outlier(by=(), min_dev=10.0))) == []


def test_too_few_peers_are_none():
    values = fleet(7)
    values[3, -1] *= 3
    verdicts = judge(values)
    assert not verdicts.known.any()
    assert len(verdicts) == 7  # there is no group either
    assert bad(judge(values, Outlier(by=(), min_members=7))) == ["n3"]


def test_a_new_member_is_not_judged_and_one_that_left_does_not_matter():
    values = fleet()
    values[2, :-20] = NAN
    values[2, -1] *= 3
    values[4, -3:] = NAN
    values[7, -1] *= 1.5
    verdicts = judge(values)
    assert not verdicts.known[2]
    assert not verdicts.known[4]
    assert bad(verdicts) == ["n7"]


def test_slow_nodes_that_die_do_not_make_the_others_slow():
    values = fleet()
    values[12:] *= 3  # eight of twenty are of a slower kind
    values[12:, -1] = NAN
    values[0, -1] *= 1.5
    verdicts = judge(values)
    assert bad(verdicts) == ["n0"]
    assert abs(np.nanmedian(verdicts.details["score"])) < 1.5


def test_a_fleet_that_stands_still_is_not_judged():
    assert not judge(np.ones((20, SIZE))).known[:20].any()


def test_an_episode_goes_on_until_it_has_been_fine_for_long_enough():
    values = fleet(sd=0.03)
    values = np.concatenate([values, values[:, 1:13]], axis=1)
    values[7, SIZE - 1 : SIZE + 3] *= 2
    memory, found = NOTHING, []
    for end in range(SIZE, SIZE + 10):
        verdicts = judge(values[:, end - SIZE : end], at=NOW + STEP * (end - SIZE), memory=memory)
        memory = verdicts.memory
        found.append(bool(verdicts.bad[7]))
    assert found == [True] * 6 + [False] * 4  # four that are bad, and the third fine one ends it


def test_what_is_bad_does_not_become_what_is_expected():
    values = fleet()
    slow = values.copy()
    slow[7, -150:] *= 2  # more than half of the day
    began = judge(np.where(np.arange(SIZE) < SIZE - 149, slow, values)[:, :SIZE], at=NOW)
    assert bad(judge(slow)) == []
    started = slow[:, : SIZE - 149]
    memory = judge(started, at=NOW - STEP * 149).memory
    assert memory.rows((Labels(instance="n7"),), "since")[0] == NOW - STEP * 149
    assert bad(judge(slow, memory=memory)) == ["n7"]
    assert bad(began) == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sensitivity": 0}, "sensitivity"),
        ({"common": 0}, "common"),
        ({"clear": 2}, "clear"),
        ({"min_members": 2}, "two are no group"),
        ({"min_dev": -1}, "min_dev"),
        ({"step": Duration()}, "step"),
        ({"lookback": Duration(hours=1)}, "13 samples; 24 are needed"),
        ({"min_samples": 3}, "min_samples"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Outlier(by=(), **wrong)


def test_time_must_rise():
    signal = Window.of(labels_of(1), [NOW, NOW], [[1.0, 2.0]])
    with pytest.raises(DetectError):
        ALL.judge(signal, {}, instant_of(NOW))


# The step that ends now, between two points of the history's grid.


def remembering(nodes=20, *, seed=1, sd=0.1, memory=0.7):
    """Logarithms whose noise remembers, a minute apart, as medians of five minutes would be."""
    shocks = np.random.default_rng(seed).normal(0, sd * np.sqrt(1 - memory**2), (nodes, SIZE + 20))
    noise = np.zeros_like(shocks)
    for index in range(1, noise.shape[1]):
        noise[:, index] = memory * noise[:, index - 1] + shocks[:, index]
    return noise


def between(logs, *, seconds, memory=NOTHING, newest=None):
    """The verdicts so long after the last point of the history, which `logs` are."""
    times = NOW + STEP * np.arange(1 - logs.shape[1], 1)
    at = NOW + seconds
    values = logs[:, -1] if newest is None else newest
    inputs = {"now": Window.of(labels_of(len(logs)), [at], np.exp(values)[:, None])}
    signal = Window.of(labels_of(len(logs)), times, np.exp(logs))
    return ALL.judge(signal, inputs, instant_of(at), memory)


def test_the_present_is_asked_for_as_the_history_is():
    assert ALL.inputs_of("latency") == {"now": over_step("latency", "median", ALL.step)}


def test_what_is_bad_now_is_bad_although_the_history_does_not_know_it_yet():
    logs = remembering()[:, :SIZE]
    newest = logs[:, -1].copy()
    assert bad(between(logs, seconds=120, newest=newest)) == []
    newest[4] += 1
    verdicts = between(logs, seconds=120, newest=newest)
    assert bad(verdicts) == ["n4"]
    assert verdicts.values[4] == pytest.approx(np.exp(newest[4]))
    newest[4] = NAN
    assert not between(logs, seconds=120, newest=newest).known[4]


def test_what_is_sudden_is_seen_where_the_step_before_is_known():
    logs = remembering()
    logs[:, SIZE - 1] = logs[:, SIZE - 2]
    logs[4, SIZE - 1] = 0.0
    history = logs[:, :SIZE]
    newest = 0.7 * history[:, -1]
    newest[4] = 0.4  # four standard deviations of the noise, and well over five of what is new in it
    assert bad(between(history, seconds=STEP, newest=newest)) == ["n4"]
    assert bad(between(history, seconds=STEP + 120, newest=newest)) == []  # the step before is not known
    memory = between(history, seconds=120).memory
    assert bad(between(history, seconds=STEP + 120, newest=newest, memory=memory)) == ["n4"]


def test_newest_samples_are_noted_for_a_little_more_than_a_step():
    logs, memory = remembering()[:, :SIZE], NOTHING
    for seconds in range(0, 900, 15):
        memory = between(logs, seconds=seconds, memory=memory).memory
    times = memory.shared["recent_at"]
    assert times[-1] > NOW + 900 - 45
    assert STEP < times[-1] - times[0] < 2 * STEP
    assert (np.diff(times) >= STEP / 10).all()
    np.testing.assert_allclose(memory.rows(tuple(labels_of(20)), "recent", 12)[:, -1], np.exp(logs[:, -1]))
    early = between(logs, seconds=-3600, memory=memory).memory  # somebody set the clock back
    assert np.nanmax(early.shared["recent_at"]) == NOW - 3600

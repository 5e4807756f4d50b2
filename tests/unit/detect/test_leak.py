"""What the leak detector says of series whose truth is known."""

import math
from itertools import pairwise

import numpy as np
import pytest

from engine.detect.leak import Leak, Preset, Seasonality
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING, Persist

NAN = math.nan
NOW = 1_800_000_000.0
HOUR = 3600.0
STEP = 300.0
POINTS = 1000  # a little more than three days
HOURS = np.arange(1 - POINTS, 1) * STEP / HOUR  # before now
N1 = Labels(instance="n1")


def noise(sd, seed=1):
    return np.random.default_rng(seed).normal(0, sd, POINTS)


def ramp(level, per_hour, *, hours):
    """Flat, and then a straight line that began so many hours ago."""
    return level + per_hour * np.maximum(HOURS + hours, 0.0)


def window(values, *, back=0, points=289):
    """One row a series as it was `back` steps ago."""
    rows = np.atleast_2d(np.asarray(values, dtype=float))
    end = rows.shape[1] - back
    part = slice(max(0, end - points), end)
    times = NOW - STEP * np.arange(rows.shape[1] - 1, -1, -1)
    return Window.of([Labels(instance=f"n{i + 1}") for i in range(len(rows))], times[part], rows[:, part])


def judge(leak, values, *, judgements=4, load=None, bound=None, memory=NOTHING):
    """The verdicts of successive judgements, half an hour apart, the last one now."""
    inputs = {} if bound is None else {"bound": bound}
    for back in range(6 * (judgements - 1), -1, -6):
        if load is not None:
            inputs["load"] = window(load, back=back)
        verdicts = leak.judge(window(values, back=back), inputs, instant_of(NOW - back * STEP), memory)
        memory = verdicts.memory
    return verdicts


LEAKS = {
    "steady": ramp(0.3, 0.02, hours=11) + noise(0.005),
    "slow": ramp(0.3, 0.005, hours=60) + noise(0.005),
    "without noise": ramp(0.3, 0.02, hours=11),
    "above a sawtooth": ramp(0.3, 0.02, hours=20) + 0.1 * (HOURS / 0.7 % 1) + noise(0.005),
    "in stairs": 0.3 + 0.02 * np.floor(np.maximum(HOURS + 12, 0)) + noise(0.002),
    "faster and faster": 0.3 + 0.01 * np.maximum(HOURS + 14, 0) ** 1.3 + noise(0.005),
    "with gaps": np.where(np.abs(HOURS + 5) < 0.7, NAN, ramp(0.3, 0.02, hours=13) + noise(0.005)),
    "with spikes": ramp(0.3, 0.02, hours=12) + np.where(np.arange(POINTS) % 37 == 0, 3.0, 0.0),
    "with wild drops": np.where(np.arange(POINTS) % 97 == 50, 0.0, ramp(0.3, 0.02, hours=12) + noise(0.005)),
    "in whole numbers": np.round(100 + 5 * np.maximum(HOURS + 12, 0) + noise(1)),
    "from nothing": ramp(0.0, 0.02, hours=12),
}
FINE = {
    "constant": np.full(POINTS, 0.5),
    "constant at zero": np.zeros(POINTS),
    "noisy": 0.5 + noise(0.05),
    "falling": ramp(0.9, -0.02, hours=20) + noise(0.005),
    "breathing daily": 0.5 + 0.15 * np.sin(2 * np.pi * HOURS / 24) + noise(0.005),
    "a sawtooth": 0.5 + 0.2 * (HOURS / 3 % 1) + noise(0.005),
    "a step": np.where(HOURS < -4, 0.3, 0.6) + noise(0.005),
    "two steps": 0.3 + 0.1 * (HOURS > -8) + 0.1 * (HOURS > -3) + noise(0.005),
    "warming up": 0.5 - 0.3 * np.exp(-np.maximum(HOURS + 9, 0) / 3) + noise(0.005),
    "a cache that has filled": np.minimum(ramp(0.3, 0.05, hours=9), 0.45) + noise(0.005),
    "too little to care": ramp(0.5, 0.0015, hours=40) + noise(0.0005),
    "coarse": np.round((0.5 + noise(0.02)) / 0.05) * 0.05,
}


@pytest.mark.parametrize("values", LEAKS.values(), ids=LEAKS.keys())
@pytest.mark.parametrize("preset", [None, Preset.STRICT])
def test_what_leaks_is_bad(values, preset):
    verdicts = judge(Leak(preset=preset), values, judgements=8)
    assert verdicts.known[0]
    assert verdicts.bad[0]


@pytest.mark.parametrize("values", FINE.values(), ids=FINE.keys())
def test_what_does_not_leak_is_fine(values):
    verdicts = judge(Leak(), values)
    assert verdicts.known[0]
    assert not verdicts.bad[0]


UNKNOWN = {
    "less than a day": np.where(HOURS < -20, NAN, ramp(0.3, 0.02, hours=15)),
    "gone": np.where(HOURS > -0.5, NAN, ramp(0.3, 0.02, hours=15)),
    "too many missing": np.where((np.arange(POINTS) % 5 < 3) & (HOURS > -23), NAN, ramp(0.3, 0.02, hours=15)),
    "nothing there": np.full(POINTS, NAN),
}


@pytest.mark.parametrize("values", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_of_too_little_nothing_is_said(values):
    verdicts = judge(Leak(), values)
    assert not verdicts.known[0]
    assert not verdicts.bad[0]


def test_the_figures_are_those_of_the_leak():
    verdicts = judge(Leak(bound=1.0), ramp(0.3, 0.02, hours=16) + noise(0.004))
    details = verdicts.details_of(0)
    assert set(details) == set(Leak.details)
    assert details["slope_per_hour"] == pytest.approx(0.02, rel=0.05)
    assert details["slope_low"] < 0.02 < details["slope_high"]
    assert details["slope_high"] - details["slope_low"] < 0.004
    assert details["since"] == pytest.approx(NOW - 16 * HOUR, abs=1.5 * HOUR)
    assert details["level"] == pytest.approx(0.61, abs=0.02)
    assert details["eta"] == pytest.approx(19.5 * HOUR, rel=0.08)
    assert 0.1 < details["growth"] < 0.35
    assert details["noise"] == pytest.approx(0.002, rel=0.8)
    assert details["p_value"] < 0.001
    assert 0.16 < details["quarter"] <= 0.25
    assert details["score"] >= 1


def test_figures_are_in_the_unit_of_the_signal():
    small = judge(Leak(), ramp(0.3, 0.02, hours=16) + noise(0.004)).details_of(0)
    large = judge(Leak(), 1e9 * (ramp(0.3, 0.02, hours=16) + noise(0.004))).details_of(0)
    for name in ("slope_per_hour", "slope_low", "slope_high", "level", "growth", "noise"):
        assert large[name] == pytest.approx(1e9 * small[name], rel=1e-6)
    for name in ("p_value", "quarter", "score", "since"):
        assert large[name] == pytest.approx(small[name], rel=1e-6)


def test_growth_that_the_load_explains_is_no_leak():
    share = np.clip((HOURS + 12) / 12, 0, 1)
    memory, work = 0.3 * (1 + share) + noise(0.004), 40 * (1 + share) + noise(2, 2)
    assert judge(Leak(), memory).bad[0]
    assert not judge(Leak(load="work"), memory, load=work).bad[0]
    idle = 40 + noise(2, 2)
    assert judge(Leak(load="work"), memory, load=idle).bad[0]
    assert judge(Leak(load="work"), memory, load=np.full(POINTS, NAN)).bad[0]


def test_the_bound_may_be_a_query_with_the_labels_of_the_signal():
    values = np.stack([ramp(0.3, 0.02, hours=16)] * 2)
    bound = Window.of([Labels(__name__="limit", instance="n2")], [NOW], [[0.5]])
    verdicts = judge(Leak(bound="limit"), values, bound=bound)
    assert "eta" not in verdicts.details_of(0)
    assert verdicts.details_of(1)["eta"] == 0  # it is beyond it
    assert verdicts.bad.all()


def test_six_hours_are_enough_where_nothing_is_seasonal():
    young = np.where(HOURS < -7.5, NAN, 0.3 + 0.02 * (HOURS + 7.5)) + noise(0.002)
    assert not judge(Leak(), young).known[0]
    assert judge(Leak(seasonality=Seasonality.NONE), young).bad[0]


def test_half_a_days_season_needs_half_a_day():
    young = np.where(HOURS < -13.5, NAN, 0.3 + 0.02 * (HOURS + 13.5)) + noise(0.002)
    assert not judge(Leak(), young).known[0]
    assert judge(Leak(seasonality=Duration(hours=12)), young).bad[0]


def test_what_a_new_process_does_first_does_not_count():
    """It loads its code for half an hour, and grows no more."""
    start = np.where(HOURS < -6.5, NAN, 0.5 + 0.3 * np.minimum(HOURS + 6, 0))
    leak = Leak(seasonality=Seasonality.NONE, preset=Preset.SENSITIVE)
    assert judge(leak, start + noise(0.001), judgements=1).known[0]
    assert judge(leak, start + noise(0.001), judgements=1).details_of(0).get("score", 0) < 1
    long = np.where(HOURS < -7, NAN, ramp(0.3, 0.02, hours=7) + noise(0.001))
    assert not judge(Leak(seasonality=Seasonality.NONE, min_age=Duration(hours=4)), long).known[0]


def test_a_slope_too_slow_to_care_about_is_fine():
    values = ramp(0.3, 0.02, hours=16) + noise(0.004)
    assert judge(Leak(min_slope_per_hour=0.015), values).bad[0]
    assert not judge(Leak(min_slope_per_hour=0.03), values).bad[0]


def test_it_is_judged_every_half_hour_and_held_in_between():
    values = ramp(0.3, 0.02, hours=16) + noise(0.004)
    leak = Leak()
    first = judge(leak, values, judgements=4)
    assert first.bad[0]
    for minutes in (1, 8, 14):
        later = leak.judge(window(values), {}, instant_of(NOW + 60 * minutes), first.memory)
        assert later.bad[0]
        assert later.known[0]
        assert later.details_of(0) == first.details_of(0)
        np.testing.assert_array_equal(later.memory.columns["scores"], first.memory.columns["scores"])
    once = judge(leak, values, judgements=1)
    hasty = once.memory
    for seconds in range(60, 1500, 60):
        verdicts = leak.judge(window(values), {}, instant_of(NOW + seconds), hasty)
        hasty = verdicts.memory
        assert not verdicts.bad[0]


def test_an_episode_ends_once_it_is_well_below_and_keeps_its_figures_until_then():
    leak = Leak()
    values = np.where(HOURS < -4, ramp(0.3, 0.02, hours=20), 0.3) + noise(0.004)
    memory = NOTHING
    bad = []
    for back in range(72, -1, -6):
        verdicts = leak.judge(window(values, back=back), {}, instant_of(NOW - back * STEP), memory)
        memory = verdicts.memory
        bad.append(bool(verdicts.bad[0]))
        if bad[-1]:
            assert verdicts.details_of(0)["slope_per_hour"] > 0.01
    assert any(bad)
    assert not bad[-1]
    assert sum(one != other for one, other in pairwise(bad)) <= 2


def test_the_beginning_of_a_leak_is_remembered_when_it_leaves_the_lookback():
    verdicts = judge(Leak(), ramp(0.3, 0.01, hours=50) + noise(0.002), judgements=75)
    assert verdicts.bad[0]
    assert verdicts.details_of(0)["since"] == pytest.approx(NOW - 50 * HOUR, abs=4 * HOUR)


def test_a_demo_of_half_an_hour_is_judged_like_a_day():
    day = Leak(bound=1.0)
    demo = Leak(bound=1.0, lookback=Duration(minutes=24), step=Duration(seconds=5))
    values = ramp(0.3, 0.02, hours=16) + noise(0.004)
    memory = NOTHING
    step = demo.step.total_seconds()
    for back in (18, 12, 6, 0):
        seen = window(values, back=back)
        shrunk = Window.of(seen.labels, NOW + (seen.times - NOW) * step / STEP, seen.values)
        verdicts = demo.judge(shrunk, {}, instant_of(NOW - back * step), memory)
        memory = verdicts.memory
    long, short = judge(day, values).details_of(0), verdicts.details_of(0)
    assert verdicts.bad[0]
    assert short["slope_per_hour"] == pytest.approx(60 * long["slope_per_hour"], rel=1e-3)
    assert short["eta"] == pytest.approx(long["eta"] / 60, rel=1e-3)
    assert NOW - short["since"] == pytest.approx((NOW - long["since"]) / 60, rel=1e-2)


def test_a_rule_that_acts_is_strict_unless_it_says_otherwise():
    assert Leak().before_acting().preset is Preset.STRICT
    assert Leak(preset=Preset.SENSITIVE).before_acting().preset is Preset.SENSITIVE


def test_it_asks_for_the_history_of_the_load_and_for_the_bound():
    assert Leak(bound="limit", load="work").inputs == {"bound": "limit"}
    assert Leak(bound="limit", load="work").histories == {"load": "work"}
    assert Leak(bound=3).inputs == {}
    assert Leak(bound=3).histories == {}


WRONG = {
    "lookback must be longer": {"lookback": Duration()},
    "step must be longer": {"step": Duration()},
    "too short for 24 blocks": {"lookback": Duration(hours=7)},
    "seasonality 1h must be between 6h and lookback 1d": {"seasonality": Duration(hours=1)},
    "seasonality 1w must be between": {"seasonality": Duration(days=7)},
    "clear must be above 0": {"clear": 0.0},
    "min_slope_per_hour must be": {"min_slope_per_hour": -1.0},
    "load is empty": {"load": " "},
    "bound is empty": {"bound": ""},
    "bound must be a finite number": {"bound": math.inf},
}


@pytest.mark.parametrize(("message", "keys"), WRONG.items(), ids=WRONG.keys())
def test_what_cannot_be_is_refused_with_the_way_out(message, keys):
    with pytest.raises(ValueError, match=message):
        Leak(**keys)


def test_samples_out_of_order_are_refused():
    seen = window(LEAKS["steady"])
    with pytest.raises(DetectError, match="do not rise"):
        Leak().judge(Window(seen.labels, seen.times[::-1], seen.values, seen.present), {}, instant_of(NOW))


def test_what_is_known_is_lost_with_the_samples_and_not_before():
    first = judge(Leak(), LEAKS["steady"])
    seen = window(LEAKS["steady"])
    for minutes, known in ((14, True), (16, False)):
        verdicts = Leak().judge(seen, {}, instant_of(NOW + 60 * minutes), first.memory)
        assert verdicts.known[0] is np.bool_(known)
        assert verdicts.bad[0] is np.bool_(known)
        assert not np.isnan(verdicts.memory.columns["since"][0])


def test_persistence_is_a_matter_of_the_rule():
    values = LEAKS["steady"]
    assert judge(Leak(persist=Persist(m=1, n=1)), values, judgements=1).bad[0]
    assert not judge(Leak(), values, judgements=1).bad[0]

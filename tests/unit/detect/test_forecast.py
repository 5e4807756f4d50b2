"""What the forecast says of series whose future is known."""

import math

import numpy as np
import pytest

from engine.detect.forecast import Direction, Forecast, Urgent
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING, Persist

NAN = math.nan
NOW = 1_800_000_000.0
HOUR = 3600.0
MINUTES = np.arange(-240.0, 1.0)  # before now
N1 = Labels(instance="n1")
ONCE = Persist(m=1, n=1)


def signal(values, step=60.0, labels=None):
    """One row a series, or one series; the newest sample is now."""
    rows = np.atleast_2d(np.asarray(values, dtype=float))
    times = NOW + step * np.arange(1 - rows.shape[1], 1)
    return Window.of(labels or [Labels(instance=f"n{i + 1}") for i in range(len(rows))], times, rows)


def bound(**by_instance):
    labels = [Labels(instance=name) for name in by_instance]
    return {"bound": Window.of(labels, [NOW], [[value] for value in by_instance.values()])}


def judge(forecast, values, inputs=None, **how):
    return forecast.judge(signal(values, **how), inputs or {}, instant_of(NOW))


def noise(sd, *, seed=1, size=241):
    return np.random.default_rng(seed).normal(0, sd, size)


def ramp(level, per_hour, *, minutes=MINUTES):
    """A straight line that is at `level` now."""
    return level + per_hour * minutes / 60


SHARE = Forecast(persist=ONCE, bound=1.0)


def test_a_steady_fill_is_bad_with_the_time_that_is_left():
    verdicts = judge(SHARE, ramp(0.7, 0.15) + noise(0.01))
    details = verdicts.details_of(0)
    assert verdicts.known[0]
    assert verdicts.bad[0]
    assert details["eta"] == pytest.approx(2 * HOUR, rel=0.1)
    assert details["eta_earliest"] < details["eta"] < details["eta_latest"]
    assert details["slope_per_hour"] == pytest.approx(0.15, rel=0.1)
    assert details["level"] == pytest.approx(0.7, abs=0.02)
    assert details["bound"] == 1
    assert details["probability"] > 0.8
    assert set(details) == set(Forecast.details) - {"coverage_achieved", "scored"}, "nothing was scored yet"
    assert details["probability_never"] < 0.01


FINE = {
    "constant": np.full(241, 0.6),
    "constant at zero": np.zeros(241),
    "noisy": 0.6 + noise(0.05),
    "noisy near the bound": 0.93 + noise(0.005),
    "falling": ramp(0.5, -0.1) + noise(0.005),
    "far away": ramp(0.3, 0.05) + noise(0.005),
    "quantised": np.round((0.6 + noise(0.03)) / 0.05) * 0.05,
    "wandering": 0.5 + np.cumsum(noise(0.002)),
    "stepped once": np.where(MINUTES < -100, 0.2, 0.6) + noise(0.003),
    "one wild sample": np.where(MINUTES == -30, 50.0, 0.5),
    "one wild sample now": np.where(MINUTES == 0, 50.0, 0.5),
    "one unspeakable sample": np.where(MINUTES == -30, 1e300, 0.5),
    "below where it was cleaned up": np.where(MINUTES < -120, ramp(1.4, 0.25), ramp(0.75, 0.2))
    + noise(0.003),
    "full and cleaned up": np.where(MINUTES < -100, ramp(1.3, 0.2), 0.2) + noise(0.003),
}


@pytest.mark.parametrize("values", FINE.values(), ids=FINE.keys())
def test_what_does_not_fill_is_fine(values):
    verdicts = judge(SHARE, values)
    assert verdicts.known[0]
    assert not verdicts.bad[0]


BAD = {
    "quantised": np.round(ramp(0.75, 0.15) / 0.05) * 0.05,
    "gappy": np.where(np.arange(241) % 5 < 2, NAN, ramp(0.75, 0.15)),
    "noisy": ramp(0.8, 0.15) + noise(0.04),
    "spiked": ramp(0.75, 0.15) + np.where(np.arange(241) % 20 == 0, 3.0, 0),
    "in steps": 0.3 + 0.1 * np.floor((MINUTES + 240) / 45),
    "flat, then filling": np.maximum(0.2, ramp(0.75, 0.35)) + noise(0.003),
    "past where it was cleaned up": np.where(MINUTES < -120, ramp(1.0, 0.2), ramp(0.75, 0.2)) + noise(0.003),
    "reached": np.full(241, 1.0),
    "reached and receding": ramp(1.1, -0.05),
}


@pytest.mark.parametrize("values", BAD.values(), ids=BAD.keys())
def test_what_fills_is_bad(values):
    verdicts = judge(SHARE, values)
    assert verdicts.known[0]
    assert verdicts.bad[0]


UNKNOWN = {
    "too little since the start": np.where(MINUTES < -40, NAN, ramp(0.8, 0.3)),
    "too little since the clean-up": np.where(MINUTES < -40, ramp(1.2, 0.2), ramp(0.3, 0.3)),
    "too many missing": np.where(np.arange(241) % 2, NAN, ramp(0.75, 0.15)),
    "gone": np.where(MINUTES > -30, NAN, ramp(0.9, 0.15)),
    "nothing there": np.full(241, NAN),
}


@pytest.mark.parametrize("values", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_of_too_little_nothing_is_said(values):
    verdicts = judge(SHARE, values)
    assert not verdicts.known[0]
    assert not verdicts.bad[0]
    assert verdicts.details_of(0) == {}


def test_a_bound_that_is_reached_needs_three_samples_only():
    verdicts = judge(SHARE, np.where(MINUTES < -2, NAN, 1.2))
    assert verdicts.known[0]
    assert verdicts.bad[0]
    assert verdicts.details_of(0)["eta"] == 0
    assert verdicts.details_of(0)["probability"] == 1


def test_the_value_is_the_newest_sample_even_if_the_last_scrape_is_missing():
    assert judge(SHARE, [0.1, 0.2, NAN]).values[0] == 0.2


def test_time_that_may_never_come_is_left_out():
    details = judge(SHARE, 0.5 + noise(0.02)).details_of(0)
    assert "eta_latest" not in details
    assert details["level"] == pytest.approx(0.5, abs=0.02)


# Directions, horizons, scales.


def test_downwards_is_the_mirror_of_upwards():
    free = ramp(0.3, -0.15) + noise(0.01)
    up = judge(SHARE, 1 - free)
    down = judge(Forecast(persist=ONCE, bound=0.0, direction=Direction.DOWN), free)
    assert down.bad[0]
    assert up.bad[0]
    assert down.details_of(0)["eta"] == pytest.approx(up.details_of(0)["eta"], rel=1e-6)
    assert down.details_of(0)["slope_per_hour"] == pytest.approx(-up.details_of(0)["slope_per_hour"])
    assert down.details_of(0)["level"] == pytest.approx(1 - up.details_of(0)["level"])


def test_the_urgent_horizon_needs_less_certainty():
    """Half an hour before the end of a noisy fill: likely by even odds, not yet at 99 %."""
    values = ramp(0.95, 0.12) + noise(0.04)
    strict = Forecast(persist=ONCE, bound=1.0, horizon=Duration(hours=1), probability=0.999)
    assert judge(strict, values).details_of(0)["probability"] < 0.999
    calm = Urgent(horizon=Duration(minutes=5), probability=0.99)
    assert not judge(
        Forecast(persist=ONCE, bound=1.0, horizon=Duration(hours=1), probability=0.999, urgent=calm), values
    ).bad[0]
    soon = Urgent(horizon=Duration(minutes=50), probability=0.5)
    assert judge(
        Forecast(persist=ONCE, bound=1.0, horizon=Duration(hours=1), probability=0.999, urgent=soon), values
    ).bad[0]


@pytest.mark.parametrize("unit", [1e300, 1e9, 1e-9, 1e-300])
def test_the_unit_of_the_signal_does_not_matter(unit):
    values = ramp(0.7, 0.15) + noise(0.01)
    plain, other = judge(SHARE, values), judge(Forecast(persist=ONCE, bound=unit), values * unit)
    assert other.bad[0]
    assert other.details_of(0)["eta"] == pytest.approx(plain.details_of(0)["eta"], rel=1e-6)
    assert other.details_of(0)["slope_per_hour"] / unit == pytest.approx(0.15, rel=0.1)


def test_the_length_of_the_lookback_does_not_matter():
    minute = Duration(minutes=1)
    quick = Forecast(
        persist=ONCE, bound=1.0, lookback=minute, step=Duration(milliseconds=250), horizon=minute
    )
    values = ramp(0.7, 0.15) + noise(0.01)
    slow, fast = judge(SHARE, values), judge(quick, values, step=0.25)
    assert fast.details_of(0)["eta"] == pytest.approx(slow.details_of(0)["eta"] / 240, rel=1e-6)
    assert fast.details_of(0)["probability"] == pytest.approx(slow.details_of(0)["probability"])


# A minute at two seconds: a store of 100 MB that takes objects of 5 MB.

STORE = Forecast(
    bound="capacity",
    lookback=Duration(seconds=60),
    step=Duration(seconds=2),
    horizon=Duration(seconds=60),
    persist=ONCE,
)
CAPACITY = {"bound": Window.of([Labels()], [NOW], [[100e6]])}


def puts(mb_per_second, samples):
    """Bytes held, two seconds after the first put and on."""
    return np.floor(2e6 * mb_per_second * np.arange(1, samples + 1) / 5e6) * 5e6


@pytest.mark.parametrize("before", [0, 20], ids=["new", "idle before"])
@pytest.mark.parametrize("mb_per_second", [2.5, 4, 5])
@pytest.mark.parametrize("samples", [10, 12, 15])
def test_a_store_that_fills_is_seen_within_a_dozen_samples(samples, mb_per_second, before):
    values = np.concatenate([np.zeros(before), puts(mb_per_second, samples)])[-31:]
    verdicts = judge(STORE, values, CAPACITY, step=2.0)
    left = max((100e6 - values[-1]) / (mb_per_second * 1e6), 0)
    assert verdicts.bad[0]
    assert abs(verdicts.details_of(0)["eta"] - left) <= max(0.5 * left, 5)


@pytest.mark.parametrize("samples", [10, 15, 31])
def test_a_store_that_fills_slowly_is_fine_for_now(samples):
    verdicts = judge(STORE, puts(0.5, samples), CAPACITY, step=2.0)
    assert verdicts.known[0]
    assert not verdicts.bad[0]


QUIET = {
    "jittery": 30e6 + 1e6 * np.random.default_rng(1).normal(size=(500, 31)),
    "an object more or less": 30e6 + 5e6 * np.random.default_rng(2).integers(0, 2, (500, 31)),
    "wandering": 30e6 + np.cumsum(5e5 * np.random.default_rng(3).normal(size=(500, 31)), axis=1),
    "nearly full": 90e6 + 1e6 * np.random.default_rng(4).normal(size=(500, 31)),
    "just started": 30e6 + 1e6 * np.random.default_rng(5).normal(size=(500, 9)),
}


@pytest.mark.parametrize("values", QUIET.values(), ids=QUIET.keys())
def test_a_quiet_store_stays_fine(values):
    verdicts = judge(STORE, values, CAPACITY, step=2.0)
    assert verdicts.known.all()
    assert np.mean(verdicts.bad) <= 0.004


# Bounds.

BY_QUERY = Forecast(persist=ONCE, bound="limit")
FILLING = np.tile(ramp(0.7, 0.15), (3, 1))


def test_a_bound_belongs_to_the_series_with_its_labels():
    verdicts = judge(BY_QUERY, FILLING, bound(n3=10, n1=1, n9=1))
    assert verdicts.known.tolist() == [True, False, True]
    assert verdicts.bad.tolist() == [True, False, False]
    assert [verdicts.details_of(i).get("bound") for i in range(3)] == [1, None, 10]


def test_the_metrics_name_is_no_part_of_the_match():
    labels = [Labels(__name__="used", instance="n1")]
    capacity = {"bound": Window.of([Labels(__name__="capacity", instance="n1")], [NOW], [[1.0]])}
    assert judge(BY_QUERY, ramp(0.7, 0.15), capacity, labels=labels).bad[0]


def test_two_bounds_for_one_series_are_none():
    limits = Window.of(
        [Labels(__name__="soft", instance="n1"), Labels(__name__="hard", instance="n1")],
        [NOW],
        [[1.0], [2.0]],
    )
    assert not judge(BY_QUERY, ramp(0.7, 0.15), {"bound": limits}).known[0]


def test_one_bound_without_labels_is_for_all():
    verdicts = judge(BY_QUERY, FILLING, {"bound": Window.of([Labels()], [NOW], [[1.0]])})
    assert verdicts.bad.tolist() == [True, True, True]


@pytest.mark.parametrize(
    "inputs", [{}, bound(), bound(n1=NAN)], ids=["no answer", "empty answer", "not a number"]
)
def test_without_a_bound_nothing_is_said(inputs):
    verdicts = judge(BY_QUERY, ramp(0.7, 0.15), inputs)
    assert not verdicts.known[0]
    assert not verdicts.bad[0]


@pytest.mark.parametrize(("limit", "bad"), [(math.inf, False), (-math.inf, True)])
def test_an_infinite_bound_is_never_or_always_reached(limit, bad):
    verdicts = judge(BY_QUERY, ramp(0.7, 0.15), bound(n1=limit))
    assert verdicts.known[0]
    assert verdicts.bad[0] == bad


def test_only_a_query_is_asked_for():
    assert Forecast(persist=ONCE, bound="limit").inputs == {"bound": "limit"}
    assert Forecast(persist=ONCE, bound=3).inputs == {}


def test_times_that_do_not_rise_are_refused():
    window = signal([0.1, 0.2, 0.3])
    backwards = Window(window.labels, window.times[::-1], window.values, window.present)
    with pytest.raises(DetectError, match="times of the signal do not rise"):
        SHARE.judge(backwards, {}, instant_of(NOW))


# What a rule's author may write.

WRONG = [
    ({"bound": ""}, "bound is empty; write a number, or PromQL"),
    ({"bound": math.nan}, "bound must be a finite number or PromQL, not nan"),
    ({"bound": 1, "probability": 1.0}, "probability must be between 0 and 1, both excluded, not 1"),
    ({"bound": 1, "coverage": 90}, "coverage must be between 0 and 1, both excluded, not 90"),
    ({"bound": 1, "urgent": Urgent(probability=0)}, "urgent.probability must be between 0 and 1"),
    ({"bound": 1, "urgent": Urgent(horizon=Duration())}, "urgent.horizon must be longer than 0s"),
    (
        {"bound": 1, "horizon": Duration(minutes=30), "urgent": Urgent(horizon=Duration(hours=1))},
        "urgent.horizon 1h is beyond horizon 30m",
    ),
    ({"bound": 1, "horizon": Duration()}, "horizon must be longer than 0s"),
    ({"bound": 1, "step": Duration()}, "step must be longer than 0s"),
    (
        {"bound": 1, "lookback": Duration(minutes=5)},
        "lookback 5m at step 1m holds 6 samples, too few to see a trend; lengthen lookback to 8m",
    ),
    ({"bound": 1, "min_samples": 500}, "min_samples must be between 3 and the 241 samples"),
    ({"bound": 1, "min_samples": 1}, "min_samples must be between 3 and the 241 samples"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_nonsense_is_refused_in_words(fields, message):
    with pytest.raises(ValueError) as caught:
        Forecast(**fields)
    assert message in str(caught.value)


def test_the_shortest_lookback_that_the_message_offers_is_taken():
    assert Forecast(persist=ONCE, bound=1, lookback=Duration(minutes=8)).min_samples is None


def test_fewer_samples_are_enough_if_the_rule_says_so():
    values = np.where(MINUTES < -30, NAN, ramp(0.8, 0.3))
    assert not judge(SHARE, values).known[0]
    assert judge(Forecast(persist=ONCE, bound=1.0, min_samples=20), values).known[0]


# Over successive evaluations.


AS_SHIPPED = Forecast(bound=1.0)


def follow(values, *, every=15, start=240):
    """Return the verdicts on one series, judged every so many minutes on the last four hours."""
    memory, found = NOTHING, []
    for stop in range(start, len(values) + 1, every):
        at = NOW + 60 * stop
        window = Window.of([N1], at + 60 * np.arange(-239, 1), [values[stop - 240 : stop]])
        verdicts = AS_SHIPPED.judge(window, {}, instant_of(at), memory)
        memory = verdicts.memory
        found.append(verdicts)
    return found


LONG = np.arange(24 * 60.0)


def cleaned(top, period=180.0):
    """Filled up to `top` and cleaned up, again and again."""
    return 0.2 + (top - 0.2) * ((LONG % period) / period) + noise(0.003, size=len(LONG))


def test_an_alert_takes_two_bad_judgements_of_three_and_goes_on_for_a_while():
    values = np.concatenate([ramp(0.7, 0.12, minutes=np.arange(-240.0, 60)), np.full(300, 0.82)])
    bad = [bool(verdicts.bad[0]) for verdicts in follow(values + noise(0.003, size=len(values)))]
    assert not bad[0]
    assert bad[1]
    assert True not in bad[bad.index(False, 2) :], "one episode"
    assert 0 < bad.index(False, 2) < len(bad) - 1


def test_judged_every_minute_it_votes_no_more_often():
    values = ramp(0.6, 0.15, minutes=np.arange(-240.0, 20)) + noise(0.003, size=260)
    bad = [bool(verdicts.bad[0]) for verdicts in follow(values, every=1)]
    assert bad.index(True) in (14, 15), "the second judgement comes after a sixteenth of the lookback"


def test_a_bound_that_is_reached_waits_for_no_second_judgement():
    assert follow(np.full(240, 1.0))[0].bad[0]


def test_what_is_always_cleaned_up_in_time_is_fine_from_the_second_time_on():
    values = cleaned(0.85)
    assert not any(verdicts.bad[0] for verdicts in follow(values)[8:])
    first = values[: 179 + 1]
    before = np.concatenate([np.full(61, 0.2), first])  # the same, when nothing was ever cleaned up
    assert judge(SHARE, before).bad[0]


def test_past_where_it_was_always_cleaned_up_it_is_bad():
    values = cleaned(0.7)
    values[-120:] = 0.62 + 0.15 / 60 * np.arange(120) + noise(0.003, size=120)
    bad = [bool(verdicts.bad[0]) for verdicts in follow(values)]
    assert bad[-1]


def test_what_filled_to_its_end_once_is_not_taken_for_cleaned_up():
    values = cleaned(0.99)
    values[:360] = cleaned(0.7)[:360]
    bad = [bool(verdicts.bad[0]) for verdicts in follow(values)]
    assert bad[(1080 + 175 - 240) // 15], "in the last minutes of a later cycle"
    memory = follow(values)[-1].memory
    assert np.isnan(memory.columns["peak"][0])


def test_a_clean_up_of_long_ago_is_forgotten():
    memory = follow(cleaned(0.85))[-1].memory
    week = NOW + 86_400 + 43 * 4 * 3600
    window = Window.of([N1], week + 60 * np.arange(-239, 1), [np.full(240, 0.3)])
    later = AS_SHIPPED.judge(window, {}, instant_of(week), memory)
    assert np.isnan(later.memory.columns["peak"][0])


def test_where_slopes_turned_out_to_be_wrong_it_is_less_sure():
    steady = ramp(0.55, 0.1, minutes=np.arange(-480.0, 0)) + noise(0.003, size=480)
    wavering = steady + 0.06 * np.sin(2 * np.pi * np.arange(480) / 150)
    sure, unsure = follow(steady)[-1].details_of(0), follow(wavering)[-1].details_of(0)
    width = lambda details: details.get("eta_latest", np.inf) / details["eta_earliest"]  # noqa: E731
    assert width(unsure) > 1.3 * width(sure)


def test_forecasts_are_scored_when_the_level_they_expected_is_passed():
    values = ramp(0.1, 0.035, minutes=LONG) + noise(0.002, size=len(LONG))
    last = follow(values)[-1]
    assert last.quality["forecast_scored"] > 20
    assert last.quality["forecast_coverage"] > 0.8
    assert abs(last.quality["forecast_bias"]) < 0.1
    details = last.details_of(0)
    assert details["scored"] == last.quality["forecast_scored"]
    assert details["coverage_achieved"] == last.quality["forecast_coverage"]
    assert follow(values[:240])[0].quality == {}


def test_another_bound_is_learned_anew():
    memory = follow(cleaned(0.85))[-1].memory
    assert memory.columns["peak"][0] == pytest.approx(0.85, abs=0.02)
    window = Window.of([N1], NOW + 90_000 + 60 * np.arange(-239, 1), [np.full(240, 0.3)])
    later = Forecast(bound=2.0).judge(window, {}, instant_of(NOW + 90_000), memory)
    assert np.isnan(later.memory.columns["peak"][0])
    assert np.isnan(later.memory.columns["line_drawn"][0]).sum() == 7

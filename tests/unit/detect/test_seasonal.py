"""Days and weeks of made-up series: what is expected, what is bad, and what nothing is said of."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from engine.detect.seasonal import Direction, Seasonal
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window
from engine.model.verdict import NOTHING, Memory, Persist
from engine.store.arrays import pack, unpack

START = datetime(2026, 2, 2, tzinfo=UTC)  # a Monday
DAY = 86_400.0
ONE_DAY = Seasonal(seasons=(Duration(days=1),))
TWO_SEASONS = Seasonal(history=Duration(days=28))


def grid(days):
    return START.timestamp() + 900.0 * np.arange(96 * days + 1)


def window(times, values, series=1):
    values = np.asarray(values)
    values = values if values.ndim == 2 else np.tile(values, (series, 1))
    return Window.of([Labels(i=str(i)) for i in range(len(values))], times, values)


def day(times):
    return 10 + 3 * np.sin(2 * np.pi * times / DAY)


def noise(times, seed=1, sd=0.2):
    return np.random.default_rng(seed).normal(0, sd, len(times))


def instant(days):
    return START + timedelta(days=days)


def fitted(model, signal, days):
    return model.fit(signal.until(instant(days)), instant(days))


def judged(model, signal, days, memory):
    return model.judge(signal, {}, instant(days), memory)


def test_the_course_of_a_day_is_learned_and_expected():
    times = grid(16)
    signal = window(times, day(times) + noise(times))
    memory = fitted(ONE_DAY, signal, 14)
    errors = []
    for hour in range(48):
        verdicts = judged(ONE_DAY, signal, 14 + hour / 24, memory)
        memory = verdicts.memory
        details = verdicts.details_of(0)
        errors.append(details["expected"] - day(instant(14 + hour / 24).timestamp()))
        assert details["low"] < details["expected"] < details["high"]
        assert details["score"] == pytest.approx(
            (verdicts.values[0] - details["expected"]) / memory.columns["scale"][0, hour * 4 % 96]
        )
    assert np.std(errors) < 0.15
    assert details["strength"] > 0.95
    assert 0.2 < np.median(memory.columns["scale"]) < 0.35


def test_the_course_of_a_week_is_found_where_the_history_holds_four():
    times = grid(36)
    weekend = np.where((times - START.timestamp()) % (7 * DAY) >= 5 * DAY, 0.3, 1.0)
    signal = window(times, day(times) * weekend + noise(times))
    memory = fitted(TWO_SEASONS, signal, 28)
    plain = fitted(ONE_DAY, signal, 28)
    assert np.median(memory.columns["scale"]) < 0.5 * np.median(plain.columns["scale"])
    for days in (28.5, 29.5, 33.4, 34.6):
        expected = judged(TWO_SEASONS, signal, days, memory).details_of(0)["expected"]
        at = times.searchsorted(instant(days).timestamp())
        assert expected == pytest.approx(day(times[at]) * weekend[at], abs=1.2)


def test_where_there_is_no_season_none_is_found():
    times = grid(15)
    memory = fitted(ONE_DAY, window(times, 10 + noise(times)), 14)
    assert memory.columns["strength"].tolist() == [0.0]
    assert not memory.columns["profile"].any()
    assert memory.columns["scale"].tolist() == [[pytest.approx(0.2, rel=0.3)] * 96]


def test_a_trend_goes_on():
    times = grid(16)
    signal = window(times, day(times) + (times - times[0]) / DAY + noise(times))
    memory = fitted(ONE_DAY, signal, 14)
    assert memory.columns["slope"][0] * 96 == pytest.approx(1.0, rel=0.1)
    expected = judged(ONE_DAY, signal, 15.25, memory).details_of(0)["expected"]
    assert expected == pytest.approx(13 + 15.25, abs=0.3)


def episode(model, change, direction=None, hours=8.0):
    """Return when it is bad, in steps, of a change that lasts two hours from the start of day 15 on."""
    times = grid(17)
    values = day(times) + noise(times)
    values[96 * 15 : 96 * 15 + 8] += change
    signal = window(times, values)
    memory = fitted(model, signal, 14)
    bad = []
    for step in range(-96, int(hours * 4)):
        verdicts = judged(model, signal, 15 + step / 96, memory)
        memory = verdicts.memory
        assert verdicts.known.all()
        bad += [step] if verdicts.bad[0] else []
    return bad


def test_what_is_unusual_is_bad_until_it_is_as_usual_again():
    bad = episode(ONE_DAY, -4.0)
    assert bad[:1] == [1]  # the second of three steps
    assert bad == list(range(1, 10))  # three quiet ones end it


def test_the_direction_counts():
    up = Seasonal(seasons=(Duration(days=1),), direction=Direction.UP)
    assert episode(up, -4.0) == []
    assert episode(up, 4.0) != []


def test_below_the_least_that_matters_nothing_is_bad():
    assert episode(ONE_DAY, 2.0)
    assert not episode(Seasonal(seasons=(Duration(days=1),), min_dev=3.0), 2.0)
    assert not episode(Seasonal(seasons=(Duration(days=1),), min_rel_dev=0.4), 2.0)


def test_a_level_that_stays_is_expected_in_the_end_but_not_while_it_is_news():
    times = grid(19)
    signal = window(times, day(times) + noise(times) + np.where(times >= times[96 * 15], 5.0, 0.0))
    memory, bad = fitted(ONE_DAY, signal, 14), []
    for step in range(3 * 96):
        verdicts = judged(ONE_DAY, signal, 15 + step / 96, memory)
        memory = verdicts.memory
        bad.append(bool(verdicts.bad[0]))
    assert bad[1:64] == [True] * 63  # 16 hours
    assert not any(bad[2 * 96 :])


def test_asked_more_often_than_steps_pass_it_votes_once_a_step():
    times = grid(16)
    values = day(times) + noise(times)
    values[96 * 15] += 9.0  # one step alone
    signal = window(times, values)
    memory = fitted(ONE_DAY, signal, 14)
    memory = judged(ONE_DAY, signal, 15 - 1 / 96, memory).memory
    for minute in range(14):
        seen = signal.until(instant(15))
        verdicts = ONE_DAY.judge(seen, {}, instant(15) + timedelta(minutes=minute), memory)
        memory = verdicts.memory
        assert not verdicts.bad.any()


def test_bad_days_in_the_history_do_not_count():
    times = grid(15)
    values = day(times) + noise(times)
    values[96 * 6 : 96 * 7] += 20.0
    memory = fitted(ONE_DAY, window(times, values), 14)
    good = fitted(ONE_DAY, window(times, day(times) + noise(times)), 14)
    assert np.abs(memory.columns["profile"] - good.columns["profile"]).max() < 0.5
    assert np.median(memory.columns["scale"]) == pytest.approx(np.median(good.columns["scale"]), rel=0.3)


def test_a_job_that_begins_now_earlier_now_later_is_no_news_but_at_noon_it_is():
    times = grid(18)
    rng = np.random.default_rng(6)
    nights = [2 + rng.choice([-0.5, 0.0, 0.5]) for _ in range(19)]
    hours, days = (times - times[0]) / 3600 % 24, ((times - times[0]) // DAY).astype(int)
    begins = np.array(nights)[days]
    values = 10 + noise(times) + 10 * ((hours >= begins) & (hours < begins + 2))
    values[96 * 17 + 50 : 96 * 17 + 54] += 10
    signal = window(times, values)
    memory, bad = fitted(ONE_DAY, signal, 14), []
    assert memory.columns["strength"][0] > 0.5
    for step in range(4 * 96):
        verdicts = judged(ONE_DAY, signal, 14 + step / 96, memory)
        memory = verdicts.memory
        bad += [step] if verdicts.bad[0] else []
    assert bad[0] == 3 * 96 + 51
    assert all(3 * 96 + 51 <= step < 3 * 96 + 56 for step in bad)


@pytest.mark.parametrize("history", [5, 14])
def test_a_fit_in_the_middle_of_an_incident_does_not_excuse_it(history):
    times = grid(16)
    values = day(times) + noise(times)
    values[96 * 15 - 4 :] -= 8.0
    model = Seasonal(seasons=(Duration(days=1),), history=Duration(days=history))
    signal = window(times[-96 * (history + 1) - 1 :], values[-96 * (history + 1) - 1 :])
    before, within = fitted(model, signal, 15 - 4 / 96), fitted(model, signal, 15)
    assert (within.columns["scale"] / before.columns["scale"]).max() < 2
    assert abs(judged(model, signal, 15 + 1 / 96, within).details_of(0)["score"]) > 8


def test_gaps_are_filled_and_too_many_are_too_many():
    times = grid(15)
    values = day(times) + noise(times)
    values[np.random.default_rng(3).random(len(times)) < 0.2] = np.nan
    memory = fitted(ONE_DAY, window(times, values), 14)
    assert 0.15 < np.median(memory.columns["scale"]) < 0.35
    values[: 96 * 5] = np.nan
    assert np.isnan(fitted(ONE_DAY, window(times, values), 14).columns["scale"]).all()


BERLIN = ZoneInfo("Europe/Berlin")


def people(times):
    """What people do by the clock on their wall: from nine to five."""
    hours = [datetime.fromtimestamp(each, BERLIN).hour for each in times]
    return np.array([20.0 if 9 <= hour < 17 else 5.0 for hour in hours])


@pytest.mark.parametrize(("timezone", "surprised"), [("Europe/Berlin", False), ("UTC", True)])
@pytest.mark.parametrize("change", [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])
def test_when_clocks_change_the_day_moves_with_them(timezone, surprised, change):
    model = Seasonal(seasons=(Duration(days=1),), timezone=timezone)
    times = change.timestamp() + 900.0 * np.arange(-96 * 15, 96 * 3 + 1)
    signal = window(times, people(times) + noise(times))
    at = change - timedelta(hours=2)
    memory, bad = model.fit(signal.until(at), at), 0
    for step in range(96 * 2):
        verdicts = model.judge(signal, {}, at + timedelta(minutes=15 * step), memory)
        memory = verdicts.memory
        bad += int(verdicts.bad[0])
    assert (bad > 0) == surprised


def test_what_was_learned_goes_through_the_store_and_is_handed_on():
    times = grid(16)
    signal = window(times, day(times) + noise(times), series=2)
    memory = fitted(ONE_DAY, signal, 14)
    memory = Memory(memory.labels, memory.columns, {"fitted": np.array([7.0])}, memory.at)
    through = judged(ONE_DAY, signal, 15, unpack(pack(memory)))
    straight = judged(ONE_DAY, signal, 15, memory)
    assert through.details_of(1) == straight.details_of(1)
    assert through.memory.shared["fitted"].tolist() == [7.0]
    np.testing.assert_array_equal(through.memory.columns["profile"], memory.columns["profile"])


def test_nothing_is_said_before_the_first_fit_or_without_a_sample_now():
    times = grid(16)
    signal = window(times, day(times) + noise(times))
    assert not judged(ONE_DAY, signal, 15, NOTHING).known.any()
    memory = fitted(ONE_DAY, signal, 14)
    assert judged(ONE_DAY, signal, 15, memory).known.all()
    assert not judged(ONE_DAY, signal.until(instant(14.9)), 15, memory).known.any()
    assert judged(ONE_DAY, signal, 15, memory).quality == {"fitted": 1.0}


@pytest.mark.parametrize("factor", [1e-100, 1e100, -1.0])
def test_units_do_not_matter(factor):
    times = grid(15)
    values = day(times) + noise(times)
    one, other = (
        fitted(ONE_DAY, window(times, values), 14),
        fitted(ONE_DAY, window(times, factor * values), 14),
    )
    for name in ("profile", "slope"):
        np.testing.assert_allclose(other.columns[name] / factor, one.columns[name], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(other.columns["scale"] / abs(factor), one.columns["scale"], rtol=1e-6)


@pytest.mark.parametrize(
    "values", [np.zeros(1345), np.full(1345, 7.0), np.full(1345, np.nan), np.full(1345, 1e300)]
)
def test_a_fit_of_next_to_nothing_is_quiet(values):
    times = grid(14)
    memory = fitted(ONE_DAY, window(times, values), 14)
    verdicts = judged(ONE_DAY, window(times, values), 14, memory)
    assert not verdicts.bad.any()


def test_many_series_are_refused_with_the_way_out():
    times = grid(1)
    signal = window(times, np.zeros((4, len(times))))
    model = Seasonal(max_series=3)
    for ask in (lambda: model.judge(signal, {}, instant(1)), lambda: model.fit(signal, instant(1))):
        with pytest.raises(DetectError, match="4 series are more than max_series"):
            ask()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sensitivity": 0}, "sensitivity"),
        ({"min_dev": -1}, "min_dev"),
        ({"clear": 2}, "clear"),
        ({"max_series": 0}, "max_series"),
        ({"timezone": "Mars/Olympus"}, "timezone"),
        ({"step": Duration()}, "step"),
        ({"refit": Duration()}, "refit"),
        ({"lookback": Duration(hours=1)}, "eight steps"),
        ({"seasons": ()}, "empty"),
        ({"seasons": (Duration(days=2), Duration(days=3))}, "multiple"),
        ({"seasons": (Duration(hours=1),)}, "eight steps"),
        ({"history": Duration(days=3)}, "too short"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Seasonal(**fields)


def test_persistence_is_a_setting():
    assert episode(Seasonal(seasons=(Duration(days=1),), persist=Persist(m=1, n=1)), 5.0)[0] == 0

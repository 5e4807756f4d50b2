"""Series whose anomalies are known."""

import numpy as np
import pytest

from engine.detect.anomaly import Anomaly, Direction, Season
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING, Persist

NOW = 1_800_000_000.0
STEP = 300.0
DAY = 288
NOTICE = Anomaly(persist=Persist(m=1, n=1))


def daily(days=9, series=3, *, seed=1, sd=0.5):
    """A daily course between 10 and 30 with noise, a sample every five minutes."""
    rng = np.random.default_rng(seed)
    course = 20 - 10 * np.cos(2 * np.pi * np.arange(days * DAY) / DAY)
    return course + rng.normal(0, sd, (series, days * DAY))


def judge(values, example=NOTICE, *, at=NOW, memory=NOTHING):
    labels = [Labels(instance=f"n{index}") for index in range(len(values))]
    times = at + STEP * np.arange(1 - values.shape[1], 1)
    return example.judge(Window.of(labels, times, values), {}, instant_of(at), memory)


def follow(values, first, example):
    """The verdicts at each column from `first` on, each with the memory of the one before."""
    memory, found = NOTHING, []
    for column in range(first, values.shape[1]):
        at = NOW + STEP * column
        found.append(judge(values[:, : column + 1], example, at=at, memory=memory))
        memory = found[-1].memory
    return found


def test_what_is_normal_at_noon_is_not_at_night():
    """25 is within the range of every day, and was never seen at this time."""
    values = daily()  # ends at midnight
    values[1, -6:] = 25
    verdicts = judge(values)
    assert verdicts.bad.tolist() == [False, True, False]
    details = verdicts.details_of(1)
    assert details["expected"] == pytest.approx(10, abs=1)
    assert details["expected"] < details["high"] < 25
    assert "low" not in details
    assert details["score"] > 4
    assert not judge(values, Anomaly(persist=Persist(m=1, n=1), season=Season.NONE)).bad.any()


def test_direction():
    values = daily()
    values[1, -1], values[2, -1] = 20, 0
    expected = {
        Direction.UP: [False, True, False],
        Direction.DOWN: [False, False, True],
        Direction.BOTH: [False, True, True],
    }
    for direction, bad in expected.items():
        assert judge(values, Anomaly(direction=direction, persist=Persist(m=1, n=1))).bad.tolist() == bad


def test_deviations_that_nobody_cares_about():
    values = daily()
    values[:, -1] = 20  # about 10 more than expected
    for example, bad in (
        (Anomaly(min_dev=8, persist=Persist(m=1, n=1)), True),
        (Anomaly(min_dev=12, persist=Persist(m=1, n=1)), False),
        (Anomaly(min_rel_dev=0.8, persist=Persist(m=1, n=1)), True),
        (Anomaly(min_rel_dev=1.2, persist=Persist(m=1, n=1)), False),
    ):
        assert judge(values, example).bad.all() == bad


def test_a_new_series_is_held_against_what_little_it_has():
    values = np.random.default_rng(5).normal(10, 1, (2, 100))
    values[1, -1] = 60
    verdicts = judge(values)
    assert verdicts.known.all()
    assert verdicts.bad.tolist() == [False, True]


def test_nothing_is_said_with_too_little():
    values = np.random.default_rng(5).normal(10, 1, (2, 59))
    verdicts = judge(values)
    assert not verdicts.known.any()
    assert verdicts.details_of(0) == {}
    assert judge(values, Anomaly(min_samples=30)).known.all()


def test_a_step_is_an_episode_until_it_is_the_usual():
    """It begins within three steps, holds, and ends once the level has lasted for most of a day."""
    values = daily(5, 1)
    step = 4 * DAY
    values[:, step:] += 30
    verdicts = follow(values, step - 10, Anomaly())
    bad = [bool(each.bad[0]) for each in verdicts]
    assert not any(bad[:12])
    assert all(bad[13 : 13 + 16 * 12 - 6])
    assert not bad[-1]


def test_a_single_wild_step_is_no_episode():
    values = daily(5, 1)
    values[:, 4 * DAY + 20] += 200
    assert not any(each.bad[0] for each in follow(values[:, : 4 * DAY + 60], 4 * DAY, Anomaly()))


def test_what_came_back_by_itself_before_is_less_urgent():
    values = daily(9, 1)
    for day in range(5, 9):
        values[:, day * DAY - 100] = 60 + 10 * day
    scores = {}
    memory = NOTHING
    for column in range(4 * DAY, values.shape[1]):
        at = NOW + STEP * column
        found = judge(values[:, : column + 1], NOTICE, at=at, memory=memory)
        again = judge(values[:, : column + 1], NOTICE, at=at)
        memory = found.memory
        scores[column] = (found.details_of(0)["score"], again.details_of(0)["score"])
    first, last = scores[5 * DAY - 100], scores[8 * DAY - 100]
    assert first[0] == first[1]
    assert last[0] <= last[1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sensitivity": 0}, "sensitivity must be more than 0, not 0"),
        ({"clear": 2}, "clear must be a share of the sensitivity, 0 to 1, not 2"),
        ({"min_dev": -1}, "min_dev must be 0 or more, not -1"),
        ({"step": Duration()}, "step must be longer than 0s"),
        ({"lookback": Duration(hours=1)}, "lookback 1h at step 5m holds 13 samples; 60 are needed"),
        ({"min_samples": 3}, "min_samples must be between 10 and 4033, not 3"),
    ],
)
def test_keys_that_make_no_sense_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        Anomaly(**keys)


def test_a_replay_says_what_judgements_would_have_said():
    """At the steps at which it fits anew, to the last digit."""
    values = np.exp(np.random.default_rng(8).normal(0, 1, (2, 3 * DAY)))
    replayed = np.sqrt(2 * NOTICE.surprises(values))
    assert not replayed[:, :60].any()
    for column in (60, 68, 300, 332, 804):
        judged = judge(values[:, : column + 1]).details["score"]
        np.testing.assert_allclose(replayed[:, column], judged)
    assert (replayed > 3).any()


def test_a_level_within_the_range_of_a_strong_season_is_seen_once_it_lasts():
    """A tenth more than always at this time, for three hours, is outside of no range of single samples."""
    values = daily(12, series=2, sd=1.0)
    calm = judge(values).details["score"]
    values[1, -40:] += 1.9
    shifted = judge(values).details["score"]
    assert shifted[0] == calm[0]
    assert shifted[1] > calm[1] + 1.5


def test_what_no_season_explains_has_no_level_of_a_season():
    rng = np.random.default_rng(2)
    values = 20 + rng.normal(0, 1.0, (1, 12 * DAY))
    before = judge(values).details["score"][0]
    values[0, -40:-3] += 0.9
    assert judge(values).details["score"][0] == pytest.approx(before, abs=0.3)


def test_the_season_is_that_which_explains_more():
    """Five days of work and two of rest: on a Saturday, last Saturday says more than yesterday."""
    values = daily(14, series=1, sd=0.3)
    weekend = (np.arange(14 * DAY) // DAY) % 7 >= 5
    values[0, weekend] = 10 + np.random.default_rng(3).normal(0, 0.3, weekend.sum())
    noon = values[:, : 12 * DAY + 7 * DAY // 4 + DAY // 2 - DAY // 4]  # on the second Saturday
    details = judge(noon, Anomaly(persist=Persist(m=1, n=1), lookback=Duration(days=13))).details_of(0)
    assert details["expected"] == pytest.approx(10, abs=2)


def test_periods_can_be_named():
    rng = np.random.default_rng(4)
    hours = np.arange(6 * DAY)
    values = 20 - 10 * np.cos(2 * np.pi * hours / (DAY // 4)) + rng.normal(0, 0.3, (1, 6 * DAY))
    values[0, -1] = 20.0  # within the range, never at this time of six hours
    named = Anomaly(persist=Persist(m=1, n=1), season=(Duration(hours=6),))
    assert judge(values, named).bad[0]
    assert judge(values, named).details_of(0)["expected"] == pytest.approx(10, abs=1)
    with pytest.raises(ValueError, match="season"):
        Anomaly(season=(Duration(minutes=5),))
    with pytest.raises(ValueError, match="season"):
        Anomaly(season=())

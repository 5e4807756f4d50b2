"""What a load explains of what is measured."""

import numpy as np
import pytest

from engine.numeric.explained import block_means, mean, trailing_means, unexplained

NAN = np.nan
TIMES = np.arange(288.0)
RAMP = np.clip((TIMES - 150) / 100, 0, 1)


def noise(sd, seed):
    return np.random.default_rng(seed).normal(0, sd, len(TIMES))


def test_means_leave_out_what_is_missing():
    values = np.array([[1, 2, NAN, 4, NAN, NAN]])
    assert block_means(values, 3)[0, :2].tolist() == [1.5, 4]
    assert np.isnan(block_means(values, 3)[0, 2])
    assert mean(values)[0] == pytest.approx(7 / 3)
    assert trailing_means(values, 2)[0, :5].tolist() == [1, 1.5, 2, 4, 4]
    assert np.isnan(trailing_means(values, 2)[0, 5])


def test_growth_in_step_with_the_work_is_explained():
    memory, work = 0.2 + 0.3 * RAMP + noise(0.002, 1), 40 * (1 + RAMP) + noise(3, 2)
    rest = unexplained(memory[None], work[None], blocks=24)[0]
    assert memory[-50:].mean() - memory[:50].mean() == pytest.approx(0.3, abs=0.01)
    assert rest[-50:].mean() - rest[:50].mean() == pytest.approx(0.0, abs=0.04)
    assert rest[-1] == pytest.approx(memory[-1])


@pytest.mark.parametrize("seed", range(5))
def test_a_leak_stays_whatever_the_work_does(seed):
    memory, work = 0.2 + 0.001 * TIMES + noise(0.002, seed), 40 + noise(4, seed + 10)
    rest = unexplained(memory[None], work[None], blocks=24)[0]
    assert rest[-50:].mean() - rest[:50].mean() == pytest.approx(0.238, rel=0.2)


def test_a_leak_beside_the_daily_work_is_what_is_left():
    day = 0.3 * np.sin(2 * np.pi * TIMES / 96)
    rest = unexplained((0.2 + 0.1 * day + 0.001 * TIMES)[None], (40 * (1 + day))[None], blocks=24)[0]
    slope = np.polyfit(TIMES, rest, 1)[0]
    assert slope == pytest.approx(0.001, rel=0.15)
    assert np.std(rest - np.polyval(np.polyfit(TIMES, rest, 1), TIMES)) < 0.01


@pytest.mark.parametrize(
    "work", [np.full(288, NAN), np.full(288, 7.0), np.zeros(288), 40 - 20 * RAMP], ids=str
)
def test_nothing_is_explained_by_what_is_not_there_or_goes_the_other_way(work):
    memory = 0.2 + 0.3 * RAMP
    np.testing.assert_array_equal(unexplained(memory[None], work[None], blocks=24)[0], memory)


def test_each_series_has_its_own_work():
    memory = np.stack([0.3 * RAMP, 0.3 * RAMP])
    rest = unexplained(memory, np.stack([40 * (1 + RAMP), np.full(288, NAN)]), blocks=24)
    assert np.ptp(rest[0]) < 0.1
    np.testing.assert_array_equal(rest[1], memory[1])

"""What has been so before, and what has not."""

import numpy as np

from engine.model.labels import Labels
from engine.model.verdict import NOTHING, Memory
from engine.numeric.episodes import Episodes

LABELS = (Labels(instance="n1"), Labels(instance="n2"))
HOUR = 3600.0


def noted(sizes, every=HOUR):
    """Episodes of a first series that had `sizes`, one `every` seconds; the second had none."""
    episodes = Episodes.recall(NOTHING, LABELS)
    for index, size in enumerate(sizes):
        episodes = episodes.note(np.array([size, 0.0]), index * every)
    return episodes


def test_earlier_episodes_as_large_damp_and_smaller_ones_do_not():
    episodes = noted([10, 0, 10, 0, 3], 24 * HOUR)
    now = np.array([10.0, 10.0])
    assert episodes.damping(now, 120 * HOUR).tolist() == [2.0, 1.0]
    assert episodes.damping(0.25 * now, 120 * HOUR).tolist() == [2.5, 1.0]
    assert episodes.damping(2 * now, 120 * HOUR).tolist() == [1.0, 1.0]


def test_an_episode_does_not_damp_itself():
    episodes = noted([10, 12, 9, 11])
    assert episodes.damping(np.array([12.0, 0.0]), 4 * HOUR)[0] == 1
    assert episodes.peaks[0, 0] == 12
    assert np.isnan(episodes.peaks[0, 1])


def test_only_records_of_an_episode_are_new_until_it_has_been_quiet():
    episodes = noted([10, 12])  # the record was after an hour
    assert episodes.is_new(np.array([11.0, 0.0]), 12 * HOUR).tolist() == [0.0, 0.0]
    assert episodes.is_new(np.array([13.0, 1.0]), 12 * HOUR).tolist() == [13.0, 1.0]
    assert episodes.is_new(np.array([11.0, 0.0]), 13 * HOUR).tolist() == [11.0, 0.0]


def test_they_are_remembered_and_nothing_that_is_to_come():
    memory = Memory(LABELS, noted([10, 0, 12], 24 * HOUR).columns(), at=48 * HOUR)
    found = Episodes.recall(memory, LABELS[::-1])
    assert found.peaks[1, :2].tolist() == [12, 10]
    set_back = found.note(np.zeros(2), 1 * HOUR)
    assert np.nansum(set_back.peaks) == 10

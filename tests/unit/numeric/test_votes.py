"""Votes: when a score that comes and goes counts."""

import numpy as np
import pytest

from engine.model.labels import Labels
from engine.model.verdict import NOTHING, Memory, Persist
from engine.numeric.votes import Votes

LABELS = (Labels(a="1"),)


def play(scores, *, m=2, n=3, every=60.0, clear=0.5, times=None):
    """Return whether the one series was in an episode after each score."""
    persist = Persist(m=m, n=n)
    votes = Votes.recall(NOTHING, LABELS, persist)
    answers = []
    for at, score in zip(times or 60.0 * np.arange(1, 1 + len(scores)), scores, strict=True):
        votes = votes.take(np.array([score]), at, persist=persist, every=every, clear=clear)
        answers.append(bool(votes.bad[0]))
    return answers


@pytest.mark.parametrize(
    ("scores", "answers"),
    [
        ([1, 0, 1], [False, False, True]),  # two of three
        ([1, 0, 0, 1], [False, False, False, False]),
        (
            [1, 1, 0.6, 0.6, 0.6, 0.6],
            [False, True, True, True, True, True],
        ),  # above the lower mark it goes on
        ([1, 1, 0, 0, 0], [False, True, True, True, False]),
        ([1, np.nan, 1], [False, False, True]),  # nothing said is no vote
        ([1, 1, np.nan, np.nan, np.nan], [False, True, True, True, True]),
    ],
)
def test_an_episode_begins_with_m_of_n_and_ends_with_n_below_the_mark(scores, answers):
    assert play(scores) == answers


def test_votes_are_cast_at_most_so_often():
    assert play([1, 1, 1, 1], times=[60, 70, 80, 121]) == [False, False, False, True]


def test_a_clock_that_was_set_back_starts_the_count_anew_and_ends_no_episode():
    assert play([1, 1, 1], times=[1000, 1060, 60]) == [False, True, True]
    assert play([1, 1], times=[1000, 60]) == [False, False]


def test_votes_come_back_from_a_memory_in_any_order():
    persist = Persist(m=1, n=2)
    labels = (Labels(a="1"), Labels(a="2"))
    votes = Votes.recall(NOTHING, labels, persist)
    votes = votes.take(np.array([1.0, 0.0]), 60.0, persist=persist, every=0, clear=0.5)
    memory = Memory(labels=labels, columns=votes.columns(), at=60.0)
    back = Votes.recall(memory, (Labels(a="3"), *labels[::-1]), persist)
    assert back.bad.tolist() == [False, False, True]
    assert np.isnan(Votes.recall(memory, labels, Persist(m=1, n=3)).scores).all()  # of another width

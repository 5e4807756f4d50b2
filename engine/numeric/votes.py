"""When a score that comes and goes counts: m of n to begin, and as long below a lower mark to end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.model.labels import Labels
from engine.model.series import Bools, Floats
from engine.model.verdict import Memory, Persist

_LATE = 0.9  # of the pause between two votes: a slot that comes a little early still counts


class Votes(NamedTuple):
    """What the last judgements of each of n series were.

    `scores[n, k]`, newest last, where 1 and more is bad, NaN where nothing could be said; `cast[n]`, when the
    newest one was taken, in Unix seconds; `since[n]`, when the episode began that is still going on, NaN
    without one.
    """

    scores: Floats
    cast: Floats
    since: Floats

    @property
    def bad(self) -> Bools:
        """Which series are in an episode [n]."""
        going: Bools = ~np.isnan(self.since)
        return going

    @classmethod
    def recall(cls, memory: Memory, labels: tuple[Labels, ...], persist: Persist) -> Votes:
        """Return what was noted of `labels`."""
        return cls(
            memory.rows(labels, "scores", persist.n),
            memory.rows(labels, "cast"),
            memory.rows(labels, "since"),
        )

    def due(self, at: float, every: float) -> Bools:
        """Tell which series [n] were not heard within the last `every` seconds."""
        heard = (self.cast <= at + 1e-6) & (at - self.cast < _LATE * every)
        return ~heard

    def columns(self) -> dict[str, Floats]:
        """Return them as columns of a memory."""
        return {"scores": self.scores, "cast": self.cast, "since": self.since}

    def take(self, score: Floats, at: float, *, persist: Persist, every: float, clear: float) -> Votes:
        """Return the votes with the newest `score[n]`, taken at `at`; NaN is no vote.

        A series that was heard less than `every` seconds ago keeps its votes as they are, and one that was
        heard later than `at` begins anew: somebody set the clock. An episode begins once `persist.m` of the
        last `persist.n` scores are 1 or more, and ends once `persist.n` in a row are below `clear`.
        """
        future = self.cast > at + 1e-6
        scores = np.where(future[:, None], np.nan, self.scores)
        cast = np.where(future, np.nan, self.cast)
        since = np.where(self.since > at + 1e-6, np.where(self.bad, at, np.nan), self.since)
        due = ~np.isnan(score) & self.due(at, every)
        scores = np.where(due[:, None], np.column_stack([scores[:, 1:], score]), scores)
        cast = np.where(due, at, cast)
        with np.errstate(invalid="ignore"):
            begins = np.count_nonzero(scores >= 1, axis=1) >= persist.m
            ends = np.count_nonzero(scores < clear, axis=1) == persist.n
        since = np.where(np.isnan(since) & begins, at, np.where(ends & ~begins, np.nan, since))
        return Votes(scores, cast, since)

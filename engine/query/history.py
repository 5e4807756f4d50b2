"""A server's history, read ahead in chunks: for questions that come slot after slot, as in a backtest.

What a range query has at an instant is what an instant query has there, so an expression is asked once for many slots,
and each slot's answer is a part of that. Chunks begin small, since some questions come once only, and grow to
`POINTS` instants, or to as many as bring `CELLS` figures; where the server refuses a chunk, it is asked for a
smaller one. Expressions of which that does not hold (`is_steady`) are asked at each slot.

Memory is bounded: of each question one chunk is kept and what is looked back at, at most `KEPT` figures of 9
bytes in all beside the newest; questions that were not asked for the longest time go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np

from engine.errors import QueryError, QueryUnavailable
from engine.lang.promql.steadiness import is_steady
from engine.model.ports import Source
from engine.model.series import Window, instant_of

POINTS = 10_000
"""Instants of one chunk at most; Prometheus answers no range query with more than 11,000."""

CELLS = 500_000
"""Figures of one chunk at most: 5 MB in memory, some 10 MB of JSON."""

KEPT = 20_000_000
"""Figures of all chunks."""

_GROWTH = 16
_MILLISECOND = timedelta(milliseconds=1)


class _Question(NamedTuple):
    expr: str
    step: int  # milliseconds
    phase: int  # of the grid, milliseconds


@dataclass(slots=True)
class _Chunk:
    """What is known of a question: the answer from `start` to `end`, in Unix milliseconds."""

    window: Window
    start: int
    end: int
    ahead: int  # instants that the next chunk goes beyond what is asked
    back: int = 0  # how far is looked back at most, milliseconds


class HistorySource:
    """A source in front of another, for questions that come in the order of time up to `end`; for one thread.

    `every` is the distance between the slots at which instants are asked, and may be set anew before each slot.
    What the server cannot answer even in the smallest piece is raised as it is. The first QueryUnavailable is kept
    in `unavailable`, so that nobody takes a server that went away for a history without data.
    """

    def __init__(self, source: Source, end: datetime, every: timedelta) -> None:
        self._source = source
        self._end = _ms(end)
        self.every = every
        self._chunks: OrderedDict[_Question, _Chunk] = OrderedDict()
        self.queries = 0
        self.samples = 0
        self.unavailable: QueryUnavailable | None = None

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        if not is_steady(expr):
            return self._ask(lambda: self._source.instant(expr, at))
        return self._part(expr, at, at, self.every)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid."""
        if not is_steady(expr):
            return self._ask(lambda: self._source.range(expr, start, end, step))
        return self._part(expr, start, end, step)

    def _part(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        first, width = _ms(start), step // _MILLISECOND
        last = first + (_ms(end) - first) // width * width
        question = _Question(expr, width, first % width)
        chunk = self._chunks.get(question)
        if chunk is None or first < chunk.start or first > chunk.end + width:
            chunk = self._fetched(expr, first, last, width, ahead=0)
        elif last > chunk.end:
            newer = self._fetched(expr, chunk.end + width, last, width, ahead=chunk.ahead)
            since = max(chunk.start, min(first, last - chunk.back))
            kept = (chunk.end - chunk.start) // width + 1
            old = _columns(chunk.window, (since - chunk.start) // width, kept)
            chunk = replace(newer, window=_beside(old, newer.window), start=since, back=chunk.back)
        chunk.back = max(chunk.back, last - first)
        self._keep(question, chunk)
        return _columns(chunk.window, (first - chunk.start) // width, (last - chunk.start) // width + 1)

    def _fetched(self, expr: str, first: int, last: int, width: int, *, ahead: int) -> _Chunk:
        """Ask from `first` to `last`, and `ahead` instants further, or as far as the server can."""
        while True:
            end = max(last, min(last + ahead * width, self._end - (self._end - last) % width))
            try:
                window = self._ask(
                    lambda end=end: self._source.range(  # type: ignore[misc]
                        expr, _instant(first), _instant(end), width * _MILLISECOND
                    ),
                    last=end == last,
                )
            except QueryError:
                if end == last:
                    raise
                ahead //= 4
                continue
            most = min(POINTS, CELLS // max(len(window), 1))
            return _Chunk(window, first, end, max(0, min(_GROWTH * max(ahead, 4), most)))

    def _ask(self, question: Callable[[], Window], *, last: bool = True) -> Window:
        try:
            window = question()
        except QueryUnavailable as error:
            if last:
                self.unavailable = self.unavailable or error
            raise
        finally:
            self.queries += 1
        self.samples += int(np.count_nonzero(window.present))
        return window

    def _keep(self, question: _Question, chunk: _Chunk) -> None:
        self._chunks[question] = chunk
        self._chunks.move_to_end(question)
        held = sum(each.window.values.size for each in self._chunks.values())
        while held > KEPT and len(self._chunks) > 1:
            held -= self._chunks.popitem(last=False)[1].window.values.size


def _columns(window: Window, first: int, stop: int) -> Window:
    """Return columns of a window, without the series that have no sample there."""
    times, values = window.times[first:stop], window.values[:, first:stop]
    present = window.present[:, first:stop]
    there = present.any(axis=1)
    if there.all():
        return Window(window.labels, times, values, present, window.warnings)
    rows = np.flatnonzero(there)
    labels = tuple(window.labels[row] for row in rows)
    return Window(labels, times, values[rows], present[rows], window.warnings)


def _beside(old: Window, newer: Window) -> Window:
    """Return two windows as one, the newer columns behind the old ones."""
    times = np.concatenate([old.times, newer.times])
    warnings = tuple(dict.fromkeys((*old.warnings, *newer.warnings)))
    if old.labels == newer.labels:
        values = np.hstack([old.values, newer.values])
        return Window(old.labels, times, values, np.hstack([old.present, newer.present]), warnings)
    places = {labels: row for row, labels in enumerate(old.labels)}
    for labels in newer.labels:
        places.setdefault(labels, len(places))
    rows = np.array([places[labels] for labels in newer.labels], dtype=np.intp)
    values = np.full((len(places), len(times)), np.nan)
    present = np.zeros(values.shape, dtype=np.bool_)
    split = len(old.times)
    values[: len(old), :split], present[: len(old), :split] = old.values, old.present
    values[rows, split:], present[rows, split:] = newer.values, newer.present
    return Window(tuple(places), times, values, present, warnings)


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _instant(milliseconds: int) -> datetime:
    return instant_of(milliseconds / 1000)

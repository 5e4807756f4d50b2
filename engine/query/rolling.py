"""Windows that roll: of a history that was asked for before, only its end is fetched.

Ten thousand series of four hours are tens of megabytes; from one evaluation to the next nearly all of it is the
same. What was answered is kept for each question (expression, step and length), and the same question on the
same grid a little later brings the instants since then and an overlap, which replaces what was kept, because
samples arrive late: what was written up to `OVERLAP` after its instant is always seen. What comes later
still, such as a backfill, is seen within `WHOLE_AFTER`, when everything is asked for anew. In all else an answer
is the one that the source would give: expressions that see the future or their neighbours (`is_steady`) are never kept,
nor are partial answers, and a clock that goes back or far ahead begins anew.

Memory is bounded: at most `WINDOWS` times `max_samples` cells of 9 bytes are kept, and those that were not
asked for the longest time go first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engine.lang.promql.steadiness import is_steady, selects_any
from engine.model.ports import Source
from engine.model.series import Bools, Floats, Window
from engine.query.answer import Grid, most_series

OVERLAP = timedelta(minutes=5)
"""How late a sample may arrive and still be seen at once; at least two steps."""

WHOLE_AFTER = timedelta(hours=1)
"""After so long everything is fetched again."""

WINDOWS = 8
"""How many answers of the size that `max_samples` allows are kept."""

T = TypeVar("T", Floats, Bools)
_OF_THE_EXPRESSION = "PromQL "  # begins remarks about an expression; others may mean that series are missing


class _Question(NamedTuple):
    """What is asked again and again."""

    expr: str
    step: int  # milliseconds
    length: int  # instants


@dataclass(slots=True)
class _Kept:
    """The newest answer to a question; `lock` is held while it is brought up to date."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    window: Window | None = None
    start: int = 0  # Unix milliseconds
    whole: int = 0  # the start when everything was fetched


class RollingSource:
    """A source in front of another, for ranges that end later each time. Threads may share it.

    `max_samples` is that of the source behind; expressions over the metrics of `growing` go to that as they are.
    """

    def __init__(self, source: Source, max_samples: int, growing: Collection[str] = ()) -> None:
        self._source = source
        self._max_samples = max_samples
        self._growing = frozenset(growing)
        self._kept: OrderedDict[_Question, _Kept] = OrderedDict()
        self._lock = threading.Lock()  # guards the dict, never held while anything is fetched

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        return self._source.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid. The arrays are read-only, since the next answer is made of them."""
        if not is_steady(expr) or selects_any(expr, self._growing):
            return self._source.range(expr, start, end, step)
        grid = Grid.of(start, end, step)
        question = _Question(expr, grid.step, grid.count)
        with self._lock:
            kept = self._kept.setdefault(question, _Kept())
            self._kept.move_to_end(question)
        with kept.lock:
            window = self._rolled(kept, expr, start, grid)
            if window is None:
                window = self._source.range(expr, start, end, step)
                kept.whole = grid.start
            for array in (window.values, window.present):
                array.setflags(write=False)
            kept.window, kept.start = window, grid.start
        self._drop(question, window)
        return window

    def _rolled(self, kept: _Kept, expr: str, start: datetime, grid: Grid) -> Window | None:
        """Return what was kept with its new end; None if everything has to be fetched."""
        moved = grid.start - kept.start
        if (
            kept.window is None
            or moved < 0
            or moved % grid.step
            or grid.start - kept.whole >= _ms(WHOLE_AFTER)
        ):
            return None
        tail = moved // grid.step + max(2, -(-_ms(OVERLAP) // grid.step))
        if tail >= grid.count:
            return None
        step = timedelta(milliseconds=grid.step)
        first = start + (grid.count - tail) * step
        newer = self._source.range(expr, first, start + (grid.count - 1) * step, step)
        if not _is_whole(newer):
            return None  # and the whole may say the same: it is not kept
        window = _joined(kept.window, newer, moved // grid.step, grid)
        is_large = int(window.present.sum()) > self._max_samples or len(window) > most_series(
            grid, self._max_samples
        )
        return None if is_large else window

    def _drop(self, question: _Question, window: Window) -> None:
        """Forget an answer that must not be kept, and those that were asked for the longest time ago."""
        with self._lock:
            if not _is_whole(window):
                self._kept.pop(question, None)
            cells = sum(kept.window.values.size for kept in self._kept.values() if kept.window is not None)
            while self._kept and cells > WINDOWS * self._max_samples:
                _, oldest = self._kept.popitem(last=False)
                cells -= 0 if oldest.window is None else oldest.window.values.size


def _is_whole(window: Window) -> bool:
    return all(remark.startswith(_OF_THE_EXPRESSION) for remark in window.warnings)


def _joined(old: Window, newer: Window, moved: int, grid: Grid) -> Window:
    """Return the window on `grid`: `old`, whose first `moved` columns are past, and over its end `newer`."""
    keep = grid.count - len(newer.times)
    values, present = old.values[:, moved : moved + keep], old.present[:, moved : moved + keep]
    warnings = tuple(dict.fromkeys((*old.warnings, *newer.warnings)))
    if old.labels == newer.labels:
        labels = old.labels
        values, present = np.hstack([values, newer.values]), np.hstack([present, newer.present])
    else:
        places = {each: row for row, each in enumerate(old.labels)}
        for each in newer.labels:
            places.setdefault(each, len(places))
        labels, rows = tuple(places), np.array([places[each] for each in newer.labels], dtype=np.intp)
        values = _laid(np.full((len(labels), grid.count), np.nan), values, newer.values, rows)
        present = _laid(np.zeros((len(labels), grid.count), np.bool_), present, newer.present, rows)
    if len(there := np.flatnonzero(present.any(axis=1))) < len(labels):  # the others are not in an answer
        labels, values, present = tuple(labels[row] for row in there), values[there], present[there]
    return Window(labels, grid.times, values, present, warnings)


def _laid(target: T, old: T, newer: T, rows: NDArray[np.intp]) -> T:
    """Return `target` with the old columns of its first rows, and behind them the newer ones of `rows`."""
    kept = old.shape[1]
    target[: len(old), :kept] = old
    target[rows, kept:] = newer
    return target


def _ms(length: timedelta) -> int:
    return length // timedelta(milliseconds=1)

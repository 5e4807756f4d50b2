"""Series that the engine itself makes, before any server has them: recording rules feed later rules of their group.

An expression that names such a series is split: the largest parts that do not are asked of the server, the
rest is worked out here, on the recorded samples and those answers. All other expressions go to the server as
they are.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from engine.errors import ExpressionError, QueryRejected
from engine.lang.promql import Storage, evaluate, selects
from engine.lang.promql.rewrite import split
from engine.lang.promql.storage import Series
from engine.lang.promql.syntax import LabelMatcher
from engine.model.labels import METRIC_NAME, Labels
from engine.model.ports import Point, Source
from engine.model.series import Window

KEPT = timedelta(hours=1)
"""How far back a range over a recorded series can reach; further back takes remote_write."""


class RecordedSource:
    """A source in front of another, which also knows what was recorded. `names` are the recorded metrics."""

    def __init__(self, source: Source, names: Collection[str]) -> None:
        self._source = source
        self._names = frozenset(names)
        self._mentions: dict[str, bool] = {}  # by expression; there are as many as rules
        self._samples: dict[Labels, list[Point]] = defaultdict(list)
        self._lock = threading.Lock()  # groups are evaluated on several threads

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate at one instant."""
        if not self._mentioned(expr):
            return self._source.instant(expr, at)
        return self._mixed(expr, at, at, timedelta(seconds=1))

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate on a grid."""
        if not self._mentioned(expr):
            return self._source.range(expr, start, end, step)
        return self._mixed(expr, start, end, step)

    def _mentioned(self, expr: str) -> bool:
        """Tell whether an expression needs what was recorded; one that cannot be read here goes to the server."""
        if expr not in self._mentions:
            try:
                self._mentions[expr] = any(selects(expr, name) for name in self._names)
            except ExpressionError:
                self._mentions[expr] = False
        return self._mentions[expr]

    def record(self, points: Sequence[Point]) -> None:
        """Take samples of recorded series, of one instant."""
        with self._lock:
            for point in points:
                kept = self._samples[point.labels]
                kept.append(point)
                while kept[0].at < point.at - KEPT:
                    del kept[0]
            if points:
                newest = points[-1].at
                for labels in [
                    labels for labels, kept in self._samples.items() if kept[-1].at < newest - KEPT
                ]:
                    del self._samples[labels]

    def _mixed(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        try:
            parts = split(expr, self._names)
            storage = _Together(self._recorded())
            warnings: list[str] = []
            for name, remote in parts.remote.items():
                answer = (
                    self._source.instant(remote, start)
                    if start == end
                    else self._source.range(remote, start, end, step)
                )
                storage.add_answer(name, answer)
                warnings += answer.warnings
            count = (end - start) // step + 1
            times = [(start + index * step).timestamp() for index in range(count)]
            found = evaluate(parts.local, storage, times)
        except ExpressionError as error:
            raise QueryRejected(f"{error}, in {expr!r}") from error
        labels = tuple(_unnamed(each) for each in found.labels)
        return Window(labels, found.times, found.values, found.present, tuple(dict.fromkeys(warnings)))

    def _recorded(self) -> Storage:
        storage = Storage()
        with self._lock:
            for labels, points in self._samples.items():
                storage.add(
                    labels,
                    [_milliseconds(point.at) for point in points],
                    [0.0 if point.value is None else point.value for point in points],
                    [point.value is None for point in points],
                )
        return storage


class _Together(Storage):
    """Recorded series, and the server's answers under the names that stand for them."""

    def __init__(self, recorded: Storage) -> None:
        super().__init__()
        self._recorded = recorded

    def select(self, matchers: Sequence[LabelMatcher]) -> Iterator[Series]:
        yield from super().select(matchers)
        yield from self._recorded.select(matchers)

    def add_answer(self, name: str, answer: Window) -> None:
        """Add an answer as series; where it has no sample, the series is stale, since nothing may be seen there."""
        times = [round(float(seconds) * 1000) for seconds in answer.times]
        for row, labels in enumerate(answer.labels):
            there = answer.present[row]
            self.add(labels.updated({METRIC_NAME: name}), times, answer.values[row], ~there)


def _unnamed(labels: Labels) -> Labels:
    return labels.without(METRIC_NAME) if labels.get(METRIC_NAME, "").startswith("engine_part_") else labels


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)

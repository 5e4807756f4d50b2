"""Recorded series beside a server's: the same answers as if the server had them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from engine.errors import QueryRejected
from engine.lang.promql import Storage
from engine.model.labels import METRIC_NAME, Labels
from engine.model.ports import Point
from engine.query.embedded import EmbeddedSource
from engine.query.recorded import KEPT, RecordedSource

T0 = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=15)

EXPRESSIONS = [
    "rec",
    "rec > 2",
    'rec{job="a"}',
    "sum(rec)",
    "up * on (job) rec",
    "up * on (job) group_left () rec",
    "rec unless up == 0",
    "rate(rec[1m]) / on (job) sum by (job) (rate(raw[1m]))",
    "avg_over_time(rec[2m]) + on (job) sum by (job) (raw)",
    "max_over_time(rec[1m:15s])",
    "rec offset 30s",
    "scalar(sum(up)) * rec",
    "absent(rec)",
    "label_replace(rec, 'x', '$1', 'job', '(.*)') and on (job) up",
    "-rec + on (job) up",
    "sum(raw) + sum(up)",
    "vector(1) or rec",
    "count(rec > bool 1) > 0 or count(up)",
]


def sources() -> tuple[RecordedSource, EmbeddedSource]:
    """One source that has half of the series recorded, and one that has them all from a server."""
    random = np.random.default_rng(7)
    remote, everything = Storage(), Storage()
    made: list[Point] = []
    for job in ("a", "b", "c"):
        for name in ("up", "raw", "rec"):
            labels = Labels({METRIC_NAME: name, "job": job})
            for step in range(30):
                at = T0 + step * STEP
                stale = name == "rec" and job == "c" and step > 20
                value = float(random.integers(0, 5)) + step * (name == "raw")
                row = ([round(at.timestamp() * 1000)], [value], [stale])
                everything.add(labels, *row)
                if name == "rec":
                    made.append(Point(labels, at, None if stale else value))
                else:
                    remote.add(labels, *row)
    source = RecordedSource(EmbeddedSource(remote), {"rec"})
    for point in sorted(made, key=lambda each: each.at):
        source.record([point])
    return source, EmbeddedSource(everything)


def rows(window: object) -> dict[Labels, list[tuple[float, float]]]:
    return {
        labels: [
            (t, v)
            for t, v, there in zip(window.times, window.values[i], window.present[i], strict=True)
            if there
        ]  # type: ignore[attr-defined]
        for i, labels in enumerate(window.labels)  # type: ignore[attr-defined]
        if window.present[i].any()  # type: ignore[attr-defined]
    }


@pytest.mark.parametrize("expr", EXPRESSIONS)
@pytest.mark.parametrize("step", [5, 20, 29])
def test_an_instant_is_as_if_the_server_had_everything(expr: str, step: int) -> None:
    recorded, everything = sources()
    at = T0 + step * STEP
    assert rows(recorded.instant(expr, at)) == rows(everything.instant(expr, at))


@pytest.mark.parametrize("expr", EXPRESSIONS)
def test_a_range_is_as_if_the_server_had_everything(expr: str) -> None:
    recorded, everything = sources()
    start, end = T0 + 8 * STEP, T0 + 28 * STEP
    assert rows(recorded.range(expr, start, end, STEP)) == rows(everything.range(expr, start, end, STEP))


def test_what_cannot_be_mixed_is_refused_with_the_way_out() -> None:
    recorded, _ = sources()
    with pytest.raises(QueryRejected, match="remote_write"):
        recorded.instant("max_over_time((rec / up)[1m:15s])", T0)


def test_other_expressions_go_to_the_server_as_they_are() -> None:
    asked: list[str] = []

    class Asked:
        def instant(self, expr: str, at: datetime) -> object:
            asked.append(expr)
            return EmbeddedSource(Storage()).instant("vector(1)", at)

    RecordedSource(Asked(), {"rec"}).instant("1_000 * recording{a='rec'}", T0)  # type: ignore[arg-type]
    assert asked == ["1_000 * recording{a='rec'}"]


def test_old_samples_are_forgotten() -> None:
    source = RecordedSource(EmbeddedSource(Storage()), {"rec"})
    labels = Labels({METRIC_NAME: "rec"})
    for step in range(1000):
        source.record([Point(labels, T0 + step * STEP, 1.0)])
    assert len(source._samples[labels]) <= KEPT / STEP + 1
    source.record([Point(Labels({METRIC_NAME: "rec", "b": "1"}), T0 + 5000 * STEP, 1.0)])
    assert labels not in source._samples

"""Recorded series of tests: answers of Prometheus' `query_range` (JSON), and CSV of times and values."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import Problem
from engine.load.files import read_file
from engine.load.matchers import Misread, parse_series
from engine.load.nodes import MappingNode, Node
from engine.load.records import Decoder, Invalid
from engine.load.signals import MAX_SAMPLES
from engine.model.labels import METRIC_NAME, Labels
from engine.model.series import Floats
from engine.model.testing import RecordedSeries

_KEYS = ("file", "series")
_WRONG_SHAPE = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, OSError)
_GAP = 1.5  # of the usual distance between samples: what lies further apart was not there in between


def read_recordings(decoder: Decoder, node: Node) -> Iterator[RecordedSeries]:
    """Yield the series of all `input_files`; what is wrong with them is noted."""
    with decoder.reading({RecordedSeries: lambda decoder, item, _what: _read_one(decoder, item)}):
        for each in decoder.sequence(node, RecordedSeries, "'input_files'"):
            yield from each


def _read_one(decoder: Decoder, node: Node) -> list[RecordedSeries]:
    what = "an input file"
    if not isinstance(node, MappingNode):
        raise decoder.fail(node, f"{what} must be a mapping such as {{file: used.json}}, got {node}")
    for key, entry in node.entries.items():
        if key not in _KEYS:
            decoder.unknown(entry.key, key, _KEYS, what)
    if (written := node.get("file")) is None:
        raise decoder.fail(node, f"{what} needs 'file'")
    labels = _labels(decoder, node)
    path = Path(decoder.path).parent / decoder.decode(written, str, "'file'")
    problems: list[Problem] = []
    content = read_file(path, problems)
    if content is None:
        raise decoder.fail(written, f"{path}: {problems[0].message}")
    try:
        text = content.decode()
        series = list(_from_csv(text, labels) if path.suffix == ".csv" else _from_json(text, labels))
    except _WRONG_SHAPE as error:
        kind = "CSV of `time,value`" if path.suffix == ".csv" else "an answer of Prometheus' query_range"
        raise decoder.fail(written, f"{path} is not {kind}: {error}") from None
    for each in series:
        if METRIC_NAME not in each.labels:
            message = f"{path}: {each.labels} has no metric's name; give one with 'series'"
            raise decoder.fail(written, message)
    return series


def _labels(decoder: Decoder, node: MappingNode) -> Labels:
    """Return what `series` says: the name and labels of a CSV's series, or what is laid over those of a JSON file."""
    written = node.get("series")
    if written is None:
        return Labels()
    text: str = decoder.decode(written, str, "'series'")
    try:
        return parse_series(text)
    except Misread as error:
        decoder.report_inside(written, error.offset, f"'series': {error}")
        raise Invalid from None


def _from_json(text: str, over: Labels) -> Iterator[RecordedSeries]:
    answer = json.loads(text)
    data: Mapping[str, Any] = answer.get("data", answer)
    if data["resultType"] != "matrix":
        raise ValueError(f"its result is a {data['resultType']}, and a range is needed")
    for each in data["result"]:
        pairs = [(float(at), float(value)) for at, value in each["values"]]
        times, values = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        yield _series(Labels(each["metric"]).updated(over), times, values, ends=True)


def _from_csv(text: str, labels: Labels) -> Iterator[RecordedSeries]:
    """Yield the one series of a file with a time and a value in each row; a first row without figures is a heading."""
    rows = [row for row in csv.reader(io.StringIO(text)) if row]
    if rows and not _is_number(rows[0][1]):
        del rows[0]
    times = np.array([_seconds(row[0]) for row in rows], dtype=np.float64)
    values = np.array([float(row[1]) for row in rows], dtype=np.float64)
    yield _series(labels, times, values, ends=False)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _seconds(text: str) -> float:
    """Return Unix seconds; a date and time without a zone is UTC."""
    if _is_number(text):
        return float(text)
    at = datetime.fromisoformat(text.strip())
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def _series(labels: Labels, times: Floats, values: Floats, *, ends: bool) -> RecordedSeries:
    """Return a series. With `ends` it is stale where samples are missing, as in an answer of a range query."""
    if not 0 < len(times) <= MAX_SAMPLES:
        raise ValueError(f"{labels} has {len(times)} samples; 1 to {MAX_SAMPLES} are read")
    if (np.diff(times) <= 0).any():
        raise ValueError(f"the times of {labels} do not rise")
    if not np.isfinite(times).all():
        raise ValueError(f"a time of {labels} is no number")
    stale = np.zeros(len(times), dtype=bool)
    if ends and len(times) > 1:
        step = float(np.median(np.diff(times)))
        last = np.flatnonzero(np.append(np.diff(times) > _GAP * step, True))
        times = np.insert(times, last + 1, times[last] + step)
        values = np.insert(values, last + 1, np.nan)
        stale = np.insert(stale, last + 1, True)
    return RecordedSeries(
        labels=labels, times=times, values=values, stale=tuple(bool(each) for each in stale)
    )

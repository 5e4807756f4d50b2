"""Recorded series and timelines in tests are read, and what is wrong with them has its place and a way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import LoadError
from engine.load.rules import load_rules
from engine.model.labels import Labels
from engine.model.testing import TestGroup

RULES = """
groups: [{name: g, rules: [{alert: Full, expr: used > 5}]}]
tests:
  - interval: 10s
    alert_rule_test: [{eval_time: 10s, alertname: Full}]
    %s
"""


def group(folder: Path, body: str) -> TestGroup:
    (folder / "rules.yaml").write_text(RULES % body)
    (found,) = load_rules([folder / "rules.yaml"]).tests[0].tests
    return found


def problems(folder: Path, body: str) -> list[str]:
    with pytest.raises(LoadError) as error:
        group(folder, body)
    return [
        f"{each.line}:{each.column}: {each.message.replace(str(folder), '')}" for each in error.value.problems
    ]


def answer(*series: tuple[dict[str, str], list[tuple[float, str]]], kind: str = "matrix") -> str:
    result = [{"metric": metric, "values": values} for metric, values in series]
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}})


def test_an_answer_of_query_range_is_series_that_end_where_samples_are_missing(tmp_path: Path) -> None:
    metric = {"__name__": "used", "node": "n"}
    samples = [(100.0, "1"), (110.0, "2"), (120.0, "NaN"), (150.0, "+Inf"), (160.0, "4")]
    (tmp_path / "used.json").write_text(answer((metric, samples), ({"__name__": "free"}, [(95.5, "7")])))
    found = group(tmp_path, "input_files: [{file: used.json}]")
    used, free = found.input_files
    assert used.labels == metric
    assert used.times.tolist() == [100, 110, 120, 130, 150, 160, 170]
    assert used.stale == (False, False, False, True, False, False, True)
    assert [str(value) for value in used.values] == ["1.0", "2.0", "nan", "nan", "inf", "4.0", "nan"]
    assert (free.times.tolist(), free.stale) == ([95.5], (False,))
    assert found.start.timestamp() == 95.5, "the first sample of all"


def test_labels_are_laid_over_those_of_the_recording(tmp_path: Path) -> None:
    (tmp_path / "used.json").write_text(answer(({"node": "n", "job": "ray"}, [(1.0, "1")])))
    (series,) = group(tmp_path, """input_files: [{file: used.json, series: 'used{node="m"}'}]""").input_files
    assert series.labels == Labels({"__name__": "used", "node": "m", "job": "ray"})


@pytest.mark.parametrize(
    "rows",
    [
        "time,value\n100,1.5\n110,2\n",
        "100,1.5\n110,2\n",
        "timestamp,value\n1970-01-01 00:01:40,1.5\n1970-01-01T00:01:50Z,2\n\n",
    ],
)
def test_csv_has_a_time_and_a_value_in_each_row(tmp_path: Path, rows: str) -> None:
    (tmp_path / "used.csv").write_text(rows)
    (series,) = group(tmp_path, """input_files: [{file: used.csv, series: 'used{node="n"}'}]""").input_files
    assert series.labels == {"__name__": "used", "node": "n"}
    assert (series.times.tolist(), series.values.tolist()) == ([100, 110], [1.5, 2])
    assert series.stale == (False, False)


def test_a_start_that_is_written_holds(tmp_path: Path) -> None:
    (tmp_path / "used.csv").write_text("100,1\n")
    found = group(tmp_path, "input_files: [{file: used.csv, series: used}]\n    start_timestamp: 40")
    assert found.start.timestamp() == 40


@pytest.mark.parametrize(
    ("name", "content", "written", "expected"),
    [
        ("a.json", "{", "{file: a.json}", "/a.json is not an answer of Prometheus' query_range"),
        ("a.json", answer(kind="vector"), "{file: a.json}", "its result is a vector, and a range is needed"),
        (
            "a.json",
            answer(({}, [(1.0, "1")])),
            "{file: a.json}",
            "{} has no metric's name; give one with 'series'",
        ),
        ("a.json", answer(({}, [])), "{file: a.json}", "{} has 0 samples"),
        ("a.csv", "1,2\n1,3\n", "{file: a.csv, series: m}", "the times of m do not rise"),
        ("a.csv", "1,2\nx,3\n", "{file: a.csv, series: m}", "/a.csv is not CSV of `time,value`"),
        ("a.csv", "1\n", "{file: a.csv, series: m}", "/a.csv is not CSV of `time,value`"),
        ("a.csv", "1,2\n", "{file: b.csv, series: m}", "/b.csv: no such file"),
        ("a.csv", "1,2\n", "{file: a.csv, series: 'm{'}", "'series': the closing brace is missing"),
        (
            "a.csv",
            "1,2\n",
            "{file: a.csv, serie: m}",
            "unknown field 'serie' in an input file; did you mean 'series'?",
        ),
        ("a.csv", "1,2\n", "{series: m}", "an input file needs 'file'"),
        ("a.csv", "1,2\n", "a.csv", "an input file must be a mapping"),
    ],
)
def test_what_is_wrong_with_a_recording_is_said_where_it_is_named(
    tmp_path: Path, name: str, content: str, written: str, expected: str
) -> None:
    (tmp_path / name).write_text(content)
    found = problems(tmp_path, f"input_files: [{written}]")
    assert any(expected in text and text.startswith("6:") for text in found), found


@pytest.mark.parametrize(
    ("written", "spans"),
    [("1m..2m", ["1m..2m"]), ("[1m..2m, 5m..]", ["1m..2m", "5m.."]), ("0s ..", ["0s.."]), ("[]", [])],
)
def test_spans(tmp_path: Path, written: str, spans: list[str]) -> None:
    (life,) = group(tmp_path, f"timeline: [{{alertname: Full, firing: {written}}}]").timeline
    assert [str(span) for span in life.firing] == spans
    assert life.origin.line == 6


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("firing: 1m", "must be a span such as 12m..15m, or 12m.. to the end, got '1m'"),
        ("firing: 2m..1m", "must be a span such as"),
        ("firing: 1..2", "must be a span such as"),
        ("firing: [[]]", "must be a span such as"),
        (
            "firing: 1m..5m, pending: 4m..6m",
            "1m..5m and 4m..6m overlap; a span ends where the next one begins",
        ),
        ("firing: [1m.., 4m..6m]", "1m.. and 4m..6m overlap"),
    ],
)
def test_spans_that_are_none(tmp_path: Path, written: str, expected: str) -> None:
    found: Any = problems(tmp_path, f"timeline: [{{alertname: Full, {written}}}]")
    assert len(found) == 1
    assert expected in found[0]

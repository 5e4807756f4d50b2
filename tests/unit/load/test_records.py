import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

import pytest

from engine.load.records import Decoder, Invalid
from engine.model.duration import Duration
from engine.model.rule import Origin


class Colour(StrEnum):
    RED = "red"
    OFF = "off"


@dataclass(frozen=True, kw_only=True)
class Inner:
    x: int = 0


@dataclass(frozen=True, kw_only=True)
class Record:
    text: str = ""
    whole: int = 0
    number: float = 0.0
    flag: bool = False
    length: Duration = Duration()
    colour: Colour = Colour.RED
    side: Literal["left", "right"] = "left"
    maybe: int | None = None
    either: float | str = 0.0
    many: Inner | tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    mapped: Mapping[str, str] = field(default_factory=dict)
    inner: Inner = Inner()
    anything: Any = None
    key_file: str = ""
    renamed: str = field(default="", metadata={"key": "for"})
    hidden: str = field(default="", metadata={"key": None})
    origin: Origin


def decode(text: str, **options: Any) -> tuple[Record | None, list[str]]:
    decoder = Decoder("f", text.encode(), **options)
    try:
        record = decoder.record(decoder.root, Record)
    except Invalid:
        record = None
    return record, [f"{problem.line}:{problem.column}: {problem.message}" for problem in decoder.problems]


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("text: true", "text", "true"),
        ("text: 1.0", "text", "1.0"),
        ("text: 0x1F", "text", "0x1F"),
        ("text: 2026-03-01", "text", "2026-03-01"),
        ("text: 'x'", "text", "x"),
        ("whole: -5", "whole", -5),
        ("whole: 50_000", "whole", 50_000),
        ("number: 1e6", "number", 1e6),
        ("number: -.inf", "number", -math.inf),
        ("number: +Inf", "number", math.inf),
        ("number: 3", "number", 3.0),
        ("flag: true", "flag", True),
        ("flag: off", "flag", False),
        ("length: 1h30m", "length", Duration(minutes=90)),
        ("length: 0", "length", Duration()),
        ("colour: off", "colour", Colour.OFF),
        ("side: right", "side", "right"),
        ("maybe: 3", "maybe", 3),
        ("maybe: ~", "maybe", None),
        ("whole:", "whole", 0),
        ("either: 1.5", "either", 1.5),
        ("either: sum(x)", "either", "sum(x)"),
        ("either: '1.5'", "either", "1.5"),
        ("many: {x: 3}", "many", Inner(x=3)),
        ("many: [a, b]", "many", ("a", "b")),
        ("listed: [1, true, ~]", "listed", ("1", "true", "")),
        ("listed:", "listed", ()),
        ("mapped: {a: 1, b: }", "mapped", {"a": "1", "b": ""}),
        ("inner: {x: 2}", "inner", Inner(x=2)),
        (
            "anything: [1, 2.5, true, ~, 'true', no, {a: 0x1}]",
            "anything",
            [1, 2.5, True, None, "true", "no", {"a": "0x1"}],
        ),
        ("for: x", "renamed", "x"),
        ("\n  text: x", "origin", Origin("f", 2, 3)),
    ],
)
def test_a_field_is_read_by_its_type(text, name, value):
    record, problems = decode(text)
    assert problems == []
    assert getattr(record, name) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("text: [a]", "1:7: 'text' must be text, got a list"),
        ("whole: ten", "1:8: 'whole' must be a whole number, got 'ten'"),
        ("whole: 1.5", "1:8: 'whole' must be a whole number, got '1.5'"),
        ("whole: 010", "1:8: 'whole' must be a whole number, got '010'"),
        ("whole: '1'", "1:8: 'whole' must be a whole number, got the text '1'"),
        ("number: 1.2.3", "1:9: 'number' must be a number, got '1.2.3'"),
        ("flag: maybe", "1:7: 'flag' must be true or false, got 'maybe'"),
        ("length: 5", "1:9: 'length' must be a duration such as 30s, 5m or 1h30m, got '5'"),
        ("length: ٣m", "1:9: 'length' must be a duration such as 30s, 5m or 1h30m, got '٣m'"),
        ("length: 1m1h", "1:9: 'length' must be a duration such as 30s, 5m or 1h30m, got '1m1h'"),
        (
            "length: " + "9" * 30 + "y",
            "1:9: 'length' must be a duration such as 30s, 5m or 1h30m, got '" + "9" * 30 + "y'",
        ),
        ("colour: rad", "1:9: 'colour' must be red or off, got 'rad'; did you mean 'red'?"),
        ("side: up", "1:7: 'side' must be left or right, got 'up'"),
        ("either: [1]", "1:9: 'either' must be a number or text, got a list"),
        ("many: x", "1:7: 'many' must be a mapping or a list, got 'x'"),
        ("many: {y: 3}", "1:8: unknown field 'y' in 'many'; known: x"),
        ("listed: a", "1:9: 'listed' must be a list, got 'a'"),
        ("listed: [a, {}]", "1:13: an item of 'listed' must be text, got a mapping"),
        ("mapped: [a]", "1:9: 'mapped' must be a mapping, got a list"),
        ("mapped: {a: [b]}", "1:13: 'a' of 'mapped' must be text, got a list"),
        ("inner: 3", "1:8: 'inner' must be a mapping, got '3'"),
        ("txt: a", "1:1: unknown field 'txt' in a record; did you mean 'text'?"),
        ("hidden: a", "1:1: unknown field 'hidden' in a record"),
        ("origin: a", "1:1: unknown field 'origin' in a record"),
        ("[a]", "1:1: a record must be a mapping, got a list"),
        ("", "1:1: a record must be a mapping, got nothing"),
        ("text: a\ntext: b", "2:1: 'text' is given twice; first in line 1"),
        ("flag: " + "x" * 60, "1:7: 'flag' must be true or false, got '" + "x" * 39 + "…'"),
    ],
)
def test_what_does_not_fit_is_told_with_place_expectation_and_finding(text, problem):
    _, problems = decode(text)
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_one_wrong_field_does_not_hide_another():
    record, problems = decode("whole: a\nnumber: b\ntext: good\nlisted: [[], x]")
    assert [problem.split(":")[0] for problem in problems] == ["1", "2", "4"]
    assert record is not None
    assert (record.text, record.listed) == ("good", ("x",))


def test_paths_at_keys_that_end_in_file_start_from_the_folder(tmp_path):
    assert decode("key_file: a/b", folder=tmp_path)[0].key_file == str(tmp_path / "a/b")
    assert decode("key_file: /a/b", folder=tmp_path)[0].key_file == "/a/b"


def test_the_reason_why_a_key_is_refused_is_told():
    _, problems = decode("histogram: 1", refused={"histogram": "not here"})
    assert problems == ["1:1: unknown field 'histogram' in a record: not here"]


def test_an_empty_text_after_expansion_is_not_nothing():
    record, _ = decode("text: $X", expand=lambda text: text.replace("$X", ""))
    assert record.text == ""
    _, problems = decode("whole: $X", expand=lambda text: text.replace("$X", ""))
    assert problems == ["1:8: 'whole' must be a whole number, got ''"]

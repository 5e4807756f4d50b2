import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lang.readable import clock, columns, cut, number, one_line, size, span

AT = datetime(2026, 8, 19, 14, 28, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.482, "1.482"),
        (0.05, "0.05"),
        (999.96, "1k"),
        (7.75e9, "7.75G"),
        (-1500.0, "-1.5k"),
        (math.inf, "∞"),
        (math.nan, "no value"),
    ],
)
def test_numbers_are_short(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (7.218 * 2**30, "7.22 GiB"), (1023.99 * 2**20, "1 GiB")],
)
def test_bytes_are_binary(count, text):
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.14, "140ms"),
        (59.6, "1m"),
        (100, "1m 40s"),
        (7040, "1h 57m"),
        (3599.9, "1h"),
        (86_399, "1d"),
        (93_600, "1d 2h"),
        (-90, "-1m 30s"),
        (math.inf, "for ever"),
    ],
)
def test_lengths_of_time_have_two_units(seconds, text):
    assert span(seconds) == text


def test_the_date_is_said_when_it_is_another_day():
    assert clock(AT, AT) == "14:28 UTC"
    assert clock(AT) == "2026-08-19 14:28 UTC"


@given(st.text(), st.integers(1, 80))
def test_a_line_is_one_line_and_fits(text, limit):
    line = one_line(text, limit)
    assert len(line) <= limit
    assert line.isprintable()


def test_a_cut_text_shows_that_it_was_cut():
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"


def test_columns_are_aligned_and_figures_lean_right():
    assert columns(("size", "who"), [("7 GiB", "a"), ("12 GiB", "bc")]) == [
        "  size  who",
        " 7 GiB  a",
        "12 GiB  bc",
    ]


@given(st.lists(st.lists(st.text(max_size=100), max_size=8), max_size=8), st.integers(20, 100))
def test_any_table_keeps_within_its_width(rows, width):
    assert all(len(line) <= width for line in columns(rows[0] if rows else (), rows[1:], width))

"""Durations are written and read as Prometheus does."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.duration import Duration

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("1ms", 1),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("90m", 5_400_000),
        ("1d", DAY),
        ("1w", 7 * DAY),
        ("1y", 365 * DAY),
        ("1y2w3d4h5m6s7ms", 365 * DAY + 17 * DAY + 4 * 3_600_000 + 306_007),
        ("01m", 60_000),
    ],
)
def test_a_duration_is_read_as_prometheus_reads_it(text: str, milliseconds: int) -> None:
    assert Duration.parse(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "5",
        "m",
        "-5m",
        "5m ",
        " 5m",
        "1.5h",
        "5 m",
        "5M",
        "1m1h",
        "1m1m",
        "1s1ms1s",
        "٣m",
        "5m\n",
        "1us",
    ],
)
def test_what_is_no_duration_is_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration: .*write it like 30s, 5m or 1h30m"):
        Duration.parse(text)


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        Duration.parse("99999999999999y")


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(), "0s"),
        (timedelta(milliseconds=1500), "1s500ms"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(days=1), "1d"),
        (timedelta(days=1, hours=1), "25h"),  # weeks and days only when they are whole
        (timedelta(days=7), "1w"),
        (timedelta(days=8), "8d"),
        (timedelta(days=365), "1y"),
        (timedelta(days=365 * 2), "2y"),
        (timedelta(days=364), "52w"),
        (timedelta(days=366), "366d"),
        (timedelta(minutes=-5), "-5m"),
        (timedelta(microseconds=400), "0s"),
    ],
)
def test_a_duration_is_written_as_prometheus_writes_it(length: timedelta, text: str) -> None:
    assert str(Duration.of(length)) == text


@given(st.integers(0, 292 * 365 * DAY))  # Prometheus' longest
def test_what_is_written_is_read_as_the_same(milliseconds: int) -> None:
    duration = Duration(milliseconds=milliseconds)
    assert Duration.parse(str(duration)) == duration


@given(st.integers(0, 60).map(lambda days: days * DAY), st.integers(0, 2))
def test_days_are_written_only_when_nothing_is_left_over(days: int, hours: int) -> None:
    text = str(Duration(milliseconds=days + hours * 3_600_000))
    assert not (hours and set("ywd") & set(text))


def test_a_duration_is_a_timedelta() -> None:
    assert Duration.of(timedelta(seconds=90)) == timedelta(seconds=90)
    assert isinstance(Duration.of(timedelta(seconds=90)), Duration)
    assert not Duration()
    assert hash(Duration(minutes=1)) == hash(timedelta(seconds=60))

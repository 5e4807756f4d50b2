"""Numbers and instants as Go writes them."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lang.go import exponential, rfc3339


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0e+00"),
        (-0.0, "-0e+00"),
        (1.0, "1e+00"),
        (-60.5, "-6.05e+01"),
        (1e21, "1e+21"),
        (123456789.25, "1.2345678925e+08"),
        (1.5e-7, "1.5e-07"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.1, "1e-01"),
        (100.0, "1e+02"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_a_number_has_as_many_digits_as_it_needs_and_two_in_the_exponent(number, text):
    assert exponential(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_can_be_read_back(number):
    assert float(exponential(number)) == number
    mantissa = exponential(number).partition("e")[0]
    assert not mantissa.endswith("0") or "." not in mantissa


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (None, "0001-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, 10, 0, 20, 120_000, tzinfo=UTC), "2026-01-01T10:00:20.12Z"),
        (datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "2026-01-01T00:00:00.000001Z"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2025-12-31T23:00:00Z"),
    ],
)
def test_an_instant_is_in_utc_and_has_no_zeros_at_its_end(at, text):
    assert rfc3339(at) == text

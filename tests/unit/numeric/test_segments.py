"""Where series began anew."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from engine.numeric.segments import calm, carry_forward, last_fall

NAN = math.nan


@pytest.mark.parametrize(
    ("why", "values", "foot"),
    [
        ("no fall", [1, 2, 3, 4, 5, 6, 7, 8], 0),
        ("one fall", [5, 6, 7, 8, 1, 2, 3, 4], 4),
        ("the later of two", [5, 6, 1, 2, 7, 8, 9, 0, 1], 7),
        ("a fall of three steps", [9, 9, 9, 9, 7, 5, 1, 1.5, 2, 2.5], 6),
        ("in the last sample", [5, 6, 7, 8, 9, 1], 5),
        ("across a gap", [5, 6, 7, NAN, NAN, 1, 2, 3], 5),
        ("back from a single wild sample", [5, 5, 5, 90, 5, 5, 5, 5], 0),
        ("too small", [5, 6, 7, 6.5, 7, 8, 9, 10], 0),
        ("too slow", [9, 8.8, 8.6, 8.4, 8.2, 8, 7.8, 7.6], 0),
        ("too short to tell", [9, 1, 1], 0),
        ("nothing there", [NAN, NAN, NAN, NAN, NAN], 0),
    ],
)
def test_the_foot_of_the_last_fall_is_found(why, values, foot):
    assert last_fall(np.array([values], dtype=float), np.array([1.5]), deviations=0) == foot


def test_noise_is_no_fall_however_small_the_least_is():
    noise = np.random.default_rng(2).normal(0, 1, (200, 60))
    assert np.mean(last_fall(noise, np.zeros(200)) > 0) < 0.02


def test_a_value_is_carried_into_the_gap_after_it():
    np.testing.assert_array_equal(
        carry_forward(np.array([[NAN, 1, NAN, NAN, 2, NAN]])), [[NAN, 1, 1, 1, 2, 2]]
    )


@given(arrays.arrays(np.float64, st.tuples(st.integers(0, 3), st.integers(1, 9)), elements=st.floats(-9, 9)))
def test_calming_takes_the_median_of_three_neighbours(values):
    expected = values.copy()
    for row, column in np.ndindex(*values.shape):
        if 0 < column < values.shape[1] - 1:
            expected[row, column] = np.median(values[row, column - 1 : column + 2])
    np.testing.assert_array_equal(calm(values), expected)

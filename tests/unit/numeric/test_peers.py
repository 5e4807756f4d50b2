"""Taking apart what is common and what is each one's own."""

import math

import numpy as np
import pytest

from engine.numeric.peers import median_polish, rolling_mean

NAN = math.nan


def test_a_common_course_and_own_levels_are_found_exactly():
    course, levels = np.array([0.0, 3, 1, 7, 2]), np.array([10.0, -4, 2])
    parts = median_polish(levels[:, None] + course, np.ones((3, 5), dtype=bool))
    np.testing.assert_allclose(parts.rest, 0, atol=1e-12)
    np.testing.assert_allclose(parts.common - parts.common[0], course - course[0])
    np.testing.assert_allclose(parts.own - parts.own[0], levels - levels[0])


def test_the_common_course_stays_when_members_of_an_unusual_level_leave():
    rng = np.random.default_rng(1)
    levels = np.r_[np.zeros(11), np.full(9, 5.0)]
    values = levels[:, None] + rng.normal(0, 0.1, (20, 50))
    values[11:, 30:] = NAN  # all those of the high level are gone
    parts = median_polish(values, np.ones(values.shape, dtype=bool))
    assert np.median(parts.common[30:]) == pytest.approx(np.median(parts.common[:30]), abs=0.05)
    plain = np.nanmedian(values, axis=0)
    assert abs(np.median(plain[30:]) - np.median(plain[:30])) < 0.2  # the median alone holds while most stay
    values[4:11, 30:] = NAN
    assert np.median(median_polish(values, np.ones(values.shape, dtype=bool)).common[30:]) == pytest.approx(
        np.median(parts.common[:30]), abs=0.1
    )


def test_what_is_unusual_does_not_say_what_is_usual():
    values = np.zeros((5, 10))
    values[0, 3:] = 8.0
    usual = np.ones(values.shape, dtype=bool)
    usual[0, 3:] = False
    assert median_polish(values, usual).own[0] == 0
    assert median_polish(values, np.ones(values.shape, dtype=bool)).own[0] == 8
    usual[0] = False  # all of it: it is what it is
    assert median_polish(values, usual).own[0] == 8


def test_missing_values_are_left_out():
    values = np.array([[1.0, NAN, 3.0], [NAN, NAN, NAN], [2.0, 3.0, 4.0]])
    parts = median_polish(values, np.ones(values.shape, dtype=bool))
    np.testing.assert_allclose(parts.rest[[0, 2]], [[0, NAN, 0], [0, 0, 0]], atol=1e-12)
    assert np.isnan(parts.rest[1]).all()


def test_the_rolling_mean():
    found = rolling_mean(np.array([[1.0, 2, 3, NAN, NAN, 6, 7]]), 3)
    np.testing.assert_allclose(found, [[NAN, 1.5, 2, 2.5, NAN, NAN, 6.5]])
    assert rolling_mean(np.empty((2, 0)), 3).shape == (2, 0)

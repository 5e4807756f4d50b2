"""Floors, and how they grow."""

import numpy as np
import pytest

from engine.numeric.shapes import block_floors, growth, lower_envelope

NAN = np.nan


def test_a_floor_is_the_lowest_of_a_few_and_the_second_lowest_of_many():
    few = np.array([[3, 1, 2, 9, 8, 7.0]])
    assert block_floors(few, 2).tolist() == [[1, 7]]
    many = np.array([[5, 4, 0, 6, 9, 8, 7, 10.0]])
    assert block_floors(many, 2).tolist() == [[4, 8]]


def test_floors_are_of_the_newest_samples_and_leave_missing_ones_out():
    values = np.array([[-1, 3, NAN, 2, NAN, NAN, NAN, NAN, 6, NAN, NAN, NAN, NAN]])
    floors = block_floors(values, 3)
    assert floors[0, :2].tolist() == [3, 6]
    assert np.isnan(floors[0, 2])


def test_the_envelope_never_falls():
    envelope = lower_envelope(np.array([[1, 3, 2, NAN, 5, 4, NAN]]))
    assert envelope[0, :6].tolist() == [1, 2, 2, 4, 4, 4]
    assert np.isnan(envelope[0, 6])


def test_steady_growth_is_even_and_a_step_is_one_jump():
    steady, step = np.arange(25.0), np.where(np.arange(25) < 10, 0.0, 24.0)
    grown = growth(np.stack([steady, step, np.full(25, 3.0), steady[::-1]]))
    assert grown.total.tolist() == [24, 24, 0, 0]
    assert grown.quarter == pytest.approx([0.25, 0, 0, 0])
    assert grown.jump == pytest.approx([1 / 24, 1, 0, 0])


def test_what_comes_back_is_no_growth():
    breath = np.sin(np.linspace(0, 4 * np.pi, 25))
    assert growth(breath[None]).total[0] < 1.1
    assert growth(breath[None]).quarter[0] == 0

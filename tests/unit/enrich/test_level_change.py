"""What is said of signals that changed their level, and of such that did not."""

import numpy as np
import pytest

from engine.enrich.level_change import LevelChange
from engine.model.duration import Duration
from tests.unit.enrich.test_explain import GIB, HOUR, NOW, Series, noise, scene

LOOK = LevelChange()


def said(values, look=LOOK):
    return look.collect(scene(Series(values))).text


def test_a_step_is_told_with_its_time_and_its_levels():
    text = said(lambda times: 2 * GIB + GIB * (times > NOW - 2 * HOUR) + noise(times))
    assert text == (
        "It rose from 2 GiB to 3 GiB at about 2026-08-19 12:31 UTC, 1h 57m ago. What was deployed or started then?"
    )


def test_a_fall_is_told_as_one():
    assert said(lambda times: 2 * GIB - GIB * (times > NOW - HOUR) + noise(times)).startswith("It fell")


@pytest.mark.parametrize(
    "values",
    [
        lambda times: 2 * GIB + noise(times),
        lambda times: 2 * GIB + GIB * (times - NOW) / HOUR + noise(times),
        lambda times: np.full(len(times), 2 * GIB),
    ],
    ids=["noise", "a ramp", "constant"],
)
def test_what_has_no_step_has_none(values):
    assert said(values) == "None that stands out."


def test_of_a_few_samples_nothing_is_said():
    assert said(lambda times: np.where(times > NOW - 600, 1.0, np.nan)).startswith("Fewer than 16 samples")


def test_the_range_is_asked_for_in_a_hundred_and_twenty_points():
    source = Series(lambda times: 0 * times)
    LevelChange(range=Duration(hours=2)).collect(scene(source))
    ((expr, start, end, step),) = source.asked
    assert expr == "ray_memory_bytes"
    assert (end - start).total_seconds() == 2 * HOUR
    assert step.total_seconds() == 60
    with pytest.raises(ValueError, match="range"):
        LevelChange(range=Duration())

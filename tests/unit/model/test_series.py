"""A window keeps apart what is missing and what is not a number."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.model.verdict import Verdicts

NAN = float("nan")
TWO = (Labels(a="1"), Labels(a="2"))


def test_without_present_nan_is_a_missing_sample() -> None:
    window = Window.of(TWO, [0, 60], [[1, NAN], [NAN, 4]])
    assert window.present.tolist() == [[True, False], [False, True]]
    assert len(window) == 2


def test_with_present_nan_may_be_a_value() -> None:
    window = Window.of(TWO, [0], [[NAN], [NAN]], present=np.array([[True], [False]]))
    assert window.present.tolist() == [[True], [False]]
    assert window.warnings == ()


def test_a_window_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError):
        Window.of(TWO, [0, 60], [[1, 2]])


def test_a_window_may_be_empty() -> None:
    window = Window.of([], [0, 60], [], warnings=["partial"])
    assert window.values.shape == (0, 2)
    assert window.last().shape == (0,)
    assert window.warnings == ("partial",)


@pytest.mark.parametrize(
    ("seconds", "kept"), [(-1, 0), (0, 1), (59.999, 1), (60, 2), (61, 2), (120, 3), (1e6, 3)]
)
def test_until_keeps_what_is_not_later(seconds: float, kept: int) -> None:
    window = Window.of(TWO, [0, 60, 120], [[1, 2, 3], [4, NAN, 6]], warnings=["w"])
    part = window.until(instant_of(seconds))
    assert part.times.tolist() == [0, 60, 120][:kept]
    assert part.values.shape == part.present.shape == (2, kept)
    assert part.labels == window.labels
    assert part.warnings == ("w",)


def test_the_last_value_is_nan_where_the_sample_is_missing() -> None:
    window = Window.of(TWO, [0, 60], [[1, 2], [3, 9]], present=np.array([[True, True], [True, False]]))
    np.testing.assert_equal(window.last(), [2, NAN])
    np.testing.assert_equal(Window.of(TWO, [], [[], []]).last(), [NAN, NAN])


def test_instants_are_in_utc() -> None:
    assert instant_of(1767225600.5) == datetime(2026, 1, 1, 0, 0, 0, 500_000, UTC)


def test_a_verdict_has_the_figures_that_are_there() -> None:
    verdicts = Verdicts(
        labels=TWO,
        bad=np.array([True, False]),
        known=np.array([True, True]),
        values=np.array([1.0, 2.0]),
        details={"eta": np.array([5.0, NAN]), "slope": np.array([0.0, 1.0])},
    )
    assert len(verdicts) == 2
    assert verdicts.details_of(0) == {"eta": 5.0, "slope": 0.0}
    assert verdicts.details_of(1) == {"slope": 1.0}

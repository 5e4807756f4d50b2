import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.load.matchers import Misread
from engine.load.signals import (
    Constant,
    Gap,
    Noise,
    Ramp,
    Sawtooth,
    Season,
    Step,
    find_part,
    generate,
    parse_values,
)
from engine.model.duration import Duration

NAN = math.nan


@pytest.mark.parametrize(
    ("text", "values"),
    [  # each held against promtool 3.5
        ("", []),
        ("1 2", [1, 2]),
        (" 1  2 ", [1, 2]),
        ("0+10x3", [0, 10, 20, 30]),
        ("-2-4x3", [-2, -6, -10, -14]),
        ("5x2", [5, 5, 5]),
        ("1x0", [1]),
        ("+5", [5]),
        ("_", [NAN]),
        ("_x3", [NAN, NAN, NAN]),
        ("_x0", []),
        ("0x10", [0] * 11),
        ("1_000 1_0.5_0", [1000, 10.5]),
        (".5 2. 1.e3 1e-2 01", [0.5, 2, 1000, 0.01, 1]),
        ("Inf -inf", [math.inf, -math.inf]),
        ("Inf+1x1", [math.inf, math.inf]),
        ("0.1+0.1x3", [0.1, 0.2, 0.1 + 0.1 + 0.1, 0.1 + 0.1 + 0.1 + 0.1]),
    ],
)
def test_promtools_notation_makes_these_samples(text, values):
    samples = parse_values(text)
    np.testing.assert_array_equal(samples.values, np.array(values, dtype=float))
    assert samples.present == tuple(not math.isnan(value) for value in values)
    assert not any(samples.stale)


def test_a_stale_marker_is_no_sample_and_a_nan_is_one():
    samples = parse_values("stale NaN _ 1")
    assert samples.stale == (True, False, False, False)
    assert samples.present == (False, True, False, True)


@pytest.mark.parametrize(
    "text",
    ["1+2", "+ 2x3", "1x", "x3", "0x1F", "1,2", "1x3.5", "1e", "--1", "1+-2x3", "_x", "_1", "1_", "1__0", "1_e3",
     "Infx3", "NaNx2", "1+Infx3", "stalex2", "STALE", "1x1_0", "_x1_0", "-_1"],
)  # fmt: skip
def test_what_promtool_refuses_is_refused_at_its_place(text):
    with pytest.raises(Misread) as refused:
        parse_values("5 " + text)
    assert refused.value.offset == 2


@pytest.mark.parametrize("text", ["0x1000000", "_x" + "9" * 5000, "0x600000 0x600000"])
def test_no_notation_makes_more_samples_than_the_limit(text):
    with pytest.raises(Misread, match="more than 1000000 samples"):
        parse_values(text)


def test_native_histograms_are_refused_by_name():
    with pytest.raises(Misread, match="native histograms are not supported"):
        parse_values("1 {{schema:1}}x3")


@given(st.text(alphabet="0159+-x_. eEinfaNstl{}", max_size=20))
def test_any_text_makes_samples_or_is_refused(text):
    try:
        samples = parse_values(text)
    except Misread:
        return
    assert len(samples.values) == len(samples.present) == len(samples.stale)


def minutes(count: float) -> Duration:
    return Duration(minutes=count)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Constant(value=3), [3, 3, 3, 3, 3]),
        (Ramp(per_hour=60), [0, 1, 2, 3, 4]),
        (Season(period=minutes(4), amplitude=2), [0, 2, 0, -2, 0]),
        (Season(period=minutes(4), amplitude=2, phase=minutes(1)), [-2, 0, 2, 0, -2]),
        (Step(at=minutes(2), by=5), [0, 0, 5, 5, 5]),
        (Gap(at=minutes(1), length=minutes(2)), [0, NAN, NAN, 0, 0]),
        (Sawtooth(period=minutes(2), amplitude=4), [0, 2, 0, 2, 0]),
    ],
)
def test_a_part_has_these_values_minute_by_minute(part, expected):
    samples = generate([part], minutes(1), minutes(4))
    np.testing.assert_allclose(samples.values, expected, atol=1e-12)
    assert samples.present == tuple(not math.isnan(value) for value in expected)


def test_parts_add_up_and_the_end_is_included():
    samples = generate([Constant(value=1), Ramp(per_hour=60)], minutes(1), minutes(2.5))
    np.testing.assert_allclose(samples.values, [1, 2, 3])


@given(st.integers(0, 2**31), st.integers(1, 500))
def test_the_same_seed_gives_the_same_noise_whatever_the_length(seed, length):
    short = generate([Noise(sd=2, seed=seed)], minutes(1), minutes(length))
    long = generate([Noise(sd=2, seed=seed)], minutes(1), minutes(length + 50))
    np.testing.assert_array_equal(short.values, long.values[: length + 1])


def test_noise_has_the_deviation_that_was_asked_for_and_seeds_differ():
    one, other = (generate([Noise(sd=2, seed=seed)], minutes(1), Duration(days=7)).values for seed in (1, 2))
    assert np.std(one) == pytest.approx(2, rel=0.05)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05


def test_an_unknown_part_is_answered_with_the_nearest():
    with pytest.raises(LookupError, match="no part of a signal is called 'sesaon'; did you mean 'season'"):
        find_part("sesaon")

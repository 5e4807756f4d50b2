"""Ranges at many instants come to what each instant alone comes to, and both to what is right."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lang.promql import Storage, evaluate
from engine.lang.promql.range_functions import RANGE_FUNCTIONS
from engine.model.labels import Labels

CALLS = [
    "quantile_over_time(0.3, x[5m])" if name == "quantile_over_time"
    else "predict_linear(x[5m], 600)" if name == "predict_linear"
    else f"{name}(x[5m])"
    for name in sorted(RANGE_FUNCTIONS)
]  # fmt: skip
VALUES = st.one_of(
    st.integers(-5, 5).map(float),
    st.floats(-1e15, 1e15),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, 1e-300, 0.1]),
)


def storage_of(rows):
    """Return series x{n}, each of (gap in seconds, value)."""
    storage = Storage()
    for number, row in enumerate(rows):
        times = np.cumsum([gap for gap, _ in row]) * 1000
        storage.add(Labels(__name__="x", n=str(number)), times, [value for _, value in row])
    return storage


def same(one, other):
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-290)


@pytest.mark.parametrize("call", CALLS)
@settings(max_examples=15)
@given(
    rows=st.lists(
        st.lists(st.tuples(st.integers(1, 200), VALUES), min_size=1, max_size=30), min_size=1, max_size=3
    )
)
def test_a_range_is_its_instants(call, rows):
    storage = storage_of(rows)
    times = np.arange(0, 3000, 97.0)
    window = evaluate(call, storage, times)
    together = dict(zip(window.labels, zip(window.values, window.present, strict=True), strict=True))
    for step, at in enumerate(times):
        alone = evaluate(call, storage, [at])
        assert set(alone.labels) == {labels for labels, (_, present) in together.items() if present[step]}
        for labels, value in zip(alone.labels, alone.values[:, 0], strict=True):
            assert same(value, together[labels][0][step]), (at, labels)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_lines_are_exact_to_nine_digits_over_long_series(offset):
    """Months of samples before a window do not blur its line, which exact fractions give."""
    rng = np.random.default_rng(3)
    times = 1_600_000_000_000 + np.arange(200_000) * 30_000
    values = offset + np.cumsum(rng.normal(0, 1, len(times)))
    storage = Storage()
    storage.add(Labels(__name__="x"), times, values)
    instants = times[-1] / 1000 - np.arange(0, 90 * 200, 90)[::-1]
    found = evaluate("deriv(x[10m])", storage, instants).values[0]
    for at, slope in zip(instants, found, strict=True):
        inside = (times > (at - 600) * 1000) & (times <= at * 1000)
        xs = [Fraction(int(time), 1000) for time in times[inside]]
        ys = [Fraction(value) for value in values[inside].tolist()]
        middle = sum(xs) / len(xs)
        exact = sum((x - middle) * y for x, y in zip(xs, ys, strict=True)) / sum(
            (x - middle) ** 2 for x in xs
        )
        assert slope == pytest.approx(float(exact), rel=1e-9, abs=1e-12 * max(1.0, offset))

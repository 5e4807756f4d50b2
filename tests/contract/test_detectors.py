"""What holds for every detector, whatever it looks for.

A new detector adds its instances to `EXAMPLES`, and nothing else.
"""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.detect.absent import Absent
from engine.detect.anomaly import Anomaly, Season
from engine.detect.anomaly import Direction as Side
from engine.detect.burn_rate import BurnRate
from engine.detect.changepoint import Changepoint
from engine.detect.composite import Composite
from engine.detect.forecast import Direction, Forecast
from engine.detect.leak import Leak, Preset, Seasonality
from engine.detect.outlier import Outlier, Scale
from engine.detect.present import Present
from engine.detect.rate_of_change import RateOfChange
from engine.detect.seasonal import Seasonal
from engine.detect.stale import Stale
from engine.errors import DetectError
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.ports import Comparer, Rewriter
from engine.model.series import Window, instant_of
from engine.model.verdict import NOTHING, Memory
from engine.registry import detector
from engine.store.arrays import pack, unpack

NAN = math.nan
NOW = 1_800_000_000.0
AT = instant_of(NOW)

EXAMPLES = {
    "present": Present(),
    "forecast up to a number": Forecast(bound=1.0),
    "forecast down to a number": Forecast(bound=0, direction=Direction.DOWN),
    "forecast up to a query": Forecast(bound="limit"),
    "forecast of a minute": Forecast(
        bound="limit",
        lookback=Duration(minutes=1),
        step=Duration(seconds=2),
        horizon=Duration(minutes=1),
        min_samples=3,
    ),
    "anomaly": Anomaly(lookback=Duration(hours=4), step=Duration(minutes=1)),
    "anomaly of any direction, without a season": Anomaly(
        direction=Side.BOTH, season=Season.NONE, min_rel_dev=0.1, min_samples=10
    ),
    "anomaly of hours": Anomaly(direction=Side.DOWN, lookback=Duration(days=7), step=Duration(hours=1)),
    "outlier": Outlier(by=(), min_members=3, lookback=Duration(hours=4), step=Duration(minutes=1)),
    "outlier in small groups": Outlier(by=("__name__",), min_members=3, scale=Scale.LINEAR, min_dev=0.01),
    "changepoint": Changepoint(),
    "changepoint upwards": Changepoint(direction="up", min_shift=0.1, min_rel_shift=0.1),
    "rate of change": RateOfChange(per_hour=0.1),
    "rate of change of the level": RateOfChange(relative=0.1, lookback=Duration(minutes=10)),
    "leak": Leak(bound="limit", load="work"),
    "leak of four hours": Leak(
        preset=Preset.SENSITIVE,
        seasonality=Seasonality.NONE,
        bound=2.0,
        min_slope_per_hour=0.01,
        lookback=Duration(hours=4),
        step=Duration(minutes=1),
    ),
    "absent": Absent(),
    "seasonal": Seasonal(),
    "seasonal in summer time": Seasonal(
        seasons=(Duration(hours=1),), step=Duration(minutes=1), timezone="Europe/Berlin", min_rel_dev=0.1
    ),
    "stale": Stale(),
    "burn rate": BurnRate(objective=0.99),
    "composite": Composite(when="A unless B", on=("instance",)),
}
ALL = pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES.keys())
ALONE = {name: example for name, example in EXAMPLES.items() if not isinstance(example, Outlier)}
"""Detectors to which a series is the same whatever the others do."""

RNG = np.random.default_rng(11)
MINUTES = np.arange(241)
RAMP = 0.2 + 0.003 * MINUTES
SERIES = {
    "no column": [],
    "one sample": [0.5],
    "two samples": [0.5, 0.6],
    "constant": np.full(241, 0.5),
    "zeros": np.zeros(241),
    "all missing": np.full(241, NAN),
    "rising": RAMP,
    "falling": RAMP[::-1],
    "noisy": RAMP + RNG.normal(0, 0.05, 241),
    "gappy": np.where(RNG.random(241) < 0.3, NAN, RAMP),
    "one long gap": np.where(abs(MINUTES - 150) < 50, NAN, RAMP),
    "no sample lately": np.where(MINUTES > 150, NAN, RAMP),
    "resets": 0.2 + 0.01 * (MINUTES % 60),
    "reset in the newest sample": np.where(MINUTES == 240, 0.0, RAMP),
    "ties": np.round(RAMP, 1),
    "two values": MINUTES % 2 / 2,
    "10,000 samples": RNG.normal(0.5, 0.1, 10_000),
    "huge": 1e300 * RAMP,
    "largest": np.finfo(float).max * np.where(MINUTES % 2, 1, -1),
    "tiny": 1e-300 * RAMP,
    "subnormal": 5e-324 * (MINUTES % 3),
    "huge among tiny": np.where(MINUTES == 100, 1e300, 1e-300),
    "negative": -RAMP,
    "infinite": np.full(241, math.inf),
    "infinite in part": np.where(MINUTES % 7 == 0, -math.inf, RAMP),
    "far beyond": 1e9 + RAMP,
}
EACH = pytest.mark.parametrize("values", SERIES.values(), ids=SERIES.keys())


def asked(example):
    """What the example asks for beside the signal, by name."""
    inputs = example.inputs_of("rate(signal[5m])") if isinstance(example, Rewriter) else example.inputs
    return {**inputs, **example.histories} if isinstance(example, Comparer) else inputs


def window(values, example, *, copies=None, newest=NOW):
    """The same values as `copies` series on the example's grid; the newest sample is at `newest`."""
    copies = getattr(example, "min_members", 2) if copies is None else copies
    values = np.asarray(values, dtype=float)
    step = example.step.total_seconds() or 60.0
    labels = [Labels(__name__="signal", instance=f"n{i}") for i in range(copies)]
    return Window.of(labels, newest + step * np.arange(1 - len(values), 1), np.tile(values, (copies, 1)))


def limits(example, value=1.0):
    """An answer to everything that the example asks for: the first series has a limit, later ones have none."""
    answer = Window.of(
        [Labels(__name__="limit", instance="n0"), Labels(instance="n77")], [NOW], [[value], [7.0]]
    )
    return dict.fromkeys(asked(example), answer)


def assert_same(one, other):
    assert one.labels == other.labels
    for name in ("bad", "known", "values"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.details.keys() == other.details.keys()
    for name in one.details:
        np.testing.assert_array_equal(one.details[name], other.details[name], err_msg=name)


def assert_sound(example, signal, verdicts):
    """The verdicts answer for every series, in arrays of the right type, with declared and finite figures.

    They may answer for more: groups of series, and series that are gone.
    """
    assert verdicts.labels[: len(signal)] == signal.labels
    assert len(set(verdicts.labels)) == len(verdicts)
    for array, kind in ((verdicts.bad, np.bool_), (verdicts.known, np.bool_), (verdicts.values, np.float64)):
        assert array.shape == (len(verdicts),)
        assert array.dtype == kind
    assert not (verdicts.bad & ~verdicts.known).any()
    assert set(verdicts.details) <= set(example.details)
    for name, figures in verdicts.details.items():
        assert figures.shape == (len(verdicts),), name
        assert not np.isinf(figures).any(), name


def test_every_detector_has_an_example():
    assert {detector.name_of(example) for example in EXAMPLES.values()} == set(detector)


@ALL
def test_a_detector_is_a_frozen_dataclass_with_documentation(example):
    assert dataclasses.is_dataclass(example)
    assert type(example).__dataclass_params__.frozen
    assert type(example).__doc__
    assert all(type(example).details.values())
    assert hash(example) == hash(dataclasses.replace(example))


@ALL
@EACH
def test_whatever_the_series_the_verdicts_are_sound(example, values):
    signal = window(values, example)
    assert_sound(example, signal, example.judge(signal, limits(example), AT))


@ALL
@pytest.mark.parametrize("value", [0.0, -1.0, 1e300, -1e300, 1e-300, NAN, math.inf, -math.inf])
@pytest.mark.parametrize(
    "values", [SERIES["noisy"], SERIES["huge"], SERIES["zeros"], SERIES["infinite in part"]]
)
def test_whatever_the_inputs_the_verdicts_are_sound(example, values, value):
    signal = window(values, example)
    assert_sound(example, signal, example.judge(signal, limits(example, value), AT))


@ALL
@given(
    values=st.lists(st.floats(width=64), max_size=40),
    limit=st.floats(width=64),
    rounding=st.none() | st.integers(0, 2),
)
def test_nothing_that_floats_can_say_upsets_a_detector(example, values, limit, rounding):
    values = np.array(values, dtype=float)
    signal = window(values if rounding is None else np.round(np.clip(values, -9, 9), rounding), example)
    assert_sound(example, signal, example.judge(signal, limits(example, limit), AT))


@ALL
@EACH
def test_nothing_is_changed_and_the_same_question_has_the_same_answer(example, values):
    signal, inputs = window(values, example), limits(example)
    for answered in (signal, *inputs.values()):
        for array in (answered.times, answered.values, answered.present):
            array.flags.writeable = False
    first = example.judge(signal, inputs, AT)
    assert_same(first, example.judge(signal, inputs, AT))
    for array in (first.bad, first.known, first.values, *first.details.values()):
        assert not np.shares_memory(array, signal.values)
        assert not np.shares_memory(array, signal.present)


@ALL
@pytest.mark.parametrize("name", ["rising", "noisy", "gappy", "resets"])
def test_nothing_later_than_now_counts(example, name):
    """Whatever follows, even if it is shuffled, the answer is that of the past alone."""
    past = window(SERIES[name], example)
    answer = example.judge(past, limits(example), AT)
    step = example.step.total_seconds() or 60.0
    for seed in range(3):
        future = np.random.default_rng(seed).permutation(np.linspace(-5, 5, 60))
        values = np.concatenate([SERIES[name], future])
        more = window(values, example, newest=NOW + 60 * step)
        assert_same(answer, example.judge(more, limits(example), AT))


@pytest.mark.parametrize("example", ALONE.values(), ids=ALONE.keys())
def test_the_answer_on_a_series_does_not_depend_on_its_neighbours(example):
    """Each series alone, and all together in any order, are judged the same."""
    rows = np.stack([values for values in SERIES.values() if len(values) == 241])
    rows = rows[(~np.isnan(rows)).any(axis=1)]
    step = example.step.total_seconds() or 60.0
    times = NOW + step * np.arange(-240, 1)
    labels = [Labels(instance=f"n{i}") for i in range(len(rows))]
    bounds = dict.fromkeys(asked(example), Window.of(labels, [NOW], np.full((len(rows), 1), 1.0)))
    together = example.judge(Window.of(labels, times, rows), bounds, AT)
    order = np.random.default_rng(4).permutation(len(rows))
    shuffled = example.judge(Window.of([labels[i] for i in order], times, rows[order]), bounds, AT)
    for place, index in enumerate(order):
        alone = example.judge(Window.of([labels[index]], times, rows[[index]]), bounds, AT)
        for verdicts, at in ((alone, 0), (shuffled, place)):
            assert verdicts.bad[at] == together.bad[index]
            assert verdicts.known[at] == together.known[index]
            assert verdicts.details_of(at) == pytest.approx(together.details_of(index), rel=1e-9)


@ALL
def test_no_series_is_no_verdict(example):
    inputs = {} if isinstance(example, Rewriter) else limits(example)  # else there are series
    for columns in (0, 1, 241):
        verdicts = example.judge(window(np.zeros(columns), example, copies=0), inputs, AT)
        assert len(verdicts) == 0
        assert_sound(example, window(np.zeros(columns), example, copies=0), verdicts)


@ALL
def test_a_window_that_lies_in_the_future_is_empty(example):
    signal = window(SERIES["rising"], example, newest=NOW + 1e6)
    verdicts = example.judge(signal, {} if isinstance(example, Rewriter) else limits(example), AT)
    assert_sound(example, signal, verdicts)
    assert not verdicts.bad.any()


@pytest.mark.parametrize("example", [example for example in EXAMPLES.values() if example.lookback])
def test_time_that_goes_backwards_is_refused_where_history_matters(example):
    signal = window(SERIES["rising"], example)
    for times in (signal.times[::-1], np.full(241, NOW), np.where(MINUTES == 100, NOW, signal.times)):
        assert any(later <= earlier for earlier, later in pairwise(times))
        with pytest.raises(DetectError, match="do not rise"):
            example.judge(Window(signal.labels, times, signal.values, signal.present), limits(example), AT)


# ── With what was noted before ───────────────────────────────────────────────


def walk(example, *, evaluations=6, keep=lambda memory: memory, rows=None):
    """Return the verdicts of successive evaluations, each with the memory of the one before."""
    names = ["rising", "noisy", "resets", "gappy", "ties", "constant"]
    values = np.stack([np.concatenate([SERIES[name], np.asarray(SERIES[name])[::-1]]) for name in names])
    order = list(range(len(names))) if rows is None else rows
    step = example.step.total_seconds() or 60.0
    pause = max(step, example.lookback.total_seconds() / 12)
    labels = [Labels(__name__="signal", instance=f"n{i}") for i in order]
    times = NOW + step * np.arange(-240, 242)
    bounds = Window.of([Labels(instance=f"n{i}") for i in order], [NOW], np.full((len(order), 1), 1.2))
    answers, memory = [], NOTHING
    for index in range(evaluations):
        at = NOW + step * round(index * pause / step)
        signal = Window.of(labels, times, values[order])
        verdicts = example.judge(signal, dict.fromkeys(asked(example), bounds), instant_of(at), memory)
        answers.append(verdicts)
        memory = keep(verdicts.memory)
    return answers


@ALL
def test_what_was_noted_is_a_value_that_is_never_changed(example):
    def frozen(memory):
        for array in (*memory.columns.values(), *memory.shared.values()):
            array.flags.writeable = False
        return memory

    for one, other in zip(walk(example, keep=frozen), walk(example), strict=True):
        assert_same(one, other)


@ALL
def test_what_was_noted_may_go_through_the_store(example):
    for one, other in zip(
        walk(example, keep=lambda memory: unpack(pack(memory))), walk(example), strict=True
    ):
        assert_same(one, other)
        assert all(len(column) == len(one.memory) for column in one.memory.columns.values())


@ALL
def test_what_was_noted_of_a_series_is_found_again_in_any_order(example):
    straight = walk(example)[-1]
    turned = walk(example, rows=[5, 3, 1, 0, 2, 4])[-1]
    for index, labels in enumerate(straight.labels):
        other = turned.labels.index(labels)
        assert (straight.bad[index], straight.known[index]) == (turned.bad[other], turned.known[other])
        assert straight.details_of(index) == pytest.approx(turned.details_of(other), rel=1e-9)


@ALL
def test_notes_from_the_future_do_no_harm(example):
    """Somebody set the clock back: what was noted later than now is there."""
    memory = walk(example)[-1].memory
    signal = window(SERIES["noisy"], example)
    assert_sound(example, signal, example.judge(signal, limits(example), AT, memory))


@ALL
def test_notes_of_other_series_and_of_another_shape_do_no_harm(example):
    memory = walk(example)[-1].memory
    strange = Memory(
        memory.labels[:2],
        {name: np.full((2, 3, 4)[: column.ndim], 7.0) for name, column in memory.columns.items()},
        {name: np.full((2,), np.nan) for name in memory.shared},
        at=NOW,
    )
    signal = window(SERIES["noisy"], example)
    assert_sound(example, signal, example.judge(signal, limits(example), AT, strange))

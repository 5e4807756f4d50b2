"""What a detector is given to look at: a stable grid, and what happened between its points."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.flow.evaluate import fetch
from engine.flow.slots import offset_of, passed_at
from engine.lang.promql import Storage
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.rule import RuleGroup
from engine.query.embedded import EmbeddedSource

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = Duration(minutes=1)


@dataclass(frozen=True)
class Looks:
    """As much of a detector as `fetch` asks of it."""

    over: str | None = None
    lookback: Duration = Duration(minutes=10)
    step: Duration = MINUTE
    details: dict = field(default_factory=dict)
    inputs: dict = field(default_factory=dict)


def source(values, every=15, end=AT, **labels):
    """Samples of one metric `m`, the newest at `end`."""
    storage = Storage()
    times = [round(end.timestamp() * 1000) - 1000 * every * i for i in range(len(values))][::-1]
    storage.add(Labels(__name__="m", **labels), times, values, [False] * len(values))
    return EmbeddedSource(storage)


@pytest.mark.parametrize(
    ("over", "figure"), [("min", np.min), ("max", np.max), ("avg", np.mean), ("median", np.median)]
)
def test_each_point_is_the_figure_of_its_step(over, figure):
    values = np.random.default_rng(1).normal(size=44)
    window = fetch("m", Looks(over=over), source(values.tolist()), AT)
    np.testing.assert_allclose(window.values[0], figure(values.reshape(11, 4), axis=1), rtol=1e-12)
    assert window.times[-1] == AT.timestamp()


def test_an_expression_is_asked_at_ten_instants_a_step():
    values = np.random.default_rng(2).normal(size=110)
    plain = fetch("m * 2", Looks(over="min"), source(values.tolist(), every=6), AT)
    np.testing.assert_array_equal(plain.values[0], 2 * values.reshape(11, 10).min(axis=1))


@pytest.mark.parametrize(
    "expr", ["m", "(m)", "m + 0", 'm{pid=~".+"}', "sum by (pid) (m)", "m # the memory", "m offset 5m"]
)
def test_labels_are_those_without_it_but_for_the_metrics_name(expr):
    plain = fetch(expr, Looks(), source([1.0] * 100, pid="7"), AT)
    pushed = fetch(expr, Looks(over="max"), source([1.0] * 100, pid="7"), AT)
    assert [labels.without("__name__") for labels in plain.labels] == list(pushed.labels) == [Labels(pid="7")]
    np.testing.assert_array_equal(plain.values, pushed.values)


def test_a_scalar_has_a_history_too():
    window = fetch("scalar(m) + 1", Looks(over="avg"), source([1.0] * 100), AT)
    assert window.labels == (Labels(),)
    assert (window.values == 2).all()


def test_nothing_is_seen_between_the_points_of_a_series_that_ended():
    window = fetch("m", Looks(over="min"), source([1.0] * 20, end=AT - 4 * MINUTE), AT)
    assert window.present[0].tolist() == [False] * 2 + [True] * 5 + [False] * 4
    plain = fetch("m", Looks(), source([1.0] * 20, end=AT - 4 * MINUTE), AT)
    assert plain.present[0, -1]  # Prometheus itself sees the last sample for five minutes


def test_another_process_is_another_series():
    storage = Storage()
    for pid, first, last in (("7", 10, 5), ("8", 4, 0)):
        times = [round((AT - minutes * MINUTE).timestamp() * 1000) for minutes in range(first, last - 1, -1)]
        storage.add(Labels(__name__="m", pid=pid), times, [float(first)] * len(times), [False] * len(times))
    window = fetch("m", Looks(over="min"), EmbeddedSource(storage), AT)
    assert window.labels == (Labels(pid="7"), Labels(pid="8"))
    assert window.present.tolist() == [[True] * 6 + [False] * 5, [False] * 6 + [True] * 5]


@given(
    st.sampled_from(["10s", "1m", "90s", "5m", "7m"]),
    st.sampled_from(["15s", "1m", "90s", "4m", "7m"]),
    st.integers(0, 10**6),
)
def test_the_grid_is_one_over_all_slots(interval, step, number):
    group = RuleGroup(name="g", file="f", interval=Duration.parse(interval))
    looks = Looks(step=Duration.parse(step), lookback=Duration.parse("30m"))
    phases = set()
    for slot_number in range(number, number + 5):
        slot = datetime(1970, 1, 1, tzinfo=UTC) + offset_of(group) + slot_number * group.interval
        window = fetch("time()", looks, EmbeddedSource(Storage()), slot, passed=passed_at(group, slot))
        behind = slot.timestamp() - window.times[-1]
        assert 0 <= round(behind, 3) < looks.step.total_seconds()
        if group.interval % looks.step == timedelta():
            assert round(behind, 3) == 0
        phases.add(round(window.times[-1] * 1000) % round(looks.step.total_seconds() * 1000))
    assert len(phases) == 1

"""Storage keeps samples in order, whatever order they come in, and never shows an old state."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lang.promql import Storage, evaluate
from engine.lang.promql.syntax import LabelMatcher
from engine.model.labels import Labels, MatchOp

UP = Labels(__name__="up", job="ray")


def only_series(storage):
    (series,) = storage.select([LabelMatcher("job", MatchOp.EQUAL, "ray")])
    return series


@given(st.lists(st.lists(st.tuples(st.integers(0, 50), st.floats(allow_nan=False)), max_size=8), max_size=12))
def test_samples_are_in_order_and_of_equal_times_the_first_stays(batches):
    storage, expected = Storage(), {}
    for batch in batches:
        storage.add(UP, [at for at, _ in batch], [value for _, value in batch])
        for at, value in batch:
            expected.setdefault(at, value)
    if not expected:
        assert not storage.metric_names
        return
    samples = only_series(storage).samples
    assert samples.times.tolist() == sorted(expected)
    assert samples.values.tolist() == [expected[at] for at in sorted(expected)]


def test_an_added_sample_is_seen_by_the_next_evaluation():
    storage = Storage()
    storage.add(UP, [0], [1.0])
    assert evaluate("sum_over_time(up[1m])", storage, [30]).last().tolist() == [1]
    storage.add(UP, [20_000], [2.0])
    assert evaluate("sum_over_time(up[1m])", storage, [30]).last().tolist() == [3]
    storage.add(UP, [10_000], [5.0])
    assert evaluate("sum_over_time(up[1m])", storage, [30]).last().tolist() == [8]
    storage.add(UP, [25_000], [0.0], [True])
    assert len(evaluate("up", storage, [30])) == 0


def test_samples_that_were_handed_out_do_not_change_when_more_are_added():
    storage = Storage()
    storage.add(UP, [10], [1.0])
    before = only_series(storage).samples
    storage.add(UP, [20], [2.0])
    storage.add(UP, [5], [0.0])
    assert before.times.tolist() == [10]
    assert before.values.tolist() == [1.0]


def test_a_range_does_not_see_stale_markers():
    storage = Storage()
    storage.add(UP, [10, 20, 30], [1.0, np.nan, 3.0], [False, True, False])
    assert only_series(storage).live.times.tolist() == [10, 30]
    assert only_series(storage).samples.times.tolist() == [10, 20, 30]


def test_it_knows_the_names_of_its_metrics():
    storage = Storage()
    storage.add(UP, [1], [1.0])
    storage.add(Labels(__name__="down"), [1], [1.0])
    storage.add(Labels(__name__="empty"), [], [])
    assert set(storage.metric_names) == {"up", "down"}


@pytest.mark.parametrize(
    ("op", "value", "found"),
    [
        (MatchOp.EQUAL, "ray", {"ray"}),
        (MatchOp.EQUAL, "", {""}),
        (MatchOp.NOT_EQUAL, "ray", {"", "raylet", "a\nb"}),
        (MatchOp.REGEX, "ray", {"ray"}),
        (MatchOp.REGEX, "ray|raylet", {"ray", "raylet"}),
        (MatchOp.REGEX, "(?i)RAY", {"ray"}),
        (MatchOp.REGEX, "a.b", {"a\nb"}),
        (MatchOp.NOT_REGEX, "ray.*", {"", "a\nb"}),
    ],
)
def test_matchers_test_the_whole_value_and_a_missing_label_is_empty(op, value, found):
    storage = Storage()
    for job in ("", "ray", "raylet", "a\nb"):
        storage.add(Labels(__name__="up", job=job), [1], [1.0])
    name = LabelMatcher("__name__", MatchOp.EQUAL, "up")
    series = storage.select([name, LabelMatcher("job", op, value)])
    assert {one.labels.get("job", "") for one in series} == found

"""History as a test: what is written means what was seen, and passes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import EngineError
from engine.flow.slots import interval_of
from engine.lab.backtest import Course, walk
from engine.lab.files import bench_of
from engine.lab.fixture import MOST_TESTS, Fixture, _notation
from engine.lab.tester import run_test
from engine.load.rules import load_rules
from engine.load.signals import parse_values
from engine.model.labels import Labels
from engine.model.series import Window
from engine.query.history import HistorySource
from tests.unit.lab.lives import settings_of
from tests.unit.lab.test_backtest import HOT, MINUTE, T0, groups_of, storage_of, temperature


@given(
    st.lists(
        st.one_of(st.none(), st.sampled_from([0.0, 1.0]), st.floats(allow_nan=True, width=64)),
        min_size=1,
        max_size=30,
    )
)
def test_samples_survive_being_written_down(values):
    present = np.array([[value is not None for value in values]])
    floats = np.array([[np.nan if value is None else value for value in values]])
    read = parse_values(
        _notation(Window((Labels(a="b"),), np.arange(len(values)) * 60.0, floats, present), 0)
    )
    assert list(read.present) == present[0].tolist()
    np.testing.assert_array_equal(read.values, floats[0])
    ends = [i > 0 and present[0, i - 1] and not present[0, i] for i in range(len(values))]
    assert list(read.stale) == ends


def saved(tmp_path, rules, source, *, minutes=240, whole=None, monkeypatch=None):
    if whole is not None:
        monkeypatch.setattr("engine.lab.fixture.WHOLE", whole)
    path = tmp_path / "rules.yaml"
    path.write_text(rules)
    groups = list(load_rules([path]).groups)
    course = Course(settings=settings_of(), playbooks={}, start=T0, end=T0 + minutes * MINUTE)
    (records,) = walk(course, [groups], HistorySource(source, course.end, interval_of(groups[0])))
    notes = Fixture(tmp_path / "saved.yaml", course, groups, source).write(list(records.values()))
    return notes, list(records.values())


def results(tmp_path):
    (file,) = load_rules([tmp_path / "saved.yaml"]).tests
    bench = bench_of(file, settings_of(), {})
    return [run_test(test, bench) for test in file.tests]


def spans(*fires):
    """A temperature that is high in these minutes."""
    edges = [0, *(edge for fire in fires for edge in fire), 2000]
    return [(a, b, 70 if i % 2 else 20) for i, (a, b) in enumerate(pairwise(edges))]


def test_a_short_period_is_one_test_that_passes(tmp_path):
    source = storage_of(
        temperature(*spans((60, 90), (150, 160))), temperature((30, 100, 20), (100, 120, 80), node="b")
    )
    notes, (record,) = saved(tmp_path, HOT, source)
    assert len(record.episodes) == 3
    assert notes[0].endswith("9 of 9 moments came out as in history")
    (result,) = results(tmp_path)
    assert (result.failures, result.assertions) == ((), 9)


def test_without_alerts_the_test_is_that_there_are_none(tmp_path):
    notes, _ = saved(tmp_path, HOT, storage_of(temperature((0, 240, 20))))
    assert notes[0].endswith("1 of 1 moments came out as in history")
    (result,) = results(tmp_path)
    assert (result.failures, result.assertions) == ((), 1)


def test_of_a_long_period_there_is_a_test_around_each_alert(tmp_path, monkeypatch):
    fires = [(100 * i, 100 * i + 10) for i in range(1, MOST_TESTS + 4)]
    source = storage_of(temperature(*spans(*fires)))
    notes, (record,) = saved(tmp_path, HOT, source, minutes=1500, whole=100, monkeypatch=monkeypatch)
    assert len(record.episodes) == len(fires)
    found = results(tmp_path)
    assert len(found) == MOST_TESTS
    assert [result.failures for result in found] == [()] * MOST_TESTS
    assert "30 of 30 moments" in notes[0]


def test_what_looks_at_ranges_and_at_recorded_series_comes_with_what_it_asks_for(tmp_path):
    rules = HOT.replace("expr: temperature > 50", "expr: warm > 50").replace(
        "rules:", "rules:\n          - {record: warm, expr: 'max_over_time(temperature[10m])'}", 1
    )
    notes, (record,) = saved(tmp_path, rules, storage_of(temperature(*spans((60, 90)))))
    assert len(record.episodes) == 1
    assert "3 of 3 moments" in notes[0]
    assert 'series: "temperature{' in (tmp_path / "saved.yaml").read_text()


def test_groups_with_other_intervals_do_not_fit_into_one_file(tmp_path):
    groups = groups_of(HOT) + groups_of(HOT.replace("interval: 1m", "interval: 30s"))
    course = Course(settings=settings_of(), playbooks={}, start=T0, end=T0 + MINUTE)
    with pytest.raises(EngineError, match="1m and 30s"):
        Fixture(tmp_path / "saved.yaml", course, groups, storage_of())

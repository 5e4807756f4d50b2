"""What detectors note lasts as long as it is of use, and no longer."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from engine.detect.forecast import Forecast
from engine.detect.present import Present
from engine.errors import StoreError
from engine.flow.memories import KEPT, LARGE, SAVED_EVERY, Memories, kind_of
from engine.model.labels import Labels
from engine.model.rule import AlertingRule
from engine.model.series import instant_of
from engine.model.verdict import NOTHING, Memory
from engine.store.memory import MemoryStore

AT = instant_of(1_800_000_000.0)
RULE = AlertingRule(alert="Full", expr="x", detect=Forecast(bound=1.0), id="r")
ONE, TWO = Labels(i="1"), Labels(i="2")


def memories(store=None, rule=RULE):
    return Memories({"r": rule}, store or MemoryStore())


def memory(*labels, value=1.0, **shared):
    figures = np.arange(len(labels)) + value
    return Memory(labels, {"peak": figures, "scores": np.column_stack([figures, figures])}, shared)


def test_notes_come_back_at_the_next_evaluation():
    kept = memories()
    assert kept.of("r") is NOTHING
    kept.note("r", memory(ONE, TWO, pool=np.ones(3)), AT)
    assert kept.of("r").rows((TWO, ONE), "peak").tolist() == [2.0, 1.0]
    assert kept.of("r").shared["pool"].tolist() == [1.0, 1.0, 1.0]


def test_a_series_that_is_away_is_remembered_for_a_day():
    kept = memories()
    kept.note("r", memory(ONE, TWO), AT)
    kept.note("r", memory(ONE, value=5.0), AT + KEPT / 2)
    assert kept.of("r").rows((ONE, TWO), "peak").tolist() == [5.0, 2.0]
    kept.note("r", memory(ONE, value=6.0), AT + KEPT - timedelta(seconds=1))
    assert TWO in kept.of("r").labels
    kept.note("r", memory(ONE, value=7.0), AT + KEPT)
    assert kept.of("r").labels == (ONE,)


def test_a_series_that_is_away_while_a_column_gets_another_shape_loses_that_column_alone():
    kept = memories()
    kept.note("r", memory(ONE, TWO), AT)
    wider = Memory((ONE,), {"peak": np.array([9.0]), "scores": np.ones((1, 3))})
    kept.note("r", wider, AT)
    assert kept.of("r").rows((TWO,), "peak").tolist() == [2.0]
    assert np.isnan(kept.of("r").rows((TWO,), "scores", 3)).all()


def test_a_restart_finds_what_was_saved():
    store = MemoryStore()
    first = memories(store)
    first.note("r", memory(ONE), AT)
    store.save_alerts("g", AT, {}, first.due(["r"], AT, ()))
    assert memories(store).of("r").rows((ONE,), "peak").tolist() == [1.0]


def test_another_setting_of_the_rule_keeps_episodes_only():
    store = MemoryStore()
    first = memories(store)
    first.note("r", memory(ONE, pool=np.ones(3)), AT)
    store.save_alerts("g", AT, {}, first.due(["r"], AT, ()))
    changed = replace(RULE, detect=Forecast(bound=2.0))
    assert kind_of(changed) != kind_of(RULE)
    found = memories(store, changed).of("r")
    assert np.isnan(found.rows((ONE,), "peak")).all()
    assert found.rows((ONE,), "scores", 2).tolist() == [[1.0, 1.0]]
    assert not found.shared


def test_what_cannot_be_read_begins_anew_and_is_said():
    class Broken(MemoryStore):
        def memory(self, rule_id):
            raise StoreError("damaged")

    kept = memories(Broken())
    assert kept.of("r") is NOTHING
    assert "damaged" in str(kept.unread["r"])


def test_large_memories_are_saved_now_and_then_and_when_an_alert_changes():
    kept = memories()
    kept.note("r", memory(ONE, pool=np.zeros(LARGE)), AT)
    assert kept.due(["r"], AT, ())
    kept.saved(["r"], AT)
    assert not kept.due(["r"], AT + timedelta(minutes=1), ())
    assert kept.due(["r"], AT + timedelta(minutes=1), ("r",))
    assert kept.due(["r"], AT + SAVED_EVERY, ())
    assert kept.due(["r"], AT - timedelta(hours=1), ())  # the clock was set back
    kept.note("r", memory(ONE), AT)
    assert kept.due(["r"], AT + timedelta(minutes=1), ())


@pytest.mark.parametrize("rule", [RULE, replace(RULE, detect=Present())])
def test_a_detector_without_notes_has_nothing_saved(rule):
    kept = memories(rule=rule)
    kept.note("r", NOTHING, AT)
    assert not kept.due(["r"], AT, ("r",))


def test_series_that_change_their_labels_all_the_time_do_not_pile_up(monkeypatch):
    monkeypatch.setattr("engine.flow.memories.MOST_AWAY", 5)
    kept = memories()
    for minute in range(20):
        kept.note("r", memory(Labels(i=str(minute))), AT + timedelta(minutes=minute))
    assert sorted(int(labels["i"]) for labels in kept.of("r").labels) == [14, 15, 16, 17, 18, 19]


def test_what_was_noted_of_series_outlives_an_evaluation_without_any():
    kept = memories()
    kept.note("r", memory(ONE), AT)
    kept.note("r", Memory(shared={"pool": np.ones(2)}), AT + timedelta(minutes=1))
    kept.note("r", memory(TWO, value=9.0), AT + timedelta(minutes=2))
    assert kept.of("r").rows((ONE,), "peak").tolist() == [1.0]
    assert kept.of("r").rows((ONE,), "scores", 2).tolist() == [[1.0, 1.0]]

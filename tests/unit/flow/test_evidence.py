"""Evidence is fetched once an episode, within its time, and its faults cost nothing but itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from engine.clock import Stopwatch
from engine.detect.present import Present
from engine.errors import ClusterError
from engine.flow import evidence
from engine.flow.clusters import Clusters
from engine.flow.events import Events
from engine.flow.evidence import BUDGET, EvidenceBox
from engine.lab.cluster import LabRay
from engine.lang.promql import Storage
from engine.model.alert import Alert, AlertState, Evidence, Picture, Text
from engine.model.event import Event, Kind
from engine.model.labels import Labels
from engine.model.ports import Scene
from engine.model.rule import AlertingRule
from engine.model.settings import RayCluster
from engine.query.embedded import EmbeddedSource
from engine.registry import enricher, load_plugins
from engine.store.memory import MemoryStore

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Witness:
    """An enricher that notes what it was shown, and answers as it is told."""

    answer: Callable[[Scene], Evidence] = lambda _scene: Text("witness", "seen")
    scenes: list[Scene] = field(default_factory=list)

    def collect(self, scene: Scene) -> Evidence:
        self.scenes.append(scene)
        return self.answer(scene)


@pytest.fixture(autouse=True)
def witness_is_known() -> Iterator[None]:
    load_plugins()
    enricher("witness")(Witness)
    yield
    del enricher._classes["witness"]


class Watch:
    """A stopwatch that the test moves, in place of the real one."""

    now = 0.0

    def __init__(self) -> None:
        self._start = Watch.now

    def seconds(self) -> float:
        return Watch.now - self._start


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> type[Watch]:
    Watch.now = 0.0
    monkeypatch.setattr(evidence, "Stopwatch", Watch)
    return Watch


class Scenery:
    """A box, the rule it serves, and what was told of it."""

    def __init__(self, *witnesses: Witness) -> None:
        self.told: list[Event] = []
        self.rule: AlertingRule | None = AlertingRule(
            alert="Hot", expr="temperature", detect=Present(), enrich=witnesses, id="f;g;Hot"
        )
        self.ray = LabRay()
        self.box = EvidenceBox(
            EmbeddedSource(Storage()),
            Clusters([RayCluster(name="c", address="http://ray")], lambda *_: self.ray),
            lambda _id: self.rule,
            Events(MemoryStore(), [self.told.append]),
        )


def an_alert(room: str = "a", minute: int = 0, state: AlertState = AlertState.FIRING) -> Alert:
    fired_at = AT + timedelta(minutes=minute)
    return Alert(
        rule_id="f;g;Hot",
        labels=Labels(alertname="Hot", room=room),
        signal=Labels(room=room),
        state=state,
        value=60,
        active_at=fired_at,
        fired_at=fired_at,
    )


def test_evidence_is_collected_once_an_episode() -> None:
    witness = Witness()
    scenery = Scenery(witness)
    first = scenery.box.of(an_alert(), AT)
    assert first == (Text("witness", "seen"),)
    assert scenery.box.of(replace(an_alert(), value=99), AT + timedelta(hours=1)) is first
    assert len(witness.scenes) == 1
    scenery.box.of(an_alert("b"), AT)
    scenery.box.of(an_alert(minute=30), AT)
    assert len(witness.scenes) == 3, "another alert and another episode are looked at anew"


def test_an_enricher_is_shown_the_alert_its_rule_and_the_way_to_more() -> None:
    witness = Witness()
    scenery = Scenery(witness)
    alert = an_alert()
    scenery.box.of(alert, AT)
    (scene,) = witness.scenes
    assert (scene.alert, scene.rule, scene.at, scene.ray) == (alert, scenery.rule, AT, scenery.ray)


@pytest.mark.parametrize("state", [AlertState.PENDING, AlertState.RESOLVED])
def test_what_does_not_fire_is_not_looked_at(state: AlertState) -> None:
    witness = Witness()
    assert Scenery(witness).box.of(an_alert(state=state), AT) == ()
    assert witness.scenes == []


def test_what_has_resolved_keeps_the_evidence_of_when_it_fired() -> None:
    scenery = Scenery(Witness())
    found = scenery.box.of(an_alert(), AT)
    assert scenery.box.of(an_alert(state=AlertState.RESOLVED), AT) == found


def test_an_alert_whose_rule_is_gone_has_none() -> None:
    scenery = Scenery(Witness())
    scenery.rule = None
    assert scenery.box.of(an_alert(), AT) == ()


def fails(error: Exception) -> Callable[[Scene], Evidence]:
    def answer(_scene: Scene) -> Evidence:
        raise error

    return answer


def test_a_piece_that_cannot_be_had_says_why_and_costs_no_other() -> None:
    scenery = Scenery(Witness(fails(ClusterError("http://ray: refused"))), Witness())
    assert scenery.box.of(an_alert(), AT) == (
        Text("witness", "not available: http://ray: refused"),
        Text("witness", "seen"),
    )
    assert scenery.told == [], "that something is away is no fault of the engine's"


def test_a_fault_in_an_enricher_is_told_with_its_traceback_and_costs_no_other() -> None:
    scenery = Scenery(Witness(fails(KeyError("x"))), Witness())
    found = scenery.box.of(an_alert(), AT)
    assert found == (Text("witness", "not available: KeyError: 'x'"), Text("witness", "seen"))
    (event,) = scenery.told
    assert (event.kind, event.subject) == (Kind.TROUBLE, "enricher")
    assert event.data["enricher"] == "witness"
    assert "KeyError" in event.data["traceback"]


def takes(watch: type[Watch], seconds: float) -> Callable[[Scene], Evidence]:
    def answer(_scene: Scene) -> Evidence:
        watch.now += seconds
        return Text("witness", f"after {seconds:g} s")

    return answer


def test_what_is_left_when_the_time_of_an_alert_is_spent_is_left_out_and_said(watch: type[Watch]) -> None:
    slow, quick = Witness(takes(watch, BUDGET + 1)), Witness()
    found = Scenery(slow, quick).box.of(an_alert(), AT)
    assert found == (
        Text("witness", "after 11 s"),
        Text("witness", "left out: the 10 s for evidence were spent"),
    )
    assert quick.scenes == []


def test_when_many_fire_at_once_the_rest_is_told_without_and_looked_at_later(watch: type[Watch]) -> None:
    scenery = Scenery(Witness(takes(watch, 6)))
    found = [bool(scenery.box.of(an_alert(str(number)), AT)) for number in range(4)]
    assert found == [True, True, False, False], "the time of all of them is spent"
    watch.now += 2 * BUDGET + 1
    assert scenery.box.of(an_alert("3"), AT), "at the next chance"


def test_the_stopwatch_of_the_box_is_the_real_one() -> None:
    assert evidence.Stopwatch is Stopwatch


def test_old_episodes_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_KEEP", 2)
    witness = Witness()
    scenery = Scenery(witness)
    for room in ("a", "b", "c", "a"):
        scenery.box.of(an_alert(room), AT)
    assert len(witness.scenes) == 4
    scenery.box.of(an_alert("c"), AT)
    assert len(witness.scenes) == 4


def picture(png: bytes) -> Witness:
    return Witness(lambda _scene: Picture("chart", png, "a chart"))


def test_pictures_are_kept_in_the_folder_if_there_is_one(tmp_path: Path) -> None:
    scenery = Scenery(picture(b"one"), Witness(), picture(b"two"))
    scenery.box.folder = tmp_path / "evidence" / "charts"
    alert = an_alert()
    scenery.box.of(alert, AT)
    kept = {path.name: path.read_bytes() for path in scenery.box.folder.iterdir()}
    begin = f"Hot-{alert.fingerprint}-20260101T120000"
    assert sorted(kept.values()) == [b"one", b"two"], "each has a file of its own"
    assert all(name.startswith(begin) and name.endswith(".png") for name in kept)


def test_an_alert_of_any_name_has_a_file(tmp_path: Path) -> None:
    scenery = Scenery(picture(b"x"))
    scenery.box.folder = tmp_path / "charts"
    scenery.box.of(replace(an_alert(), labels=Labels(alertname="../../a/b c\n")), AT)
    (path,) = tmp_path.rglob("*.png")
    assert path.parent == scenery.box.folder
    assert scenery.told == []


def test_a_folder_that_takes_nothing_is_told_and_the_evidence_is_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    scenery = Scenery(picture(b"x"))
    scenery.box.folder = tmp_path / "file" / "charts"
    assert scenery.box.of(an_alert(), AT) == (Picture("chart", b"x", "a chart"),)
    assert [(event.kind, event.subject) for event in scenery.told] == [(Kind.TROUBLE, "evidence_dir")]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Scenery(picture(b"x")).box.of(an_alert(), AT)
    assert list(tmp_path.iterdir()) == []

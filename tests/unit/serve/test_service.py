"""The service keeps its engine running through set clocks, bad reloads and lost doors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from engine.clock import SystemClock, VirtualClock
from engine.errors import EngineError, LoadError
from engine.flow.build import load
from engine.flow.engine import Engine
from engine.model.event import Event, Kind
from engine.serve.http import HttpServer
from engine.serve.service import LARGEST_SLEW, Service
from engine.store.sql import open_store

RULES = """
groups:
  - name: g
    interval: 1h
    rules: [{alert: Hot, expr: up == 0}]
"""
SETTINGS = """
prometheus: {url: "http://127.0.0.1:9", timeout: 1s}
state: {url: "sqlite:///engine.db"}
rule_files: [rules.yaml]
route: {receiver: r}
receivers: [{name: r}]
"""


class Turns:
    """Stands for the end of the service: it comes after so many looks, and something may happen at each."""

    def __init__(self, *happenings: Callable[[], object]) -> None:
        self._left = list(happenings)

    def wait(self, _seconds: float) -> bool:
        if not self._left:
            return True
        self._left.pop(0)()
        return False

    def is_set(self) -> bool:
        return False


class Door:
    """Stands for the HTTP server."""

    alive = True
    failed: BaseException | None = None


class Begun:
    """A service whose engine runs, on a clock that the test sets and without its door."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.events, self.door = folder, list[Event](), Door()
        self.clock = VirtualClock(SystemClock().now())
        self.write(SETTINGS, RULES)
        settings = str(folder / "engine.yaml")
        self.service = Service(settings, host="127.0.0.1", port=0, observers=[self.events.append])
        self.service._clock = cast(SystemClock, self.clock)
        self.service._http = cast(HttpServer, self.door)
        self.service._store = open_store(f"sqlite:///{folder}/engine.db")
        self.service._begin(load(settings))

    def write(self, settings: str, rules: str) -> None:
        (self.folder / "engine.yaml").write_text(settings)
        (self.folder / "rules.yaml").write_text(rules)

    def watch(self, *happenings: Callable[[], object]) -> None:
        """Let the service look around so often, each time after something has happened."""
        self.service._stop = cast(threading.Event, Turns(*happenings))
        self.service._watch()

    def set_by(self, seconds: float) -> Callable[[], None]:
        return lambda: self.clock.sleep(timedelta(seconds=seconds))

    @property
    def engine(self) -> Engine:
        return self.service._present()

    @property
    def rules(self) -> list[str]:
        """The names of the rules in `rules.yaml` that are evaluated now."""
        return [rule.name for group in self.engine.groups.values() for rule in group.rules]

    def troubles(self, part: str) -> list[str]:
        return [event.reason for event in self.events if event.kind is Kind.TROUBLE and event.subject == part]

    def end(self) -> None:
        assert self.service._scheduler is not None
        assert self.service._source is not None
        assert self.service._store is not None
        self.service._scheduler.stop()
        self.service._source.close()
        self.service._store.close()


@pytest.fixture
def begun(tmp_path: Path) -> Iterator[Begun]:
    service = Begun(tmp_path)
    yield service
    service.end()


@pytest.mark.parametrize("jump", [3600, -3600, LARGEST_SLEW + 60])
def test_a_clock_that_was_set_is_told_and_all_timers_begin_anew(begun: Begun, jump: float) -> None:
    before = begun.engine
    begun.watch(lambda: None, begun.set_by(jump), lambda: None)
    assert begun.engine is not before
    assert begun.troubles("clock") == [f"the clock was set by {jump:+.0f} s; all timers begin anew"], "once"
    assert begun.service._healthy() == ""


def test_a_clock_that_is_slewed_a_little_is_not_taken_for_set(begun: Begun) -> None:
    before = begun.engine
    begun.watch(begun.set_by(1), begun.set_by(1), begun.set_by(-2))
    assert begun.engine is before
    assert begun.troubles("clock") == []


def test_each_jump_counts(begun: Begun) -> None:
    begun.watch(begun.set_by(3600), begun.set_by(-7200), begun.set_by(3600))
    assert len(begun.troubles("clock")) == 3


def test_after_a_jump_the_files_are_those_that_were_loaded_last(begun: Begun) -> None:
    begun.write(SETTINGS, "groups: [")
    begun.watch(begun.set_by(3600))
    assert begun.rules == ["Hot"], "a clock that is set is no reload"


def test_a_door_that_closed_ends_the_service_with_the_reason(begun: Begun) -> None:
    def close() -> None:
        begun.door.alive, begun.door.failed = False, OSError("too many open files")

    with pytest.raises(EngineError, match=r"the HTTP server on 127\.0\.0\.1:0 ended: .*too many open files"):
        begun.watch(close)


def test_a_state_that_is_lost_under_the_engine_is_told_once(begun: Begun) -> None:
    begun.watch(lambda: None, (begun.folder / "engine.db").unlink, lambda: None)
    (said,) = begun.troubles("store")
    assert "what is kept from now on is lost at the next restart" in said


def test_it_is_healthy_before_it_starts_and_while_the_scheduler_runs(begun: Begun) -> None:
    service = Service(None, host="127.0.0.1", port=0)
    assert service._healthy() == ""
    assert service._ready() == "starting"
    assert begun.service._healthy() == ""
    assert begun.service._scheduler is not None
    begun.service._scheduler.stop()
    assert begun.service._healthy() == "the scheduler does not run"
    assert begun.service._ready() == "starting"
    begun.service._drive(begun.engine)


def test_a_reload_takes_over_the_files_as_they_are_now(begun: Begun) -> None:
    before = begun.engine
    begun.write(SETTINGS, RULES.replace("Hot", "Cold"))
    begun.service.reload()
    assert begun.rules == ["Cold"]
    assert begun.engine is not before
    assert begun.service._healthy() == ""


@pytest.mark.parametrize(
    ("settings", "rules", "error"),
    [
        (SETTINGS, RULES.replace("up == 0", "up =="), LoadError),
        (SETTINGS.replace("receiver: r}", "receiver: x}"), RULES, LoadError),
        (SETTINGS.replace("engine.db", "other.db"), RULES, LoadError),
    ],
)
def test_a_reload_that_fails_changes_nothing(
    begun: Begun, settings: str, rules: str, error: type[Exception]
) -> None:
    before, scheduler = begun.engine, begun.service._scheduler
    begun.write(settings, rules)
    with pytest.raises(error):
        begun.service.reload()
    assert begun.engine is before
    assert begun.service._scheduler is scheduler
    assert scheduler is not None
    assert scheduler.running


@pytest.mark.parametrize(
    ("ago", "why_not"),
    [
        (None, "not evaluated yet: "),
        (timedelta(), ""),
        (timedelta(hours=4), "not evaluated for three intervals: "),
    ],
)
def test_it_is_ready_once_every_group_was_evaluated_lately(
    begun: Begun, ago: timedelta | None, why_not: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = begun.engine
    (group_id,) = engine.groups
    last = None if ago is None else begun.clock.now() - ago
    monkeypatch.setattr(engine, "last_slot", lambda _group_id: last)
    assert begun.service._ready() == (f"{why_not}{group_id}" if why_not else "")


def test_a_reload_before_the_start_is_refused() -> None:
    with pytest.raises(EngineError, match="only starting"):
        Service(None, host="127.0.0.1", port=0).reload()

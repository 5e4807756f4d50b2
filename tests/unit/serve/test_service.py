"""The service keeps its engine running through set clocks, bad reloads and lost doors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from engine.clock import SystemClock, VirtualClock
from engine.errors import EngineError, LoadError
from engine.flow.build import load
from engine.model.event import Event, Kind
from engine.serve.http import HttpServer
from engine.serve.scheduler import Scheduler
from engine.serve.service import LARGEST_SLEW, Service
from engine.store.memory import MemoryStore
from tests.flow.stage import Stage

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

    def set(self) -> None:
        self._left.clear()


class Door:
    """Stands for the HTTP server."""

    alive = True
    failed: BaseException | None = None


class Realigned:
    """Stands for the scheduler, and counts how often it was planned anew."""

    running = True

    def __init__(self) -> None:
        self.count = 0

    def realign(self) -> None:
        self.count += 1


class Watched:
    """A service in the middle of its watch, on a clock that the test sets."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.clock = VirtualClock(SystemClock().now())
        self.service = Service(None, host="127.0.0.1", port=0)
        self.scheduler, self.door = Realigned(), Door()
        self.service._clock = cast(SystemClock, self.clock)
        self.service._engine = self.stage.engine
        self.service._scheduler = cast(Scheduler, self.scheduler)
        self.service._http = cast(HttpServer, self.door)

    def watch(self, *happenings: Callable[[], object]) -> None:
        self.service._stop = cast(Any, Turns(*happenings))
        self.service._watch()

    def set_by(self, seconds: float) -> Callable[[], None]:
        return lambda: self.clock.sleep(timedelta(seconds=seconds))

    @property
    def told(self) -> list[Event]:
        return [event for event in self.stage.events if event.kind is Kind.TROUBLE]


@pytest.mark.parametrize("jump", [3600, -3600, LARGEST_SLEW + 60])
def test_a_clock_that_was_set_is_told_and_the_wake_ups_are_planned_anew(jump: float) -> None:
    watched = Watched()
    watched.watch(lambda: None, watched.set_by(jump), lambda: None)
    assert watched.scheduler.count == 1, "once for one jump"
    (event,) = watched.told
    assert event.subject == "clock"
    assert event.reason == f"the clock was set by {jump:+.0f} s; evaluations are realigned"


def test_a_clock_that_is_slewed_a_little_is_not_taken_for_set() -> None:
    watched = Watched()
    watched.watch(watched.set_by(1), watched.set_by(1), watched.set_by(-2))
    assert (watched.scheduler.count, watched.told) == (0, [])


def test_each_jump_counts() -> None:
    watched = Watched()
    watched.watch(watched.set_by(3600), watched.set_by(-7200), watched.set_by(3600))
    assert watched.scheduler.count == 3


def test_a_door_that_closed_ends_the_service_with_the_reason() -> None:
    watched = Watched()

    def close() -> None:
        watched.door.alive, watched.door.failed = False, OSError("too many open files")

    with pytest.raises(EngineError, match=r"the HTTP server on 127\.0\.0\.1:0 ended: .*too many open files"):
        watched.watch(close)


def test_it_is_healthy_before_it_starts_and_while_the_scheduler_runs() -> None:
    service = Service(None, host="127.0.0.1", port=0)
    assert service._healthy() == ""
    assert service._ready() == "starting"
    watched = Watched()
    assert watched.service._healthy() == ""
    watched.scheduler.running = False
    assert watched.service._healthy() == "the scheduler does not run"
    assert watched.service._ready() == "starting"


class Begun:
    """A service whose engine runs, without its door."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(SETTINGS, RULES)
        self.service = Service(str(folder / "engine.yaml"), host="127.0.0.1", port=0)
        self.service._store = MemoryStore()
        self.service._begin(load(str(folder / "engine.yaml")))

    def write(self, settings: str, rules: str) -> None:
        (self.folder / "engine.yaml").write_text(settings)
        (self.folder / "rules.yaml").write_text(rules)

    @property
    def rules(self) -> list[str]:
        """The names of the rules in `rules.yaml` that are evaluated now."""
        groups = self.service._present().groups.values()
        return [rule.name for group in groups for rule in group.rules]


@pytest.fixture
def begun(tmp_path: Path) -> Any:
    service = Begun(tmp_path)
    yield service
    assert service.service._scheduler is not None
    service.service._scheduler.stop()
    assert service.service._source is not None
    service.service._source.close()


def test_a_reload_takes_over_the_files_as_they_are_now(begun: Begun) -> None:
    before = begun.service._present()
    begun.write(SETTINGS, RULES.replace("Hot", "Cold"))
    begun.service.reload()
    assert begun.rules == ["Cold"]
    assert begun.service._present() is not before
    assert begun.service._healthy() == ""


@pytest.mark.parametrize(
    ("settings", "rules", "error"),
    [
        (SETTINGS, RULES.replace("up == 0", "up =="), LoadError),
        (SETTINGS.replace("receiver: r}", "receiver: x}"), RULES, LoadError),
        (SETTINGS.replace("engine.db", "other.db"), RULES, EngineError),
    ],
)
def test_a_reload_that_fails_changes_nothing(
    begun: Begun, settings: str, rules: str, error: type[Exception]
) -> None:
    before, scheduler = begun.service._present(), begun.service._scheduler
    begun.write(settings, rules)
    with pytest.raises(error):
        begun.service.reload()
    assert begun.service._present() is before
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
    engine = begun.service._present()
    (group_id,) = engine.groups
    last = None if ago is None else SystemClock().now() - ago
    monkeypatch.setattr(engine, "last_slot", lambda _group_id: last)
    assert begun.service._ready() == (f"{why_not}{group_id}" if why_not else "")


def test_a_reload_before_the_start_is_refused() -> None:
    with pytest.raises(EngineError, match="only starting"):
        Service(None, host="127.0.0.1", port=0).reload()

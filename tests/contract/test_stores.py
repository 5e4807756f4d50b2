"""What every store promises: in memory, SQLite and PostgreSQL."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from engine.errors import StoreError
from engine.model.alert import Alert, AlertState
from engine.model.event import Event, Kind
from engine.model.labels import Labels
from engine.model.notification import Sent
from engine.model.playbook import Mode, PlannedStep, Run, RunState
from engine.model.ports import Store
from engine.model.verdict import NOTHING, Memory
from engine.store.arrays import pack, unpack
from engine.store.codec import encode
from engine.store.memory import MemoryStore
from engine.store.sql import open_store

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database that lasts."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/engine.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store that keeps five events."""
    opened: Store
    if request.param == "memory":
        opened = MemoryStore(kept_events=5)
    elif request.param == "sqlite":
        opened = open_store(f"sqlite:///{tmp_path}/engine.db", kept_events=5)
    else:
        opened = open_store(request.getfixturevalue("postgres_url"), kept_events=5)
    yield opened
    opened.close()


def an_alert(**labels: str) -> Alert:
    return Alert(
        rule_id="rules.yaml;g;X",
        labels=Labels(alertname="X", **labels),
        signal=Labels(labels),
        annotations={"summary": "naïve \x00 “quotes” \ud800"},
        state=AlertState.FIRING,
        value=float("inf"),
        details={"eta": 1.5},
        active_at=AT,
        fired_at=AT + timedelta(microseconds=1),
        warnings=("partial",),
    )


def a_run(number: int = 1, state: RunState = RunState.PLANNED, **fields: object) -> Run:
    step = PlannedStep(
        name="relieve",
        action="ray_job",
        params={"entrypoint": "x", "env": {"A": ("b", 1.5, None)}},
        description="submits a job",
        timeout=60.0,
        attempts=2,
        backoff=1.0,
        wait=0.0,
    )
    run = Run(
        id=f"run-{number}",
        playbook="relieve",
        rule_id="rules.yaml;g;X",
        labels=Labels(alertname="X"),
        signal=Labels(),
        fired_at=AT,
        target="n1",
        mode=Mode.AUTO,
        state=state,
        steps=(step,),
        created_at=AT + timedelta(minutes=number),
        updated_at=AT,
    )
    return replace(run, **fields)  # type: ignore[arg-type]


def an_event(number: int, subject: str = "s") -> Event:
    return Event(at=AT, kind=Kind.RUN, subject=subject, reason=str(number), data={"k": "\x00\ud800"})


def test_an_empty_store_has_nothing(store: Store) -> None:
    assert not store.alerts("r")
    assert store.last_slot("g") is None
    assert store.sent("k") is None
    assert store.run("run-1") is None
    assert not store.runs()
    assert store.decision("run-1") is None
    assert not store.events()


def test_alerts_come_back_as_they_were_saved(store: Store) -> None:
    saved = [an_alert(i="2"), an_alert(i="1")]
    store.save_alerts("g", AT, {"r": saved, "other": [an_alert()]})
    assert list(store.alerts("r")) == saved
    assert list(store.alerts("other")) == [an_alert()]
    assert store.last_slot("g") == AT


def test_saving_alerts_replaces_those_of_the_named_rules_only(store: Store) -> None:
    store.save_alerts("g", AT, {"r": [an_alert(i="1"), an_alert(i="2")], "s": [an_alert(i="3")]})
    later = AT + timedelta(microseconds=60_000_001)
    store.save_alerts("g", later, {"r": [an_alert(i="4")]})
    assert list(store.alerts("r")) == [an_alert(i="4")]
    assert list(store.alerts("s")) == [an_alert(i="3")]
    assert store.last_slot("g") == later


def test_a_rule_whose_alerts_are_gone_has_none(store: Store) -> None:
    store.save_alerts("g", AT, {"r": [an_alert()]})
    store.save_alerts("g", AT, {"r": []})
    assert not store.alerts("r")


def test_a_slot_is_noted_for_a_group_without_alerting_rules(store: Store) -> None:
    store.save_alerts("g", AT, {})
    assert store.last_slot("g") == AT


def test_an_entry_of_the_notification_log_is_replaced(store: Store) -> None:
    first = Sent(key='slack/{}:{alertname="X"}', firing=frozenset("ab"), at=AT, receipt={"ts": "1.0"})
    second = replace(first, firing=frozenset(), resolved=frozenset("ab"), owed=frozenset("c"), progress="p")
    store.save_sent(first)
    assert store.sent(first.key) == first
    store.save_sent(second)
    assert store.sent(first.key) == second
    assert store.sent("another") is None


def test_a_run_is_added_once(store: Store) -> None:
    assert store.add_run(a_run()) is True
    assert store.add_run(a_run(target="another")) is False
    assert store.run("run-1") == a_run()


def test_adding_the_same_value_twice_is_seen_too(store: Store) -> None:
    run = a_run()
    assert store.add_run(run) is True
    assert store.add_run(run) is False


def test_a_run_is_saved_over_itself(store: Store) -> None:
    store.add_run(a_run())
    store.save_run(a_run(state=RunState.ACTING, reason="go"))
    assert store.run("run-1") == a_run(state=RunState.ACTING, reason="go")


@pytest.mark.parametrize("terminal", [state for state in RunState if state.terminal])
def test_a_run_that_is_over_does_not_come_back_to_life(store: Store, terminal: RunState) -> None:
    store.add_run(a_run())
    store.save_run(a_run(state=terminal))
    store.save_run(a_run(state=RunState.ACTING))
    assert store.run("run-1") == a_run(state=terminal)
    store.save_run(a_run(state=terminal, reason="in other words"))
    assert store.run("run-1") == a_run(state=terminal, reason="in other words")


def test_saving_a_run_that_was_never_added_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="run-1"):
        store.save_run(a_run())
    assert not store.runs()


def test_runs_come_newest_first(store: Store) -> None:
    for number in (2, 1, 3):
        store.add_run(a_run(number))
    assert [run.id for run in store.runs()] == ["run-3", "run-2", "run-1"]
    assert [run.id for run in store.runs(since=AT + timedelta(minutes=2))] == ["run-3", "run-2"]


def test_open_runs_are_those_that_are_not_over(store: Store) -> None:
    for number, state in enumerate(RunState):
        store.add_run(a_run(number, state))
    found = {run.state for run in store.runs(open_only=True)}
    assert found == {state for state in RunState if not state.terminal}


def test_the_first_answer_to_a_run_holds(store: Store) -> None:
    store.add_run(a_run())
    store.decide("run-1", approve=False, by="ann", at=AT)
    store.decide("run-1", approve=True, by="bob", at=AT)
    assert store.decision("run-1") == (False, "ann")


def test_an_answer_to_no_run_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="run-9"):
        store.decide("run-9", approve=True, by="ann", at=AT)


def test_events_come_oldest_first_and_the_limit_keeps_the_newest(store: Store) -> None:
    store.add_events([an_event(1), an_event(2, "t")])
    store.add_events([an_event(3)])
    assert list(store.events()) == [an_event(1), an_event(2, "t"), an_event(3)]
    assert list(store.events(subject="s")) == [an_event(1), an_event(3)]
    assert list(store.events(limit=2)) == [an_event(2, "t"), an_event(3)]
    assert not store.events(limit=0)


def test_no_events_are_added_without_harm(store: Store) -> None:
    store.add_events([])
    assert not store.events()


def test_the_oldest_events_go_when_there_are_too_many(store: Store) -> None:
    for number in range(4):
        store.add_events([an_event(number)])
    store.add_events(an_event(number) for number in range(4, 8))
    assert [event.reason for event in store.events()] == ["3", "4", "5", "6", "7"]


def test_text_that_databases_dislike_is_found_again(store: Store) -> None:
    odd = "nul \x00 half \ud800 quote ' % \\ é 😀"
    store.save_alerts(odd, AT, {odd: [an_alert(i="nul \x00")]})
    store.save_sent(Sent(key=odd, at=AT))
    store.add_run(replace(a_run(), id=odd, target=odd, playbook=odd))
    store.add_events([an_event(1, odd)])
    assert list(store.alerts(odd)) == [an_alert(i="nul \x00")]
    assert store.last_slot(odd) == AT
    assert store.sent(odd) == Sent(key=odd, at=AT)
    assert store.run(odd) == replace(a_run(), id=odd, target=odd, playbook=odd)
    assert list(store.events(subject=odd)) == [an_event(1, odd)]


def test_of_many_threads_exactly_one_adds_a_run(store: Store) -> None:
    added: list[int] = []
    start = threading.Barrier(8)

    def add() -> None:
        start.wait()
        for number in range(20):
            if store.add_run(a_run(number)):
                added.append(number)
            store.save_alerts("g", AT, {"r": [an_alert(i=str(number))]})
            store.runs()

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(added) == list(range(20))
    assert len(store.runs()) == 20


def test_everything_is_there_after_a_restart(url: str) -> None:
    first = open_store(url)
    first.save_alerts("g", AT, {"r": [an_alert()]})
    first.save_sent(Sent(key="k", at=AT))
    first.add_run(a_run())
    first.decide("run-1", approve=True, by="ann", at=AT)
    first.add_events([an_event(1)])
    first.close()
    second = open_store(url)
    assert list(second.alerts("r")) == [an_alert()]
    assert second.last_slot("g") == AT
    assert second.sent("k") == Sent(key="k", at=AT)
    assert second.run("run-1") == a_run()
    assert second.decision("run-1") == (True, "ann")
    assert list(second.events()) == [an_event(1)]
    second.close()


def test_the_log_forgets_quiet_groups_after_a_month_and_no_others(url: str) -> None:
    store = open_store(url)
    store.save_sent(Sent(key="quiet", resolved=frozenset("a"), at=AT))
    store.save_sent(Sent(key="firing", firing=frozenset("a"), at=AT))
    store.save_sent(Sent(key="owed", owed=frozenset("a"), at=AT))
    store.save_sent(Sent(key="new", at=AT + timedelta(days=31)))
    assert [key for key in ("quiet", "firing", "owed", "new") if store.sent(key)] == ["firing", "owed", "new"]
    store.close()


APPROVE = """
import sys
from datetime import UTC, datetime
from engine.store.sql import open_store
store = open_store(sys.argv[1])
store.decide("run-1", approve=True, by="cli", at=datetime(2024, 5, 1, tzinfo=UTC))
store.close()
"""


def test_another_process_answers_while_this_one_writes(url: str) -> None:
    store = open_store(url)
    store.add_run(a_run())
    stop = threading.Event()
    failed: list[StoreError] = []

    def write() -> None:
        try:
            while not stop.is_set():
                store.save_alerts("g", AT, {"r": [an_alert()]})
        except StoreError as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        subprocess.run([sys.executable, "-c", APPROVE, url], check=True, cwd=REPOSITORY)
    finally:
        stop.set()
        writer.join()
    assert not failed
    assert store.decision("run-1") == (True, "cli")
    store.close()


OPEN = "import sys; from engine.store.sql import open_store; open_store(sys.argv[1]).close()"


def test_processes_that_make_the_database_at_the_same_time_agree(url: str) -> None:
    openers = [subprocess.Popen([sys.executable, "-c", OPEN, url], cwd=REPOSITORY) for _ in range(6)]
    assert [opener.wait() for opener in openers] == [0] * 6


WRITE = """
import sys
from dataclasses import replace
from engine.store.codec import decode
from engine.model.playbook import Run, RunState
from engine.store.sql import open_store
store = open_store(sys.argv[1])
run = decode(Run, sys.stdin.readline())
for number in range(1_000_000):
    new = replace(run, id=f"run-{number}")
    store.add_run(new)
    print("added", number, flush=True)
    store.save_run(replace(new, state=RunState.ACTING, reason="intended"))
    print("saved", number, flush=True)
"""


def test_what_was_acknowledged_survives_a_kill(url: str) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    writer.stdin.write(encode(a_run()) + "\n")
    writer.stdin.close()
    told = [writer.stdout.readline() for _ in range(random.randint(1, 150))]
    time.sleep(random.uniform(0, 0.003))
    os.kill(writer.pid, signal.SIGKILL)
    told += writer.stdout.readlines()
    writer.wait()
    writer.stdout.close()
    store = open_store(url)
    for word, number in (line.split() for line in told if line.endswith("\n")):
        run = store.run(f"run-{number}")
        assert run is not None
        assert word == "added" or run.state is RunState.ACTING
    store.close()


def a_memory(**shared: np.ndarray) -> Memory:
    columns = {"peak": np.array([1.5, np.nan]), "scores": np.array([[1.0, np.inf], [-0.0, 5e-324]])}
    return Memory((Labels(a="1"), Labels(a="\ud800\x00")), columns, shared, at=1.8e9 + 0.1, kind="k")


def assert_same_memory(one: Memory, other: Memory) -> None:
    assert (one.labels, one.at, one.kind) == (other.labels, other.at, other.kind)
    for mine, others in ((one.columns, other.columns), (one.shared, other.shared)):
        assert mine.keys() == others.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], others[name])


def test_memories_come_back_to_the_last_bit_and_are_replaced(store: Store) -> None:
    assert store.memory("r") is NOTHING
    store.save_alerts("g", AT, {"r": []}, {"r": a_memory(pool=np.arange(6.0).reshape(2, 3))})
    assert_same_memory(store.memory("r"), a_memory(pool=np.arange(6.0).reshape(2, 3)))
    store.save_alerts("g", AT, {"r": []})  # not named: it stays
    assert_same_memory(store.memory("r"), a_memory(pool=np.arange(6.0).reshape(2, 3)))
    store.save_alerts("g", AT, {"r": []}, {"r": a_memory()})
    assert_same_memory(store.memory("r"), a_memory())


def test_memories_of_rules_that_are_gone_are_dropped(store: Store) -> None:
    store.save_alerts("g", AT, {}, {"r": a_memory(), "s": a_memory()})
    store.forget_alerts_except(["r"])
    assert_same_memory(store.memory("r"), a_memory())
    assert store.memory("s") is NOTHING


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", pack(a_memory())[:-30], pack(a_memory())[:400]])
def test_a_damaged_memory_is_refused(damage: bytes) -> None:
    with pytest.raises(StoreError, match="noted"):
        unpack(damage)


def test_a_store_of_the_first_version_keeps_its_alerts_and_takes_memories(url: str) -> None:
    store = open_store(url)
    store.save_alerts("g", AT, {"r": [an_alert()]})
    with store._writing() as connection:
        connection.exec_driver_sql("DROP TABLE memories")
        connection.exec_driver_sql("UPDATE meta SET schema_version = 1")
    store.close()
    store = open_store(url)
    assert list(store.alerts("r")) == [an_alert()]
    store.save_alerts("g", AT, {}, {"r": a_memory()})
    assert_same_memory(store.memory("r"), a_memory())
    store.close()


def test_whichever_byte_is_damaged_a_memory_is_read_or_refused() -> None:
    content = pack(a_memory(pool=np.arange(3.0)))
    for place in range(len(content)):
        for flipped in (1, 8, 128, 255):
            damaged = bytearray(content)
            damaged[place] ^= flipped
            with contextlib.suppress(StoreError):
                unpack(bytes(damaged))

"""SQLite alone: its settings, its migrations, and what it says when it cannot."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine, text

from engine.errors import StoreError
from engine.store import schema
from engine.store.sql import open_store

AT = datetime(2024, 5, 1, 12, tzinfo=UTC)
REPOSITORY = Path(__file__).parents[3]


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


def test_every_connection_is_durable_and_keeps_foreign_keys(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "engine.db"), patience=timedelta(seconds=7))
    with store._engine.connect() as one, store._engine.connect() as other:
        for connection in (one, other):
            found = {
                name: connection.execute(text(f"PRAGMA {name}")).scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            }
            assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 7000}
    store.close()


def test_a_closed_store_leaves_one_file(tmp_path: Path) -> None:
    store = open_store(url_of(tmp_path / "engine.db"))
    store.save_alerts("g", AT, {})
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["engine.db"]


def test_a_relative_path_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=f"{tmp_path}/no/engine.db"):
        open_store("sqlite:///./no/engine.db")


def test_tables_of_a_newer_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "engine.db"
    open_store(url_of(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET schema_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"engine\.db holds version 99 .* newer engine"):
        open_store(url_of(path))


def test_tables_of_another_program_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE events (what TEXT)")
    connection.close()
    with pytest.raises(StoreError, match=r"other\.db has tables of another program \(events\)"):
        open_store(url_of(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("events",)]
    connection.close()


def test_older_tables_are_brought_up_one_numbered_step_after_the_other() -> None:
    def add_mood(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE runs ADD COLUMN mood TEXT"))

    def name_mood(connection: Connection) -> None:
        connection.execute(text("UPDATE runs SET mood = 'good'"))

    newest = schema.VERSION + 2
    steps = {schema.VERSION + 1: add_mood, newest: name_mood}
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        schema.migrate(connection)
        assert schema.is_current(connection)
        values = "'r', 'p', 't', 'helped', 1, 0, '{}'"
        connection.execute(text(f"INSERT INTO runs VALUES ({values})"))
        schema.migrate(connection, steps, version=newest)
        assert connection.execute(text("SELECT id, mood FROM runs")).all() == [("r", "good")]
        assert schema.is_current(connection, version=newest)
        schema.migrate(connection, {}, version=newest)  # nothing is left to do, so no step is looked for
        with pytest.raises(schema.Unfit):
            schema.is_current(connection)
    engine.dispose()


def test_every_version_has_its_step() -> None:
    assert set(schema.STEPS) == set(range(2, schema.VERSION + 1))


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "engine.yaml"
    path.write_text("rules: []\n" * 200)
    with pytest.raises(StoreError, match=r"engine\.yaml: file is not a database; .*state\.url"):
        open_store(url_of(path))
    assert path.read_text() == "rules: []\n" * 200


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "engine.db"
    store = open_store(url_of(path))
    store.save_alerts("g", AT, {})
    store.close()
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (path.stat().st_size - 100))
    with pytest.raises(StoreError, match=r"engine\.db: .*malformed.*restore it"):
        open_store(url_of(path))


def test_a_missing_folder_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"no/engine\.db: unable to open database file; see that its folder exists"
    ):
        open_store(url_of(tmp_path / "no" / "engine.db"))


@pytest.fixture
def as_nobody() -> Iterator[Path]:
    """A folder that can be looked into but not written to; root would be let in, so it is given up meanwhile."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    store = open_store(url_of(folder / "engine.db"))
    store.save_alerts("g", AT, {})
    store.close()
    folder.chmod(0o555)
    (folder / "engine.db").chmod(0o444)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["engine.db", "new.db"])
def test_a_folder_that_may_not_be_written_is_named_with_the_way_out(as_nobody: Path, name: str) -> None:
    def write() -> None:
        open_store(url_of(as_nobody / name)).save_alerts("g", AT, {})

    with pytest.raises(StoreError, match=f"{name}: .*; .*(write|owner)"):
        write()


def test_a_locked_database_is_named_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "engine.db"
    store = open_store(url_of(path), patience=timedelta(milliseconds=20))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"engine\.db: database is locked; another process"):
        store.save_alerts("g", AT, {})
    assert store.last_slot("g") is None  # reading goes on
    other.execute("ROLLBACK")
    store.save_alerts("g", AT, {})
    assert store.last_slot("g") == AT
    other.close()
    store.close()


FILL = """
import resource, sys
from datetime import UTC, datetime
from engine.errors import StoreError
from engine.model.event import Event, Kind
from engine.store.sql import open_store

def saved():
    return len(store.events(limit=10_000))

store = open_store(sys.argv[1])
event = Event(at=datetime(2024, 5, 1, tzinfo=UTC), kind=Kind.RUN, subject="s", reason="x" * 5000)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
acknowledged = 0
try:
    while True:
        store.add_events([event])
        acknowledged += 1
except StoreError as error:
    print(error)
print(saved() == acknowledged > 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.add_events([event])
print(saved() == acknowledged + 1)
store.close()
"""


def test_a_disk_that_takes_no_more_is_said_and_survived(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILL, url_of(tmp_path / "engine.db")],
        check=True,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
    )
    error, *intact = done.stdout.splitlines()
    assert "engine.db: " in error
    assert "disk" in error.partition("; ")[2]
    assert intact == ["True", "True"]


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "is not a URL"),
        ("", "is not a URL"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://host/db", "'mysql'; known: sqlite, postgresql"),
    ],
)
def test_a_url_of_no_store_is_refused_with_the_way_out(url: str, words: str) -> None:
    with pytest.raises(StoreError, match=words):
        open_store(url)


def test_a_postgresql_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/db: .*; see that the database is up") as caught:
        open_store("postgresql://me:secret@127.0.0.1:1/db")
    assert "secret" not in str(caught.value)


def test_the_memory_store_costs_no_import_of_sqlalchemy() -> None:
    code = "import sys, engine.store.memory, engine.store.codec; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=REPOSITORY).returncode == 0

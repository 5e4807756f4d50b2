"""State in a database, through SQLAlchemy Core: SQLite for one engine, PostgreSQL for more.

Every call is one transaction, and what it wrote is on the disk when it returns. Threads of one process share
a store; other processes, such as the command that approves a run, open the same database beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Table,
    create_engine,
    delete,
    event,
    func,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from engine.errors import StoreError
from engine.model.alert import Alert
from engine.model.event import Event
from engine.model.notification import Sent
from engine.model.playbook import Run
from engine.model.verdict import NOTHING, Memory
from engine.store import schema
from engine.store.arrays import pack, unpack
from engine.store.codec import decode, encode
from engine.store.memory import KEPT_EVENTS, no_such_run

KEPT_RUNS = timedelta(days=90)  # that have ended; the others stay
PATIENCE = timedelta(seconds=3)
"""How long a call waits for another process to finish its transaction."""

SENT_FOR = timedelta(days=30)
"""How long the log remembers a group of which nothing fires any more."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MIGRATION_LOCK = 0x656E67696E65  # among PostgreSQL's advisory locks

_WAYS_OUT = {
    "SQLITE_BUSY": "another process keeps it locked: find it with `fuser`, and wait for it or end it",
    "SQLITE_READONLY": "this user may not write there: change the owner of the file and of its folder",
    "SQLITE_CANTOPEN": "see that its folder exists and that this user may write in it",
    "SQLITE_NOTADB": "the file is something else: name another in state.url of engine.yaml",
    "SQLITE_CORRUPT": "the file is damaged: restore it from a copy, or move it away to begin anew",
    "SQLITE_FULL": "the disk is full: free some of it",
    "SQLITE_IOERR": "the disk does not take it: see that it has room, and what the kernel's log says of it",
}


def open_store(url: str, *, patience: timedelta = PATIENCE, kept_events: int = KEPT_EVENTS) -> SqlStore:
    """Return the store at an SQLAlchemy URL, with its tables made or brought up to date."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(
            "state.url is not a URL: write it like sqlite:///./engine.db or postgresql://user@host/database"
        ) from None
    store = SqlStore(_engine(parsed, patience), where=_where(parsed), kept_events=kept_events)
    try:
        store.prepare()
    except StoreError:
        store.close()
        raise
    return store


class SqlStore:
    """State that survives a restart."""

    def __init__(self, engine: Engine, *, where: str, kept_events: int = KEPT_EVENTS) -> None:
        self._engine = engine
        self._writer = engine.execution_options(writes=True)
        self._where = where
        self._kept_events = kept_events
        self._is_sqlite = engine.dialect.name == "sqlite"
        self._insert: Callable[[Table], Any] = sqlite.insert if self._is_sqlite else postgresql.insert
        # SQLite has one writer at a time. Threads that wait here take turns; there they would race.
        self._turn = Lock()
        self._path: Path | None = None
        self._inode = (0, 0)

    def _remember_file(self) -> None:
        name = self._engine.url.database
        if self._is_sqlite and name and name != ":memory:":
            self._path = Path(name)
            found = self._path.stat()
            self._inode = found.st_dev, found.st_ino

    def prepare(self) -> None:
        """Make the tables, or bring them up to date."""
        try:
            with self._reading() as connection:
                if schema.is_current(connection):
                    self._remember_file()
                    return
            with self._writing() as connection:
                if not self._is_sqlite:
                    connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                schema.migrate(connection)
            self._remember_file()
        except schema.Unfit as error:
            raise StoreError(f"{self._where} {error}") from None

    def lost(self) -> str:
        """Say what became of the file of an SQLite store under its open connection; "" if it is where it was."""
        if self._path is None:
            return ""
        try:
            now = self._path.stat()
        except OSError as error:
            return f"{self._where}: {error.strerror or error}: what is kept from now on is lost at the next restart"
        if (now.st_dev, now.st_ino) != self._inode:
            return f"{self._where} is another file now: what is kept from now on is lost at the next restart"
        return ""

    def alerts(self, rule_id: str) -> Sequence[Alert]:
        table = schema.alerts
        found = select(table.c.json).where(table.c.rule_id == _column(rule_id)).order_by(table.c.position)
        return tuple(decode(Alert, row) for row in self._column_of(found))

    def save_alerts(
        self,
        group_id: str,
        slot: datetime,
        alerts: Mapping[str, Sequence[Alert]],
        memories: Mapping[str, Memory] = MappingProxyType({}),
    ) -> None:
        rows = [
            {
                "rule_id": _column(rule_id),
                "position": position,
                "fingerprint": alert.fingerprint,
                "json": encode(alert),
            }
            for rule_id, of_rule in sorted(alerts.items())
            for position, alert in enumerate(of_rule)
        ]
        noted = {_column(rule_id): pack(memory) for rule_id, memory in sorted(memories.items())}
        with self._writing() as connection:
            rule_ids = [_column(rule_id) for rule_id in alerts]
            connection.execute(delete(schema.alerts).where(schema.alerts.c.rule_id.in_(rule_ids)))
            if rows:
                connection.execute(schema.alerts.insert(), rows)
            for rule_id, content in noted.items():
                self._replace(connection, schema.memories, rule_id=rule_id, content=content)
            self._replace(
                connection, schema.groups, group_id=_column(group_id), last_slot=_microseconds(slot)
            )

    def memory(self, rule_id: str) -> Memory:
        table = schema.memories
        found = self._column_of(select(table.c.content).where(table.c.rule_id == _column(rule_id)))
        return unpack(found[0]) if found else NOTHING

    def forget_alerts_except(self, rule_ids: Collection[str]) -> Sequence[Alert]:
        table = schema.alerts
        kept = [_column(rule_id) for rule_id in rule_ids]
        with self._writing() as connection:
            others = [
                id_ for id_ in connection.scalars(select(table.c.rule_id).distinct()) if id_ not in kept
            ]
            gone = table.c.rule_id.in_(others)
            rows = connection.scalars(select(table.c.json).where(gone)).all() if others else ()
            connection.execute(delete(table).where(gone))
            noted = schema.memories.c.rule_id
            strange = [id_ for id_ in connection.scalars(select(noted)) if id_ not in kept]
            connection.execute(delete(schema.memories).where(noted.in_(strange)))
        return tuple(decode(Alert, row) for row in rows)

    def last_slot(self, group_id: str) -> datetime | None:
        table = schema.groups
        found = self._column_of(select(table.c.last_slot).where(table.c.group_id == _column(group_id)))
        return _EPOCH + timedelta(microseconds=found[0]) if found else None

    def sent(self, key: str) -> Sent | None:
        found = self._column_of(select(schema.sent.c.json).where(schema.sent.c.key == _column(key)))
        return decode(Sent, found[0]) if found else None

    def save_sent(self, entry: Sent) -> None:
        table = schema.sent
        quiet = not entry.firing and not entry.owed
        values = {"at": _microseconds(entry.at), "quiet": quiet, "json": encode(entry)}
        stale = delete(table).where(table.c.quiet, table.c.at < _microseconds(entry.at - SENT_FOR))
        with self._writing() as connection:
            self._replace(connection, table, key=_column(entry.key), **values)
            connection.execute(stale)

    def add_run(self, run: Run) -> bool:
        added = (
            self._insert(schema.runs).values(**_row(run)).on_conflict_do_nothing().returning(schema.runs.c.id)
        )
        table = schema.runs
        old = table.c.terminal & (table.c.created_at < _microseconds(run.created_at - KEPT_RUNS))
        with self._writing() as connection:
            connection.execute(delete(table).where(old))
            return connection.execute(added).one_or_none() is not None

    def save_run(self, run: Run) -> None:
        table = schema.runs
        mine = table.c.id == _column(run.id)
        changed = update(table).where(mine).values(**_row(run))
        if not run.state.terminal:
            changed = changed.where(~table.c.terminal)
        with self._writing() as connection:
            if connection.execute(changed).rowcount == 0:
                self._require_run(connection, run.id)

    def run(self, run_id: str) -> Run | None:
        found = self._column_of(select(schema.runs.c.json).where(schema.runs.c.id == _column(run_id)))
        return decode(Run, found[0]) if found else None

    def runs(self, *, since: datetime | None = None, open_only: bool = False) -> Sequence[Run]:
        table = schema.runs
        found = select(table.c.json).order_by(table.c.created_at.desc(), table.c.id.desc())
        if since is not None:
            found = found.where(table.c.created_at >= _microseconds(since))
        if open_only:
            found = found.where(~table.c.terminal)
        return tuple(decode(Run, row) for row in self._column_of(found))

    def decide(self, run_id: str, *, approve: bool, by: str, at: datetime) -> None:
        values = {"run_id": _column(run_id), "approve": approve, "by": _column(by), "at": _microseconds(at)}
        with self._writing() as connection:
            self._require_run(connection, run_id)
            connection.execute(self._insert(schema.decisions).values(**values).on_conflict_do_nothing())

    def decision(self, run_id: str) -> tuple[bool, str] | None:
        table = schema.decisions
        with self._reading() as connection:
            found = select(table.c.approve, table.c.by).where(table.c.run_id == _column(run_id))
            row = connection.execute(found).one_or_none()
        return (row.approve, row.by) if row else None

    def add_events(self, events: Iterable[Event]) -> None:
        rows = [
            {
                "at": _microseconds(event.at),
                "kind": event.kind.value,
                "subject": _column(event.subject),
                "json": encode(event),
            }
            for event in events
        ]
        if not rows:
            return
        seq = schema.events.c.seq
        newest = select(func.max(seq)).scalar_subquery()
        with self._writing() as connection:
            connection.execute(schema.events.insert(), rows)
            connection.execute(delete(schema.events).where(seq <= newest - self._kept_events))

    def events(self, *, subject: str | None = None, limit: int = 1000) -> Sequence[Event]:
        table = schema.events
        newest = select(table.c.json).order_by(table.c.seq.desc()).limit(limit)
        if subject is not None:
            newest = newest.where(table.c.subject == _column(subject))
        return tuple(decode(Event, row) for row in reversed(self._column_of(newest)))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(_explained(self._where, error)) from error

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._turn, self._writer.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreError(_explained(self._where, error)) from error

    def _column_of(self, statement: Any) -> Sequence[Any]:
        """Return the one column that a query asks for."""
        with self._reading() as connection:
            return connection.execute(statement).scalars().all()

    def _replace(self, connection: Connection, table: Table, **values: Any) -> None:
        """Insert a row, or put it in the place of the one with the same key."""
        added = self._insert(table).values(**values)
        connection.execute(added.on_conflict_do_update(index_elements=list(table.primary_key), set_=values))

    def _require_run(self, connection: Connection, run_id: str) -> None:
        found = select(schema.runs.c.id).where(schema.runs.c.id == _column(run_id))
        if connection.execute(found).one_or_none() is None:
            raise StoreError(no_such_run(run_id))


def _engine(url: URL, patience: timedelta) -> Engine:
    """Return an engine that has not connected yet."""
    seconds = patience.total_seconds()
    if url.get_backend_name() == "sqlite":
        if url.database in (None, "", ":memory:"):
            raise StoreError("state.url names no file: write it like sqlite:///./engine.db")
        engine = create_engine(url, connect_args={"timeout": seconds, "isolation_level": None})
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise StoreError(
            f"state.url: no store is kept in {url.get_backend_name()!r}; known: sqlite, postgresql"
        )
    limits = f"-c lock_timeout={seconds:.3f}s -c statement_timeout={3 * seconds:.3f}s"
    connect_args = {"connect_timeout": max(2, round(seconds)), "options": url.query.get("options", limits)}
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"), connect_args=connect_args, pool_pre_ping=True
        )
    except ModuleNotFoundError as error:
        raise StoreError(f"{error}: install it with pip install 'ray-alert-engine[postgres]'") from None


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # WAL lets readers and the writer work side by side; FULL puts every commit on the disk.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that came to write only later would not wait for another writer, but fail.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _where(url: URL) -> str:
    """Return what to call the database in a message; never its password."""
    if url.get_backend_name() == "sqlite":
        return str(Path(url.database or "").absolute())
    return url.render_as_string(hide_password=True)


def _explained(where: str, error: SQLAlchemyError) -> str:
    """Return the place, what is wrong, and the way out."""
    cause = getattr(error, "orig", None) or error
    name = getattr(cause, "sqlite_errorname", "")
    known = next((words for prefix, words in _WAYS_OUT.items() if name.startswith(prefix)), None)
    fallback = "see that the database is up, that state.url is right, and that this user may create tables"
    said = str(cause).strip().partition("\n")[0]
    return f"{where}: {said}; {known or fallback}"


def _row(run: Run) -> dict[str, Any]:
    return {
        "id": _column(run.id),
        "playbook": _column(run.playbook),
        "target": _column(run.target),
        "state": run.state.value,
        "terminal": run.state.terminal,
        "created_at": _microseconds(run.created_at),
        "json": encode(run),
    }


def _column(value: str) -> str:
    """Return text as databases take it: PostgreSQL refuses NUL, and all refuse half a surrogate pair."""
    return value.replace("\0", "\\0").encode(errors="backslashreplace").decode()


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)

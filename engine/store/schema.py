"""The tables, and the steps from one version of them to the next.

Records are kept as JSON; a column of its own is only what is searched or sorted by. Instants in columns are
microseconds since 1970, which sort exactly in every database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    inspect,
    select,
)

VERSION = 2

Step = Callable[[Connection], None]


def _add_memories(connection: Connection) -> None:
    """Version 2: what detectors note of series."""
    kind = "BLOB" if connection.dialect.name == "sqlite" else "BYTEA"
    connection.exec_driver_sql(
        f"CREATE TABLE memories (rule_id TEXT NOT NULL PRIMARY KEY, content {kind} NOT NULL)"
    )


STEPS: Mapping[int, Step] = {2: _add_memories}
"""By version: what brings the tables there from the version before, as statements of their own.

A step must not use the tables below, which show the newest version only.
"""

metadata = MetaData()

_SERIAL = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up INTEGER keys only

meta = Table("meta", metadata, Column("schema_version", Integer, primary_key=True))

alerts = Table(
    "alerts",
    metadata,
    Column("rule_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("json", Text, nullable=False),
)

memories = Table(
    "memories",
    metadata,
    Column("rule_id", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),  # engine/store/arrays.py
)

groups = Table(
    "groups",
    metadata,
    Column("group_id", Text, primary_key=True),
    Column("last_slot", BigInteger, nullable=False),
)

sent = Table(
    "sent",
    metadata,
    Column("key", Text, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column(
        "quiet", Boolean, nullable=False
    ),  # nothing fires in it and nothing is owed, so it may be forgotten
    Column("json", Text, nullable=False),
    Index("sent_quiet_at", "quiet", "at"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("playbook", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("terminal", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("json", Text, nullable=False),
    Index("runs_created_at", "created_at"),
    Index("runs_terminal", "terminal"),
)

decisions = Table(
    "decisions",
    metadata,
    Column("run_id", Text, ForeignKey(runs.c.id), primary_key=True),
    Column("approve", Boolean, nullable=False),
    Column("by", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", _SERIAL, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("json", Text, nullable=False),
    Index("events_subject_seq", "subject", "seq"),
)


class Unfit(Exception):
    """The tables of a database are not for this engine; reads on from the database's name."""


def is_current(connection: Connection, version: int = VERSION) -> bool:
    """Tell whether nothing is to be done; raise Unfit if the tables are not for this engine."""
    found = _version(connection)
    if found is not None and found > version:
        raise Unfit(
            f"holds version {found} of the tables, and this engine knows {version}: "
            "it was written by a newer engine; run that one, or restore the copy from before the upgrade"
        )
    return found == version


def migrate(connection: Connection, steps: Mapping[int, Step] = STEPS, version: int = VERSION) -> None:
    """Make the tables, or bring older ones to `version`, one numbered step after the other."""
    if is_current(connection, version):
        return
    found = _version(connection)
    if found is None:
        metadata.create_all(connection)
        connection.execute(meta.insert().values(schema_version=version))
        return
    for number in range(found + 1, version + 1):
        steps[number](connection)
    connection.execute(meta.update().values(schema_version=version))


def _version(connection: Connection) -> int | None:
    """Return the version of the tables, None if there are none; Unfit if they are somebody else's."""
    present = set(inspect(connection).get_table_names())
    if meta.name in present:
        version: int = connection.execute(select(meta.c.schema_version)).scalar_one()
        return version
    if taken := sorted(present & set(metadata.tables)):
        raise Unfit(
            f"has tables of another program ({', '.join(taken)}): give the engine a database of its own"
        )
    return None

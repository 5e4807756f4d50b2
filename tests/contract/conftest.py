"""A real PostgreSQL, started for the tests and thrown away with them."""

import importlib
import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL with nothing in it but its own databases."""
    as_user = _unprivileged()
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    try:
        if as_user:
            os.chown(folder, as_user["user"], as_user["group"])
        data = folder / "data"
        programs = _programs(folder)
        initdb = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "engine",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "-N",
        ]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **as_user)
        port = _free_port()
        options = ["-p", str(port), "-k", str(folder), "-c", "listen_addresses=127.0.0.1"]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, *options], stdout=log, stderr=log, cwd=folder, **as_user
            )
        try:
            url = f"postgresql://engine@127.0.0.1:{port}/postgres"
            _wait_for(url, server, folder / "log")
            yield url
        finally:
            server.terminate()
            server.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    psycopg = _client()
    name = f"test_{os.urandom(6).hex()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _programs(folder: Path) -> Path:
    """The folder of PostgreSQL's programs: the machine's (Debian keeps them out of PATH), else those of the wheel."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [shutil.which("initdb")]
    if found[-1] is not None:
        return Path(found[-1]).resolve().parent
    wheel = importlib.util.find_spec("pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        pytest.fail(
            "there is no PostgreSQL: apt-get install postgresql, or pip install pgserver", pytrace=False
        )
    # A copy, since the environment may lie where the server's user may not look; the libraries lie beside it.
    package = Path(wheel.submodule_search_locations[0])
    for part in (package, package.with_name("pgserver.libs")):
        shutil.copytree(part, folder / part.name, symlinks=True)
    return folder / package.name / "pginstall" / "bin"


def _client() -> ModuleType:
    """The client for PostgreSQL, which is an extra."""
    try:
        return importlib.import_module("psycopg")
    except ModuleNotFoundError:
        pytest.fail("psycopg is missing: pip install 'ray-alert-engine[postgres]'", pytrace=False)


def _unprivileged() -> dict[str, int]:
    """What makes a child run as somebody else, since PostgreSQL refuses root; nothing for anybody but root."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(url: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    psycopg = _client()
    for _ in range(600):
        if server.poll() is not None:
            break
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    pytest.fail(f"PostgreSQL did not start: {log.read_text()}", pytrace=False)

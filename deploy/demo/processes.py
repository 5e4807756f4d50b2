"""Children that end with us, and with them everything that they started.

A child gets a session of its own, so Ctrl-C reaches only us and the order of the end is ours. Ray makes
the end hard: its agents leave their parent, rewrite their command line and environment, and ignore TERM.
So descendants are collected before anything is killed, orphans among them become our own children
instead of init's, and a stray is known by the folder of its session, which it keeps open. Nobody else's
process is ever signalled, not even that of a user who reads a log in the folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import psutil

# From <linux/prctl.h>.
PR_SET_CHILD_SUBREAPER = 36


class NotReady(RuntimeError):
    """A child ended, or was not ready in time."""


class Running(ABC):
    """What is started and stopped: alive inside `with`, and nothing of it is left if it cannot be started."""

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def stop(self) -> None:
        """End; harmless for what does not run."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Child(Running):
    """A program that we start and that does not outlive us."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.env = env
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The pid of the running child."""
        if self._process is None:
            raise NotReady(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """True from `start` until the program ends."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the program; what it prints is appended to its log."""
        adopt_orphans()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if self.env is None else dict(self.env),
                cwd=self.folder,
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool], *, within: float, every: float = 0.02) -> None:
        """Return once `ready` holds; raise `NotReady` if the child ends first or the seconds run out."""
        deadline = time.monotonic() + within
        while not ready():
            if not self.is_running:
                raise NotReady(f"{self.name} ended before it was ready. {self._end_of_log()}")
            if time.monotonic() > deadline:
                raise NotReady(f"{self.name} was not ready within {within:g} s. {self._end_of_log()}")
            time.sleep(every)

    def stop(self, grace: float = 5.0) -> None:
        """End the program and all that it started; what is left after `grace` seconds is killed."""
        if self._process is None:
            return
        end_processes(lambda: with_descendants([self.pid]), grace)
        self._process.wait()
        self._process = None

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        return "\n".join([f"Its log, {self.log}, ends:", *lines])


def adopt_orphans() -> None:
    """Make descendants whose parent dies our children, so that they stay in our sight."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def with_descendants(pids: Iterable[int]) -> list[psutil.Process]:
    """The living processes of these pids, and their children's children to the last."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            for member in [process, *process.children(recursive=True)]:
                if member.status() != psutil.STATUS_ZOMBIE:
                    found[member.pid] = member
    return list(found.values())


def strays_in(folder: Path) -> list[psutil.Process]:
    """Our living descendants that use the folder, with their own descendants."""
    family = (process.pid for process in psutil.Process().children(recursive=True))
    return with_descendants(pid for pid in family if _uses(Path("/proc", str(pid)), str(folder)))


def users_of(folder: Path) -> list[psutil.Process]:
    """Whoever on this machine runs in the folder, holds a file in it open or names it, except us."""
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    return with_descendants(pid for pid in pids - ours if _uses(Path("/proc", str(pid)), str(folder)))


def _uses(process: Path, folder: str) -> bool:
    """True if the process of this /proc folder is tied to the folder. Other users' processes are not ours."""
    try:
        arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        # Ray passes paths as `--log_dir=PATH`.
        if any(_is_below(argument.partition("=")[2] or argument, folder) for argument in arguments):
            return True
        if _is_below(str((process / "cwd").readlink()), folder):
            return True
        links = []
        for handle in (process / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.append(str(handle.readlink()))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return any(_is_below(link, folder) for link in links)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def end_processes(find: Callable[[], list[psutil.Process]], grace: float = 5.0, within: float = 20.0) -> None:
    """End what `find` finds: TERM, then KILL after `grace` seconds, again until `find` finds nothing.

    With no grace, KILL comes at once. New processes may be born while the old ones die, hence the loop.
    """
    doomed = find()
    if grace > 0:
        _signal(doomed, signal.SIGTERM)
        _, doomed = psutil.wait_procs(doomed, timeout=grace)
    deadline = time.monotonic() + within
    while doomed := _unique([*(process for process in doomed if process.is_running()), *find()]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"these processes survive SIGKILL: {[process.pid for process in doomed]}")
        _signal(doomed, signal.SIGKILL)
        psutil.wait_procs(doomed, timeout=1.0)
        doomed = [process for process in doomed if _is_alive(process)]


def _unique(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    return list({process.pid: process for process in processes}.values())


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def exit_on_signals() -> None:
    """Let INT, TERM and HUP end us by an exception, so that context managers get their turn, and only once.

    A second signal would interrupt the very clean-up that it asks for; what follows the first is bounded in time.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def leave(number: int, _frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    for number in numbers:
        signal.signal(number, leave)

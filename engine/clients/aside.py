"""Long calculations beside the engine: each call in a process of its own, which ends with it.

A fit of seconds must not hold up an evaluation, nor must the memory of what it imports stay, nor its death be the
engine's. So a call has a process, one BLAS thread, a low priority and a deadline. Starting one costs about a
second, mostly for imports: that is nothing to a fit a night, and no way to treat ten thousand series.
"""

from __future__ import annotations

import math
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from engine.errors import AsideError

T = TypeVar("T")
_CHILD = str(Path(__file__).with_name("child.py"))
_GRACE = 5  # seconds after which a child ends by itself that its parent should have ended


class Aside:
    """At most `workers` calls at a time; the others wait. Constructing it starts nothing. Threads may share it."""

    def __init__(self, workers: int = 1) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="aside")
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()  # guards the two
        self._closed = False

    def submit(self, function: Callable[..., T], *arguments: Any, timeout: float) -> Future[T]:
        """Call a function in a process of its own, for at most `timeout` seconds once it has begun.

        Function, arguments and result are pickled, so the function is one of a module. The future raises
        AsideError if the call does, takes too long, or the process dies.
        """
        return self._threads.submit(self.call, function, *arguments, timeout=timeout)

    def call(self, function: Callable[..., T], *arguments: Any, timeout: float) -> T:
        """Call a function in a process of its own, and wait for it."""
        request = pickle.dumps(sys.path) + pickle.dumps((function, arguments))
        name = getattr(function, "__qualname__", repr(function))
        with self._lock:
            if self._closed:
                raise AsideError(f"{name}: the engine is stopping")
            child = subprocess.Popen(  # noqa: S603  our own file
                [sys.executable, "-P", _CHILD, str(math.ceil(timeout) + _GRACE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._children.add(child)
        with child:
            try:
                answer, said = child.communicate(request, timeout)
            except subprocess.TimeoutExpired:
                raise AsideError(f"{name} took longer than {timeout:g} s and was ended") from None
            finally:
                child.kill()
                with self._lock:
                    self._children.discard(child)
        if child.returncode != 0 or not answer:
            raise AsideError(f"{name}: its process ended {_end(child.returncode)}{_last_line(said)}")
        fine, result = pickle.loads(answer)  # noqa: S301  of our own child
        if not fine:
            raise AsideError(f"{name}: {result}")
        found: T = result
        return found

    def close(self) -> None:
        """End what runs, and begin nothing more."""
        with self._lock:
            self._closed = True
            for child in self._children:
                child.kill()
        self._threads.shutdown(cancel_futures=True)


def _end(code: int) -> str:
    if code >= 0:
        return f"with {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _last_line(said: bytes) -> str:
    lines = said.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last[:200]}" if last else ""

"""Secrets that are kept in files, and may be rotated while the engine runs."""

from __future__ import annotations

import os
from pathlib import Path


class SecretFile:
    """The secret in a file, read again whenever the file has changed.

    Errors name the file and never what is in it. Threads may share it: at worst two of them read it at once.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._known: tuple[tuple[int, int, int], str] | None = None

    def read(self) -> str:
        """Return the secret, without white space around it; OSError if there is none to be had."""
        try:
            status = os.stat(self.path)  # noqa: PTH116 - once for every query
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            known = self._known
            if known is None or known[0] != stamp:
                known = (stamp, Path(self.path).read_text(encoding="utf-8").strip())
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or "not text"
            raise OSError(f"cannot read the secret file {self.path}: {reason}") from None
        if not known[1] or not known[1].isprintable():
            raise OSError(f"the secret file {self.path} must hold one line of text")
        self._known = known
        return known[1]

"""Which files are meant, and what is in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.errors import LoadError, Problem
from engine.load.decode import MAX_BYTES

_WILD = frozenset("*?[")
_SUFFIXES = frozenset({".yaml", ".yml"})


def find_files(
    patterns: Iterable[str | Path], problems: list[Problem], folder: Path | None = None
) -> list[Path]:
    """Return the files that paths, folders and globs name, each once, in order.

    A glob may find nothing; a path without wild cards must exist. A folder is all YAML files below it.
    """
    found: dict[Path, Path] = {}
    for pattern in patterns:
        try:
            paths = _matches(Path(folder or "", pattern))
        except (OSError, ValueError, IndexError) as error:
            problems.append(Problem(str(pattern), 1, 1, f"not a usable path: {error}"))
            continue
        if not paths and not _WILD & set(str(pattern)):
            path = Path(folder or "", pattern)
            said = "no YAML file is in this folder" if path.is_dir() else "no such file"
            problems.append(Problem(str(path), 1, 1, said))
        for path in paths:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _matches(pattern: Path) -> list[Path]:
    if pattern.is_dir():
        return sorted(path for path in pattern.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    if pattern.exists():  # a file whose name looks like a glob is meant itself
        return [pattern]
    anchor = pattern.anchor or "."
    relative = pattern.relative_to(anchor) if pattern.anchor else pattern
    return sorted(path for path in Path(anchor).glob(str(relative)) if path.is_file())


def read_file(path: Path, problems: list[Problem]) -> bytes | None:
    """Return what is in a file, one byte more than the decoder takes at most; None if it cannot be read."""
    try:
        if not path.is_file():
            problems.append(Problem(str(path), 1, 1, "not a file" if path.exists() else "no such file"))
            return None
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problems.append(Problem(str(path), 1, 1, f"cannot be read: {reason}"))
        return None


def refuse(problems: Sequence[Problem]) -> None:
    """Raise LoadError with all of the problems, sorted by their place, if there are any."""
    if problems:
        raise LoadError(sorted(set(problems)))

"""Files of incidents, which `engine backtest` holds alerts against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine.errors import Problem
from engine.load.files import read_file, refuse
from engine.load.nodes import Node, ScalarNode, is_null
from engine.load.records import Decoder, Invalid, Reader
from engine.model.incident import Incident


@dataclass(frozen=True, slots=True, kw_only=True)
class _IncidentFile:
    incidents: tuple[Incident, ...]


def load_incidents(path: str | Path) -> tuple[Incident, ...]:
    """Return the incidents of a file, in the order of time. LoadError with every problem."""
    problems: list[Problem] = []
    content = read_file(Path(path), problems)
    found = () if content is None else read_incidents(str(path), content, problems)
    refuse(problems)
    return found


def read_incidents(path: str, content: bytes, problems: list[Problem]) -> tuple[Incident, ...]:
    """Return the incidents of a file, and add what is wrong with it to `problems`. Raises nothing."""
    readers: Mapping[Any, Reader] = {datetime: _read_time}
    decoder = Decoder(path, content, readers=readers)
    try:
        if decoder.root is None:
            return ()
        if is_null(decoder.root):
            raise decoder.fail(decoder.root, "the file is empty; write `incidents:` and a list below it")
        found = decoder.record(decoder.root, _IncidentFile, "a file of incidents").incidents
    except Invalid:
        return ()
    finally:
        problems += decoder.problems
    return tuple(sorted(found, key=lambda each: each.start))


def _read_time(decoder: Decoder, node: Node, what: str) -> datetime:
    if isinstance(node, ScalarNode):
        try:
            return read_instant(node.value)
        except ValueError:
            pass
    raise decoder.fail(
        node, f"{what} must be a time such as 2026-03-01T12:00:00Z, or Unix seconds, got {node}"
    )


def read_instant(text: str) -> datetime:
    """Return the instant that `text` names: RFC 3339, in UTC without a zone, or Unix seconds. ValueError if none."""
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except (ValueError, OverflowError, OSError):
        at = datetime.fromisoformat(text)
    return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)

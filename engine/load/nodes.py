"""What a YAML file says, as nodes that know where they stand.

Scalars are kept as the text that was written: whether `0x1F` is a number, or a label's value that must stay
as it is, only the field that it is meant for can tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# Visible characters of a scalar's source, by its style. Escapes of white space are found first, then dropped.
_PLAIN = re.compile(r"\S")
_SINGLE_QUOTED = re.compile(r"''|\S")
_DOUBLE_QUOTED = re.compile(r"\\(?:x..|u.{4}|U.{8}|.)|\S", re.DOTALL)
_INVISIBLE = frozenset(f"\\{letter}" for letter in "ntrvf N_LP\t\n")
_HEADER = re.compile(r"(?:[&!]\S*\s+)*(?:[|>].*\n|[\"'])?")  # anchors and tags, then what opens the scalar
_SHOWN = 40  # characters of a value that a message repeats


@dataclass(frozen=True, slots=True, eq=False)
class ScalarNode:
    """A single value, as written."""

    line: int
    column: int
    value: str
    plain: bool  # without quotes, and no block
    null: bool = False  # nothing, `~` or `null`
    size: int = 1

    def __str__(self) -> str:
        if self.null:
            return "nothing"
        shown = self.value if len(self.value) <= _SHOWN else self.value[: _SHOWN - 1] + "…"
        return repr(shown) if self.plain else f"the text {shown!r}"


@dataclass(frozen=True, slots=True, eq=False)
class SequenceNode:
    """A list."""

    line: int
    column: int
    items: tuple[Node, ...]
    size: int = 1

    def __str__(self) -> str:
        return "a list"


class Entry(NamedTuple):
    """A key of a mapping and what stands there."""

    key: ScalarNode
    value: Node


@dataclass(frozen=True, slots=True, eq=False)
class MappingNode:
    """A mapping, `<<` resolved; `size` counts all nodes below, aliases as often as they are used."""

    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict)
    size: int = 1

    def __str__(self) -> str:
        return "a mapping"

    def get(self, key: str) -> Node | None:
        """Return what stands at `key`; None if nothing does."""
        entry = self.entries.get(key)
        return None if entry is None or is_null(entry.value) else entry.value

    def has(self, key: str) -> bool:
        """Tell whether anything stands at `key`."""
        return self.get(key) is not None


Node = ScalarNode | SequenceNode | MappingNode


def is_null(node: Node) -> bool:
    """Tell whether nothing is written there."""
    return isinstance(node, ScalarNode) and node.null


def split_lines(text: str) -> list[str]:
    """Return the lines of `text`, by what YAML takes for the end of one."""
    return re.split("\r\n|[\n\r\x85\u2028\u2029]", text)


def offset_of(text: str, line: int, column: int) -> int:
    """Return the index in `text` of a place in it; both count from 1."""
    before = text.split("\n")[: line - 1]
    return sum(len(each) + 1 for each in before) + column - 1


def place_in(lines: Sequence[str], node: ScalarNode, offset: int) -> tuple[int, int]:
    """Return the line and column, in the file, of the character at `offset` of a scalar's text.

    Quotes, escapes, folding and indentation make the text differ from what is written. But white space apart,
    the nth character of the one is the nth of the other, and that is what is counted here.
    """
    content = node.value.rstrip()
    past_end = bool(content) and offset >= len(content)
    wanted = sum(not char.isspace() for char in content[: len(content) - 1 if past_end else offset])
    source = "\n".join(lines[node.line - 1 :])[node.column - 1 :]
    header = _HEADER.match(source)
    start = header.end() if header else 0
    pattern = {'"': _DOUBLE_QUOTED, "'": _SINGLE_QUOTED}.get(source[start - 1 : start], _PLAIN)
    visible = (match for match in pattern.finditer(source, start) if match.group() not in _INVISIBLE)
    for index, match in enumerate(visible):
        if index == wanted:
            at = match.end() if past_end else match.start()
            before = source[:at]
            if "\n" in before:
                return node.line + before.count("\n"), at - before.rfind("\n")
            return node.line, node.column + at
    return node.line, node.column

"""The only door to `yaml`: from bytes to nodes.

Nothing here raises on what a file holds. Every problem that can be seen without knowing what the file is for
is noted: bytes that are no text, text that is no YAML, keys given twice, aliases that go nowhere or explode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from engine.errors import Problem
from engine.load.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode, split_lines

MAX_BYTES = 4 << 20
_MAX_DEPTH = 64
_MAX_NODES = 1_000_000  # with aliases followed
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_TAGS = frozenset(
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
# Both give the same places; libyaml's is ten times as fast.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True, eq=False)
class Document:
    """A file's first document, and what is wrong with it so far."""

    path: str
    lines: list[str] = field(default_factory=list)
    root: Node | None = None  # None: it cannot be read
    more: bool = False  # another document follows
    problems: list[Problem] = field(default_factory=list)

    def note(self, line: int, column: int, message: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(self.path, line, column, message))


def compose(path: str, content: bytes, expand: Callable[[str], str] | None = None) -> Document:
    """Return a file's first document. `expand` rewrites scalars; it raises LookupError where it cannot."""
    document = Document(path)
    text = _text(document, content)
    if text is None:
        return document
    document.lines = split_lines(text)
    try:
        document.root, document.more = _Composer(document.note, expand).document(text)
    except _Unreadable as error:
        document.note(error.line, error.column, str(error))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context}: " if error.context else ""
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        document.note(line, column, f"not YAML: {context}{error.problem}")
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # escapes that are no character
        document.note(1, 1, f"not YAML: {str(error).splitlines()[0]}")
    return document


def _text(document: Document, content: bytes) -> str | None:
    if len(content) > MAX_BYTES:
        document.note(1, 1, f"the file is larger than {MAX_BYTES >> 20} MiB; split it")
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = split_lines(content[: error.start].decode("utf-8-sig", "replace"))
        byte = content[error.start]
        document.note(
            len(before), len(before[-1]) + 1, f"the file is not UTF-8: unexpected byte 0x{byte:02x}"
        )
        return None
    if control := _CONTROL.search(text):
        before = split_lines(text[: control.start()])
        message = f"control character U+{ord(control[0]):04X}; YAML is text, write it as an escape"
        document.note(len(before), len(before[-1]) + 1, message)
        return None
    return text


class _Unreadable(Exception):
    """The file cannot be read on from here."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column = line, column


class _Composer:
    """Nodes from PyYAML's events. Bounded in depth and size, so that no file can exhaust the process."""

    def __init__(self, note: Callable[[int, int, str], None], expand: Callable[[str], str] | None) -> None:
        self._note = note
        self._expand = expand
        self._anchors: dict[str, Node | None] = {}  # None while it is being built
        self._size = 0

    def document(self, text: str) -> tuple[Node, bool]:
        """Return the first document, and whether another one follows."""
        events = yaml.parse(text, Loader=_LOADER)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                root = self._node(next(events), events, 1)
                next(events)  # the document's end
                return root, isinstance(next(events), yaml.DocumentStartEvent)
        return ScalarNode(1, 1, "", plain=True, null=True), False

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.AliasEvent):
            node = self._alias(event.anchor, line, column)
        else:
            if event.tag is not None and event.tag not in _TAGS | {"!"}:
                self._note(line, column, f"the tag {event.tag!r} has no meaning here; leave it out")
            if event.anchor is not None:
                self._anchors[event.anchor] = None
            node = self._own(event, events, depth, line, column)
            if event.anchor is not None:
                self._anchors[event.anchor] = node
        if node.size > _MAX_NODES:
            raise _Unreadable(line, column, "the aliases make this too large; write out what is needed")
        return node

    def _alias(self, anchor: str | None, line: int, column: int) -> Node:
        if anchor is None or anchor not in self._anchors:
            raise _Unreadable(line, column, f"no anchor is called {anchor!r}; define it above with &{anchor}")
        node = self._anchors[anchor]
        if node is None:
            raise _Unreadable(line, column, f"{anchor!r} contains itself")
        return node

    def _own(self, event: Any, events: Iterator[Any], depth: int, line: int, column: int) -> Node:
        if depth > _MAX_DEPTH:
            raise _Unreadable(line, column, f"nested deeper than {_MAX_DEPTH} levels")
        if isinstance(event, yaml.ScalarEvent):
            event.value.encode()  # a lone surrogate, from an escape, raises here and not in some log
            null = event.implicit[0] and event.value in _NULLS
            value = event.value if self._expand is None else self._expand_at(event.value, line, column)
            # What was filled in may be a number although there must be quotes around `${…}` in some places.
            plain = event.implicit[0] or value != event.value
            return ScalarNode(line, column, value, plain=plain, null=null)
        if isinstance(event, yaml.SequenceStartEvent):
            items = []
            while not isinstance(event := next(events), yaml.SequenceEndEvent):
                items.append(self._node(event, events, depth + 1))
            return SequenceNode(line, column, tuple(items), 1 + sum(item.size for item in items))
        pairs = []
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            pairs.append((self._node(event, events, depth + 1), self._node(next(events), events, depth + 1)))
        size = 1 + sum(1 + value.size for _, value in pairs)
        return MappingNode(line, column, self._entries(pairs), size)

    def _expand_at(self, text: str, line: int, column: int) -> str:
        try:
            return self._expand(text) if self._expand else text
        except LookupError as error:
            self._note(line, column, str(error.args[0]))
            return text

    def _entries(self, pairs: Iterable[tuple[Node, Node]]) -> dict[str, Entry]:
        """Return the entries of a mapping. What is written there itself wins over what `<<` brings."""
        own: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        for key, value in pairs:
            if not isinstance(key, ScalarNode):
                self._note(key.line, key.column, f"a key must be text, got {key}")
            elif key.plain and key.value == "<<":
                self._merge(merged, value)
            elif key.value in own:
                first = own[key.value].key
                self._note(key.line, key.column, f"{key.value!r} is given twice; first in line {first.line}")
            else:
                own[key.value] = Entry(key, value)
        return {**merged, **own}

    def _merge(self, merged: dict[str, Entry], value: Node) -> None:
        for part in value.items if isinstance(value, SequenceNode) else (value,):
            if isinstance(part, MappingNode):
                merged.update({name: entry for name, entry in part.entries.items() if name not in merged})
            else:
                self._note(part.line, part.column, f"'<<' takes a mapping or a list of mappings, got {part}")


def marked(text: str) -> Any:
    """Return the first document as PyYAML's own nodes, whose marks say where each begins and ends. For editing."""
    return yaml.compose(text, Loader=_LOADER)

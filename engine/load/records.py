"""From nodes to frozen dataclasses, by their type hints.

Nothing here raises on what a file holds. A problem is noted, what is wrong is left out, and decoding goes on,
so that one pass finds every problem; whoever asked must look at `problems` before trusting the result.

A key with nothing after it counts as absent, as in Prometheus. Texts are taken as written: `true`, `1.0` and
`0x1F` are what they look like where a text is wanted.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from engine.errors import Problem
from engine.load.decode import compose
from engine.load.matchers import Misread, parse_matchers
from engine.load.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode, is_null, place_in
from engine.load.scalars import SCALARS, read_plain
from engine.model.labels import Labels, Matchers
from engine.model.ports import Action, Detector, Enricher, Guardrail, Notifier
from engine.model.rule import Origin
from engine.registry import Registry, action, detector, enricher, guardrail, notifier

T = TypeVar("T")
Reader = Callable[["Decoder", Node, str], Any]


class Invalid(Exception):
    """What stands there cannot be used; the problem is already noted."""


class Field(NamedTuple):
    """A field of a record as YAML sees it."""

    name: str
    hint: Any
    required: bool


class Schema(NamedTuple):
    """How a dataclass is read."""

    fields: dict[str, Field]  # by the word that is written
    origins: tuple[str, ...]  # names of fields that say where the record was written


def schema(cls: type) -> dict[str, Field]:
    """Return the fields of a dataclass that are read from YAML, by the word that is written there."""
    return _schema(cls).fields


@cache
def _schema(cls: type) -> Schema:
    hints = typing.get_type_hints(cls)
    found, origins = {}, []
    for each in dataclasses.fields(cls):
        key = each.metadata.get("key", each.name)
        if hints[each.name] is Origin:
            origins.append(each.name)
        elif key is not None and each.init:
            required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
            found[key] = Field(each.name, hints[each.name], required)
    return Schema(found, tuple(origins))


def _origins_of(cls: type) -> tuple[str, ...]:
    return _schema(cls).origins


def words_of(cls: type) -> str:
    """Return a class's name as words, with an article unless it is a plural: `an alerting rule`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__.lstrip("_")).lower()
    if words.endswith("settings"):
        return words
    return with_article(words)


def with_article(words: str) -> str:
    """Return `words` with `a` or `an` before them."""
    return f"{'an' if words[0] in 'aeio' else 'a'} {words}"


def listed(words: Iterable[str]) -> str:
    """Return alternatives as prose: `off, dry_run or auto`."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def suggest(word: str, known: Iterable[str]) -> str:
    """Return the way out of a word that is not known, to be put after the message."""
    words = sorted(known)
    if near := difflib.get_close_matches(word, words, n=1):
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(words)}" if words else ""


class Decoder:
    """One file: its nodes, how to make records of them, and what is wrong with it.

    `readers` says how types that are more than their fields are read. `refused` gives the reason why a key is
    not known, where there is more to say than that. `expand` rewrites every scalar before anything else, and
    raises LookupError where it cannot. `folder`, if given, is what relative paths at `…_file` start from.
    """

    def __init__(
        self,
        path: str,
        content: bytes,
        *,
        readers: Mapping[Any, Reader] | None = None,
        refused: Mapping[str, str] | None = None,
        expand: Callable[[str], str] | None = None,
        folder: Path | None = None,
    ) -> None:
        self._document = compose(path, content, expand)
        self._readers = {**_READERS, **(readers or {})}
        self._refused = refused or {}
        self._folder = folder
        self.path = path
        self.problems = self._document.problems
        self.beyond: list[
            Problem
        ] = []  # PromQL that a real server may answer, and the embedded evaluator will not
        self.root = self._document.root
        self.more = self._document.more
        self.seen: dict[tuple[str, str], Node] = {}  # what must be unique in the file, and where it was first

    def _note(self, line: int, column: int, message: str) -> None:
        self.problems.append(Problem(self.path, line, column, message))

    def report(self, node: Node, message: str) -> None:
        """Note a problem and go on."""
        self._note(node.line, node.column, message)

    def report_at(self, origin: Origin, message: str) -> None:
        """Note a problem of a record that is built already."""
        self._note(origin.line, origin.column, message)

    def report_inside(self, node: Node, offset: int, message: str) -> None:
        """Note a problem at the character `offset` of a scalar's text."""
        self._note(*self._inside(node, offset), message)

    def report_beyond(self, node: Node, offset: int, message: str) -> None:
        """Note PromQL that is no problem unless it has to be answered without a server."""
        self.beyond.append(Problem(self.path, *self._inside(node, offset), message))

    def _inside(self, node: Node, offset: int) -> tuple[int, int]:
        if isinstance(node, ScalarNode):
            return place_in(self._document.lines, node, offset)
        return node.line, node.column

    def fail(self, node: Node, message: str) -> Invalid:
        """Note a problem, and return what to raise."""
        self.report(node, message)
        return Invalid(message)

    def attempt(self, read: Callable[[], T]) -> T | None:
        """Return what `read` returns, or None where that is Invalid, so that more can be read."""
        try:
            return read()
        except Invalid:
            return None

    @contextmanager
    def reading(self, readers: Mapping[Any, Reader]) -> Iterator[None]:
        """Within this, read these types so."""
        before, self._readers = self._readers, {**self._readers, **readers}
        try:
            yield
        finally:
            self._readers = before

    def decode(self, node: Node, want: Any, what: str) -> Any:  # noqa: PLR0911 - one for each kind of type
        """Return `node` as a `want`; `what` is its name in messages. Raises Invalid, the problem noted."""
        if (read := self._readers.get(want)) is not None:
            return read(self, node, what)
        origin, args = typing.get_origin(want), typing.get_args(want)
        if origin in (types.UnionType, typing.Union):
            return self._one_of(node, args, what)
        if origin is tuple:
            return tuple(self.sequence(node, args[0], what))
        if origin in (dict, Mapping):
            return dict(self.mapping(node, args[1], what))
        if origin is typing.Literal:
            return self.choice(node, {str(value): value for value in args}, what)
        if want in (Any, object):
            return self._anything(node)
        if dataclasses.is_dataclass(want):
            return self.record(node, typing.cast(type, want), what)
        return self._scalar(node, want, what)

    def sequence(self, node: Node, want: Any, what: str) -> Iterator[Any]:
        """Yield the elements of a list that can be used."""
        if is_null(node):
            return
        if not isinstance(node, SequenceNode):
            raise self.fail(node, f"{what} must be a list, got {node}")
        for item in node.items:
            try:
                yield self.decode(item, want, f"an item of {what}")
            except Invalid:
                continue

    def mapping(self, node: Node, want: Any, what: str) -> Iterator[tuple[str, Any]]:
        """Yield the keys of a mapping and their values, where these can be used."""
        if is_null(node):
            return
        if not isinstance(node, MappingNode):
            raise self.fail(node, f"{what} must be a mapping, got {node}")
        for key, entry in node.entries.items():
            try:
                yield key, self.decode(entry.value, want, f"{key!r} of {what}")
            except Invalid:
                continue

    def record(
        self,
        node: Node,
        cls: type[T],
        what: str | None = None,
        *,
        given: Mapping[str, Any] | None = None,
        beside: Collection[str] = (),
    ) -> T:
        """Return `node` as a `cls`: `given` fields are known, `beside` are keys that the caller reads."""
        what = what or words_of(cls)
        if not isinstance(node, MappingNode):
            raise self.fail(node, f"{what} must be a mapping, got {node}")
        fields, values, bad = schema(cls), dict(given or {}), set()
        for key, entry in node.entries.items():
            if key in beside:
                continue
            if (field := fields.get(key)) is None:
                self.unknown(entry.key, key, {*fields, *beside}, what)
            elif not is_null(entry.value):
                try:
                    values[field.name] = self._value(entry, field)
                except Invalid:
                    bad.add(field.name)
        return self._build(node, cls, what, values, bad)

    def _value(self, entry: Entry, field: Field) -> Any:
        value = self.decode(entry.value, field.hint, repr(entry.key.value))
        if self._folder is not None and isinstance(value, str) and entry.key.value.endswith("_file"):
            return str(self._folder / value)
        return value

    def _build(self, node: Node, cls: type[T], what: str, values: dict[str, Any], bad: set[str]) -> T:
        required = {field.name: key for key, field in schema(cls).items() if field.required}
        missing = [key for name, key in required.items() if name not in values and name not in bad]
        # A field that is there, but misspelt, is one mistake and is reported as that.
        strange = set(node.entries) - schema(cls).keys() if isinstance(node, MappingNode) else set[str]()
        misspelt = [key for key in missing if difflib.get_close_matches(key, strange, n=1)]
        if missing and misspelt == missing and self.problems:
            raise Invalid
        if missing:
            raise self.fail(node, f"{what} needs {' and '.join(map(repr, missing))}")
        if bad & required.keys():
            raise Invalid
        for name in _origins_of(cls):
            values.setdefault(name, Origin(self.path, node.line, node.column))
        try:
            return cls(**values)
        except ValueError as error:
            if bad:  # a consequence of what is noted already, perhaps
                raise Invalid from None
            raise self.fail(node, f"{what}: {error}") from None

    def unknown(self, node: Node, key: str, known: Collection[str], what: str) -> None:
        """Note a key that `what` does not have."""
        if (reason := self._refused.get(key)) is not None:
            self.report(node, f"unknown field {key!r} in {what}: {reason}")
        else:
            self.report(node, f"unknown field {key!r} in {what}{suggest(key, known)}")

    def plugin(self, node: Node, kind: str, find: Callable[[str], type], what: str) -> Any:
        """Return the plug-in that `name`, `{name: {…}}` or `{name: value of the first field}` describes."""
        if isinstance(node, ScalarNode) and not node.null:
            key, value = node, None
        elif isinstance(node, MappingNode) and len(node.entries) == 1:
            ((key, value),) = node.entries.values()
        elif isinstance(node, MappingNode) and node.entries:
            first, *others = node.entries
            raise self.fail(
                node,
                f"{what} must be one {kind}, got {first!r} and {', '.join(map(repr, others))}; "
                f"indent what belongs to {first!r}",
            )
        else:
            raise self.fail(
                node, f"{what} must be {with_article(kind)}'s name, or one `name: {{…}}`, got {node}"
            )
        return self.configure(key, value, kind, find)

    def configure(self, key: ScalarNode, value: Node | None, kind: str, find: Callable[[str], type]) -> Any:
        """Return the plug-in called `key`. `value` is its fields, or its first one if that is no mapping."""
        try:
            cls = find(key.value)
        except LookupError as error:
            raise self.fail(key, str(error)) from None
        if value is None or is_null(value):
            value = MappingNode(key.line, key.column)
        elif not isinstance(value, MappingNode):
            first = next(iter(schema(cls)), None)
            if first is None:
                raise self.fail(value, f"{kind} {key.value!r} has no settings, got {value}")
            value = MappingNode(key.line, key.column, {first: Entry(key, value)})
        return self.record(value, cls, f"{kind} {key.value!r}")

    def _one_of(self, node: Node, options: tuple[Any, ...], what: str) -> Any:
        if is_null(node) and types.NoneType in options:
            return None
        options = tuple(option for option in options if option is not types.NoneType)
        fitting = [option for option in options if _takes(option, node)]
        if len(fitting) == 1 or len(options) == 1:
            return self.decode(node, (fitting or options)[0], what)
        noted, self.problems = self.problems, []
        try:
            for option in sorted(
                fitting, key=lambda each: each is str
            ):  # text takes anything, so it comes last
                try:
                    value = self.decode(node, option, what)
                except Invalid:
                    self.problems = []
                else:
                    if not self.problems:
                        return value
        finally:
            self.problems = noted
        raise self.fail(node, f"{what} must be {listed(map(_expected, options))}, got {node}")

    def choice(self, node: Node, values: Mapping[str, Any], what: str) -> Any:
        """Return what one of some words stands for."""
        if isinstance(node, ScalarNode) and node.value in values:
            return values[node.value]
        near = difflib.get_close_matches(node.value, values, n=1) if isinstance(node, ScalarNode) else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise self.fail(node, f"{what} must be {listed(values)}, got {node}{hint}")

    def _anything(self, node: Node) -> Any:
        if isinstance(node, ScalarNode):
            return read_plain(node)
        if isinstance(node, SequenceNode):
            return [self._anything(item) for item in node.items]
        return {key: self._anything(entry.value) for key, entry in node.entries.items()}

    def _scalar(self, node: Node, want: Any, what: str) -> Any:
        if isinstance(want, type) and issubclass(want, Enum):
            return self.choice(node, {str(member.value): member for member in want}, what)
        expected, read = SCALARS[want]
        if isinstance(node, ScalarNode):
            try:
                return read(node)
            except ValueError:
                pass
        raise self.fail(node, f"{what} must be {expected}, got {node}")


def _takes(want: Any, node: Node) -> bool:
    origin = typing.get_origin(want)
    if origin is tuple:
        return isinstance(node, SequenceNode)
    if origin in (dict, Mapping) or dataclasses.is_dataclass(want):
        return isinstance(node, MappingNode)
    return isinstance(node, ScalarNode) or want in _READERS


def _expected(want: Any) -> str:
    origin = typing.get_origin(want)
    if origin is tuple:
        return "a list"
    if origin in (dict, Mapping) or dataclasses.is_dataclass(want):
        return "a mapping"
    return SCALARS[want][0] if want in SCALARS else str(getattr(want, "__name__", want)).lower()


def _read_matchers(decoder: Decoder, node: Node, what: str) -> Matchers:
    """Matchers: one text, or a list of texts; each may hold several, with or without braces."""
    if isinstance(node, SequenceNode):
        return Matchers(
            each for item in node.items for each in _read_matchers(decoder, item, f"an item of {what}")
        )
    if not isinstance(node, ScalarNode) or node.null:
        raise decoder.fail(node, f'{what} must be matchers such as severity="critical", got {node}')
    try:
        return parse_matchers(node.value)
    except Misread as error:
        decoder.report_inside(node, error.offset, f"{what}: {error}")
        raise Invalid from None


def _read_labels(decoder: Decoder, node: Node, what: str) -> Labels:
    return Labels(dict(decoder.mapping(node, str, what)))


def _plugin_reader(registry: Registry) -> Reader:
    return lambda decoder, node, what: decoder.plugin(node, registry.kind, registry.get, what)


_READERS: Mapping[Any, Reader] = {
    Matchers: _read_matchers,
    Labels: _read_labels,
    Detector: _plugin_reader(detector),
    Enricher: _plugin_reader(enricher),
    Notifier: _plugin_reader(notifier),
    Action: _plugin_reader(action),
    Guardrail: _plugin_reader(guardrail),
}

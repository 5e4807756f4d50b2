"""What a template computes with, and its counterparts among Go's types.

A value is a bool, int, float, str or None, or one of the classes below and of
`times`. Nothing else gets in: `lift` turns the engine's data into these and
refuses the rest, so that a template can look things up and can call nothing.

A Go string is a sequence of bytes. A str stands for one by UTF-8, and a byte
that is not UTF-8 is a lone surrogate (Python's `surrogateescape`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real

from engine.lang.template.times import Duration, Named, Time
from engine.model.labels import Labels

LIMIT = 1 << 20
"""The most characters that a template, and any value in it, may come to."""

STRING_MAPS = ("labels", "externalLabels")
"""Names whose mappings are Go's map[string]string: a missing key is the empty string."""


class Fault(Exception):
    """What is wrong, without the place; evaluation adds that and raises TemplateError."""


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A map from strings. With a `path`, which is how a template reached it, a missing field is an error."""

    type: str
    entries: Mapping[str, object]
    zero: object = None  # what a missing key gives
    path: str | None = None

    def field(self, name: str) -> object:
        """Return the entry as `.name` reads it."""
        if name not in self.entries and self.path is not None:
            raise Fault(f"{self.path} has no {name!r}{suggest(name, self.entries)}")
        return self.get(name)

    def get(self, name: str) -> object:
        """Return the entry as `index` reads it: a missing one is the zero value."""
        if name not in self.entries:
            return self.zero
        return lift(self.entries[name], f"{self.path}.{name}")


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One element of a query's result."""

    labels: Map
    value: float

    def fields(self) -> dict[str, object]:
        """Return all fields."""
        return {"Labels": self.labels, "Value": self.value}

    def field(self, name: str) -> object:
        """Return `Labels` or `Value`."""
        if name not in self.fields():
            raise Fault(f"can't evaluate field {name} in type *template.sample")
        return self.fields()[name]


class Samples(tuple[Sample, ...]):
    """A query's result."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Root:
    """What `.` is at the start: each name of the data with a capital letter."""

    data: Mapping[str, object]

    def field(self, name: str) -> object:
        """Return what `.Name` holds, which is what `$name` holds."""
        if not name[:1].isupper():
            raise Fault(f"can't evaluate field {name}; did you mean {field_of(name)!r}?")
        if variable_of(name) not in self.data:
            raise Fault(f".{name} is not known here{suggest(name, map(field_of, self.data))}")
        return self.variable(variable_of(name))

    def variable(self, name: str) -> object:
        """Return what `$name` holds."""
        if name not in self.data:
            known = [f"${each}" for each in self.data]
            raise Fault(f"${name} is not known here{suggest(f'${name}', known)}")
        value = self.data[name]
        if name in STRING_MAPS and isinstance(value, Mapping):
            return string_map(value)
        return lift(value, f"${name}")

    def fields(self) -> dict[str, object]:
        """Return all fields, Prometheus' own first and in its order."""
        order = ["labels", "externalLabels", "externalURL", "value"]
        names = [name for name in order if name in self.data] + [
            name for name in self.data if name not in order
        ]
        return {field_of(name): self.variable(name) for name in names}


def variable_of(field: str) -> str:
    """Return the variable that holds the same as a field of the root: `ExternalURL` gives externalURL."""
    return field[:1].lower() + field[1:]


def field_of(variable: str) -> str:
    """Return the field of the root that holds the same as a variable."""
    return variable[:1].upper() + variable[1:]


def suggest(name: str, known: Iterable[str]) -> str:
    """Return how a message about a wrong name goes on: the nearest name, or else all of them."""
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=1):
        return f"; did you mean {near[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""


def string_map(entries: Mapping[str, str]) -> Map:
    """Return `entries` as Go's map[string]string."""
    return Map("map[string]string", entries, zero="")


def lift(value: object, path: str) -> object:
    """Return the engine's `value` as a template's; `path` is how the template reached it."""
    match value:
        case None | bool() | Map() | Sample() | Samples() | Root() | Time() | Duration() | Named():
            lifted: object = value
        case str():
            lifted = str(value)
        case Integral():
            if not -(1 << 63) <= int(value) < 1 << 63:
                raise Fault(f"{path} does not fit in 64 bits")
            lifted = int(value)
        case Real():
            lifted = float(value)
        case Labels():
            lifted = string_map(value)
        case Mapping():
            entries = {str(key): entry for key, entry in value.items()}
            lifted = Map("map[string]interface {}", entries, path=path)
        case Sequence():
            lifted = tuple(lift(element, f"{path}[{index}]") for index, element in enumerate(value))
        case _:
            raise Fault(f"{path} is a {type(value).__name__}, which a template cannot read")
    return lifted


def go_type(value: object) -> str:
    """Return the name of a value's type in Go."""
    if isinstance(value, (Map, Named, Time, Duration)):
        return value.type
    names: dict[type, str] = {
        type(None): "<nil>",
        bool: "bool",
        int: "int",
        float: "float64",
        str: "string",
        Sample: "*template.sample",
        Samples: "template.queryResult",
        Root: "struct",
        tuple: "[]interface {}",
    }
    return names[type(value)]


def is_true(value: object) -> bool:
    """Tell whether `if` takes the value for true: it is not the zero of its type, nor empty."""
    if isinstance(value, Map):
        return bool(value.entries)
    if isinstance(value, (Sample, Root, Time, Duration)):
        return True
    return bool(value)


def to_bytes(text: str) -> bytes:
    """Return the bytes of a Go string."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return clean(text).encode()


def from_bytes(data: bytes) -> str:
    """Return the str that stands for a Go string."""
    return data.decode("utf-8", "surrogateescape")


def clean(text: str) -> str:
    """Return `text` with U+FFFD for what is not Unicode."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)

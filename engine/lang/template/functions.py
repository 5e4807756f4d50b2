"""Go's built-in template functions, and the table of all.

Prometheus' own are in `prometheus`. Types are as strict as Go's, because rules
that work here must work there: `eq 1 1.0` is an error in both. `and` and `or`
stop at the first argument that decides, so evaluation sees to these two; the
table holds them for their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from engine.lang.template.printing import show, sprint, sprintf, sprintln
from engine.lang.template.quoting import escape_html, escape_js, escape_query
from engine.lang.template.times import DURATION_METHODS, TIME_METHODS, Duration, Methods, Time
from engine.lang.template.values import (
    Fault,
    Map,
    Root,
    Sample,
    Samples,
    from_bytes,
    go_type,
    is_true,
    to_bytes,
)
from engine.model.labels import Labels

Query = Callable[[str], Sequence[tuple[Labels, float]]]
"""Answers a PromQL expression at the instant of the evaluation."""

F = TypeVar("F", bound=Callable[..., object])

_KINDS: Mapping[str, tuple[type, str]] = {
    "string": (str, "string"),
    "int": (int, "int"),
    "sample": (Sample, "*template.sample"),
    "samples": (Samples, "template.queryResult"),
    "time": (Time, "time.Time"),
    "duration": (Duration, "time.Duration"),
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What functions may ask of the world. `invoke` expands a defined template by name."""

    query: Query | None
    now: float | None  # Unix seconds
    external_url: str
    invoke: Callable[[str, object], str]


@dataclass(frozen=True, slots=True)
class Function:
    """A function as templates call it: the kinds of its parameters, and of those that may follow them."""

    name: str
    call: Callable[..., object]
    kinds: tuple[str, ...]
    rest: str | None = None
    asks: bool = False  # its first argument is the surroundings

    def __call__(self, surroundings: Surroundings, arguments: Sequence[object]) -> object:
        check_arguments(self.kinds, self.rest, arguments)
        return self.call(surroundings, *arguments) if self.asks else self.call(*arguments)


FUNCTIONS: dict[str, Function] = {}


def function(name: str, *kinds: str, rest: str | None = None, asks: bool = False) -> Callable[[F], F]:
    """Register the decorated function under `name`; kinds are those of `accept`."""

    def register(call: F) -> F:
        FUNCTIONS[name] = Function(name, call, kinds, rest, asks)
        return call

    return register


def accept(value: object, kind: str) -> bool:
    """Tell whether a parameter of that kind takes the value; `any` takes all."""
    if kind == "any":
        return True
    expected, _ = _KINDS[kind]
    return isinstance(value, expected) and not isinstance(value, bool)


def check_arguments(kinds: Sequence[str], rest: str | None, arguments: Sequence[object]) -> None:
    """Raise Fault unless the arguments fit in number and kind."""
    got = len(arguments)
    if got < len(kinds) or (rest is None and got > len(kinds)):
        least = "at least " if rest else ""
        raise Fault(f"wrong number of arguments: want {least}{len(kinds)}, got {got}")
    for index, value in enumerate(arguments):
        kind = kinds[index] if index < len(kinds) else rest or "any"
        if not accept(value, kind):
            wanted, found = _KINDS[kind][1], go_type(value)
            raise Fault(f"wrong type for argument {index + 1}: expected {wanted}, got {found}")


def read_field(value: object, name: str, arguments: Sequence[object] = ()) -> object:
    """Return `value.name`: an entry of a map, a field, or the result of a time's method."""
    methods: Methods = {}
    if isinstance(value, (Time, Duration)):
        methods = TIME_METHODS if isinstance(value, Time) else DURATION_METHODS
    if name in methods:
        kinds, call = methods[name]
        try:
            check_arguments(kinds, None, arguments)
            return call(value, *arguments)
        except Fault as fault:
            raise Fault(f"error calling {name}: {fault}") from None
        except (OverflowError, ValueError):
            raise Fault(f"error calling {name}: the result is not in the years 1 to 9999") from None
    if arguments:
        raise Fault(f"{name} is not a method but has arguments")
    if value is None:
        return None  # as in Go with missingkey=zero: what is missing has no parts either
    if isinstance(value, (Map, Sample, Root)):
        return value.field(name)
    raise Fault(f"can't evaluate field {name} in type {go_type(value)}")


@function("and", "any", rest="any")
@function("or", "any", rest="any")
def _decided_by_evaluation(*values: object) -> object:
    raise AssertionError(values)


@function("not", "any")
def _not(value: object) -> bool:
    return not is_true(value)


def _kind(value: object) -> str:
    for kind, types in (("bool", bool), ("int", int), ("float", float), ("string", str)):
        if isinstance(value, types):
            return kind
    return "nil" if value is None else "other"


def _equal(left: object, right: object) -> bool:
    kinds = {_kind(left), _kind(right)}
    if "nil" in kinds:
        return left is right
    if isinstance(left, (Map, tuple)):
        raise Fault(f"a {go_type(left)} cannot be compared")
    if len(kinds) > 1:
        raise Fault(f"incompatible types for comparison: {go_type(left)} and {go_type(right)}")
    return left is right if isinstance(left, Sample) else left == right


def _less(left: object, right: object) -> bool:
    for value in (left, right):
        if _kind(value) not in ("int", "float", "string"):
            raise Fault(f"invalid type for comparison: {go_type(value)} has no order")
    if isinstance(left, str) and isinstance(right, str):
        return to_bytes(left) < to_bytes(right)
    same = _kind(left) == _kind(right)
    if same and isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return left < right
    raise Fault(f"incompatible types for comparison: {go_type(left)} and {go_type(right)}")


@function("eq", "any", rest="any")
def _eq(first: object, *others: object) -> bool:
    if not others:
        raise Fault("missing argument for comparison")
    return any(_equal(first, other) for other in others)


@function("ne", "any", "any")
def _ne(left: object, right: object) -> bool:
    return not _equal(left, right)


@function("lt", "any", "any")
def _lt(left: object, right: object) -> bool:
    return _less(left, right)


@function("le", "any", "any")
def _le(left: object, right: object) -> bool:
    return _less(left, right) or _equal(left, right)


@function("gt", "any", "any")
def _gt(left: object, right: object) -> bool:
    return not _le(left, right)  # so that `gt NaN 1` is true, as in Go


@function("ge", "any", "any")
def _ge(left: object, right: object) -> bool:
    return not _less(left, right)


@function("len", "any")
def _len(value: object) -> int:
    if isinstance(value, str):
        return len(to_bytes(value))
    if isinstance(value, Map):
        return len(value.entries)
    if isinstance(value, tuple):
        return len(value)
    raise Fault(f"len of type {go_type(value)}")


@function("index", "any", rest="any")
def _index(value: object, *keys: object) -> object:
    for key in keys:
        value = _item(value, key)
    return value


def _item(value: object, key: object) -> object:
    if isinstance(value, Map):
        if not isinstance(key, str):
            raise Fault(f"value has type {go_type(key)}; should be string")
        return value.get(key)
    if isinstance(value, str):
        return to_bytes(value)[_position(key, len(to_bytes(value)) - 1)]
    if isinstance(value, tuple):
        return value[_position(key, len(value) - 1)]
    raise Fault(f"can't index item of type {go_type(value)}")


def _position(key: object, last: int) -> int:
    if not isinstance(key, int) or isinstance(key, bool):
        raise Fault(f"cannot index slice/array with type {go_type(key)}")
    if not 0 <= key <= last:
        raise Fault(f"index out of range: {key}")
    return key


@function("slice", "any", rest="any")
def _slice(value: object, *bounds: object) -> object:
    if not isinstance(value, (str, tuple)):
        raise Fault(f"can't slice item of type {go_type(value)}")
    if len(bounds) > (2 if isinstance(value, str) else 3):
        raise Fault(f"too many slice indexes: {len(bounds)}")
    size = _len(value)
    positions = [_position(bound, size) for bound in bounds]
    start, end = (*positions[:2], *(0, size)[len(positions) :])[:2]
    if positions != sorted(positions):
        raise Fault(f"invalid slice index: {start} > {end}")
    if isinstance(value, str):
        return from_bytes(to_bytes(value)[start:end])
    return type(value)(value[start:end])


@function("print", rest="any")
def _print(*values: object) -> str:
    return sprint(values)


@function("printf", "string", rest="any")
def _printf(form: str, *values: object) -> str:
    return sprintf(form, values)


@function("println", rest="any")
def _println(*values: object) -> str:
    return sprintln(values)


def _joined(values: Sequence[object]) -> str:
    return sprint([show(value) if value is None or isinstance(value, Sample) else value for value in values])


@function("html", rest="any")
def _html(*values: object) -> str:
    return escape_html(_joined(values))


@function("js", rest="any")
def _js(*values: object) -> str:
    return escape_js(_joined(values))


@function("urlquery", rest="any")
def _urlquery(*values: object) -> str:
    return escape_query(_joined(values))


@function("call", "any", rest="any")
def _call(value: object, *_: object) -> object:
    raise Fault(f"non-function of type {go_type(value)}: nothing that a template can hold is a function")

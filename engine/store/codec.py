"""Values of the model to JSON and back, by the type hints of their fields.

What another version wrote is read as far as it goes: fields that are unknown here are passed over, and those
that are missing there take their default. Values typed `object` (a step's parameters) carry a mark where JSON
has no word for them, so that what was planned comes back exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from engine.errors import StoreError
from engine.model.duration import Duration
from engine.model.labels import Labels

T = TypeVar("T")
Convert = Callable[[Any], Any]

_MARK = "$"  # the key of an object that stands for a value JSON does not have


class _Pair(NamedTuple):
    """Conversions that undo each other: to what JSON knows, and back."""

    put: Convert
    take: Convert


def encode(value: object) -> str:
    """Return a record of the model as JSON, in ASCII."""
    kind: Any = type(value)
    return json.dumps(_pair(kind).put(value), allow_nan=False, separators=(",", ":"))


def decode(record: type[T], text: str) -> T:
    """Return the record that `text` was made from, or raise StoreError."""
    kind: Any = record
    try:
        decoded: T = _pair(kind).take(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise StoreError(f"cannot read a stored {record.__name__}: {error!r} in {text[:200]}") from error
    return decoded


@cache
def _pair(hint: Any) -> _Pair:
    """Return the conversions for values of type `hint`."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint):
        return _record(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType) and len(kinds := [kind for kind in inner if kind is not NoneType]) == 1:
        return _Pair(*(_optional(convert) for convert in _pair(kinds[0])))
    if origin is tuple and inner[1:] == (...,):
        put, take = _pair(inner[0])
        return _Pair(_listed(put), lambda items: tuple(take(item) for item in items))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _Pair(*(_mapped(convert) for convert in _pair(inner[1])))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _Pair(lambda value: value.value, hint)
    raise StoreError(f"a field of type {hint} cannot be stored; teach engine/store/codec.py")


def _record(kind: Any) -> _Pair:
    """Return the conversions for a dataclass."""
    known = fields(kind)
    hints = get_type_hints(kind)
    pairs = [(field.name, _pair(hints[field.name])) for field in known]
    required = {
        field.name for field in known if field.default is MISSING and field.default_factory is MISSING
    }

    def put(value: Any) -> dict[str, Any]:
        return {name: pair.put(getattr(value, name)) for name, pair in pairs}

    def take(stored: Mapping[str, Any]) -> Any:
        if missing := required.difference(stored):
            raise ValueError(f"missing {', '.join(sorted(missing))}")
        return kind(**{name: pair.take(stored[name]) for name, pair in pairs if name in stored})

    return _Pair(put, take)


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _listed(convert: Convert) -> Convert:
    return lambda items: [convert(item) for item in items]


def _mapped(convert: Convert) -> Convert:
    return lambda pairs: {key: convert(value) for key, value in pairs.items()}


def _same(value: Any) -> Any:
    return value


def _float(value: float) -> float | str:
    # `float` reads back what `repr` writes: nan, inf, -inf.
    return float(value) if math.isfinite(value) else repr(float(value))


def _instant(at: datetime) -> str:
    if at.tzinfo is None:
        raise StoreError(f"an instant without a time zone cannot be stored: {at}")
    return at.astimezone(UTC).isoformat()


def _microseconds(length: timedelta) -> int:
    return length // timedelta(microseconds=1)


def _mark(value: Any) -> Any:
    """Return a value of a type known only now, in words that `_unmark` understands."""
    if isinstance(value, Enum):
        return _mark(value.value)  # the enums of the model are text, and equal to it
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list):
        return [_mark(item) for item in value]
    if isinstance(value, Mapping) and not isinstance(value, Labels) and _MARK not in value:
        return {key: _mark(item) for key, item in value.items()}
    for word, (kind, pair) in _MARKED.items():
        if isinstance(value, kind):
            return {_MARK: word, "value": pair.put(value)}
    raise StoreError(f"a parameter of type {type(value).__name__} cannot be stored: {value!r}")


def _unmark(stored: Any) -> Any:
    if isinstance(stored, list):
        return [_unmark(item) for item in stored]
    if not isinstance(stored, dict):
        return stored
    if _MARK in stored:
        _, pair = _MARKED[stored[_MARK]]
        return pair.take(stored["value"])
    return {key: _unmark(item) for key, item in stored.items()}


_SCALARS: Mapping[Any, _Pair] = {
    object: _Pair(_mark, _unmark),
    str: _Pair(_same, _same),
    int: _Pair(_same, _same),
    bool: _Pair(_same, _same),
    float: _Pair(_float, float),
    datetime: _Pair(_instant, datetime.fromisoformat),
    Duration: _Pair(_microseconds, lambda count: Duration(microseconds=count)),
    timedelta: _Pair(_microseconds, lambda count: timedelta(microseconds=count)),
    Labels: _Pair(dict, Labels),
    frozenset[str]: _Pair(sorted, frozenset),
}

# In order: a Duration is a timedelta, and Labels are a mapping.
_MARKED: Mapping[str, tuple[type, _Pair]] = {
    "float": (float, _SCALARS[float]),
    "tuple": (tuple, _Pair(_listed(_mark), lambda items: tuple(_unmark(item) for item in items))),
    "set": (frozenset, _SCALARS[frozenset[str]]),
    "duration": (Duration, _SCALARS[Duration]),
    "timedelta": (timedelta, _SCALARS[timedelta]),
    "instant": (datetime, _SCALARS[datetime]),
    "labels": (Labels, _SCALARS[Labels]),
    "mapping": (Mapping, _Pair(_mapped(_mark), _mapped(_unmark))),  # with the mark among its own keys
}

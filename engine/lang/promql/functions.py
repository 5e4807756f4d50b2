"""Functions of instant vectors, scalars and strings, all of them given as evaluated values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.lang.promql.histograms import histogram_fraction, histogram_quantile
from engine.lang.promql.regex import compile_regex
from engine.lang.promql.storage import Ints
from engine.lang.promql.vector import Row, Scalar, Value, Vector, any_row, merge
from engine.model.labels import Labels
from engine.model.series import Floats


class Arguments(NamedTuple):
    """A call's evaluated arguments; the parser has checked their types. `times` are in milliseconds."""

    values: Sequence[Value]
    times: Ints

    def vector(self, index: int) -> Vector:
        """Return an argument that is a vector."""
        value = self.values[index]
        assert isinstance(value, Vector)
        return value

    def scalar(self, index: int) -> Scalar:
        """Return an argument that is a scalar."""
        value = self.values[index]
        assert isinstance(value, np.ndarray)
        return value

    def text(self, index: int) -> str:
        """Return an argument that is a string."""
        value = self.values[index]
        assert isinstance(value, str)
        return value


Function = Callable[[Arguments], Value]


def computed(vector: Vector, values: Floats) -> Vector:
    """Return `vector` with new values, and so without the metric's name."""
    return merge(Vector(vector.nameless(), values, vector.present))


def single(values: Scalar) -> Vector:
    """Return a scalar as a vector of one element without labels."""
    return Vector([Labels()], values[None, :], np.ones((1, len(values)), bool))


def _math(operation: Callable[[Floats], Floats]) -> Function:
    def function(arguments: Arguments) -> Vector:
        vector = arguments.vector(0)
        with np.errstate(all="ignore"):
            return computed(vector, operation(vector.values))

    return function


def _date(part: Callable[[np.ndarray[Any, np.dtype[np.datetime64]]], Any]) -> Function:
    """Return the function that takes one part of a date from Unix seconds, else from the instant."""

    def function(arguments: Arguments) -> Vector:
        vector = arguments.vector(0) if arguments.values else single(arguments.times / 1000)
        # What no calendar reaches has no date; Prometheus answers what its processor makes of an overflow.
        readable = np.abs(vector.values) < 9e18
        seconds = np.where(readable, vector.values, 0.0).astype(np.int64).astype("datetime64[s]")
        return computed(vector, np.where(readable, part(seconds), np.nan))

    return function


def _since(times: Any, start: str, unit: str) -> Any:
    """Return how many `unit`s have passed since the last turn of `start`."""
    return (times.astype(f"datetime64[{unit}]") - times.astype(f"datetime64[{start}]")).astype(np.int64)


def _days_in_month(times: Any) -> Any:
    month = times.astype("datetime64[M]")
    return ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.int64)


def _round(arguments: Arguments) -> Vector:
    vector = arguments.vector(0)
    nearest = arguments.scalar(1) if len(arguments.values) > 1 else np.ones(len(arguments.times))
    with np.errstate(all="ignore"):
        inverse = 1.0 / nearest
        return computed(vector, np.floor(vector.values * inverse + 0.5) / inverse)


def _higher(one: Floats, other: Floats) -> Floats:
    """Return the higher value as Go does: NaN wins, but for infinity."""
    return np.where(np.isposinf(one) | np.isposinf(other), np.inf, np.maximum(one, other))


def _lower(one: Floats, other: Floats) -> Floats:
    return -_higher(-one, -other)


def _clamp(arguments: Arguments) -> Vector:
    vector, low, high = arguments.vector(0), arguments.scalar(1), arguments.scalar(2)
    values = _higher(low, _lower(high, vector.values))
    return merge(Vector(vector.nameless(), values, vector.present & ~(low > high)))


def _clamp_min(arguments: Arguments) -> Vector:
    vector = arguments.vector(0)
    return computed(vector, _higher(arguments.scalar(1), vector.values))


def _clamp_max(arguments: Arguments) -> Vector:
    vector = arguments.vector(0)
    return computed(vector, _lower(arguments.scalar(1), vector.values))


def _scalar(arguments: Arguments) -> Scalar:
    vector = arguments.vector(0)
    alone = vector.present.sum(axis=0) == 1
    only = np.where(vector.present, vector.values, -np.inf).max(axis=0, initial=-np.inf)
    return np.where(alone, only, np.nan)


def _sort(*, descending: bool) -> Function:
    """Return the function that orders an instant's elements by value, NaN last; a range has no order."""

    def function(arguments: Arguments) -> Vector:
        vector = arguments.vector(0)
        if len(arguments.times) != 1:
            return vector
        values = vector.values[:, 0]
        order = np.argsort(-values if descending else values, kind="stable")
        return Vector([vector.labels[i] for i in order], vector.values[order], vector.present[order])

    return function


_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")


def _label_replace(arguments: Arguments) -> Vector:
    """Set a label from another label's value where a regular expression matches the whole of it."""
    target, replacement, source, pattern = (arguments.text(index) for index in range(1, 5))
    regex = compile_regex(pattern)

    def replaced(labels: Labels) -> Labels:
        match = regex.fullmatch(labels.get(source, ""))
        return labels.updated({target: _expand(replacement, match)}) if match else labels

    return _relabelled(arguments.vector(0), replaced)


def _expand(replacement: str, match: re.Match[str]) -> str:
    """Return `replacement` with `$1`, `$name` and `${name}` filled in as Go does, unknown ones empty."""

    def fill(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        name = reference[2] or reference[3]
        if name.isdigit():
            return (match[int(name)] or "") if int(name) <= match.re.groups else ""
        return (match[name] or "") if name in match.re.groupindex else ""

    return _REFERENCE.sub(fill, replacement)


def _label_join(arguments: Arguments) -> Vector:
    target, separator = arguments.text(1), arguments.text(2)
    sources = [arguments.text(index) for index in range(3, len(arguments.values))]

    def joined(labels: Labels) -> Labels:
        return labels.updated({target: separator.join(labels.get(source, "") for source in sources)})

    return _relabelled(arguments.vector(0), joined)


def _relabelled(vector: Vector, change: Callable[[Labels], Labels]) -> Vector:
    return merge(Vector([change(labels) for labels in vector.labels], vector.values, vector.present))


def negated(vector: Vector) -> Vector:
    """Return `-vector`."""
    return computed(vector, -vector.values)


def absent(present: Vector, known: Labels) -> Vector:
    """Return 1 with the labels that are known wherever `present` has nothing."""
    missing = ~any_row(present.present)
    return merge(Vector.of([Row(known, np.ones(len(missing)), missing)], len(missing)))


def _half_exp(values: Floats) -> Floats:
    """Return what Go takes for hyperbolic functions of large values: infinite a little early."""
    return np.exp(np.abs(values)) * 0.5


_MATH: dict[str, Callable[[Floats], Floats]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": lambda values: np.where(np.abs(values) > 21, _half_exp(values), np.cosh(values)),
    "deg": np.degrees,
    "exp": np.exp,
    "floor": np.floor,
    "ln": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "rad": np.radians,
    "sgn": np.sign,
    "sin": np.sin,
    "sinh": lambda values: np.where(
        np.abs(values) > 21, np.copysign(_half_exp(values), values), np.sinh(values)
    ),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
_DATES: dict[str, Callable[[Any], Any]] = {
    "day_of_month": lambda times: _since(times, "M", "D") + 1,
    "day_of_week": lambda times: (times.astype("datetime64[D]").astype(np.int64) + 4) % 7,  # Sunday is 0
    "day_of_year": lambda times: _since(times, "Y", "D") + 1,
    "days_in_month": _days_in_month,
    "hour": lambda times: _since(times, "D", "h"),
    "minute": lambda times: _since(times, "h", "m"),
    "month": lambda times: _since(times, "Y", "M") + 1,
    "year": lambda times: times.astype("datetime64[Y]").astype(np.int64) + 1970,
}
FUNCTIONS: dict[str, Function] = {
    **{name: _math(operation) for name, operation in _MATH.items()},
    **{name: _date(part) for name, part in _DATES.items()},
    "clamp": _clamp,
    "clamp_max": _clamp_max,
    "clamp_min": _clamp_min,
    "histogram_fraction": lambda a: histogram_fraction(a.scalar(0), a.scalar(1), a.vector(2)),
    "histogram_quantile": lambda a: histogram_quantile(a.scalar(0), a.vector(1)),
    "label_join": _label_join,
    "label_replace": _label_replace,
    "pi": lambda a: np.full(len(a.times), np.pi),
    "round": _round,
    "scalar": _scalar,
    "sort": _sort(descending=False),
    "sort_desc": _sort(descending=True),
    "time": lambda a: a.times / 1000,
    "vector": lambda a: single(a.scalar(0)),
}

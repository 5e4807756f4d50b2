"""The samples of a range query's answer, from bytes to arrays without a Python object for each number.

Tens of megabytes come for ten thousand series, nearly all of it numbers. What Prometheus and its relatives send
is always of one form, `{"metric":{…},"values":[[1700000000.5,"1.5"],…]}`, so a series is cut at its quotes:
what is inside are the values, what is outside the instants. The instants are the same text for most series
and read once; the values go to C as one text, and come back as `float()` has them, to the last bit. Only what is
certainly of this form is read here. Of anything else `read_rows` makes nothing, and the general way through
JSON says what is wrong.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from engine.clients.wording import one_line
from engine.model.labels import Labels
from engine.model.series import Floats

WRONG_SHAPE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)
"""What reading an answer raises where it is not of the form that it should have."""

_HEAD = re.compile(
    rb'\{"status":"success",(?:"isPartial":(?:true|false),)?"data":\{"resultType":"matrix","result":\['
)
_METRIC, _VALUES = b'{"metric":', b',"values":'
_NUMBERS = b"0123456789+-.eE,"
_NO_NUMBERS = frozenset((b"", b"NaN", b"Inf"))
_DOUBTFUL = (b'"data"', b'"result"', b'"resultType"')  # a second one of these would count instead
_KNOWN_LABELS = 1 << 15  # of the series that are read again and again; some 30 MB


class Row(NamedTuple):
    """One series: its instants in Unix seconds `[m]`, which series may share, and its values `[m]`."""

    labels: Labels
    instants: Floats
    values: Floats


class Rows(NamedTuple):
    """The series of a matrix, and what of the body is around them, with an empty list in their place."""

    series: list[Row]
    envelope: bytes


def labels_of(metric: Any) -> Labels:
    """Return checked labels; TypeError or ValueError if they are none."""
    for value in metric.values():
        if not isinstance(value, str):
            raise TypeError(f"a label's value is {one_line(repr(value), 40)}")
    "".join((*metric.keys(), *metric.values())).encode()  # half a surrogate pair would fail much later
    return Labels(metric)


def read_rows(body: bytes) -> Rows | None:
    """Return the series of the body of a successful range query; None if it is not plainly one."""
    head = _HEAD.match(body)
    if head is None:
        return None
    try:
        series, end = _read_series(body, head.end())
    except (*WRONG_SHAPE, RecursionError, DeprecationWarning):
        return None
    tail = body[end:]
    if any(word in tail for word in _DOUBTFUL):
        return None
    return Rows(series, body[: head.end()] + tail)


def _read_series(body: bytes, start: int) -> tuple[list[Row], int]:
    """Return the series of the list whose content begins at `start`, and where its bracket closes."""
    series: list[Row] = []
    known: dict[bytes, Floats] = {}  # instants by their text
    while True:
        _expect(body, _METRIC, start)
        # Never inside a string: quotes there are escaped.
        middle = body.index(_VALUES, start)
        end = body.index(b'"]]', middle) + len(b'"]]')
        labels = _labels(body[start + len(_METRIC) : middle])
        series.append(Row(labels, *_samples(body[middle + len(_VALUES) : end], known)))
        _expect(body, b"}", end)
        if body[end + 1 : end + 2] == b"]":
            return series, end + 1
        _expect(body, b",", end + 1)
        start = end + 2


def _expect(body: bytes, token: bytes, place: int) -> None:
    if not body.startswith(token, place):
        raise ValueError("another token is here")


@lru_cache(_KNOWN_LABELS)
def _labels(text: bytes) -> Labels:
    """Return the labels of a JSON object; the same text gives the same object, which is then equal at once."""
    return labels_of(json.loads(text))


def _samples(text: bytes, known: dict[bytes, Floats]) -> tuple[Floats, Floats]:
    """Return instants and values of `[[1700000000.5,"1.5"],…]`."""
    pieces = text.split(b'"')
    outside = b"null".join(
        pieces[::2]
    )  # valid JSON where the text was, since a null is a token as a string is
    instants = known.get(outside)
    if instants is None:
        instants = known[outside] = _instants(outside)
    inside = b",".join(pieces[1::2])
    return instants, _values(inside, len(instants))


def _instants(text: bytes) -> Floats:
    """Return the first elements of `[[1700000000.5,null],…]`."""
    pairs = json.loads(text)
    if not all(len(pair) == 2 and type(pair[0]) in (int, float) and pair[1] is None for pair in pairs):
        raise ValueError("a sample is no instant and string")
    return np.array([float(instant) for instant, _ in pairs])


def _values(text: bytes, count: int) -> Floats:
    """Return the `count` numbers of a list without brackets."""
    letters = text.translate(None, _NUMBERS)
    if letters not in _NO_NUMBERS and letters.replace(b"NaN", b"").replace(b"Inf", b""):
        raise ValueError("a value is no number")
    values = np.fromstring(text, dtype=np.float64, sep=",")  # correctly rounded, as float() is
    if len(values) != count or text.count(b",") != count - 1:
        raise ValueError("there are not as many values as instants")
    return values

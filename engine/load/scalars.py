"""From the text of a scalar to a value.

ValueError, without a message, where it is none: the decoder says what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from engine.load.nodes import ScalarNode
from engine.model.duration import Duration

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")  # no leading zero: octal to some readers, decimal to others
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.?(inf|nan)", re.IGNORECASE)
_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_DIGITS = 40  # more are nonsense, and Python is slow at them


def _number(node: ScalarNode, pattern: re.Pattern[str]) -> str:
    if not node.plain or len(node.value) > _DIGITS or not pattern.fullmatch(node.value):
        raise ValueError
    return node.value.replace("_", "")


def read_int(node: ScalarNode) -> int:
    """Return a whole number."""
    return int(_number(node, _INT))


def read_float(node: ScalarNode) -> float:
    """Return a number; infinities and NaN may be spelled as YAML does or as Prometheus does."""
    if node.plain and (special := _SPECIAL.fullmatch(node.value)):
        return float(special[1] + special[2])
    return float(_number(node, _FLOAT))


def read_bool(node: ScalarNode) -> bool:
    """Return a truth value, in the spellings that Prometheus takes."""
    if not node.plain or node.value.lower() not in _BOOLS:
        raise ValueError
    return _BOOLS[node.value.lower()]


def read_str(node: ScalarNode) -> str:
    """Return the text as written, whatever YAML would make of it; nothing is the empty text."""
    return "" if node.null else node.value


def read_duration(node: ScalarNode) -> Duration:
    """Return a length of time."""
    if len(node.value) > _DIGITS:
        raise ValueError
    return Duration.parse(node.value)


def read_plain(node: ScalarNode) -> Any:
    """Return what the text looks like, for places that take anything."""
    if node.null:
        return None
    if node.plain and node.value in ("true", "false"):
        return node.value == "true"
    for read in (read_int, read_float):
        try:
            return read(node)
        except ValueError:
            continue
    return node.value


SCALARS: dict[Any, tuple[str, Callable[[ScalarNode], Any]]] = {
    bool: ("true or false", read_bool),
    int: ("a whole number", read_int),
    float: ("a number", read_float),
    str: ("text", read_str),
    Duration: ("a duration such as 30s, 5m or 1h30m", read_duration),
    timedelta: ("a duration such as 30s, 5m or 1h30m", read_duration),
}
"""What is expected, in words, and how it is read."""

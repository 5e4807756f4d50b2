"""PromQL that servers understand and the parser used here does not.

Prometheus itself, its experimental features, or VictoriaMetrics. A refusal of
such an expression says nothing about what the real server will answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_OPAQUE = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|`[^`]*`|#[^\n]*", re.DOTALL)


class Newer(NamedTuple):
    """A construct that only a server understands, where it starts, and how to do without it."""

    start: int
    hint: str


_CONSTRUCTS = [
    (re.compile(pattern, re.IGNORECASE), hint)
    for pattern, hint in (
        (r"(?<![\w.:])\d[\d.]*_\d[\d_.]*", "write the number without underscores"),
        (r"\[[^\]]*[-+*/%^(][^\]]*\]", "write the range as one duration, such as [5m]"),
        (r"\boffset\s*(?:-\s*)?\(", "write the offset as one duration, such as 5m"),
        (r"\b(?:anchored|smoothed)\b", "leave the word out"),
        (r"(?<!@)(?<!@ )\b(?:step|start|end|range|min_of|max_of)\s*\(", "write the number itself"),
        (r"^\s*WITH\s*\(", "write the parts out, this is VictoriaMetrics' own"),
    )
]


def find_newer(expr: str) -> Newer | None:
    """Return the first such construct in `expr`, outside strings and comments."""
    text = _OPAQUE.sub(lambda opaque: " " * len(opaque.group()), expr)
    found = [Newer(match.start(), hint) for pattern, hint in _CONSTRUCTS if (match := pattern.search(text))]
    return min(found, default=None)

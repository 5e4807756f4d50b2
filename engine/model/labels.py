"""Labels, matchers and fingerprints, as Prometheus and Alertmanager have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any

METRIC_NAME = "__name__"
ALERT_NAME = "alertname"

_FNV_OFFSET, _FNV_PRIME, _U64 = 14695981039346656037, 1099511628211, (1 << 64) - 1


class Labels(Mapping[str, str]):
    """An immutable, hashable set of label names and values. An empty value is the same as no label."""

    __slots__ = ("__dict__", "_pairs")

    def __init__(self, pairs: Mapping[str, str] | None = None, **more: str) -> None:
        merged = {**(pairs or {}), **more}
        self._pairs = {name: merged[name] for name in sorted(merged) if merged[name] != ""}

    def __getitem__(self, name: str) -> str:
        return self._pairs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __reduce__(self) -> tuple[type[Labels], tuple[dict[str, str]]]:
        return Labels, (self._pairs,)  # without the hash: another process has another one

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(self._pairs.items()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Labels):
            return self._pairs == other._pairs
        return isinstance(other, Mapping) and self._pairs == dict(other)

    def __repr__(self) -> str:
        return f"Labels({self})"

    def __str__(self) -> str:
        inner = ", ".join(f"{name}={quote(value)}" for name, value in self.items() if name != METRIC_NAME)
        name = self.get(METRIC_NAME, "")
        return f"{name}{{{inner}}}" if inner or not name else name

    @cached_property
    def unnamed(self) -> Labels:
        """These labels less the metric's name: what tells the series of a result apart."""
        return self.without(METRIC_NAME)

    def without(self, *names: str) -> Labels:
        """Return these labels less the named ones."""
        if not any(name in self._pairs for name in names):
            return self
        return Labels({name: value for name, value in self.items() if name not in names})

    def only(self, *names: str) -> Labels:
        """Return the named ones of these labels."""
        return Labels({name: self[name] for name in names if name in self})

    def updated(self, other: Mapping[str, str]) -> Labels:
        """Return these labels with `other` laid over them; an empty value removes one."""
        return Labels({**self._pairs, **other})

    @cached_property
    def fingerprint(self) -> str:
        """Alertmanager's fingerprint: FNV-1a 64 over the sorted pairs, 16 hex digits."""
        digest = _FNV_OFFSET
        for name, value in self._pairs.items():
            for byte in name.encode() + b"\xff":
                digest = ((digest ^ byte) * _FNV_PRIME) & _U64
            for byte in value.encode() + b"\xff":
                digest = ((digest ^ byte) * _FNV_PRIME) & _U64
        return f"{digest:016x}"


def quote(value: str) -> str:
    """Return `value` as a double-quoted PromQL string."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class MatchOp(StrEnum):
    """How a matcher compares."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


class Matcher:
    """A test on one label; a missing label counts as empty, regular expressions match the whole value."""

    __slots__ = ("_regex", "name", "op", "value")

    def __init__(self, name: str, op: MatchOp, value: str) -> None:
        self.name, self.op, self.value = name, op, value
        self._regex = None
        if op in (MatchOp.REGEX, MatchOp.NOT_REGEX):
            # RE2, as Alertmanager: label values come from outside, and Python's `re` can take for ever on some.
            import re2  # noqa: PLC0415 - loaded only when needed

            try:
                self._regex = re2.compile(value, _options())
            except re2.error as error:
                raise ValueError(f"matcher {self}: bad regular expression: {_words(error)}") from None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` pass the test."""
        value = labels.get(self.name, "")
        if self._regex is None:
            return (value == self.value) is (self.op is MatchOp.EQUAL)
        return (self._regex.fullmatch(value) is not None) is (self.op is MatchOp.REGEX)

    def __str__(self) -> str:
        return f"{self.name}{self.op}{quote(self.value)}"

    def __repr__(self) -> str:
        return f"Matcher({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Matcher) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _options() -> Any:
    import re2  # noqa: PLC0415 - as above

    options = re2.Options()
    options.dot_nl = True
    options.log_errors = False
    return options


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


class Matchers(tuple[Matcher, ...]):
    """Matchers that must all pass."""

    __slots__ = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` pass every test; no matchers match everything."""
        return all(matcher.matches(labels) for matcher in self)

    def __str__(self) -> str:
        return "{" + ",".join(str(matcher) for matcher in self) + "}"

"""Rules with some of their fields written otherwise: what `engine backtest --sweep` tries."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from engine.errors import EngineError
from engine.load.records import Decoder, Invalid, schema, suggest
from engine.model.duration import Duration
from engine.model.rule import AlertingRule, RuleGroup
from engine.registry import detector

_OF_RULES: Mapping[str, tuple[str, Any]] = {
    "for": ("hold", Duration),
    "keep_firing_for": ("keep_firing_for", Duration),
}
MOST = 200
"""So many combinations are tried at most: each is a whole evaluation of the rules."""


class Axis(NamedTuple):
    """One field and the values that it is to have, as they would be written in the file."""

    key: str
    values: tuple[str, ...]


def read_axes(texts: Iterable[str]) -> list[Axis]:
    """Return the axes of `for=1m,5m`, `horizon=2h,4h`, … EngineError where a text is none."""
    axes: list[Axis] = []
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        written = tuple(value.strip() for value in values.split(","))
        if not key or not equals or not all(written):
            raise _wrong(text, "write a field and its values, such as for=1m,5m,15m")
        if any(axis.key == key for axis in axes):
            raise _wrong(text, f"{key!r} is given twice; write all of its values behind one --sweep")
        axes.append(Axis(key, written))
    if (count := len(list(product(*(axis.values for axis in axes))))) > MOST:
        raise _wrong(", ".join(axis.key for axis in axes), f"{count} combinations; at most {MOST} are tried")
    return axes


def variants(
    groups: Sequence[RuleGroup], axes: Sequence[Axis]
) -> Iterator[tuple[dict[str, str], list[RuleGroup]]]:
    """Yield each combination of values and the rules with them.

    A field is changed in every alerting rule that has it. EngineError if none has, or a value is none.
    """
    for axis in axes:
        _check(axis, groups)
    for values in product(*(axis.values for axis in axes)):
        chosen = dict(zip((axis.key for axis in axes), values, strict=True))
        yield chosen, [_changed_group(group, chosen) for group in groups]


def _check(axis: Axis, groups: Sequence[RuleGroup]) -> None:
    rules = [rule for group in groups for rule in group.rules if isinstance(rule, AlertingRule)]
    known = {*_OF_RULES, *(key for rule in rules for key in _fields(rule))}
    if axis.key not in known:
        names = sorted({detector.name_of(rule.detect) for rule in rules} - {"present"})
        what = f"the rules nor of {', '.join(names)}" if names else "the rules"
        raise _wrong(axis.key, f"no field of {what} is called {axis.key!r}{suggest(axis.key, known)}")


def _fields(rule: AlertingRule) -> dict[str, Any]:
    """Return the fields of a rule's detector by their words, those of a field that has fields itself as `a.b`."""
    found: dict[str, Any] = {}
    for key, field in schema(type(rule.detect)).items():
        found[key] = field
        if dataclasses.is_dataclass(value := getattr(rule.detect, field.name)):
            found |= {f"{key}.{inner}": each for inner, each in schema(type(value)).items()}
    return found


def _changed_group(group: RuleGroup, chosen: Mapping[str, str]) -> RuleGroup:
    rules = tuple(_changed(rule, chosen) if isinstance(rule, AlertingRule) else rule for rule in group.rules)
    return dataclasses.replace(group, rules=rules)


def _changed(rule: AlertingRule, chosen: Mapping[str, str]) -> AlertingRule:
    changes: dict[str, Any] = {}
    of_detector = {key: text for key, text in chosen.items() if key not in _OF_RULES}
    for key, text in chosen.items():
        if key in _OF_RULES:
            name, hint = _OF_RULES[key]
            changes[name] = _value(key, text, hint)
    fields, values = _fields(rule), dict[str, Any]()
    for key, text in of_detector.items():
        if key not in fields:
            continue
        value = _value(key, text, fields[key].hint)
        outer, _, _inner = key.rpartition(".")
        if outer:
            name = fields[outer].name
            before = values.get(name, getattr(rule.detect, name))
            values[name] = _replaced(before, {fields[key].name: value}, chosen, rule)
        else:
            values[fields[key].name] = value
    detect: Any = rule.detect
    return dataclasses.replace(
        rule, **changes, detect=_replaced(detect, values, chosen, rule) if values else detect
    )


def _replaced(it: Any, values: Mapping[str, Any], chosen: Mapping[str, str], rule: AlertingRule) -> Any:
    try:
        return dataclasses.replace(it, **values)
    except ValueError as error:
        together = " ".join(f"{key}={text}" for key, text in chosen.items())
        raise _wrong(together, f"{rule.alert}: {error}") from None


def _value(key: str, text: str, hint: Any) -> Any:
    decoder = Decoder(f"--sweep {key}", text.encode())
    try:
        value = None if decoder.root is None else decoder.decode(decoder.root, hint, repr(key))
    except Invalid:
        value = None
    if decoder.problems:
        raise _wrong(key, decoder.problems[0].message)
    return value


def _wrong(text: str, message: str) -> EngineError:
    return EngineError(f"--sweep {text}: {message}")

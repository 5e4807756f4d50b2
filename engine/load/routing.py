"""Alertmanager's part of engine.yaml: the routing tree, receivers, inhibition and the calendar.

The schema is Alertmanager's, the old spellings (`match`, `source_match_re`, `mute_time_intervals` at the top)
among them. Names are resolved here: past this, every receiver and time interval that is named exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from engine.load.calendar import read_time_span
from engine.load.nodes import MappingNode, Node, ScalarNode, SequenceNode
from engine.load.records import Decoder, Invalid, Reader, suggest
from engine.model.duration import Duration
from engine.model.labels import Matcher, Matchers, MatchOp
from engine.model.route import InhibitRule, Receiver, Route, Routing, TimeSpan
from engine.model.rule import Origin
from engine.registry import notifier

KEYS = ("route", "receivers", "inhibit_rules", "time_intervals", "mute_time_intervals")
_CONFIGS = "_configs"


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenRoute(Route):
    """A route as it may be written: with Alertmanager's old matchers."""

    match: Mapping[str, str] = field(default_factory=dict)
    match_re: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenInhibitRule:
    source_matchers: Matchers = field(default=Matchers())
    target_matchers: Matchers = field(default=Matchers())
    source_match: Mapping[str, str] = field(default_factory=dict)
    source_match_re: Mapping[str, str] = field(default_factory=dict)
    target_match: Mapping[str, str] = field(default_factory=dict)
    target_match_re: Mapping[str, str] = field(default_factory=dict)
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimeInterval:
    name: str
    time_intervals: tuple[TimeSpan, ...] = ()
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """The keys of `KEYS`, decoded but not yet resolved."""

    route: Route | None = None
    receivers: tuple[Receiver, ...] = ()
    inhibit_rules: tuple[InhibitRule, ...] = ()
    time_intervals: tuple[_TimeInterval, ...] = ()
    mute_time_intervals: tuple[_TimeInterval, ...] = ()


def console_routing() -> Routing:
    """Return what holds where nothing is said: everything is told on the console."""
    receiver = Receiver(name="console", integrations=(("console", notifier.get("console")()),))
    return Routing(route=_complete(Route(receiver="console")), receivers={"console": receiver})


def read_routing(decoder: Decoder, root: MappingNode) -> Routing:
    """Return the routing that the top level of engine.yaml describes."""
    entries = {key: entry for key, entry in root.entries.items() if key in KEYS}
    if not entries:
        return console_routing()
    with decoder.reading(_READERS):
        written = decoder.record(MappingNode(root.line, root.column, entries), _Written, "the routing")
    receivers = _by_name(decoder, written.receivers, "receiver")
    intervals = _by_name(decoder, written.time_intervals + written.mute_time_intervals, "time interval")
    tree = root.get("route")
    if tree is None:
        raise decoder.fail(root, "'route' is missing; write at least `route: {receiver: …}`")
    _check_root(decoder, tree)
    _check_route(decoder, tree, receivers, intervals)
    return Routing(
        route=_complete(written.route or Route()),
        receivers=receivers,
        inhibit_rules=written.inhibit_rules,
        time_intervals={name: interval.time_intervals for name, interval in intervals.items()},
    )


_Named = TypeVar("_Named", Receiver, _TimeInterval)


def _by_name(decoder: Decoder, found: Iterable[_Named], kind: str) -> dict[str, _Named]:
    names: dict[str, _Named] = {}
    for each in found:
        first = names.setdefault(each.name, each)
        if first is not each:
            message = f"{kind} {each.name!r} is defined twice; first in line {first.origin.line}"
            decoder.report_at(each.origin, message)
    return names


def _complete(root: Route) -> Route:
    """Return the root with Alertmanager's defaults for what it leaves open."""
    return replace(
        root,
        group_by=root.group_by or (),
        group_wait=Duration(seconds=30) if root.group_wait is None else root.group_wait,
        group_interval=root.group_interval or Duration(minutes=5),
        repeat_interval=root.repeat_interval or Duration(hours=4),
    )


def _check_root(decoder: Decoder, node: Node) -> None:
    """Note what only the other routes may have: every alert must pass the root."""
    if not isinstance(node, MappingNode):
        return
    if not node.has("receiver"):
        decoder.report(node, "the root route needs 'receiver': it gets what no other route takes")
    for key in ("matchers", "match", "match_re", "mute_time_intervals", "active_time_intervals"):
        if node.has(key):
            way_out = "put it on a route under `routes`"
            decoder.report(
                node.entries[key].key, f"the root route takes every alert, always: no {key!r}; {way_out}"
            )


def _check_route(
    decoder: Decoder, node: Node, receivers: Collection[str], intervals: Collection[str]
) -> None:
    """Note names, in a route and below it, that nothing stands behind, and intervals that make no sense."""
    if not isinstance(node, MappingNode):
        return
    if isinstance(receiver := node.get("receiver"), ScalarNode) and receiver.value not in receivers:
        decoder.report(
            receiver, f"no receiver is called {receiver.value!r}{suggest(receiver.value, receivers)}"
        )
    for key in ("mute_time_intervals", "active_time_intervals"):
        for name in _items(node.get(key)):
            if isinstance(name, ScalarNode) and name.value not in intervals:
                hint = suggest(name.value, intervals) or "; define it under `time_intervals`"
                decoder.report(name, f"no time interval is called {name.value!r}{hint}")
    for child in _items(node.get("routes")):
        _check_route(decoder, child, receivers, intervals)


def _items(node: Node | None) -> tuple[Node, ...]:
    return node.items if isinstance(node, SequenceNode) else ()


def _read_route(decoder: Decoder, node: Node, _what: str) -> Route:
    written = decoder.record(node, _WrittenRoute, "a route")
    old = _old_matchers(decoder, node, match=MatchOp.EQUAL, match_re=MatchOp.REGEX)
    route = Route(**{each.name: getattr(written, each.name) for each in fields(Route)})
    route = replace(route, matchers=Matchers((*old, *written.matchers)))
    _check_grouping(decoder, node, route)
    return route


def _check_grouping(decoder: Decoder, node: Node, route: Route) -> None:
    assert isinstance(node, MappingNode)
    by = route.group_by or ()
    if "..." in by and len(by) > 1:
        decoder.report(node.entries["group_by"].key, "'group_by' has either `...`, for all labels, or names")
    if len(set(by)) < len(by):
        decoder.report(node.entries["group_by"].key, "'group_by' names a label twice")
    for key in ("group_interval", "repeat_interval"):
        if getattr(route, key) == Duration():
            decoder.report(node.entries[key].value, f"{key!r} must be longer than 0")


def _old_matchers(decoder: Decoder, node: Node, **operators: MatchOp) -> Iterator[Matcher]:
    """Yield the matchers that stand under Alertmanager's old keys, each of which has one operator."""
    for key, op in operators.items():
        written = node.get(key) if isinstance(node, MappingNode) else None
        for name, entry in written.entries.items() if isinstance(written, MappingNode) else ():
            if isinstance(entry.value, ScalarNode):
                try:
                    yield Matcher(name, op, entry.value.value)
                except ValueError as error:
                    decoder.report(entry.value, str(error))


def _read_inhibit_rule(decoder: Decoder, node: Node, _what: str) -> InhibitRule:
    written = decoder.record(node, _WrittenInhibitRule, "an inhibit rule")
    source = _old_matchers(decoder, node, source_match=MatchOp.EQUAL, source_match_re=MatchOp.REGEX)
    target = _old_matchers(decoder, node, target_match=MatchOp.EQUAL, target_match_re=MatchOp.REGEX)
    rule = InhibitRule(
        source_matchers=Matchers((*source, *written.source_matchers)),
        target_matchers=Matchers((*target, *written.target_matchers)),
        equal=written.equal,
    )
    for side in ("source", "target"):
        if not getattr(rule, f"{side}_matchers"):
            decoder.report(node, f"an inhibit rule needs '{side}_matchers', or every alert is a {side}")
    return rule


def _read_receiver(decoder: Decoder, node: Node, _what: str) -> Receiver:
    """A receiver: its name, and a list of settings for each integration, at `<word>_configs`."""
    if not isinstance(node, MappingNode):
        raise decoder.fail(node, f"a receiver must be a mapping, got {node}")
    known = {f"{word}{_CONFIGS}": word for word in notifier}
    given = [key for key in node.entries if key in known]
    integrations = [
        (known[key], integration)
        for key in given
        for integration in _read_integrations(decoder, node.entries[key].value, known[key])
    ]
    for key, entry in node.entries.items():
        if key not in known and key.endswith(_CONFIGS):
            word = key.removesuffix(_CONFIGS)
            decoder.report(entry.key, f"no integration is called {word!r}{suggest(word, known.values())}")
        elif key not in known and key != "name":
            decoder.unknown(entry.key, key, {"name", *known}, "a receiver")
    return decoder.record(
        node, Receiver, given={"integrations": tuple(integrations)}, beside=node.entries.keys() - {"name"}
    )


def _read_integrations(decoder: Decoder, node: Node, word: str) -> list[Any]:
    cls = notifier.get(word)
    readers: Mapping[Any, Reader] = {cls: lambda d, each, _: d.record(each, cls, f"integration {word!r}")}
    with decoder.reading(readers):
        try:
            return list(decoder.sequence(node, cls, f"{word}{_CONFIGS}"))
        except Invalid:
            return []


_READERS: Mapping[Any, Reader] = {
    Route: _read_route,
    Receiver: _read_receiver,
    InhibitRule: _read_inhibit_rule,
    TimeSpan: read_time_span,
}

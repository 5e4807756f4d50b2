"""The routing tree, by Alertmanager's rules: who hears of an alert, in which group, at which pace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from engine.model.duration import Duration
from engine.model.labels import Labels, Matcher, Matchers, MatchOp
from engine.model.route import Route

EVERY_LABEL = ("...",)

GROUP_WAIT = Duration(seconds=30)
GROUP_INTERVAL = Duration(minutes=5)
REPEAT_INTERVAL = Duration(hours=4)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRoute:
    """A node of the tree with all it inherits filled in; the defaults are the root's."""

    key: str  # the matchers of every level, as Alertmanager prints them: `{}/{severity="page"}`
    id: str  # the key, told apart from that of an earlier sibling with the same matchers
    receiver: str
    group_by: tuple[str, ...] = ()
    group_wait: Duration = GROUP_WAIT
    group_interval: Duration = GROUP_INTERVAL
    repeat_interval: Duration = REPEAT_INTERVAL
    mute_time_intervals: tuple[str, ...] = ()
    active_time_intervals: tuple[str, ...] = ()

    def group_labels(self, labels: Labels) -> Labels:
        """Return those of an alert's labels that name its group."""
        return labels if self.group_by == EVERY_LABEL else labels.only(*self.group_by)

    def group_key(self, labels: Labels) -> str:
        """Return the key of an alert's group, as Alertmanager prints it: `{}:{alertname="X"}`."""
        return f"{self.key}:{self.group_labels(labels)}"


def receivers_of(route: Route, labels: Labels) -> tuple[ResolvedRoute, ...]:
    """Return the routes that an alert takes, depth first; none only if the root itself does not match."""
    if not route.matchers.matches(labels):
        return ()
    key = _printed(route.matchers)
    root = ResolvedRoute(key=key, id=key, receiver=route.receiver or "")
    return tuple(_matching(route, _overlaid(root, route), labels))


def _matching(route: Route, resolved: ResolvedRoute, labels: Labels) -> list[ResolvedRoute]:
    """Return the routes taken at or below a node that matches; the node itself if no child does."""
    found: list[ResolvedRoute] = []
    for position, child in enumerate(route.routes):
        if child.matchers.matches(labels):
            found += _matching(child, _child(route, position, resolved), labels)
            if not child.continue_:
                break
    return found or [resolved]


def _child(parent: Route, position: int, resolved: ResolvedRoute) -> ResolvedRoute:
    """Return a child with what it inherits. Time intervals are never inherited."""
    child = parent.routes[position]
    matchers = _printed(child.matchers)
    twins = sum(_printed(sibling.matchers) == matchers for sibling in parent.routes[:position])
    # A position in the identity, as Alertmanager has it, would forget every group when a route is put before.
    identity = f"{resolved.id}/{matchers}" + (f"#{twins + 1}" if twins else "")
    return _overlaid(replace(resolved, key=f"{resolved.key}/{matchers}", id=identity), child)


def _overlaid(inherited: ResolvedRoute, route: Route) -> ResolvedRoute:
    """Return `inherited` with what the node says itself."""
    return replace(
        inherited,
        receiver=route.receiver or inherited.receiver,
        group_by=_or(route.group_by, inherited.group_by),
        group_wait=_or(route.group_wait, inherited.group_wait),
        group_interval=_or(route.group_interval, inherited.group_interval),
        repeat_interval=_or(route.repeat_interval, inherited.repeat_interval),
        mute_time_intervals=route.mute_time_intervals,
        active_time_intervals=route.active_time_intervals,
    )


def _or(own: T | None, inherited: T) -> T:
    return inherited if own is None else own


def _printed(matchers: Matchers) -> str:
    """Return the matchers in Alertmanager's order: by name, value and operator."""
    operators = list(MatchOp)

    def rank(matcher: Matcher) -> tuple[str, str, int]:
        return matcher.name, matcher.value, operators.index(matcher.op)

    return str(Matchers(sorted(matchers, key=rank)))

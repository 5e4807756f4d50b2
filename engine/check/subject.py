"""What a check looks at, and what it says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from engine.lang.promql.places import Places, Span, selectors
from engine.lang.promql.syntax import LabelMatcher, Node, Selector, selected_metric
from engine.load.nodes import MappingNode, ScalarNode
from engine.model.labels import MatchOp
from engine.model.playbook import Playbook
from engine.model.rule import AlertingRule, RecordingRule, RuleGroup
from engine.ray.contract import Contract, Series

MASK = "\ue000"  # stands for each character of a template inside PromQL
_RAY_NAME = re.compile(r"(ray|autoscaler|engine_ray)_")
_RAY_WORD = re.compile(r"(?<![a-z])ray", re.IGNORECASE)


class Severity(Enum):
    """How bad: an error cannot work, a warning misleads, advice may be left."""

    ADVICE = 0
    WARNING = 1
    ERROR = 2

    def __str__(self) -> str:
        return self.name.lower()


class Spot(NamedTuple):
    """Characters `[start, end)` of the text of a YAML scalar."""

    node: ScalarNode
    start: int
    end: int


class Note(NamedTuple):
    """What a check says: how bad, what and why, where, and what to write instead (PromQL or YAML)."""

    severity: Severity
    message: str
    spot: Spot
    rewrite: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """One PromQL expression, where it is written, and how long an alert waits for it."""

    places: Places
    node: ScalarNode

    @property
    def text(self) -> str:
        """The expression."""
        return self.places.expr

    @property
    def root(self) -> Node:
        """Its syntax."""
        return self.places.root

    @property
    def selectors(self) -> Iterator[Selector]:
        """What it selects."""
        return selectors(self.root)

    def at(self, span: Span) -> Spot:
        """Return the place of a part."""
        return Spot(self.node, *span)

    def written(self, span: Span) -> str:
        """Return the text of a part."""
        return self.text[span.start : span.end]

    @property
    def about_ray(self) -> bool:
        """Whether it asks for anything of Ray's."""
        return any(_asks_ray(selector) for selector in self.selectors)


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """One rule: as YAML, as a value, and its PromQL: `expr` first, then a detector's inputs and `confirm`."""

    group: RuleGroup
    rule: AlertingRule | RecordingRule
    node: MappingNode
    expr: Query
    inputs: tuple[Query, ...] = ()

    @property
    def about_ray(self) -> bool:
        """Whether it is about Ray: otherwise it is only given advice."""
        return any(query.about_ray for query in (self.expr, *self.inputs))

    def key(self, name: str) -> Spot:
        """Return the place of a key of the rule, or else of its first."""
        entry = self.node.entries.get(name) or next(iter(self.node.entries.values()))
        return Spot(entry.key, 0, len(entry.key.value))

    def playbook(self, world: World) -> Playbook | None:
        """Return the playbook that the rule asks for, if it is known."""
        if not isinstance(self.rule, AlertingRule) or self.rule.remediate is None:
            return None
        return world.playbooks.get(self.rule.remediate.playbook)

    @property
    def asks(self) -> Spot:
        """The place where the rule names its playbook."""
        node = self.node.get("remediate")
        name = node.get("playbook") if isinstance(node, MappingNode) else node
        return Spot(name, 0, len(name.value)) if isinstance(name, ScalarNode) else self.key("remediate")


@dataclass(frozen=True, slots=True)
class World:
    """What rules are held against."""

    contract: Contract
    recorded: frozenset[str] = frozenset()
    playbooks: Mapping[str, Playbook] = field(default_factory=dict)
    tested: frozenset[str] = frozenset()  # names of alerts that a test mentions

    def series(self, selector: Selector) -> Series | None:
        """Return what of Ray's a selector asks for by name, if its type and labels are known."""
        found = self.contract.find(selected_metric(selector.matchers) or "")
        return found if found is not None and found.metric.measured else None

    def knows(self, name: str) -> bool:
        """Tell whether rules or the engine itself make series of that name."""
        return name in self.recorded or name.startswith("engine_")


QueryCheck = Callable[[Query, World], Iterator[Note]]
RuleCheck = Callable[[Subject, World], Iterator[Note]]


def is_ray_name(name: str) -> bool:
    """Tell whether a metric of that name is Ray's, or an application's that is exported by Ray."""
    return _RAY_NAME.match(name) is not None


def about_ray_job(matcher: LabelMatcher) -> bool:
    """Tell whether a matcher names something called Ray, such as `job="ray"`."""
    return matcher.name != "__name__" and _RAY_WORD.search(matcher.value) is not None


def equals(selector: Selector, label: str) -> str | None:
    """Return the value that a selector demands of a label."""
    wanted = (each for each in selector.matchers if each.name == label and each.op is MatchOp.EQUAL)
    return next((each.value for each in wanted), None)


def _asks_ray(selector: Selector) -> bool:
    name = selected_metric(selector.matchers) or ""
    return is_ray_name(name) or any(map(about_ray_job, selector.matchers)) or name.startswith("object_store_")

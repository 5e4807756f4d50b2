"""Put an engine together from files: what `engine run` and the checks start from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from engine.clients.aside import Aside
from engine.clients.ray import RayClient
from engine.errors import LoadError, Problem
from engine.flow.clusters import Clusters
from engine.flow.engine import Engine
from engine.load.playbooks import load_playbooks
from engine.load.rules import load_rules
from engine.load.settings import cross_check, load_settings
from engine.model.playbook import Playbook
from engine.model.ports import Observer, RayApi, Source, Store, Writer
from engine.model.rule import AlertingRule, RecordingRule, Rule, RuleGroup
from engine.model.settings import RayCluster, Settings
from engine.query.recorded import RecordedSource
from engine.query.rolling import RollingSource

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Everything that the files say, cross-checked."""

    settings: Settings
    groups: Sequence[RuleGroup]
    playbooks: Mapping[str, Playbook]


def load(settings_file: str | None) -> Loaded:
    """Read engine.yaml and all that it names. LoadError with every problem of every file."""
    settings = load_settings(settings_file)
    problems: list[Problem] = []
    rules = _collect(lambda: load_rules(settings.rule_files, interval=settings.evaluation_interval), problems)
    playbooks = _collect(lambda: load_playbooks(settings.playbook_files), problems)
    if rules is None or playbooks is None:
        raise LoadError(problems)
    if found := cross_check(settings, rules.groups, playbooks):
        raise LoadError(found)
    return Loaded(settings=settings, groups=rules.groups, playbooks=playbooks)


def _asked(rule: Rule) -> list[str]:
    if not isinstance(rule, AlertingRule):
        return [rule.expr]
    return [rule.expr, *rule.inputs.values(), *rule.histories.values()]


def with_made(groups: Sequence[RuleGroup], source: Source) -> tuple[Source, set[str]]:
    """Return a source that also knows the series that these rules make, and their names."""
    names = {rule.record for group in groups for rule in group.rules if isinstance(rule, RecordingRule)}
    own = names | {"ALERTS", "ALERTS_FOR_STATE"}
    asked = [expr for group in groups for rule in group.rules for expr in _asked(rule)]
    if names or any("ALERTS" in expr for expr in asked):
        return RecordedSource(source, own), own
    return source, own


def _collect(read: Callable[[], T], problems: list[Problem]) -> T | None:
    try:
        return read()
    except LoadError as error:
        problems.extend(error.problems)
        return None


def connect(entry: RayCluster, address: str) -> RayApi:
    """Return the client of a Ray cluster; it opens no connection yet."""
    return RayClient(address, token_file=entry.token_file, timeout=entry.timeout)


def build(
    loaded: Loaded,
    *,
    source: Source,
    store: Store,
    observers: Sequence[Observer] = (),
    writer: Writer | None = None,
    aside: Aside | None = None,
) -> Engine:
    """Return an engine of what was loaded, with the state that the store remembers.

    What detectors look back at is kept from one evaluation to the next, and only its end asked of the source.
    Models are fitted `aside`; without it at once, in the middle of an evaluation.
    """
    settings = loaded.settings
    source, own = with_made(loaded.groups, source)
    engine = Engine(
        settings=settings,
        groups=loaded.groups,
        playbooks=loaded.playbooks,
        source=source,
        store=store,
        clusters=Clusters(settings.ray.clusters, connect),
        observers=observers,
        writer=writer,
        aside=aside,
        history=RollingSource(source, settings.prometheus.max_samples, growing=own),
    )
    engine.evidence.folder = Path(settings.evidence_dir) if settings.evidence_dir else None
    return engine

"""Check whole files of every kind, together: what a file is, its own keys say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from engine.errors import ExpressionError, LoadError, Problem
from engine.lang.promql.counters import bare_counter
from engine.load.decode import compose
from engine.load.files import find_files, read_file
from engine.load.nodes import MappingNode
from engine.load.playbooks import read_playbook
from engine.load.rules import read_rules
from engine.load.settings import alerts_missing, cross_check, load_settings
from engine.model.playbook import Playbook
from engine.model.ports import Detector, Rewriter
from engine.model.rule import AlertingRule, RuleGroup
from engine.model.settings import Settings
from engine.registry import detector


class FileKind(StrEnum):
    """What a YAML file is."""

    RULES = "rule file"
    PLAYBOOK = "playbook"
    SETTINGS = "settings"


_SETTINGS_KEYS = frozenset(
    {"route", "receivers", "rule_files", "playbook_files", "prometheus", "ray", "state"}
)


@dataclass(slots=True)
class Checked:
    """What was found in the files, good and bad. Advice is on what is valid, and hardly ever meant."""

    problems: list[Problem] = field(default_factory=list)
    advice: list[Problem] = field(default_factory=list)
    files: dict[str, FileKind] = field(default_factory=dict)
    groups: list[RuleGroup] = field(default_factory=list)
    playbooks: dict[str, Playbook] = field(default_factory=dict)
    settings: list[Settings] = field(default_factory=list)


def check_files(paths: Iterable[str], *, settings: Settings | None = None) -> Checked:
    """Read everything that `paths` name, and hold it against each other and against `settings`, if any."""
    checked = Checked()
    for path in find_files(paths, checked.problems):
        content = read_file(path, checked.problems)
        if content is not None:
            _check(path, content, checked)
    if not checked.problems:
        checked.problems += _together(checked, settings)
        checked.advice += _counters(checked.groups)
    checked.problems = sorted(set(checked.problems))
    return checked


def _check(path: Path, content: bytes, checked: Checked) -> None:
    kind = kind_of(str(path), content)
    checked.files[str(path)] = kind
    if kind is FileKind.PLAYBOOK:
        playbook = read_playbook(str(path), content, checked.problems)
        if playbook is not None:
            checked.playbooks[playbook.name] = playbook
    elif kind is FileKind.SETTINGS:
        try:
            checked.settings.append(load_settings(str(path)))
        except LoadError as error:
            checked.problems += error.problems
    else:
        checked.groups += read_rules(str(path), content, checked.problems).groups


def kind_of(path: str, content: bytes) -> FileKind:
    """Return what a file is meant to be; a rule file unless its keys say otherwise."""
    root = compose(path, content).root
    keys = set(root.entries) if isinstance(root, MappingNode) else set()
    if keys & {"groups", "tests", "spec"}:
        return FileKind.RULES
    if keys & {"playbook", "steps"}:
        return FileKind.PLAYBOOK
    return FileKind.SETTINGS if keys & _SETTINGS_KEYS else FileKind.RULES


def _together(checked: Checked, settings: Settings | None) -> list[Problem]:
    """Return names that one file uses and no file defines."""
    problems: list[Problem] = list(alerts_missing(checked.groups))
    for one in [*checked.settings, *([settings] if settings is not None else [])]:
        problems += cross_check(one, checked.groups, checked.playbooks) if checked.playbooks else []
    if not checked.settings and settings is None and checked.playbooks:
        problems += _unknown_playbooks(checked.groups, checked.playbooks)
    return problems


def _unknown_playbooks(groups: Iterable[RuleGroup], playbooks: Mapping[str, Playbook]) -> Iterable[Problem]:
    for group in groups:
        for rule in group.rules:
            wanted = rule.remediate if isinstance(rule, AlertingRule) else None
            if wanted is not None and wanted.playbook not in playbooks:
                known = ", ".join(sorted(playbooks))
                yield Problem(
                    *rule.origin, f"{rule.name}: no playbook is called {wanted.playbook!r}; known: {known}"
                )


def _counters(groups: Iterable[RuleGroup]) -> Iterable[Problem]:
    """Return advice on rules whose detector looks at the level of a counter, which says how old its process is."""
    for group in groups:
        for rule in group.rules:
            if not isinstance(rule, AlertingRule) or not _judges_levels(rule.detect):
                continue
            with suppress(ExpressionError):  # what only a server can read
                if metric := bare_counter(rule.expr):
                    message = (
                        f"{rule.name}: {metric} looks like a counter, which falls to 0 when its process restarts; "
                        f"rate({metric}[5m]) repairs that and is what happens now"
                    )
                    yield Problem(*rule.origin, message)


def _judges_levels(detect: Detector) -> bool:
    whether_it_moves = detector.name_of(detect) in ("absent", "stale")
    return bool(detect.lookback) and not whether_it_moves and not isinstance(detect, Rewriter)

"""Check whole files of every kind, together: what a file is, its own keys say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from pathlib import Path

from engine.check.run import Finding, by_file, find, tested_alerts
from engine.check.subject import World
from engine.errors import LoadError, Problem
from engine.load.decode import compose
from engine.load.files import find_files, read_file
from engine.load.nodes import MappingNode
from engine.load.playbooks import read_playbook
from engine.load.rules import read_rules
from engine.load.settings import alerts_missing, cross_check, load_settings
from engine.model.playbook import Playbook
from engine.model.rule import AlertingRule, RecordingRule, RuleGroup
from engine.model.settings import Settings
from engine.model.testing import TestFile
from engine.ray.contract import contract


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
    """What was found in the files, good and bad."""

    problems: list[Problem] = field(default_factory=list)
    files: dict[str, FileKind] = field(default_factory=dict)
    groups: list[RuleGroup] = field(default_factory=list)
    playbooks: dict[str, Playbook] = field(default_factory=dict)
    settings: list[Settings] = field(default_factory=list)
    tests: list[TestFile] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)


def check_files(
    paths: Iterable[str], *, today: date, settings: Settings | None = None, ray_version: str = ""
) -> Checked:
    """Read everything that `paths` name, hold it against each other and against `settings`, and run the checks.

    `today` ends snoozes. Without `ray_version` that of the settings holds, else the newest contract. Files with
    problems are not checked further: what they mean is not known.
    """
    checked = Checked()
    for path in find_files(paths, checked.problems):
        content = read_file(path, checked.problems)
        if content is not None:
            _check(path, content, checked)
    if not checked.problems:
        checked.problems += _together(checked, settings)
    checked.problems = sorted(set(checked.problems))
    _run_checks(checked, today, ray_version or _version(checked, settings))
    return checked


def _version(checked: Checked, settings: Settings | None) -> str:
    known = [settings] if settings is not None else checked.settings
    return next((each.ray.version for each in known if each.ray.version), "")


def _run_checks(checked: Checked, today: date, ray_version: str) -> None:
    recorded = {
        rule.name for group in checked.groups for rule in group.rules if isinstance(rule, RecordingRule)
    }
    world = World(
        contract(ray_version),
        frozenset(recorded),
        checked.playbooks,
        tested_alerts(test for file in checked.tests for test in file.tests),
    )
    groups, broken = by_file(checked.groups), {problem.path for problem in checked.problems}
    for path, kind in checked.files.items():
        if path not in broken and kind is not FileKind.SETTINGS:
            found = find(path, checked.contents[path], groups.get(path, ()), world, today)
            checked.findings += found
    checked.findings.sort()


def _check(path: Path, content: bytes, checked: Checked) -> None:
    kind = kind_of(str(path), content)
    checked.files[str(path)] = kind
    checked.contents[str(path)] = content
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
        loaded = read_rules(str(path), content, checked.problems)
        checked.groups += loaded.groups
        checked.tests += loaded.tests


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

"""Which rules the tests say anything about: those that a test makes fire, and another keeps quiet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.errors import ExpressionError
from engine.lab.files import FileResult
from engine.lang.promql import selects
from engine.model.rule import AlertingRule, Origin, RecordingRule, Rule, RuleGroup
from engine.model.testing import TestFile


class Untested(NamedTuple):
    """A rule that is not tested, and what is missing."""

    name: str
    origin: Origin
    missing: str


class Coverage(NamedTuple):
    """How many of the rules are tested."""

    rules: int
    untested: tuple[Untested, ...]

    @property
    def tested(self) -> int:
        """How many are."""
        return self.rules - len(self.untested)

    @property
    def percent(self) -> float:
        """The share of rules that are tested; of no rules, all."""
        return 100 * self.tested / self.rules if self.rules else 100.0


def measure(groups: Iterable[RuleGroup], files: Iterable[tuple[TestFile, FileResult]]) -> Coverage:
    """Return the coverage of `groups` and of the groups of test files, each rule once, by assertions that held."""
    pairs = list(files)
    rules: dict[tuple[str, str], Rule] = {}
    fires: set[tuple[str, str]] = set()
    quiet: set[tuple[str, str]] = set()
    plans: set[tuple[str, str]] = set()  # by the rule's file and the playbook
    mentions: set[str] = set()
    for group in [*groups, *(group for file, _ in pairs for group in file.groups)]:
        rules |= {_key(group, rule.id): rule for rule in group.rules}
    for file, result in pairs:
        keys = {rule.id: _key(group, rule.id) for group in file.groups for rule in group.rules}
        for check in (check for each in result.results for check in each.checks):
            fires |= {keys[id_] for id_ in check.fires if id_ in keys}
            quiet |= {keys[id_] for id_ in check.quiet if id_ in keys}
            mentions |= check.mentions
            plans |= {(key[0], playbook) for key in keys.values() for playbook in check.plans}
    read = mentions | {rule.expr for key, rule in rules.items() if key in fires}
    missing = {}
    for key, rule in rules.items():
        wanted = rule.remediate if isinstance(rule, AlertingRule) else None
        unplanned = wanted.playbook if wanted is not None and (key[0], wanted.playbook) not in plans else ""
        missing[key] = _missing(rule, key in fires, key in quiet, unplanned, read)
    untested = [Untested(rules[key].name, rules[key].origin, text) for key, text in missing.items() if text]
    return Coverage(len(rules), tuple(sorted(untested, key=lambda each: each.origin)))


def _key(group: RuleGroup, rule_id: str) -> tuple[str, str]:
    """Return a rule's identity whatever way its file was named."""
    return str(Path(group.file).resolve()), rule_id.removeprefix(group.file)


def _missing(rule: Rule, fires: bool, quiet: bool, unplanned: str, read: Iterable[str]) -> str:
    if isinstance(rule, RecordingRule):
        return "" if any(_reads(expr, rule.record) for expr in read) else "no test reads what it records"
    words = [
        *([] if fires else ["no test makes it fire"]),
        *([] if quiet else ["no test asserts that it does not fire"]),
        *([f"no remediation_test sees {unplanned} planned"] if unplanned else []),
    ]
    return " and ".join(words)


def _reads(expr: str, name: str) -> bool:
    try:
        return selects(expr, name)
    except ExpressionError:
        return name in expr


def lines(coverage: Coverage) -> list[str]:
    """Return what a person reads."""
    head = f"coverage: {coverage.tested} of {coverage.rules} rules are tested, {coverage.percent:.0f} %"
    return [
        head,
        *(
            f"  {each.origin.file}:{each.origin.line}: {each.name}: {each.missing}"
            for each in coverage.untested
        ),
    ]


def as_json(coverage: Coverage) -> Mapping[str, object]:
    """Return the coverage as the report in JSON has it."""
    untested: Sequence[Mapping[str, object]] = [
        {"rule": each.name, "file": each.origin.file, "line": each.origin.line, "missing": each.missing}
        for each in coverage.untested
    ]
    return {
        "rules": coverage.rules,
        "tested": coverage.tested,
        "percent": round(coverage.percent, 1),
        "untested": untested,
    }

"""An alert that asks for a playbook which will refuse it."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Subject, World
from engine.model.labels import Matchers


@rule_check("playbook/match")
def match(subject: Subject, world: World) -> Iterator[Note]:
    """Hold the playbook's `match` against the labels that the rule gives its alerts."""
    playbook = subject.playbook(world)
    if playbook is None:
        return
    rule = subject.rule
    written = {name: value for name, value in rule.labels.items() if "{{" not in value}
    known = {"alertname": rule.name, **written}
    if any(_may_pass(matchers, known) for matchers in playbook.match):
        return
    message = f"playbook {playbook.name} matches none of this rule's alerts: every run will be refused"
    rewrite = f'match: [alertname="{rule.name}"] in {playbook.origin.file}'
    yield Note(Severity.ERROR, message, subject.asks, rewrite)


def _may_pass(matchers: Matchers, known: dict[str, str]) -> bool:
    return all(matcher.matches(known) for matcher in matchers if matcher.name in known)

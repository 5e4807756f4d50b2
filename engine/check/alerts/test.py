"""An alert that no test mentions."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Subject, World
from engine.model.rule import AlertingRule


@rule_check("alerts/test")
def test(subject: Subject, world: World) -> Iterator[Note]:
    """Note an alert of which no test says when it fires."""
    if isinstance(subject.rule, AlertingRule) and subject.rule.name not in world.tested:
        message = "no test among these files says when this fires"
        yield Note(Severity.ADVICE, message, subject.key("alert"), "tests: [{alert_rule_test: …}]")

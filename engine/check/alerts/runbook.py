"""An alert that does not say where to read on."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Subject, World
from engine.model.rule import AlertingRule


@rule_check("alerts/runbook")
def runbook(subject: Subject, _world: World) -> Iterator[Note]:
    """Note an alert without the annotation `runbook_url`."""
    if isinstance(subject.rule, AlertingRule) and not subject.rule.annotations.get("runbook_url"):
        message = "whoever is woken by this finds no runbook"
        yield Note(Severity.ADVICE, message, subject.key("alert"), "annotations: {runbook_url: …}")

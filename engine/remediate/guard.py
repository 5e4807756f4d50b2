"""Ask everything that may say no, and say all of it."""

from __future__ import annotations

from engine.model.playbook import Mode, Refusal
from engine.model.ports import Case


def refusals(case: Case) -> list[Refusal]:
    """Return every reason why this run must not act; none means it may."""
    found = [_match(case), _late(case), _mode(case), *(rail.check(case) for rail in case.playbook.guardrails)]
    return [refusal for refusal in found if refusal is not None]


def _match(case: Case) -> Refusal | None:
    if any(matchers.matches(case.alert.labels) for matchers in case.playbook.match):
        return None
    wanted = " or ".join(str(matchers) for matchers in case.playbook.match)
    return Refusal(
        guardrail="match", reason=f"{case.playbook.name} serves {wanted}; this alert is {case.alert.labels}"
    )


def _late(case: Case) -> Refusal | None:
    if not case.alert.late:
        return None
    return Refusal(guardrail="late", reason="the alert was found late: the cluster may be another by now")


def _mode(case: Case) -> Refusal | None:
    if case.mode in (Mode.AUTO, Mode.APPROVE):
        return None
    if case.mode is Mode.DRY_RUN:
        return Refusal(guardrail="mode", reason="mode is dry_run: this is what would have been done")
    return Refusal(guardrail="mode", reason="mode is off")

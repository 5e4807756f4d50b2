"""A playbook of which nobody will know whether it helped."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Subject, World
from engine.lang.promql.syntax import RangeSelector, Subquery, walk
from engine.model.duration import Duration


@rule_check("playbook/verify")
def verify(subject: Subject, world: World) -> Iterator[Note]:
    """Hold `verify.within` against how soon the rule's condition can be false twice."""
    playbook = subject.playbook(world)
    if playbook is None:
        return
    spot, name = subject.asks, playbook.name
    if playbook.verify is None:
        message = f"playbook {name} has no `verify`: a run that changed nothing looks like one that helped"
        yield Note(Severity.WARNING, message, spot, "verify: {resolved: true, within: 15m}")
        return
    within, interval = playbook.verify.within, subject.group.interval or Duration(minutes=1)
    if not playbook.verify.resolved:
        return
    if within < 2 * interval:
        message = (
            f"playbook {name} waits {within} for two evaluations that are {interval} apart: it can only fail"
        )
        yield Note(Severity.ERROR, message, spot, f"verify: {{within: {Duration.of(4 * interval)}}}")
        return
    longest = _memory(subject)
    if within <= longest:
        message = (
            f"the expression looks back {longest}, so it stays true for so long after the cause is gone, and playbook "
            f"{name} waits only {within}"
        )
        yield Note(
            Severity.WARNING, message, spot, f"verify: {{within: {Duration.of(longest + 4 * interval)}}}"
        )


def _memory(subject: Subject) -> Duration:
    lengths = [
        each.length_ms for each in walk(subject.expr.root) if isinstance(each, RangeSelector | Subquery)
    ]
    return Duration(milliseconds=max(lengths, default=0))

"""Whether the tests notice: each rule is made wrong in one place after another, and its tests are run on that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from engine.errors import ExpressionError
from engine.lab.story import reads_made
from engine.lab.tester import Bench, run_test
from engine.lab.weakness import questions
from engine.model.duration import Duration
from engine.model.rule import AlertingRule, Origin, RecordingRule, RuleGroup
from engine.model.testing import TestGroup


class Wrong(NamedTuple):
    """A rule that is wrong in one place."""

    what: str  # `> 50e6` → `> 25e6`
    rule: AlertingRule


class Survivor(NamedTuple):
    """A mistake that no test notices."""

    rule: str
    origin: Origin
    what: str


class Mutation(NamedTuple):
    """How many mistakes were made, and which of them no test noticed."""

    made: int
    survivors: tuple[Survivor, ...]

    @property
    def score(self) -> float:
        """The share of mistakes that were noticed; of none, all."""
        return 100 * (self.made - len(self.survivors)) / self.made if self.made else 100.0


def mutate(benches: Iterable[tuple[Bench, Sequence[TestGroup]]]) -> Mutation:
    """Make every rule wrong in every way, and run the tests that speak of it. Tests that fail anyway say nothing."""
    noticed: dict[tuple[Origin, str, str], bool] = {}
    for bench, tests in benches:
        sound = [test for test in tests if not run_test(test, bench).failures]
        for group in bench.groups:
            for rule in group.rules:
                if not isinstance(rule, AlertingRule):
                    continue
                asked = [test for test in sound if _speaks_of(test, rule)]
                for wrong in wrongs(rule):
                    key = (rule.origin, rule.alert, wrong.what)
                    noticed[key] = noticed.get(key, False) or _notice(asked, bench, group, rule, wrong.rule)
    survivors = [Survivor(name, origin, what) for (origin, name, what), seen in noticed.items() if not seen]
    return Mutation(len(noticed), tuple(survivors))


def _speaks_of(test: TestGroup, rule: AlertingRule) -> bool:
    if any(it.alertname == rule.alert for it in questions(test)):
        return True
    return bool(test.promql_expr_test) or (bool(test.remediation_test) and rule.remediate is not None)


def _notice(
    tests: Iterable[TestGroup], bench: Bench, group: RuleGroup, rule: AlertingRule, wrong: AlertingRule
) -> bool:
    return any(_fails(test, bench, group, rule, wrong) for test in tests)


def _fails(test: TestGroup, bench: Bench, group: RuleGroup, rule: AlertingRule, wrong: AlertingRule) -> bool:
    """Tell whether a test fails with the wrong rule. Rules that cannot matter to it are left out."""
    alone = not test.promql_expr_test and not reads_made(test, bench.groups)

    def keeps(each: object) -> bool:
        return not alone or isinstance(each, RecordingRule) or each is rule or _speaks_of(test, each)  # type: ignore[arg-type]

    groups = [
        replace(other, rules=tuple(wrong if each is rule else each for each in other.rules if keeps(each)))
        for other in bench.groups
    ]
    result = run_test(
        test, replace(bench, groups=[other for other in groups if other.rules or other is group])
    )
    return bool(result.failures)


def wrongs(rule: AlertingRule) -> Iterator[Wrong]:
    """Yield a rule with each of the mistakes that people make."""
    from engine.lang.promql.mutants import mutants  # noqa: PLC0415 - few ask

    try:
        for mutant in mutants(rule.expr):
            yield Wrong(f"`{mutant.before}` → `{mutant.after}`", replace(rule, expr=mutant.expr))
    except ExpressionError:
        pass  # only a real server reads it
    if rule.hold:
        yield Wrong(f"`for: {rule.hold}` → none", replace(rule, hold=Duration()))
        doubled = Duration.of(rule.hold * 2)
        yield Wrong(f"`for: {rule.hold}` → `for: {doubled}`", replace(rule, hold=doubled))
    if rule.keep_firing_for:
        what = f"`keep_firing_for: {rule.keep_firing_for}` → none"
        yield Wrong(what, replace(rule, keep_firing_for=Duration()))
    yield from _wrong_detectors(rule)


def _wrong_detectors(rule: AlertingRule) -> Iterator[Wrong]:
    detect: Any = rule.detect
    for each in fields(detect):
        if each.name not in ("horizon", "probability"):
            continue
        value = getattr(detect, each.name)
        for factor in (0.5, 2.0):
            changed = (
                Duration.of(value * factor) if isinstance(value, Duration) else min(value * factor, 0.99)
            )
            try:
                wrong = replace(detect, **{each.name: changed})
            except ValueError:  # not every value goes with the others
                continue
            yield Wrong(f"`{each.name}: {value}` → `{each.name}: {changed}`", replace(rule, detect=wrong))


def lines(mutation: Mutation) -> list[str]:
    """Return what a person reads."""
    noticed = mutation.made - len(mutation.survivors)
    return [
        f"mutants: {noticed} of {mutation.made} were noticed, {mutation.score:.0f} %",
        *(
            f"  {each.origin.file}:{each.origin.line}: {each.rule}: no test notices {each.what}"
            for each in mutation.survivors
        ),
    ]


def as_json(mutation: Mutation) -> Mapping[str, object]:
    """Return it as the report in JSON has it."""
    return {
        "made": mutation.made,
        "noticed": mutation.made - len(mutation.survivors),
        "score": round(mutation.score, 1),
        "survivors": [
            {"rule": each.rule, "file": each.origin.file, "line": each.origin.line, "what": each.what}
            for each in mutation.survivors
        ],
    }

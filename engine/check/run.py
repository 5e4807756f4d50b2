"""Run every check on files that could be read: which findings there are, and where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date

from engine.check.comments import Silence, read_comments
from engine.check.registering import names, query_checks, rule_checks
from engine.check.subject import MASK, Note, Query, Severity, Subject, World
from engine.errors import ExpressionError, Problem
from engine.lang.promql.places import Places
from engine.load.decode import Document, compose
from engine.load.nodes import MappingNode, Node, ScalarNode, SequenceNode, place_in
from engine.model.rule import AlertingRule, RuleGroup
from engine.registry import detector

COMMENTS = "engine/comment"  # the name of findings about the comments themselves
_TEMPLATE = re.compile(r"\{\{.*?\}\}", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """What a check says about a place in a file; lines and columns count from 1, ends are included."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    check: str
    message: str = field(compare=False)
    severity: Severity = field(compare=False)
    rewrite: str = field(default="", compare=False)
    source: str = field(default="", compare=False)  # the line of the file

    @property
    def page(self) -> str:
        """The check's page in the documentation."""
        return f"docs/checks/{self.check}.md" if self.check != COMMENTS else "docs/checks/README.md"


def find(path: str, content: bytes, groups: Iterable[RuleGroup], world: World, today: date) -> list[Finding]:
    """Return what all checks say of a rule file or a playbook that has been read without a problem."""
    document = compose(path, content)
    subjects = list(_subjects(document, groups))
    found = {_placed(document, *said) for said in _all(document, subjects, world)}
    starts = [subject.node.line for subject in subjects]
    silences, problems = read_comments(path, document.lines, starts, names())
    found = {each for each in found if not _silenced(each, silences, today)}
    return sorted([*found, *(_about_comment(document, problem) for problem in problems)])


def _all(document: Document, subjects: Iterable[Subject], world: World) -> Iterator[tuple[str, Note]]:
    """Yield each note with the name of its check; where a rule is not about Ray it is advice."""
    for subject in subjects:
        for query in (subject.expr, *subject.inputs):
            yield from _of_query(query, world)
        for name, check in rule_checks().items():
            own_business = name.startswith(("detect/", "playbook/"))
            for note in check(subject, world):
                yield name, note if own_business or subject.about_ray else _as_advice(note)
    if not subjects:
        for query in _templated(document.root):
            yield from _of_query(query, world)


def _of_query(query: Query, world: World) -> Iterator[tuple[str, Note]]:
    for name, check in query_checks().items():
        for note in check(query, world):
            # A name without its prefix is what makes it Ray's: the check has weighed that.
            yield name, note if query.about_ray or name == "ray/metric" else _as_advice(note)


def _as_advice(note: Note) -> Note:
    return note._replace(severity=Severity.ADVICE)


def _subjects(document: Document, groups: Iterable[RuleGroup]) -> Iterator[Subject]:
    """Yield every rule with its YAML; both are in the order of the file."""
    root = document.root
    spec = root.get("spec") if isinstance(root, MappingNode) else None
    nodes = _items(spec if isinstance(spec, MappingNode) else root, "groups")
    for group, node in zip(groups, nodes, strict=True):
        for rule, written in zip(group.rules, _items(node, "rules"), strict=True):
            assert isinstance(written, MappingNode)
            if (expr := _query(written.get("expr"))) is not None:
                inputs = tuple(_inputs(written, rule)) if isinstance(rule, AlertingRule) else ()
                yield Subject(group, rule, written, expr, inputs)


def _items(node: Node | None, key: str) -> tuple[Node, ...]:
    inner = node.get(key) if isinstance(node, MappingNode) else None
    return inner.items if isinstance(inner, SequenceNode) else ()


def _inputs(node: MappingNode, rule: AlertingRule) -> Iterator[Query]:
    """Yield the further PromQL of a rule: what its detector needs, and what confirms it."""
    detect = node.get("detect")
    own = detect.get(detector.name_of(rule.detect)) if isinstance(detect, MappingNode) else None
    for name in (*rule.detect.inputs, *rule.histories):
        written = own.get(name) if isinstance(own, MappingNode) else own
        if (query := _query(written)) is not None:
            yield query
    remediate = node.get("remediate")
    confirm = remediate.get("confirm") if isinstance(remediate, MappingNode) else None
    if (query := _query(confirm)) is not None:
        yield query


def _templated(node: Node | None) -> Iterator[Query]:
    """Yield the PromQL of a playbook: `unless` of its steps, and `expr` of `verify`."""
    if not isinstance(node, MappingNode):
        return
    verify = node.get("verify")
    written = [verify.get("expr")] if isinstance(verify, MappingNode) else []
    written += [step.get("unless") for step in _items(node, "steps") if isinstance(step, MappingNode)]
    yield from (query for each in written if (query := _query(each)) is not None)


def _query(node: Node | None) -> Query | None:
    """Return the PromQL of a scalar, templates masked; None if there is none, or none that can be read here."""
    if not isinstance(node, ScalarNode):
        return None
    text = _TEMPLATE.sub(lambda found: MASK * len(found.group()), node.value)
    try:
        return Query(Places(text), node)
    except ExpressionError:  # noted when the file was read, or beyond the parser
        return None


def _placed(document: Document, check: str, note: Note) -> Finding:
    line, column = _place(document, note.spot.node, note.spot.start)
    end_line, end_column = _place(document, note.spot.node, max(note.spot.end - 1, note.spot.start))
    return Finding(
        document.path,
        line,
        column,
        end_line,
        end_column,
        check,
        note.message,
        note.severity,
        note.rewrite,
        document.lines[line - 1],
    )


def _place(document: Document, node: ScalarNode, offset: int) -> tuple[int, int]:
    return place_in(document.lines, node, offset)


def _silenced(finding: Finding, silences: Iterable[Silence], today: date) -> bool:
    return any(each.covers(finding.check, finding.line, today) for each in silences)


def _about_comment(document: Document, problem: Problem) -> Finding:
    source = document.lines[problem.line - 1]
    end = len(source.rstrip())
    place = problem.path, problem.line, problem.column, problem.line, end
    return Finding(*place, COMMENTS, problem.message, Severity.WARNING, "", source)


def tested_alerts(tests: Iterable[object]) -> frozenset[str]:
    """Return the names of alerts that tests mention."""
    kinds = ("alert_rule_test", "route_test", "forecast_test", "never", "timeline")
    return frozenset(each.alertname for test in tests for kind in kinds for each in getattr(test, kind))


def by_file(groups: Iterable[RuleGroup]) -> Mapping[str, list[RuleGroup]]:
    """Return groups by the file that they are in."""
    found: dict[str, list[RuleGroup]] = {}
    for group in groups:
        found.setdefault(group.file, []).append(group)
    return found

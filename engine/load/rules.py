"""Rule files: what `promtool check rules` checks, and what the engine adds.

A file with `groups` is a rule file, perhaps with `tests` of its own; a `PrometheusRule` object holds the
groups under `spec`; a file with `tests` or `rule_files` but no `groups` is a test file of promtool's. Only a
file's first YAML document is read, as in Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import ExpressionError, Problem
from engine.load.expressions import check_expr, check_template, detect_names
from engine.load.files import find_files, read_file, refuse
from engine.load.nodes import MappingNode, Node, ScalarNode, is_null
from engine.load.records import Decoder, Invalid, Reader, schema, suggest
from engine.load.tests import PROMTOOL_INTERVAL, REFUSED, readers_of_tests
from engine.model.duration import Duration
from engine.model.labels import METRIC_NAME
from engine.model.ports import Cautious, Rewriter
from engine.model.rule import Absence, AlertingRule, RecordingRule, Rule, RuleGroup
from engine.model.testing import TestFile, TestGroup
from engine.registry import detector

MOST_POINTS = 50_000
"""Of one series' history: a month of minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What rule files and test files say. Groups of `rule_files` in a test file belong to that test alone."""

    groups: tuple[RuleGroup, ...] = ()
    tests: tuple[TestFile, ...] = ()
    beyond: tuple[Problem, ...] = ()  # PromQL that only a real server answers


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleFile:
    groups: tuple[RuleGroup, ...] = ()
    tests: tuple[TestGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _PrometheusRule:
    api_version: str = field(metadata={"key": "apiVersion"})
    kind: str
    metadata: Any = None
    spec: _Spec
    status: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    groups: tuple[RuleGroup, ...] = ()


def load_rules(paths: Iterable[str | Path], *, interval: Duration = PROMTOOL_INTERVAL) -> Loaded:
    """Return what files, folders and globs hold; `interval` is that of groups which name none.

    LoadError with every problem of every file.
    """
    problems: list[Problem] = []
    loaded = list(_load_all(find_files(paths, problems), interval, problems))
    refuse(problems)
    return Loaded(
        groups=tuple(group for each in loaded for group in each.groups),
        tests=tuple(test for each in loaded for test in each.tests),
        beyond=tuple(problem for each in loaded for problem in each.beyond),
    )


def _load_all(files: Iterable[Path], interval: Duration, problems: list[Problem]) -> Iterator[Loaded]:
    for path in files:
        content = read_file(path, problems)
        if content is not None:
            yield read_rules(str(path), content, problems, interval=interval)


def read_rules(
    path: str, content: bytes, problems: list[Problem], *, interval: Duration = PROMTOOL_INTERVAL
) -> Loaded:
    """Return what one file holds, and add what is wrong with it to `problems`. Raises nothing."""
    readers: Mapping[Any, Reader] = {Rule: _read_rule, RuleGroup: partial(_read_group, interval=interval)}
    decoder = Decoder(path, content, readers=readers, refused=REFUSED)
    try:
        return _read_file(decoder, interval, problems)
    except Invalid:
        return Loaded()
    finally:
        problems += decoder.problems


def _read_file(decoder: Decoder, interval: Duration, problems: list[Problem]) -> Loaded:
    root = decoder.root
    if root is None or is_null(root):
        return Loaded()
    if not isinstance(root, MappingNode):
        raise decoder.fail(root, f"a rule file must be a mapping with `groups`, got {root}")
    if _is_object(root):
        kind = root.get("kind")
        if not isinstance(kind, ScalarNode) or kind.value != "PrometheusRule":
            raise decoder.fail(
                kind or root, f"an object of kind PrometheusRule is expected, got {kind or 'none'}"
            )
        groups = decoder.record(root, _PrometheusRule).spec.groups
        return Loaded(groups=groups, beyond=tuple(decoder.beyond))
    if "groups" not in root.entries and ("tests" in root.entries or "rule_files" in root.entries):
        return Loaded(tests=(_read_test_file(decoder, root, interval, problems),))
    with decoder.reading(readers_of_tests(interval, inline=True)):
        file = decoder.record(root, _RuleFile)
    beyond = tuple(decoder.beyond)
    tests = TestFile(file=decoder.path, tests=file.tests, groups=file.groups, beyond=beyond)
    return Loaded(groups=file.groups, tests=(tests,) if file.tests else (), beyond=beyond)


def _is_object(node: Node | None) -> bool:
    """Tell whether this is an object of Kubernetes, such as a PrometheusRule."""
    return isinstance(node, MappingNode) and ("apiVersion" in node.entries or "kind" in node.entries)


def _read_test_file(
    decoder: Decoder, root: MappingNode, interval: Duration, problems: list[Problem]
) -> TestFile:
    written = root.get("evaluation_interval")
    evaluation = (
        PROMTOOL_INTERVAL if written is None else decoder.decode(written, Duration, "'evaluation_interval'")
    )
    if written is not None and not evaluation:
        raise decoder.fail(written, "'evaluation_interval' must be longer than 0")
    given = {"file": decoder.path, "evaluation_interval": evaluation}
    with decoder.reading(readers_of_tests(evaluation, inline=False)):
        file = decoder.record(root, TestFile, "a test file", given=given)
    if len(set(file.group_eval_order)) < len(file.group_eval_order):
        decoder.report(root.entries["group_eval_order"].key, "'group_eval_order' names a group twice")
    folder = Path(decoder.path).parent
    loaded = list(_load_all(find_files(file.rule_files, problems, folder), interval, problems))
    beyond = (problem for each in loaded for problem in each.beyond)
    groups = tuple(group for each in loaded for group in each.groups)
    return replace(file, groups=groups, beyond=(*decoder.beyond, *beyond))


def _read_group(decoder: Decoder, node: Node, _what: str, *, interval: Duration) -> RuleGroup:
    # Thanos' key; the operator's schema has it, and nothing here depends on it.
    beside = ("partial_response_strategy",) if _is_object(decoder.root) else ()
    group = decoder.record(node, RuleGroup, given={"file": decoder.path}, beside=beside)
    assert isinstance(node, MappingNode)
    if not group.name:
        decoder.report(node, "a rule group's name cannot be empty")
    _check_names(decoder, node.get("labels"), "label")
    if any(isinstance(rule, AlertingRule) for rule in group.rules):
        check_template(decoder, node.get("labels"), "'labels'")
    _check_twins(decoder, node, group)
    rules = tuple(_in_group(rule, group, index) for index, rule in enumerate(group.rules))
    return replace(group, rules=rules, interval=group.interval or interval)


def _check_twins(decoder: Decoder, node: MappingNode, group: RuleGroup) -> None:
    """Note a group's name that is taken in its file already."""
    first = decoder.seen.setdefault(("group", group.name), node)
    if first is not node:
        name = node.get("name") or node
        decoder.report(name, f"group {group.name!r} is in this file twice; first in line {first.line}")


def _in_group(rule: Rule, group: RuleGroup, index: int) -> Rule:
    """Return the rule with what its group adds; rules of one name are numbered, so no two share an id."""
    before = sum(other.name == rule.name for other in group.rules[:index])
    number = f"#{before + 1}" if before else ""
    labels = {**group.labels, **rule.labels}
    return replace(rule, labels=labels, id=f"{group.file};{group.name};{rule.name}{number}")


def _read_rule(decoder: Decoder, node: Node, _what: str) -> Rule:
    if not isinstance(node, MappingNode):
        raise decoder.fail(node, f"a rule must be a mapping, got {node}")
    check_expr_of(decoder, node)
    _check_names(decoder, node.get("labels"), "label")
    kinds = [key for key in ("alert", "record") if node.has(key)]
    if kinds == ["alert"]:
        return _read_alerting(decoder, node)
    if kinds == ["record"]:
        return _read_recording(decoder, node)
    if kinds:
        raise decoder.fail(node, "a rule has either `alert` or `record`, not both")
    known = {**schema(AlertingRule), **schema(RecordingRule)}
    for key, entry in node.entries.items():
        if key not in known:
            decoder.unknown(entry.key, key, known, "a rule")
    raise decoder.fail(node, "a rule needs either `alert` or `record`")


def check_expr_of(decoder: Decoder, node: MappingNode) -> None:
    """Note what is wrong with a rule's expression."""
    if (expr := node.get("expr")) is not None:
        check_expr(decoder, expr)


def _read_alerting(decoder: Decoder, node: MappingNode) -> AlertingRule:
    _check_names(decoder, node.get("annotations"), "annotation")
    for key in ("labels", "annotations"):
        check_template(decoder, node.get(key), repr(key))
    # A rule without `detect` is Prometheus': whatever its expression returns is bad.
    given = {} if node.has("detect") else {"detect": detector.get("present")()}
    rule = decoder.record(node, AlertingRule, given=given)
    if rule.remediate is not None and isinstance(rule.detect, Cautious):
        rule = replace(rule, detect=rule.detect.before_acting())
    if not rule.alert:
        decoder.report(node, "an alert's name cannot be empty")
    _check_details(decoder, node, rule)
    _check_inputs(decoder, node.get("detect") or node, rule)
    _check_no_data(decoder, node.get("on_no_data"), rule)
    _check_history(decoder, node.get("detect"), rule)
    if isinstance(remediate := node.get("remediate"), MappingNode):
        confirm = remediate.get("confirm")
        check_template(decoder, confirm, "'confirm'")
        if isinstance(confirm, ScalarNode) and "{{" not in confirm.value:
            check_expr(decoder, confirm, "'confirm'")
    return rule


def _check_history(decoder: Decoder, node: Node | None, rule: AlertingRule) -> None:
    """Note a history of more points than anybody would want sent, such as two weeks of milliseconds."""
    # A plug-in may be anybody's, and what it lacks shows when it is used.
    lookback, step = (getattr(rule.detect, name, Duration()) for name in ("lookback", "step"))
    if node is not None and lookback and step and lookback / step > MOST_POINTS:
        message = f"a lookback of {lookback} at a step of {step} is {lookback // step:,} points a series"
        decoder.report(
            node, f"{message}, where {MOST_POINTS:,} are allowed; take a coarser step or less history"
        )


def _check_no_data(decoder: Decoder, node: Node | None, rule: AlertingRule) -> None:
    """Note a wish to tell missing data from a condition that is false where that cannot be done."""
    if node is None or rule.on_no_data not in (Absence.KEEP, Absence.ALERT) or rule.detect.lookback:
        return
    from engine.lang.promql import split_comparison  # noqa: PLC0415 - loaded only when needed

    try:
        told_apart = split_comparison(rule.expr) is not None
    except ExpressionError:
        told_apart = False
    if not told_apart:
        message = "needs an expr that compares with a number, such as `x > 5`: else nobody can tell that x is missing"
        decoder.report(node, f"on_no_data: {rule.on_no_data} {message}")


def _check_inputs(decoder: Decoder, node: Node, rule: AlertingRule) -> None:
    """Note what is wrong with the further PromQL of a detector, which stands in its fields or is made of `expr`."""
    if isinstance(rule.detect, Rewriter):
        _check_rewriting(decoder, node, rule)
        return
    inputs = {**rule.inputs, **rule.histories}
    written = (
        next(iter(node.entries.values())).value if isinstance(node, MappingNode) and node.entries else None
    )
    for name in inputs:
        field = (
            written.get(name) if isinstance(written, MappingNode) else written
        )  # else the detector's shorthand
        check_expr(decoder, field, repr(name))


def _check_rewriting(decoder: Decoder, node: Node, rule: AlertingRule) -> None:
    from engine.lang.promql import validate  # noqa: PLC0415 - loaded only when needed

    try:
        _ = rule.inputs
    except ExpressionError as error:
        try:
            validate(rule.expr)
        except ExpressionError as wrong:
            if not wrong.beyond:
                return  # noted already, of the expression itself
        decoder.report(node, f"detector {detector.name_of(rule.detect)!r}: {error}")


def _check_details(decoder: Decoder, node: MappingNode, rule: AlertingRule) -> None:
    """Note every `$detect.x` that the rule's detector never fills."""
    known: Mapping[str, str] = rule.detect.details
    name = detector.name_of(rule.detect)
    for key in ("labels", "annotations"):
        for scalar, offset, detail in detect_names(node.get(key)):
            if detail not in known:
                way_out = suggest(detail, known) or "; only rules with `detect` have details"
                message = f"detector {name!r} has no detail $detect.{detail}{way_out}"
                decoder.report_inside(scalar, offset, message)


def _read_recording(decoder: Decoder, node: MappingNode) -> RecordingRule:
    only_alerts = schema(AlertingRule).keys() - schema(RecordingRule).keys() - {"alert"}
    for key in sorted(only_alerts & node.entries.keys()):
        decoder.report(
            node.entries[key].key, f"{key!r} belongs to alerts; a recording rule has expr and labels"
        )
    rule = decoder.record(node, RecordingRule, beside=only_alerts)
    if not rule.record or set("{}") & set(rule.record):
        written = node.get("record") or node
        decoder.report(written, f"{rule.record!r} is no metric's name; labels go under `labels`")
    return rule


def _check_names(decoder: Decoder, node: Node | None, what: str) -> None:
    """Note names of labels or annotations that Prometheus refuses; since 3.0 any other UTF-8 text is one."""
    if not isinstance(node, MappingNode):
        return  # nothing there, or noted already
    for name, entry in node.entries.items():
        if not name:
            decoder.report(entry.key, f"a {what}'s name cannot be empty")
        elif name == METRIC_NAME and what == "label":
            decoder.report(entry.key, f"{METRIC_NAME!r} is the metric's name and cannot be a label here")

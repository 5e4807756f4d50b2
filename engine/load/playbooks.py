"""Playbook files: one playbook each, strictly read, since a playbook acts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import Problem
from engine.load.expressions import check_template
from engine.load.files import find_files, read_file, refuse
from engine.load.nodes import MappingNode, Node, ScalarNode, is_null
from engine.load.records import Decoder, Invalid
from engine.model.playbook import Approval, Mode, Playbook, Step, Verify
from engine.model.ports import Guardrail
from engine.registry import action, guardrail

_REFUSED = {
    "every": "verification asks at the rule's own interval",
    "on_timeout": "no answer is always a refusal",
    "rollback": "it is not implemented; what must follow a failed remedy belongs to a person, see `escalate`",
    "autonomy": "it is not implemented; `mode` holds",
}


def load_playbooks(paths: Iterable[str | Path]) -> dict[str, Playbook]:
    """Return the playbooks of files, folders and globs, by name. LoadError with every problem of them."""
    problems: list[Problem] = []
    playbooks: dict[str, Playbook] = {}
    for path in find_files(paths, problems):
        content = read_file(path, problems)
        playbook = None if content is None else read_playbook(str(path), content, problems)
        if playbook is None:
            continue
        first = playbooks.setdefault(playbook.name, playbook)
        if first is not playbook:
            line, column = playbook.origin.line, playbook.origin.column
            message = f"playbook {playbook.name!r} is defined twice; first in {first.origin.file}"
            problems.append(Problem(str(path), line, column, message))
    refuse(problems)
    return playbooks


def read_playbook(path: str, content: bytes, problems: list[Problem]) -> Playbook | None:
    """Return the playbook of one file, and add what is wrong with it to `problems`. Raises nothing."""
    decoder = Decoder(path, content, readers={Step: _read_step}, refused=_REFUSED)
    try:
        return _read_file(decoder)
    except Invalid:
        return None
    finally:
        problems += decoder.problems


def _read_file(decoder: Decoder) -> Playbook | None:
    root = decoder.root
    if root is None:
        return None
    if is_null(root):
        raise decoder.fail(root, "the file is empty; a playbook needs `playbook`, `match` and `steps`")
    if not isinstance(root, MappingNode):
        raise decoder.fail(root, f"a playbook must be a mapping, got {root}")
    if decoder.more:
        decoder.report(root, "a playbook file holds one YAML document; put the next into a file of its own")
    approval, guardrails = _read_guardrails(decoder, root.get("guardrails"))
    _check_templates(decoder, root)
    given = {"approval": approval, "guardrails": guardrails}
    playbook = decoder.record(root, Playbook, given=given, beside=("guardrails",))
    _check_sense(decoder, root, playbook)
    return playbook


def _read_guardrails(decoder: Decoder, node: Node | None) -> tuple[Approval, tuple[Guardrail, ...]]:
    """Return what `guardrails:` says. Approval is a question to a person and no plug-in."""
    approval, guardrails = Approval(), list[Guardrail]()
    if node is None:
        return approval, ()
    if not isinstance(node, MappingNode):
        decoder.report(node, f"'guardrails' must be a mapping, got {node}")
        return approval, ()
    for key, entry in node.entries.items():
        try:
            if key != "approval":
                guardrails.append(decoder.configure(entry.key, entry.value, "guardrail", _find_guardrail))
            elif not is_null(entry.value):
                approval = decoder.record(entry.value, Approval, "an approval")
        except Invalid:
            continue
    return approval, tuple(guardrails)


def _find_guardrail(name: str) -> type:
    return guardrail.get(name)


def _read_step(decoder: Decoder, node: Node, _what: str) -> Step:
    """One step: `action` names the plug-in, `with` holds its fields."""
    if not isinstance(node, MappingNode):
        raise decoder.fail(node, f"a step must be a mapping, got {node}")
    check_template(decoder, node.get("with"), "'with'", of_run=True)
    check_template(decoder, node.get("unless"), "'unless'", of_run=True)
    given: dict[str, Any] = {"act": None}
    step = decoder.record(node, Step, given=given, beside=("action", "with"))
    name = node.get("action")
    if not isinstance(name, ScalarNode):
        raise decoder.fail(name or node, f"a step needs 'action', one of: {', '.join(action)}")
    return replace(step, act=decoder.configure(name, node.get("with"), "action", action.get))


def _check_templates(decoder: Decoder, root: MappingNode) -> None:
    check_template(decoder, root.get("target"), "'target'", of_run=True)
    if isinstance(verify := root.get("verify"), MappingNode):
        check_template(decoder, verify.get("expr"), "'expr'", of_run=True)


def _check_sense(decoder: Decoder, root: MappingNode, playbook: Playbook) -> None:
    """Note what can be decoded and still makes no playbook."""
    if not playbook.name:
        decoder.report(root, "a playbook's name cannot be empty")
    _check_steps(decoder, root, playbook)
    if isinstance(match := root.get("match"), Node) and any(not matchers for matchers in playbook.match):
        decoder.report(match, "'match' holds `{}`, which every alert passes; name those that may ask")
    if not playbook.match and root.has("match"):
        decoder.report(
            root.entries["match"].key, "'match' is empty, so that no alert may ask for this playbook"
        )
    verify: Verify | None = playbook.verify
    if verify is None and playbook.mode is Mode.AUTO:
        mode = root.entries["mode"].value
        decoder.report(mode, "a playbook that runs by itself needs `verify`, such as `verify: {within: 15m}`")
    if verify is not None and not verify.resolved and verify.expr is None:
        decoder.report(
            root.entries["verify"].value, "'verify' asks nothing; give it `resolved: true` or `expr`"
        )


def _check_steps(decoder: Decoder, root: MappingNode, playbook: Playbook) -> None:
    if not playbook.steps and root.has("steps"):
        decoder.report(root.entries["steps"].key, "'steps' is empty")
    names = [step.name for step in playbook.steps]
    for step in playbook.steps:
        if step.retry.attempts < 1:
            decoder.report_at(step.origin, f"step {step.name!r}: retry.attempts must be at least 1")
    for index, name in enumerate(names):
        if name in names[:index]:
            decoder.report_at(playbook.steps[index].origin, f"step {name!r} is there twice")

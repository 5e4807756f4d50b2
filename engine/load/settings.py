"""engine.yaml: where things are, and who hears of what.

`${NAME}` stands for a variable of the environment, `$$` for a dollar; this is the only module that reads it.
Paths in `rule_files`, `playbook_files` and at every `…_file` are relative to the folder of the file that
names them, as in Prometheus. Modules of `plugins` are imported first, so that their words are known.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from engine.errors import Problem
from engine.load.expressions import check_template
from engine.load.files import read_file, refuse
from engine.load.nodes import MappingNode, Node, ScalarNode, SequenceNode, is_null
from engine.load.records import Decoder, Invalid, suggest
from engine.load.routing import KEYS, console_routing, read_routing
from engine.model.labels import ALERT_NAME, Matchers
from engine.model.playbook import Playbook
from engine.model.ports import Dependent
from engine.model.rule import AlertingRule, Origin, RuleGroup
from engine.model.settings import Settings
from engine.ray.contract import version_number

_VARIABLE = re.compile(r"\$\$|\$\{([^}]*)\}")
_REFUSED = {
    "global": "there are no global settings; each integration says what it needs",
    "templates": "messages are not templated",
    "robusta": "its address belongs to the receiver, under `robusta_configs`",
    "alerting": "receivers are named under `receivers`; an Alertmanager is one of them",
    "scrape_configs": "the engine asks a Prometheus, it does not scrape",
}


def load_settings(path: str | Path | None) -> Settings:
    """Return what engine.yaml says, or the defaults if there is none. LoadError with every problem."""
    if path is None:
        return Settings(routing=console_routing())
    problems: list[Problem] = []
    content = read_file(Path(path), problems)
    settings = None if content is None else read_settings(str(path), content, problems)
    refuse(problems)
    assert settings is not None
    return settings


def read_settings(path: str, content: bytes, problems: list[Problem]) -> Settings | None:
    """Return the settings of a file, and add what is wrong with it to `problems`. Raises nothing."""
    decoder = Decoder(path, content, refused=_REFUSED, expand=_expand, folder=Path(path).parent)
    try:
        return _read_file(decoder)
    except Invalid:
        return None
    finally:
        problems += [_with_hint(problem, content) for problem in decoder.problems]


def _with_hint(problem: Problem, content: bytes) -> Problem:
    """Return the problem with the way out of the commonest one with variables."""
    line = b"".join(content.splitlines()[problem.line - 1 : problem.line])
    if problem.message.startswith("not YAML") and b"${" in line:
        hint = "between braces and brackets, quote what holds ${…}"
        return problem._replace(message=f"{problem.message}; {hint}")
    return problem


def _expand(text: str) -> str:
    """Return `text` with variables filled in. LookupError if one is not set."""
    return _VARIABLE.sub(_value, text)


def _value(match: re.Match[str]) -> str:
    if match[1] is None:
        return "$"
    if match[1] not in os.environ:
        raise LookupError(
            f"{match[0]} is not set in the environment; set it, or write $${match[0][1:]} for the text"
        )
    return os.environ[match[1]]


def _read_file(decoder: Decoder) -> Settings | None:
    root = decoder.root
    if root is None:
        return None
    if is_null(root):
        return Settings(routing=console_routing(), file=decoder.path)
    if not isinstance(root, MappingNode):
        raise decoder.fail(root, f"settings must be a mapping, got {root}")
    if decoder.more:
        decoder.report(root, "settings are one YAML document; what follows `---` would not be read")
    _import_plugins(decoder, root.get("plugins"))
    given = {"routing": read_routing(decoder, root), "file": decoder.path}
    settings = decoder.record(root, Settings, given=given, beside=KEYS)
    _check(decoder, root, settings)
    folder = Path(decoder.path).parent
    return replace(
        settings,
        rule_files=tuple(str(folder / pattern) for pattern in settings.rule_files),
        playbook_files=tuple(str(folder / pattern) for pattern in settings.playbook_files),
    )


def _import_plugins(decoder: Decoder, node: Node | None) -> None:
    for name in node.items if isinstance(node, SequenceNode) else ():
        if isinstance(name, ScalarNode):
            try:
                importlib.import_module(name.value)
            except Exception as error:  # noqa: BLE001 - anyone's code runs here
                decoder.report(name, f"plug-in module {name.value!r} cannot be imported: {error}")


def _check(decoder: Decoder, root: MappingNode, settings: Settings) -> None:
    if not settings.evaluation_interval:
        decoder.report(
            root.entries["evaluation_interval"].value, "'evaluation_interval' must be longer than 0"
        )
    for parent in (root.get("prometheus"), *_items(root.get("remote_write"))):
        _check_url(decoder, parent.get("url") if isinstance(parent, MappingNode) else None)
    ray = root.get("ray")
    _check_version(decoder, ray.get("version") if isinstance(ray, MappingNode) else None)
    clusters = ray.get("clusters") if isinstance(ray, MappingNode) else None
    for cluster in clusters.items if isinstance(clusters, SequenceNode) else ():
        for key in ("name", "address"):
            if isinstance(cluster, MappingNode):
                check_template(decoder, cluster.get(key), repr(key))


def _check_version(decoder: Decoder, node: Node | None) -> None:
    if isinstance(node, ScalarNode):
        try:
            version_number(node.value)
        except ValueError:
            decoder.report(node, f"'version' must be one of Ray such as 2.60, got {node.value!r}")


def _items(node: Node | None) -> tuple[Node, ...]:
    return tuple(node.items) if isinstance(node, SequenceNode) else ()


def _check_url(decoder: Decoder, node: Node | None) -> None:
    if not isinstance(node, ScalarNode):
        return
    try:
        parts = urlsplit(node.value)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        decoder.report(node, f"'url' must be an address such as http://prometheus:9090, got {node.value!r}")


def cross_check(
    settings: Settings, groups: Iterable[RuleGroup], playbooks: Mapping[str, Playbook]
) -> list[Problem]:
    """Return what files say of each other that is not so: playbooks and receivers that do not exist."""
    groups = tuple(groups)
    problems = [
        *_playbooks_missing(groups, playbooks),
        *_receivers_missing(settings, playbooks),
        *alerts_missing(groups),
    ]
    return sorted(problems)


def alerts_missing(groups: Iterable[RuleGroup]) -> Iterator[Problem]:
    """Yield a problem for each alert that a rule depends on and no other rule makes."""
    rules = [rule for group in groups for rule in group.rules if isinstance(rule, AlertingRule)]
    for rule in rules:
        if not isinstance(rule.detect, Dependent):
            continue
        known = {other.alert for other in rules if other is not rule}
        for name in rule.detect.alerts:
            if name not in known:
                hint = suggest(name, known) or "; name the file of its rule in `rule_files`"
                message = f"{rule.alert}: no other rule's alert is called {name!r}{hint}"
                yield _problem(getattr(rule.detect, "origin", rule.origin), message)


def _playbooks_missing(groups: Iterable[RuleGroup], playbooks: Mapping[str, Playbook]) -> Iterator[Problem]:
    for group in groups:
        for rule in group.rules:
            if isinstance(rule, AlertingRule) and rule.remediate:
                name = rule.remediate.playbook
                if name not in playbooks:
                    hint = suggest(name, playbooks) or "; name its file in `playbook_files`"
                    yield _problem(rule.origin, f"{rule.alert}: no playbook is called {name!r}{hint}")
                elif not any(_may_serve(matchers, rule) for matchers in playbooks[name].match):
                    serves = " or ".join(str(matchers) for matchers in playbooks[name].match)
                    message = (
                        f"playbook {name!r} serves {serves} and would always refuse it; widen its `match`"
                    )
                    yield _problem(rule.origin, f"{rule.alert}: {message}")


def _may_serve(matchers: Matchers, rule: AlertingRule) -> bool:
    """Tell whether matchers can pass alerts of a rule, by the labels that all of them have."""
    fixed = {name: value for name, value in rule.labels.items() if "{{" not in value}
    known = {**fixed, ALERT_NAME: rule.alert}
    return all(matcher.matches(known) for matcher in matchers if matcher.name in known)


def _receivers_missing(settings: Settings, playbooks: Mapping[str, Playbook]) -> Iterator[Problem]:
    receivers = settings.routing.receivers
    for playbook in playbooks.values():
        for key, name in (("escalate", playbook.escalate), ("approval", playbook.approval.receiver)):
            if name is not None and name not in receivers:
                message = f"{playbook.name}: {key}: no receiver is called {name!r}{suggest(name, receivers)}"
                yield _problem(playbook.origin, message)


def _problem(origin: Origin, message: str) -> Problem:
    return Problem(origin.file, origin.line, origin.column, message)

"""`--update`: what alerts there were becomes what is expected. All else in the file stays as it was written."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.lab.alert_check import named
from engine.lab.story import Story
from engine.lab.tester import Result
from engine.load.decode import marked
from engine.model.alert import Alert, AlertState
from engine.model.labels import ALERT_NAME
from engine.model.testing import AlertRuleTest, TestGroup

_WORD = re.compile(r"[A-Za-z_][\w.-]*")
_NOT_TEXT = frozenset("null true false yes no on off y n".split())  # noqa: SIM905 - words, in any case


class Change(NamedTuple):
    """What one `alert_rule_test` is to expect."""

    it: AlertRuleTest
    alerts: tuple[Alert, ...]
    state: AlertState | None  # None: nothing is there, or what was asked for
    annotated: bool


class Updates:
    """Notes, as a witness, what the failing assertions about alerts should have expected."""

    def __init__(self, *, annotated: bool) -> None:
        self._annotated = annotated  # in promtool's files annotations are always compared
        self.changes: list[Change] = []
        self.left: list[str] = []  # what cannot be written down

    def __call__(self, test: TestGroup, story: Story, result: Result) -> None:
        """Take note of a test."""
        failed = {check.origin for check in result.checks if check.lines}
        for it in test.alert_rule_test:
            if it.origin in failed:
                self._note(it, named(story.at(it.eval_time), it.alertname))

    def _note(self, it: AlertRuleTest, alerts: Sequence[Alert]) -> None:
        active = [alert for alert in alerts if alert.state is not AlertState.RESOLVED]
        states = {alert.state for alert in active}
        if it.state is None and len(states) > 1:
            where = f"{it.origin.file}:{it.origin.line}"
            self.left.append(f"{where}: some alerts are pending and some fire; write an assertion for each")
            return
        state = next(iter(states)) if it.state is None else None
        found = tuple(alert for alert in active if it.state in (None, alert.state))
        annotated = self._annotated or any(each.annotations is not None for each in it.exp_alerts)
        self.changes.append(Change(it, found, state, annotated))


def updated(text: str, changes: Sequence[Change]) -> str:
    """Return a test file's text with the changes made."""
    source = _Source(text)
    edits = [edit for change in changes for edit in source.edits(change)]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def diff(path: str, before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff."""
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), path, f"{path} (updated)", n=2):
        yield line.rstrip("\n")


def write(path: str, text: str) -> None:
    """Write the file."""
    Path(path).write_text(text, encoding="utf-8")


class _Source:
    """A file's text, and where its nodes stand in it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lines: list[int] = [0]
        for line in text.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._mappings: dict[tuple[int, int], Any] = {}
        self._collect(marked(text))

    def _collect(self, node: Any) -> None:
        """Remember every mapping by its place. One that is used by an alias is there once."""
        if isinstance(node.value, str):
            return
        pairs = node.id == "mapping"
        if pairs:
            self._mappings.setdefault((node.start_mark.line + 1, node.start_mark.column + 1), node)
        for child in node.value:
            for each in child if pairs else (child,):
                self._collect(each)

    def edits(self, change: Change) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, new text) of what a change does to the file."""
        node = self._mappings[(change.it.origin.line, change.it.origin.column)]
        entries = {key.value: (key, value) for key, value in node.value}
        if change.state is not None:
            state = entries["state"][1]
            yield self._at(state.start_mark), self._end(state), change.state.value
        if "exp_alerts" in entries:
            yield self._replaced(*entries["exp_alerts"], change)
        elif change.alerts:
            yield self._inserted(node, change)

    def _replaced(self, key: Any, value: Any, change: Change) -> tuple[int, int, str]:
        start, end = self._at(value.start_mark), self._end(value)
        if value.id != "sequence" or value.flow_style or not value.value:
            return start, end, f"{' ' * (start == self._at(key.end_mark) + 1)}{_flow(change)}"
        if not change.alerts:
            return self._at(key.end_mark) + 1, end, " []"
        indent = " " * value.start_mark.column
        items = [_block(alert, indent, change) for alert in change.alerts]
        return start, end, f"\n{indent}".join(items)

    def _inserted(self, node: Any, change: Change) -> tuple[int, int, str]:
        end = self._end(node)
        if node.flow_style:
            last = len(self._text[: end - 1].rstrip().rstrip(","))
            return last, end - 1, f", exp_alerts: {_flow(change)}"
        line = self._text.find("\n", end)
        line = len(self._text) if line < 0 else line
        return line, line, f"\n{' ' * node.start_mark.column}exp_alerts: {_flow(change)}"

    def _at(self, mark: Any) -> int:
        line, column = int(mark.line), int(mark.column)
        return self._lines[line] + column

    def _end(self, node: Any) -> int:
        """Return where a node ends; of a block, its last leaf does."""
        if not isinstance(node.value, str) and not node.flow_style and node.value:
            last = node.value[-1]
            return self._end(last[1] if node.id == "mapping" else last)
        end = self._at(node.end_mark)
        start = self._at(node.start_mark)
        return start + len(self._text[start:end].rstrip())


def _flow(change: Change) -> str:
    return f"[{', '.join(_item(alert, change) for alert in change.alerts)}]"


def _item(alert: Alert, change: Change) -> str:
    return "{" + ", ".join(_parts(alert, change)) + "}"


def _block(alert: Alert, indent: str, change: Change) -> str:
    return "- " + f"\n{indent}  ".join(_parts(alert, change))


def _parts(alert: Alert, change: Change) -> Iterator[str]:
    yield f"exp_labels: {_mapping(alert.labels.without(ALERT_NAME))}"
    if change.annotated:
        yield f"exp_annotations: {_mapping(alert.annotations)}"


def _mapping(texts: Any) -> str:
    return "{" + ", ".join(f"{_scalar(name)}: {_scalar(value)}" for name, value in texts.items()) + "}"


def _scalar(text: str) -> str:
    if _WORD.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'

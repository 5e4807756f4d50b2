"""What the detectors of all rules have noted: kept over evaluations, over reloads, and over restarts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from engine.errors import StoreError
from engine.model.ports import Store
from engine.model.rule import AlertingRule
from engine.model.series import Floats
from engine.model.verdict import NOTHING, Memory

KEPT = timedelta(days=1)
"""How long what was noted of a series outlives the series: a node that restarts comes back in minutes."""

SAVED_EVERY = timedelta(minutes=5)
"""How often large memories go to the store; what matters of them, episodes, goes at once."""

MOST_AWAY = 10_000
"""How many series that are away are remembered, the newest ones: labels that change all the time must not pile up."""

LARGE = 100_000
"""Figures of a memory, from which on it is large: less than a megabyte."""

_SEEN = "seen"  # the flow's own column: when a series was last there
_EPISODES = ("scores", "cast", "since")  # what outlives another setting of the rule's detector


class Memories:
    """The memory of each rule's detector."""

    def __init__(self, rules: Mapping[str, AlertingRule], store: Store) -> None:
        self._kinds = {id_: kind_of(rule) for id_, rule in rules.items() if rule.detect.lookback}
        self._memories: dict[str, Memory] = {}
        self._saved: dict[str, float] = {}  # when each was last handed to the store
        self.unread: dict[str, StoreError] = {}  # by rule: why it begins anew
        for id_ in self._kinds:
            self._memories[id_] = self._read(store.memory, id_)

    def of(self, rule_id: str) -> Memory:
        """Return what a rule's detector noted last."""
        return self._memories.get(rule_id, NOTHING)

    def note(self, rule_id: str, memory: Memory, at: datetime) -> None:
        """Take a detector's new notes; those of series that are away for a while are kept with them."""
        if not memory.columns and not memory.shared:
            return
        noted = _together(self.of(rule_id), memory, at.timestamp())
        self._memories[rule_id] = replace(noted, kind=self._kinds.get(rule_id, ""))

    def add(self, rule_id: str, fitted: Memory) -> None:
        """Let what was fitted beside the evaluations replace what is known of it, for the series that are known."""
        memory = self.of(rule_id)
        columns = {name: _replaced(memory, fitted, name, column) for name, column in fitted.columns.items()}
        self._memories[rule_id] = replace(
            memory, columns={**memory.columns, **columns}, shared={**memory.shared, **fitted.shared}
        )

    def due(self, rule_ids: Iterable[str], at: datetime, changed: Collection[str]) -> dict[str, Memory]:
        """Return the memories to be saved now; `changed` are the rules of which an alert has changed."""
        found = {}
        for id_ in rule_ids:
            rested = not 0 <= at.timestamp() - self._saved.get(id_, -np.inf) < SAVED_EVERY.total_seconds()
            memory = self.of(id_)
            if memory is not NOTHING and (rested or id_ in changed or _size(memory) < LARGE):
                found[id_] = memory
        return found

    def saved(self, rule_ids: Iterable[str], at: datetime) -> None:
        """Note that memories have reached the store."""
        self._saved.update(dict.fromkeys(rule_ids, at.timestamp()))

    def _read(self, read: Callable[[str], Memory], rule_id: str) -> Memory:
        try:
            memory = read(rule_id)
        except StoreError as error:
            self.unread[rule_id] = error
            return NOTHING
        if memory.kind == self._kinds[rule_id] or memory is NOTHING:
            return memory
        # The rule was changed: figures mean something else now, but its episodes go on.
        columns = {name: memory.columns[name] for name in (_SEEN, *_EPISODES) if name in memory.columns}
        return replace(memory, columns=columns, shared={})


def kind_of(rule: AlertingRule) -> str:
    """Return what a memory of this rule is good for: the same expression and the same settings."""
    return hashlib.sha256(f"{rule.expr}\0{rule.detect!r}".encode()).hexdigest()[:16]


def _together(old: Memory, new: Memory, at: float) -> Memory:
    """Return the new notes, and the old ones of series that were away for less than `KEPT`."""
    seen = np.full(len(new), at)
    if old.labels == new.labels or not old.labels:
        return replace(new, columns={**new.columns, _SEEN: seen})
    there = set(new.labels)
    since = old.columns.get(_SEEN, np.full(len(old), old.at))
    away = [
        row
        for row, labels in enumerate(old.labels)
        if labels not in there and abs(at - since[row]) < KEPT.total_seconds()
    ]
    away = sorted(away, key=lambda row: -since[row])[:MOST_AWAY]
    if not away:
        return replace(new, columns={**new.columns, _SEEN: seen})
    if not len(new):  # of no series there may be no columns either
        empty = {name: column[:0] for name, column in old.columns.items()}
        new = replace(new, columns={**empty, **new.columns})
    columns = {
        name: np.concatenate([column, _rows(old, name, away, column)]) for name, column in new.columns.items()
    }
    columns[_SEEN] = np.concatenate([seen, since[away]])
    return replace(new, labels=(*new.labels, *(old.labels[row] for row in away)), columns=columns)


def _rows(old: Memory, name: str, rows: list[int], like: Floats) -> Floats:
    """Return rows of an old column in the shape of the new one; NaN where it had another."""
    column = old.columns.get(name)
    if column is None or column.shape[1:] != like.shape[1:]:
        return np.full((len(rows), *like.shape[1:]), np.nan)
    return column[rows]


def _replaced(memory: Memory, fitted: Memory, name: str, column: Floats) -> Floats:
    """Return a fitted column for the series of a memory; those that were not fitted keep what they have."""
    rows = {labels: row for row, labels in enumerate(fitted.labels)}
    places = np.array([rows.get(labels, -1) for labels in memory.labels], dtype=np.intp)
    found = _rows(memory, name, list(range(len(memory))), column)
    found[places >= 0] = column[places[places >= 0]]
    return found


def _size(memory: Memory) -> int:
    return sum(array.size for array in (*memory.columns.values(), *memory.shared.values()))

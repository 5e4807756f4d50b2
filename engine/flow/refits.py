"""Models that are fitted beside the evaluations, on a cadence of their own, and count from a later one on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta

import numpy as np

from engine.clients.aside import Aside
from engine.flow.events import Events
from engine.flow.memories import Memories
from engine.model.ports import Fitter
from engine.model.rule import AlertingRule
from engine.model.series import Window
from engine.model.verdict import Memory

LONGEST = timedelta(minutes=15)
"""How long one fit may take."""

RETRIED_AFTER = timedelta(minutes=30)
"""When a fit that failed is tried again."""

FITTED = "fitted"
"""The flow's own figure in the shared part of a memory: when the model was fitted, in Unix seconds."""


class Refits:
    """The fits of all rules. Without `aside` they are made at once, in this process: for virtual time.

    In either case a fit counts from the evaluation after it on.
    """

    def __init__(self, memories: Memories, events: Events, aside: Aside | None = None) -> None:
        self._memories = memories
        self._events = events
        self._aside = aside
        self._running: dict[str, Future[Memory]] = {}  # by rule
        self._asked: dict[str, datetime] = {}  # when for the last time

    def take(self, rule: AlertingRule, at: datetime) -> None:
        """Let a fit that has ended since the last evaluation count."""
        fit = self._running.get(rule.id)
        if fit is None or not fit.done():
            return
        del self._running[rule.id]
        try:
            fitted = fit.result()
        except Exception as error:  # noqa: BLE001  the model before goes on
            self._events.trouble(at, "refit", error, rule=rule.id)
            return
        self._memories.add(rule.id, fitted)

    def ask(self, rule: AlertingRule, at: datetime, history: Callable[[timedelta], Window]) -> None:
        """Begin a fit if one is due; `history` returns so much of the rule's signal. QueryError if it cannot."""
        model = rule.detect
        if not isinstance(model, Fitter) or rule.id in self._running or not self._is_due(rule.id, model, at):
            return
        self._asked[rule.id] = at
        signal = history(model.history)
        if self._aside is None:
            self._running[rule.id] = _at_once(model, signal, at)
        else:
            self._running[rule.id] = self._aside.submit(
                fitted_at, model, signal, at, timeout=LONGEST.total_seconds()
            )

    def _is_due(self, rule_id: str, model: Fitter, at: datetime) -> bool:
        asked = self._asked.get(rule_id)
        if asked is not None and timedelta() <= at - asked < min(RETRIED_AFTER, model.refit):
            return False
        fitted = self._memories.of(rule_id).shared.get(FITTED)
        since = at.timestamp() - float(fitted[0]) if fitted is not None and fitted.shape == (1,) else np.inf
        return not 0 <= since < model.refit.total_seconds()


def fitted_at(model: Fitter, signal: Window, at: datetime) -> Memory:
    """Return what a model learned of a signal, with the time at which it did."""
    fitted = model.fit(signal, at)
    return Memory(fitted.labels, fitted.columns, {**fitted.shared, FITTED: np.array([at.timestamp()])})


def _at_once(model: Fitter, signal: Window, at: datetime) -> Future[Memory]:
    future: Future[Memory] = Future()
    try:
        future.set_result(fitted_at(model, signal, at))
    except Exception as error:  # noqa: BLE001  told when it is taken, as that of another process
        future.set_exception(error)
    return future

"""How many alerts of a rule have begun to fire of late, where the rule has a budget.

A rule that has gone wild must not drown what other rules say. Alerts beyond its budget fire, but are neither
told nor healed; one alert of the engine's own tells how many there are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime

from engine.model.alert import AlertState
from engine.model.event import Kind
from engine.model.ports import Store
from engine.model.rule import AlertingRule

_REMEMBERED = 10_000  # events, newest ones, that are read at start


class Budgets:
    """What of each rule's budget is spent."""

    def __init__(self, rules: Mapping[str, AlertingRule], store: Store) -> None:
        self._rules = {id_: rule for id_, rule in rules.items() if rule.budget is not None}
        self._fired: dict[str, deque[datetime]] = {id_: deque() for id_ in self._rules}
        for event in store.events(limit=_REMEMBERED) if self._rules else ():
            fired = event.kind is Kind.TRANSITION and event.data.get("after") == AlertState.FIRING
            if fired and (spent := self._fired.get(event.data.get("rule", ""))) is not None:
                spent.append(event.at)

    def spend(self, rule_id: str, at: datetime) -> bool:
        """Note that an alert begins to fire, and tell whether the budget allows it."""
        rule = self._rules.get(rule_id)
        if rule is None or rule.budget is None:
            return True
        spent = self._fired[rule_id]
        spent.append(at)
        while spent[0] <= at - rule.budget.per:
            spent.popleft()
        return len(spent) <= rule.budget.alerts

    def why(self, rule: AlertingRule, held_back: Sequence[object]) -> str:
        """Return what is to be told of the alerts of a rule that are held back; "" if none is."""
        if rule.budget is None or not held_back:
            return ""
        shown = ", ".join(str(each) for each in held_back[:5]) + (", …" if len(held_back) > 5 else "")
        return (
            f"{len(self._fired[rule.id])} of its alerts began to fire within {rule.budget.per}, and its budget is "
            f"{rule.budget.alerts}; {len(held_back)} firing now are neither told nor healed: {shown}"
        )

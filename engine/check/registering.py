"""Checks find themselves: one file each, called as the check is, registered by a decorator.

`engine/check/promql/counter.py` holds `promql/counter`; its first docstring line is what it is for, and
`docs/checks/promql/counter.md` is its page.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

import engine.check
from engine.check.subject import QueryCheck, RuleCheck

_QUERY_CHECKS: dict[str, QueryCheck] = {}
_RULE_CHECKS: dict[str, RuleCheck] = {}


def query_check(name: str) -> Callable[[QueryCheck], QueryCheck]:
    """Register a check of one expression, be it a rule's, a detector's or a playbook's."""

    def register(check: QueryCheck) -> QueryCheck:
        _QUERY_CHECKS[name] = check
        return check

    return register


def rule_check(name: str) -> Callable[[RuleCheck], RuleCheck]:
    """Register a check of a whole rule."""

    def register(check: RuleCheck) -> RuleCheck:
        _RULE_CHECKS[name] = check
        return check

    return register


@cache
def _load() -> None:
    for module in pkgutil.walk_packages(engine.check.__path__, "engine.check."):
        importlib.import_module(module.name)


def query_checks() -> dict[str, QueryCheck]:
    """Return the checks of expressions, by name."""
    _load()
    return dict(sorted(_QUERY_CHECKS.items()))


def rule_checks() -> dict[str, RuleCheck]:
    """Return the checks of rules, by name."""
    _load()
    return dict(sorted(_RULE_CHECKS.items()))


def names() -> list[str]:
    """Return the name of every check."""
    return sorted([*query_checks(), *rule_checks()])

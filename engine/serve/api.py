"""What Prometheus 3 answers about rules and alerts, of this engine: Grafana and others read it as they do there.

Pure functions of an engine's state. The engine's own additions stand beside Prometheus' fields: an alert's
`fingerprint` and `details`, a rule's `detect`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from engine.errors import ExpressionError
from engine.flow.engine import Engine
from engine.flow.slots import interval_of
from engine.lang.go import exponential, rfc3339
from engine.lang.promql.canonical import canonical
from engine.lang.promql.parse import parse
from engine.lang.promql.syntax import LabelMatcher, Selector, Shift
from engine.model.alert import Alert, AlertState
from engine.model.labels import quote
from engine.model.rule import AlertingRule, Rule, RuleGroup
from engine.registry import detector

Json = dict[str, Any]
Params = Mapping[str, Sequence[str]]
"""A question's parameters, each with all its values."""

_TYPES = {"": ("alerting", "recording"), "alert": ("alerting",), "record": ("recording",)}
_BOOLS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}
_SEVERITY = (AlertState.FIRING, AlertState.PENDING)


class BadData(ValueError):
    """A question with a parameter that is none; the text is Prometheus' own where it has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What of the rules is asked for."""

    types: Collection[str]
    names: frozenset[str]  # empty: any; so for all of these
    groups: frozenset[str]
    files: frozenset[str]
    selectors: tuple[tuple[LabelMatcher, ...], ...]  # a rule must pass one of them, all matchers of it
    exclude_alerts: bool
    limit: int | None
    token: str

    @classmethod
    def of(cls, params: Params) -> Filter:
        """Return what `params` ask for; BadData if that cannot be understood."""
        selectors = tuple(_selector(text) for text in params.get("match[]", ()))
        kind = _first(params, "type").lower()
        if kind not in _TYPES:
            raise _bad("type", f"not supported value {quote(kind)}")
        exclude = _exclude_alerts(params)
        limit, token = _page(params)
        return cls(
            types=_TYPES[kind],
            names=frozenset(params.get("rule_name[]", ())),
            groups=frozenset(params.get("rule_group[]", ())),
            files=frozenset(params.get("file[]", ())),
            selectors=selectors,
            exclude_alerts=exclude,
            limit=limit,
            token=token,
        )

    def takes_group(self, group: RuleGroup) -> bool:
        """Tell whether the group's rules are asked for."""
        return (not self.groups or group.name in self.groups) and (not self.files or group.file in self.files)

    def takes_rule(self, rule: Rule) -> bool:
        """Tell whether a rule is asked for. Matchers see its labels as they are written, templates and all."""
        return (
            _type_of(rule) in self.types
            and (not self.names or rule.name in self.names)
            and (
                not self.selectors
                or any(all(matcher.matches(rule.labels) for matcher in each) for each in self.selectors)
            )
        )


def rules(engine: Engine, params: Params) -> Json:
    """Return the data of `/api/v1/rules`; BadData if a parameter is wrong."""
    wanted = Filter.of(params)
    shown: list[Json] = []
    for group in _from_token(engine, wanted):
        found = [rule for rule in group.rules if wanted.takes_rule(rule)] if wanted.takes_group(group) else []
        if not found:
            continue
        if len(shown) == wanted.limit:
            return {"groups": shown, "groupNextToken": _token(group)}
        shown.append(_group(engine, group, [_rule(engine, rule, wanted) for rule in found]))
    return {"groups": shown}


def alerts(engine: Engine) -> Json:
    """Return the data of `/api/v1/alerts`: what is pending or firing."""
    return {"alerts": _alerts(engine.alerts())}


def buildinfo() -> Json:
    """Return the data of `/api/v1/status/buildinfo`, by which Grafana tells what kind of server it asks."""
    unknown = dict.fromkeys(("revision", "branch", "buildUser", "buildDate", "goVersion"), "")
    return {"version": metadata.version("ray-alert-engine"), **unknown}


def _sorted(engine: Engine) -> list[RuleGroup]:
    return sorted(engine.groups.values(), key=lambda group: (group.file, group.name))


def _from_token(engine: Engine, wanted: Filter) -> Iterator[RuleGroup]:
    """Yield the groups in Prometheus' order, from the one on at which the last page ended."""
    groups = _sorted(engine)
    tokens = [_token(group) for group in groups]
    if wanted.token and wanted.token not in tokens:
        message = f"invalid group_next_token '{wanted.token}'. were rule groups changed?"
        raise _bad("group_next_token", message)
    yield from groups[tokens.index(wanted.token) if wanted.token else 0 :]


def _token(group: RuleGroup) -> str:
    return hashlib.sha1(group.id.encode(), usedforsecurity=False).hexdigest()


def _group(engine: Engine, group: RuleGroup, shown: list[Json]) -> Json:
    return {
        "name": group.name,
        "file": group.file,
        "rules": shown,
        "interval": interval_of(group).total_seconds(),
        "limit": group.limit,
        "evaluationTime": sum(engine.status[rule.id].seconds for rule in group.rules),
        "lastEvaluation": rfc3339(engine.last_slot(group.id)),
    }


def _rule(engine: Engine, rule: Rule, wanted: Filter) -> Json:
    status = engine.status[rule.id]
    how = {
        "health": status.health.value,
        **({"lastError": status.error} if status.error else {}),
        "evaluationTime": status.seconds,
        "lastEvaluation": rfc3339(status.evaluated_at),
        "type": _type_of(rule),
    }
    what = {"name": rule.name, "query": canonical(rule.expr)}
    if not isinstance(rule, AlertingRule):
        labels = {"labels": _texts(rule.labels)} if rule.labels else {}
        return {**what, **labels, **how}
    states = {alert.state for alert in status.alerts}
    return {
        "state": next((state.value for state in _SEVERITY if state in states), "inactive"),
        **what,
        "duration": rule.hold.total_seconds(),
        "keepFiringFor": rule.keep_firing_for.total_seconds(),
        "labels": _texts(rule.labels),
        "annotations": _texts(rule.annotations),
        "alerts": None if wanted.exclude_alerts else _alerts(status.alerts),
        **how,
        "detect": detector.name_of(rule.detect),
    }


def _alerts(known: Iterable[Alert]) -> list[Json]:
    return [_alert(alert) for alert in known if alert.state is not AlertState.RESOLVED]


def _alert(alert: Alert) -> Json:
    kept = {"keepFiringSince": rfc3339(alert.keep_firing_since)} if alert.keep_firing_since else {}
    return {
        "labels": _texts(alert.labels),
        "annotations": _texts(alert.annotations),
        "state": alert.state.value,
        "activeAt": rfc3339(alert.active_at),
        **kept,
        "value": exponential(alert.value),
        "fingerprint": alert.fingerprint,
        "details": {name: exponential(value) for name, value in alert.details.items()},
    }


def _texts(pairs: Mapping[str, str]) -> dict[str, str]:
    return {name: pairs[name] for name in sorted(pairs)}


def _type_of(rule: Rule) -> str:
    return "alerting" if isinstance(rule, AlertingRule) else "recording"


# ── Parameters ───────────────────────────────────────────────────────────────


def _bad(name: str, reason: str) -> BadData:
    return BadData(f"invalid parameter {quote(name)}: {reason}")


def _first(params: Params, name: str) -> str:
    return next(iter(params.get(name, ())), "")


def _exclude_alerts(params: Params) -> bool:
    text = _first(params, "exclude_alerts").lower()
    if text and text not in _BOOLS:
        reason = f"error converting exclude_alerts: strconv.ParseBool: parsing {quote(text)}: invalid syntax"
        raise _bad("exclude_alerts", reason)
    return bool(text) and _BOOLS[text]


def _page(params: Params) -> tuple[int | None, str]:
    """Return how many groups are wanted at most, and the token of the page."""
    text, token = _first(params, "group_limit"), _first(params, "group_next_token")
    if not text:
        if token:
            reason = "group_limit needs to be present in order to paginate over the groups"
            raise _bad("group_next_token", reason)
        return None, ""
    number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else None
    if number is None or not -(2**31) <= number < 2**31:
        why = "invalid syntax" if number is None else "value out of range"
        reason = f"group_limit needs to be a valid number: strconv.ParseInt: parsing {quote(text)}: {why}"
        raise _bad("group_limit", reason)
    if number <= 0:
        raise _bad("group_limit", "group_limit needs to be greater than 0")
    return number, token


def _selector(text: str) -> tuple[LabelMatcher, ...]:
    try:
        node = parse(text)
    except ExpressionError as error:
        raise BadData(f"{error.line}:{error.column}: parse error: {error}") from None
    if not isinstance(node, Selector) or node.shift != Shift():
        raise BadData(f'match[] must be a series selector such as {{severity="page"}}, got {text}')
    return node.matchers

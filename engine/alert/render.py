"""Labels and annotations of alerts, from their templates.

As in Prometheus: templates see the labels of the query's result, not the rule's added ones; a template
that fails becomes text in its place; two results that end with the same labels are an error of the rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from engine.alert.tracker import Finding
from engine.errors import DetectError
from engine.lang.template import expand
from engine.model.labels import ALERT_NAME, Labels
from engine.model.rule import AlertingRule
from engine.model.verdict import Verdicts

_LABEL = re.compile(r"\{\{\s*(?:\$labels|\.Labels)\.[A-Za-z_]\w*\s*\}\}", re.ASCII)
_NOTHING: Mapping[str, Any] = {}

Query = Callable[[str], list[tuple[Labels, float]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What templates may know beside the alert itself."""

    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    query: Query | None = None
    now: float | None = None  # Unix seconds
    lazy: bool = False  # annotations are filled in once they are looked at


class LazyTexts(Mapping[str, str]):
    """Texts that are filled in when they are first looked at, as of the time they were made."""

    __slots__ = ("_fill", "_filled", "_texts")

    def __init__(self, texts: Mapping[str, str], fill: Callable[[str], str]) -> None:
        self._texts = texts
        self._fill = fill
        self._filled: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._filled:
            self._filled[name] = self._fill(self._texts[name])
        return self._filled[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def findings(rule: AlertingRule, verdicts: Verdicts, around: Surroundings) -> list[Finding]:
    """Return one finding a verdict; DetectError if two of them would be the same alert."""
    found = list(_findings(rule, verdicts, around))
    seen: set[Labels] = set()
    for finding in found:
        if finding.labels in seen:
            raise DetectError(
                f"{rule.origin}: {rule.alert}: two results have the same labels after the rule's are applied: "
                f"{finding.labels}; keep a label that tells them apart"
            )
        seen.add(finding.labels)
    return found


def _findings(rule: AlertingRule, verdicts: Verdicts, around: Surroundings) -> Iterator[Finding]:
    plain = all(_is_of_labels(text) for text in rule.labels.values())
    own = tuple(rule.labels.items())
    values, bads, knowns = verdicts.values.tolist(), verdicts.bad.tolist(), verdicts.known.tolist()
    for index, (result, value, bad, known) in enumerate(
        zip(verdicts.labels, values, bads, knowns, strict=True)
    ):
        if plain and not (bad and known):  # of ten thousand series nearly all are fine
            yield Finding(
                labels=_named(rule.alert, own, result),
                signal=result.unnamed,
                bad=False if known else None,
                value=value,
                details=_NOTHING,
                annotations=_NOTHING,
            )
        else:
            labels = _named(rule.alert, own, result) if plain else None
            yield _finding(rule, verdicts, index, around, labels)


def _finding(
    rule: AlertingRule, verdicts: Verdicts, index: int, around: Surroundings, labels: Labels | None
) -> Finding:
    """Return the finding on one series with all its texts; also its labels, if they are not known."""
    bad = bool(verdicts.bad[index]) if verdicts.known[index] else None
    result, value, details = verdicts.labels[index], float(verdicts.values[index]), verdicts.details_of(index)
    data = {
        "labels": result,
        "value": value,
        "detect": details,
        "externalLabels": around.external_labels,
        "externalURL": around.external_url,
    }

    def fill(text: str) -> str:
        return expand(text, data, query=around.query, now=around.now)

    return Finding(
        labels=labels or alert_labels(rule, result, fill),
        signal=result.unnamed,
        bad=bad,
        value=value,
        details=details,
        annotations=_annotations(rule, fill, around) if bad else {},
    )


@lru_cache(1 << 12)
def _is_of_labels(text: str) -> bool:
    """Tell whether what a template gives plainly follows from the series' labels alone."""
    return "{{" not in _LABEL.sub("", text)


@lru_cache(1 << 16)
def _named(alert: str, own: tuple[tuple[str, str], ...], result: Labels) -> Labels:
    """Return the alert's identity where it follows from the series' labels alone: the same at each evaluation."""
    texts = {name: expand(text, {"labels": result}) for name, text in own}
    return result.unnamed.updated(texts).updated({ALERT_NAME: alert})


def _annotations(rule: AlertingRule, fill: Callable[[str], str], around: Surroundings) -> Mapping[str, str]:
    # What a query answers may be another answer later on.
    if around.lazy and not any("query" in text for text in rule.annotations.values()):
        return LazyTexts(rule.annotations, fill)
    return {name: fill(text) for name, text in rule.annotations.items()}


def alert_labels(rule: AlertingRule, result: Labels, fill: Callable[[str], str]) -> Labels:
    """Return the alert's identity: the result's labels, the rule's over them, `alertname` over all."""
    own = {name: fill(text) for name, text in rule.labels.items()}
    return result.unnamed.updated(own).updated({ALERT_NAME: rule.alert})

"""What the tests of the lab share: a rule file with tests in it, lived through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from textwrap import dedent, indent
from typing import Any

from engine.lab.story import Story, live_through
from engine.lab.tester import Bench, Result, run_test
from engine.load.playbooks import read_playbook
from engine.load.rules import Loaded, read_rules
from engine.load.settings import read_settings
from engine.model.duration import Duration
from engine.model.playbook import Playbook
from engine.model.settings import Settings

MINUTE = timedelta(minutes=1)
HOT = """
groups:
  - name: g
    interval: 1m
    rules:
      - alert: Hot
        expr: temperature > 50
        for: 2m
        labels: {severity: page}
        annotations: {summary: "{{ $labels.room }} is at {{ $value }}"}
"""
FIRES_AT_3M = """
interval: 1m
input_series: [{series: 'temperature{room="a"}', values: "20 60x9"}]
"""


def loaded(rules: str, *tests: str) -> Loaded:
    """A rule file with its tests; each test is the body of one test group."""
    if tests:
        rules += "\ntests:\n" + "".join(f"  -\n{indent(dedent(test), '    ')}\n" for test in tests)
    problems: list[Any] = []
    found = read_rules("rules.yaml", rules.encode(), problems)
    assert problems == []
    return found


def settings_of(text: str = "") -> Settings:
    problems: list[Any] = []
    settings = read_settings("engine.yaml", text.encode(), problems)
    assert problems == []
    assert settings is not None
    return settings


def playbooks_of(*texts: str) -> dict[str, Playbook]:
    problems: list[Any] = []
    found = [read_playbook("playbooks/p.yaml", text.encode(), problems) for text in texts]
    assert problems == []
    return {playbook.name: playbook for playbook in found if playbook is not None}


def bench_of(
    rules: Loaded,
    *,
    own_intervals: bool = True,
    settings: str = "",
    playbooks: Mapping[str, Playbook] | None = None,
    **tolerances: float,
) -> Bench:
    return Bench(
        groups=rules.groups,
        settings=settings_of(settings),
        playbooks=playbooks or {},
        interval=Duration(minutes=1),
        own_intervals=own_intervals,
        **tolerances,
    )


def result_of(rules: str, test: str, **bench: Any) -> Result:
    """What becomes of one test group."""
    found = loaded(rules, test)
    (group,) = found.tests[0].tests
    return run_test(group, bench_of(found, **bench))


def failures(rules: str, test: str, **bench: Any) -> list[tuple[str, Sequence[str]]]:
    """What did not hold, and the words for it."""
    return [(failure.what, failure.lines) for failure in result_of(rules, test, **bench).failures]


def story_of(rules: str, test: str, *, own_intervals: bool = True, interval: timedelta = MINUTE) -> Story:
    found = loaded(rules, test)
    (group,) = found.tests[0].tests
    return live_through(
        group,
        found.groups,
        settings=settings_of(),
        playbooks={},
        interval=interval,
        own_intervals=own_intervals,
    )

"""What is noted of a story beside the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from engine.lab.report import Lives
from engine.lab.story import Story
from engine.lab.tester import Bench, Result, Witness, spans_of
from engine.lab.weakness import Rules, questions
from engine.model.testing import TestGroup


def lives(file: str, into: dict[tuple[str, str], Lives]) -> Witness:
    """Return a witness that notes when alerts were pending and when they fired."""

    def note(test: TestGroup, story: Story, result: Result) -> None:
        names = dict.fromkeys(it.alertname for it in questions(test))
        into[file, result.name] = {
            name: [
                {
                    "state": state.value,
                    "from": span.start.total_seconds(),
                    "to": None if span.end is None else span.end.total_seconds(),
                }
                for state, spans in spans_of(story, name, {}).items()
                for span in spans
            ]
            for name in names
        }

    return note


def charts(file: str, bench: Bench, into: dict[tuple[str, str], Sequence[str]], *, every: bool) -> Witness:
    """Return a witness that draws tests: all, or those that failed."""
    from engine.lab.charts import drawn  # noqa: PLC0415 - few ask

    def note(test: TestGroup, story: Story, result: Result) -> None:
        if every or result.failures:
            into[file, result.name] = list(drawn(test, story, Rules(bench.groups)))

    return note

"""`engine backtest`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from engine.cli import HELP
from engine.cli.history import (
    BACKEND,
    NOTHING,
    Instant,
    config_option,
    progress,
    prometheus_option,
    settings_of,
)
from engine.clock import Stopwatch, SystemClock
from engine.errors import EngineError, QueryUnavailable
from engine.flow.slots import interval_of
from engine.lab.availability import Availability, availability
from engine.lab.backtest import Course, Record, chosen, walk
from engine.lab.backtest_report import Backtest, Judged, Trial, as_json, lines
from engine.lab.fixture import Fixture
from engine.lab.hindsight import look_back
from engine.load.incidents import load_incidents
from engine.load.overrides import read_axes, variants
from engine.load.playbooks import load_playbooks
from engine.load.rules import load_rules
from engine.model.incident import Incident
from engine.model.ports import Source
from engine.model.rule import AlertingRule, RuleGroup
from engine.model.settings import Settings

MISSED = 1
_STYLES: dict[str, dict[str, object]] = {
    "bad": {"fg": "red"},
    "good": {"fg": "green"},
    "faint": {"dim": True},
    "bold": {"bold": True},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked for on the command line."""

    paths: tuple[str, ...]
    start: Callable[[datetime], datetime]
    end: Callable[[datetime], datetime]
    pattern: str | None
    sweep: tuple[str, ...]
    incidents: str | None
    fixture: str | None
    chart_dir: str | None
    format: str


@click.command("backtest", context_settings=HELP)
@click.argument("paths", nargs=-1, type=click.Path(exists=True), metavar="[RULES]...")
@click.option(
    "--from", "start", type=Instant(), default="-14d", show_default=True, help="The period's start."
)
@click.option("--to", "end", type=Instant(), default="now", show_default=True, help="The period's end.")
@click.option("-k", "pattern", metavar="REGEX", help="Only alerts whose name matches.")
@click.option(
    "--sweep",
    multiple=True,
    metavar="FIELD=VALUE,…",
    help="Try each value of a field of rules or detectors; several: all combinations.",
)
@click.option(
    "--incidents",
    type=click.Path(exists=True, dir_okay=False),
    help="What went wrong when: hits, misses and lead times are told.",
)
@click.option(
    "--save-fixture",
    "fixture",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Write the series around the alerts as a test for `engine test-rule`.",
)
@click.option(
    "--chart-dir", metavar="DIR", type=click.Path(file_okay=False), help="Write a PNG for each alert."
)
@click.option("--format", type=click.Choice(["text", "json"]), default="text", help="What is printed.")
@config_option
@prometheus_option
def command(config: str | None, prometheus: str | None, **options: object) -> None:
    """Run rules over a real Prometheus' history: what would have fired, and what that was worth.

    The engine itself evaluates, at the slots of `engine run`; nobody is told and nothing is done. RULES are files
    and folders (default: those of engine.yaml, else rules). Exit code: 0 done, 1 an incident was missed or
    a rule could not be evaluated, 2 a file or an option is wrong, 3 Prometheus does not answer, 5 there is
    no data at all.
    """
    wish = Wish(**options)  # type: ignore[arg-type]
    settings = settings_of(config, prometheus)
    try:
        found = _run(wish, settings)
    except QueryUnavailable as error:
        click.echo(f"engine: {error}", err=True)
        sys.exit(BACKEND)
    if wish.format == "json":
        click.echo(as_json(found))
    else:
        for style, text in lines(found):
            click.secho(text.rstrip(), **_STYLES.get(style, {}))  # type: ignore[arg-type]
    sys.exit(NOTHING if found.blind else MISSED if found.missed else 0)


def _run(wish: Wish, settings: Settings) -> Backtest:
    watch, now = Stopwatch(), SystemClock().now()
    start, end = wish.start(now), wish.end(now)
    if start >= end:
        raise EngineError(f"--from {start:%Y-%m-%d %H:%M} is not before --to {end:%Y-%m-%d %H:%M}")
    groups = _groups(wish, settings)
    sweep = list(variants(groups, axes)) if (axes := read_axes(wish.sweep)) else []
    incidents = load_incidents(wish.incidents) if wish.incidents else ()
    course = Course(
        settings=settings, playbooks=load_playbooks(settings.playbook_files), start=start, end=end
    )
    from engine.query.history import HistorySource  # noqa: PLC0415 - its clients are slow to import
    from engine.query.prometheus import PrometheusSource  # noqa: PLC0415

    with closing(PrometheusSource(settings.prometheus)) as source:
        fixture = Fixture(Path(wish.fixture), course, groups, source) if wish.fixture else None
        held = _held(groups, source, start, end)
        history = HistorySource(source, end, interval_of(groups[0]))
        with progress("evaluating", start, end) as show:
            records = walk(course, [groups, *(changed for _, changed in sweep)], history, show)
        base, *others = ([*each.values()] for each in records)
        notes = fixture.write(base) if fixture else []
        notes += _pictures(wish, base, source)
    judge = _Judge(held, incidents, end)
    return Backtest(
        where=settings.prometheus.url,
        start=start,
        end=end,
        base=Trial(values={}, rules=judge(base)),
        sweep=[
            Trial(values=values, rules=judge(each)) for (values, _), each in zip(sweep, others, strict=True)
        ],
        seconds=watch.seconds(),
        queries=history.queries,
        samples=history.samples,
        notes=notes,
    )


def _groups(wish: Wish, settings: Settings) -> list[RuleGroup]:
    paths = wish.paths or settings.rule_files or ("rules",)
    loaded = load_rules(paths, interval=settings.evaluation_interval)
    try:
        pattern = re.compile(wish.pattern or "")
    except re.error as error:
        raise click.BadParameter(f"{wish.pattern!r}: {error}", param_hint="-k") from None
    return chosen(loaded.groups, lambda name: pattern.search(name) is not None)


def _held(
    groups: Sequence[RuleGroup], source: Source, start: datetime, end: datetime
) -> dict[str, Availability]:
    """Return by rule id when there was data."""
    return {
        rule.id: availability(rule, source, start, end, interval_of(group))
        for group in groups
        for rule in group.rules
        if isinstance(rule, AlertingRule)
    }


@dataclass(frozen=True, slots=True)
class _Judge:
    """Says of records what they were worth."""

    held: dict[str, Availability]
    incidents: Sequence[Incident]
    end: datetime

    def __call__(self, records: Sequence[Record]) -> list[Judged]:
        """Judge the rules of one variant."""
        found = []
        for record in records:
            held = self.held[record.rule.id]
            found.append(Judged(record, held, look_back(record, self.incidents, held, self.end)))
        return found


def _pictures(wish: Wish, records: Sequence[Record], source: Source) -> list[str]:
    if not wish.chart_dir:
        return []
    from engine.lab.pictures import write_pictures  # noqa: PLC0415 - matplotlib is slow to import

    return [write_pictures(Path(wish.chart_dir), records, source)]

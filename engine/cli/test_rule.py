"""`engine test-rule`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import click

from engine.clock import Stopwatch
from engine.lab.report import FileResult, failed, lines
from engine.lab.tester import LAST_BIT, Bench, Result, run_test, warnings
from engine.load.playbooks import load_playbooks
from engine.load.rules import load_rules
from engine.load.settings import load_settings
from engine.model.playbook import Playbook
from engine.model.rule import RuleGroup
from engine.model.settings import Settings
from engine.model.testing import TestFile

FAILED, NOTHING = 1, 5
_COLOURS: Mapping[str, dict[str, object]] = {
    "bad": {"fg": "red"},
    "good": {"fg": "green"},
    "faint": {"dim": True},
}


@click.command("test-rule")
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@click.option("-k", "pattern", metavar="REGEX", help="Only tests whose name matches.")
@click.option("-x", "stop_at_first", is_flag=True, help="Stop at the first test that fails.")
@click.option("-v", "verbose", is_flag=True, help="Name the tests that pass, too.")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="engine.yaml with routes; else ./engine.yaml or ./deploy/engine.yaml.",
)
@click.option("--no-color", is_flag=True, help="Plain text, also on a terminal.")
def command(
    paths: tuple[str, ...],
    pattern: str | None,
    config: str | None,
    *,
    stop_at_first: bool,
    verbose: bool,
    no_color: bool,
) -> None:
    """Run the tests in rule files, test files or folders (default: rules).

    The tests run through the engine itself, on virtual time: what fires here fires there. Exit code: 0 all
    passed, 1 a test failed, 2 a file is wrong, 5 there was nothing to run.
    """
    watch = Stopwatch()
    try:
        wanted = re.compile(pattern) if pattern else None
    except re.error as error:
        raise click.BadParameter(f"{pattern!r}: {error}", param_hint="-k") from None
    settings = _settings(config)
    playbooks = load_playbooks(settings.playbook_files)
    files: list[FileResult] = []
    for file in _files(paths or ("rules",), settings):
        files.append(_run_file(file, settings, playbooks, wanted, stop_at_first=stop_at_first))
        if stop_at_first and failed(files):
            break
    if not any(file.results for file in files):
        click.echo(
            "no tests to run: no file has `tests:`" + (f" whose name matches {pattern!r}" if pattern else ""),
            err=True,
        )
        sys.exit(NOTHING)
    for style, text in lines(files, watch.seconds(), verbose=verbose):
        click.secho(text, color=False if no_color else None, **_COLOURS.get(style, {}))  # type: ignore[arg-type]
    sys.exit(FAILED if failed(files) else 0)


def _settings(config: str | None) -> Settings:
    """Return the settings to test with: routes and playbooks come from there."""
    found = next((path for path in ("engine.yaml", "deploy/engine.yaml") if Path(path).is_file()), None)
    return load_settings(config or found)


def _files(paths: Iterable[str], settings: Settings) -> tuple[TestFile, ...]:
    return load_rules(paths, interval=settings.evaluation_interval).tests


def _run_file(
    file: TestFile,
    settings: Settings,
    playbooks: Mapping[str, Playbook],
    wanted: re.Pattern[str] | None,
    *,
    stop_at_first: bool,
) -> FileResult:
    by_promtool = file.evaluation_interval is not None
    if by_promtool:  # which reads no engine.yaml
        settings = replace(settings, external_labels={}, external_url="")
    bench = Bench(
        groups=_ordered(file),
        settings=settings,
        playbooks=playbooks,
        interval=file.evaluation_interval or settings.evaluation_interval,
        own_intervals=not by_promtool,
        **_tolerances(file),
    )
    results: list[Result] = []
    said: list[str] = []
    for test in file.tests:
        if wanted is not None and not wanted.search(test.name):
            continue
        said += [f"{test.name or f'line {test.origin.line}'}: {text}" for text in warnings(test, bench)]
        results.append(run_test(test, bench))
        if stop_at_first and results[-1].failures:
            break
    return FileResult(file=file.file, results=tuple(results), warnings=tuple(said))


def _tolerances(file: TestFile) -> dict[str, float]:
    """Return how closely values are compared: in promtool's files as promtool does."""
    if file.evaluation_interval is None:
        return {}
    return {"float_tolerance": LAST_BIT if file.fuzzy_compare else 0.0, "text_tolerance": 0.0}


def _ordered(file: TestFile) -> tuple[RuleGroup, ...]:
    order = {name: place for place, name in enumerate(file.group_eval_order)}
    return tuple(sorted(file.groups, key=lambda group: order.get(group.name, len(order))))

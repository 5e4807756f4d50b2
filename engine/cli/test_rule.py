"""`engine test-rule`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from engine.cli import HELP
from engine.clock import Stopwatch
from engine.errors import QueryUnavailable
from engine.lab.files import Choice, FileResult, bench_of, find_tests, refuse_beyond, run_file
from engine.lab.report import Lives, Report, lines
from engine.lab.tester import Bench, OpenGround, Witness
from engine.load.playbooks import load_playbooks
from engine.load.rules import Loaded
from engine.load.settings import load_settings
from engine.model.playbook import Playbook
from engine.model.settings import Settings
from engine.model.testing import TestFile

FAILED, BACKEND, UNCOVERED, NOTHING = 1, 3, 4, 5
_COLOURS: Mapping[str, dict[str, Any]] = {
    "bad": {"fg": "red"},
    "good": {"fg": "green"},
    "faint": {"dim": True},
}


class Engine(click.ParamType):
    """Who answers PromQL: `embedded`, `prometheus` or `cross-check`, the last two with `=/path/to/prometheus`."""

    name = "engine"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        """Return the word and the path."""
        word, _, path = str(value).partition("=")
        if word not in ("embedded", "prometheus", "cross-check") or (word == "embedded" and path):
            self.fail(f"{value!r}: write embedded, prometheus[=PATH] or cross-check[=PATH]", param, ctx)
        return word, path or None

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "WHO"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What was asked for on the command line, beside the files."""

    pattern: re.Pattern[str] | None
    stop_at_first: bool
    verbose: bool
    no_color: bool
    format: str
    junit: str | None
    json: str | None
    coverage: bool
    min_coverage: float | None
    update: bool
    chart: str | None
    chart_dir: str | None
    engine: tuple[str, str | None]
    mutate: bool


@click.command("test-rule", context_settings=HELP)
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@click.option("-k", "pattern", metavar="REGEX", help="Only tests whose name matches.")
@click.option("-x", "stop_at_first", is_flag=True, help="Stop at the first test that fails.")
@click.option("-v", "verbose", is_flag=True, help="Name the tests that pass, too.")
@click.option(
    "--format", type=click.Choice(["text", "json", "junit"]), default="text", help="What is printed."
)
@click.option("--json", metavar="FILE", type=click.Path(dir_okay=False), help="Write the report as JSON.")
@click.option(
    "--junit", metavar="FILE", type=click.Path(dir_okay=False), help="Write the report as JUnit's XML."
)
@click.option("--coverage", is_flag=True, help="Say which rules no test makes fire, or keeps quiet.")
@click.option("--min-coverage", metavar="PERCENT", type=click.FloatRange(0, 100), help="Exit 4 below that.")
@click.option("--mutate", is_flag=True, help="Make each rule wrong, and say what no test notices.")
@click.option("--update", is_flag=True, help="Write down the alerts there were as those expected.")
@click.option(
    "--chart",
    is_flag=False,
    flag_value="failed",
    type=click.Choice(["failed", "all"]),
    help="Draw what alerts saw.",
)
@click.option(
    "--chart-dir", metavar="DIR", type=click.Path(file_okay=False), help="Write a PNG for each test."
)
@click.option(
    "--engine",
    type=Engine(),
    default="embedded",
    show_default="embedded",
    help="Who answers PromQL: embedded, prometheus[=PATH] or cross-check[=PATH].",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="engine.yaml with routes; else ./engine.yaml or ./deploy/engine.yaml.",
)
@click.option("--no-color", is_flag=True, help="Plain text, also on a terminal.")
def command(paths: tuple[str, ...], config: str | None, **options: Any) -> None:
    """Run the tests in rule files, test files or folders (default: rules).

    The tests run through the engine itself, on virtual time: what fires here fires there. Exit code: 0 all
    passed, 1 a test failed, 2 a file is wrong or its PromQL cannot be answered, 3 there is no server or it
    differs, 4 too little is covered, 5 there was nothing to run.
    """
    watch = Stopwatch()
    wish = Wish(**{**options, "pattern": _pattern(options["pattern"])})
    settings = _settings(config)
    found = find_tests(paths or ("rules",), settings)
    session = Session(wish, settings, load_playbooks(settings.playbook_files), watch)
    try:
        if wish.update:
            session.update(found)
            found = find_tests(paths or ("rules",), settings)
        report = session.report(found)
    except QueryUnavailable as error:
        click.echo(f"engine: {error}", err=True)
        sys.exit(BACKEND)
    if not report.results:
        named = f" whose name matches {wish.pattern.pattern!r}" if wish.pattern else ""
        click.echo(f"no tests to run: no file has `tests:`{named}", err=True)
        sys.exit(NOTHING)
    _show(report, wish)
    sys.exit(_exit_code(report, wish))


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="-k") from None


def _settings(config: str | None) -> Settings:
    """Return the settings to test with: routes and playbooks come from there."""
    found = next((path for path in ("engine.yaml", "deploy/engine.yaml") if Path(path).is_file()), None)
    return load_settings(config or found)


@dataclass(slots=True)
class Session:
    """Runs the tests of files as was wished."""

    wish: Wish
    settings: Settings
    playbooks: Mapping[str, Playbook]
    watch: Stopwatch
    differences: list[str] = field(default_factory=list)
    charts: dict[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    lives: dict[tuple[str, str], Lives] = field(default_factory=dict)

    def report(self, found: Loaded) -> Report:
        """Run the tests and say what came of them. QueryUnavailable if there is no server where one is wanted."""
        self._refuse(found)
        results: list[tuple[TestFile, FileResult]] = []
        for file in found.tests:
            bench = self._bench(file)
            result = run_file(file, bench, self._choice(self._witnesses(file, bench)))
            if result.results:
                results.append((file, result))
            if self.wish.stop_at_first and result.failed:
                break
        return Report(
            files=[result for _, result in results],
            coverage=self._coverage(found, results),
            mutation=self._mutation(found),
            differences=self.differences if self.wish.engine[0] == "cross-check" else None,
            charts=self.charts,
            lives=self.lives,
            seconds=self.watch.seconds(),
        )

    def update(self, found: Loaded) -> None:
        """Write down what alerts there were, after showing the difference."""
        from engine.lab import update  # noqa: PLC0415 - few ask

        self._refuse(found)
        for file in found.tests:
            updates = update.Updates(annotated=file.evaluation_interval is not None)
            run_file(file, self._bench(file), self._choice([updates]))
            for text in updates.left:
                click.echo(text, err=True)
            before = Path(file.file).read_text(encoding="utf-8")
            after = update.updated(before, updates.changes)
            if after != before:
                for line in update.diff(file.file, before, after):
                    click.echo(line)
                update.write(file.file, after)

    def _refuse(self, found: Loaded) -> None:
        if self.wish.engine[0] != "prometheus":
            refuse_beyond(found.tests, self._choice())

    def _choice(self, witnesses: Sequence[Witness] = ()) -> Choice:
        return Choice(wanted=self.wish.pattern, stop_at_first=self.wish.stop_at_first, witnesses=witnesses)

    def _bench(self, file: TestFile) -> Bench:
        real = self.wish.engine[0] == "prometheus"
        return bench_of(file, self.settings, self.playbooks, self._server() if real else None)

    def _server(self) -> OpenGround:
        from engine.lab.server import on_server  # noqa: PLC0415 - its clients are slow to import
        from engine.query.managed import find_program  # noqa: PLC0415

        return on_server(find_program(self.wish.engine[1]))

    def _witnesses(self, file: TestFile, bench: Bench) -> list[Witness]:
        from engine.lab.witnesses import charts, lives  # noqa: PLC0415

        found: list[Witness] = []
        if self.wish.engine[0] == "cross-check":
            from engine.lab.crosscheck import CrossCheck  # noqa: PLC0415

            found.append(CrossCheck(file.file, bench, self._server(), self.differences))
        if self.wish.chart:
            found.append(charts(file.file, bench, self.charts, every=self.wish.chart == "all"))
        if self.wish.chart_dir:
            from engine.lab.charts import picture_writer  # noqa: PLC0415

            found.append(picture_writer(Path(self.wish.chart_dir), bench))
        if self.wish.json or self.wish.format == "json":
            found.append(lives(file.file, self.lives))
        return found

    def _coverage(self, found: Loaded, results: Sequence[tuple[TestFile, FileResult]]) -> Any:
        if not self.wish.coverage and self.wish.min_coverage is None:
            return None
        from engine.lab.coverage import measure  # noqa: PLC0415 - few ask

        return measure(found.groups, results)

    def _mutation(self, found: Loaded) -> Any:
        if not self.wish.mutate:
            return None
        from engine.lab.mutation import mutate  # noqa: PLC0415 - few ask

        return mutate((self._bench(file), list(self._choice().tests(file))) for file in found.tests)


def _show(report: Report, wish: Wish) -> None:
    """Print the report, and write it where it is wanted."""
    if wish.format != "text" or wish.json or wish.junit:
        from engine.lab.formats import as_json, as_junit  # noqa: PLC0415 - few ask

        for path, render in ((wish.json, as_json), (wish.junit, as_junit)):
            if path:
                Path(path).write_text(render(report), encoding="utf-8")
        if wish.format != "text":
            click.echo(as_json(report) if wish.format == "json" else as_junit(report).rstrip("\n"))
            return
    for style, text in lines(report, verbose=wish.verbose):
        click.secho(text, color=False if wish.no_color else None, **_COLOURS.get(style, {}))


def _exit_code(report: Report, wish: Wish) -> int:
    if report.differences:
        return BACKEND
    survived = (
        report.mutation is not None and bool(report.mutation.survivors) and wish.min_coverage is not None
    )
    if report.failed or survived:
        return FAILED
    if (
        wish.min_coverage is not None
        and report.coverage is not None
        and report.coverage.percent < wish.min_coverage
    ):
        return UNCOVERED
    return 0

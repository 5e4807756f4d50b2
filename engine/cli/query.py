"""`engine query`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime

import click

from engine.cli import HELP
from engine.cli.history import BACKEND, NOTHING, Instant, config_option, prometheus_option, settings_of
from engine.cli.state import open_state
from engine.clock import SystemClock
from engine.errors import EngineError, QueryUnavailable
from engine.lab.backtest import Course
from engine.lab.insight import Insight, find_rule, look
from engine.lab.insight_report import as_json, lines
from engine.load.rules import load_rules
from engine.model.duration import Duration
from engine.model.ports import Store
from engine.model.settings import Settings


class Length(click.ParamType):
    """A length of time, such as `6h`."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Duration:
        """Return it."""
        try:
            return Duration.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "DURATION"


@click.command("query", context_settings=HELP)
@click.argument("rule")
@click.argument("paths", nargs=-1, type=click.Path(exists=True), metavar="[FILES]...")
@click.option("--at", type=Instant(), default="now", show_default=True, help="The instant to look at.")
@click.option(
    "--warm-up",
    type=Length(),
    default="6h",
    show_default=True,
    help="How long before it evaluation begins, if no running engine's state is there.",
)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Series that are shown.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="What is printed."
)
@config_option
@prometheus_option
def command(
    rule: str,
    paths: tuple[str, ...],
    at: Callable[[datetime], datetime],
    warm_up: Duration,
    limit: int,
    form: str,
    config: str | None,
    prometheus: str | None,
) -> None:
    """Print what RULE, an alert's name, sees and thinks of each series now, and why it does not fire.

    FILES are rule files and folders (default: those of engine.yaml, else rules). The state of the engine that runs
    with --config is gone on with; else the rule is evaluated over the last hours. Nobody is told. Exit
    code: 0 done, 2 a file or an option is wrong, 3 Prometheus does not answer, 5 there is no series.
    """
    settings = settings_of(config, prometheus)
    now = SystemClock().now()
    end = at(now)
    groups = load_rules(
        paths or settings.rule_files or ("rules",), interval=settings.evaluation_interval
    ).groups
    wanted = find_rule(groups, rule)
    course = Course(settings=settings, playbooks={}, start=end - warm_up, end=end)
    from engine.query.prometheus import PrometheusSource  # noqa: PLC0415 - its clients are slow to import

    try:
        with closing(PrometheusSource(settings.prometheus)) as source, _state(config, settings) as state:
            found = look(wanted, groups, course, source, state)
    except QueryUnavailable as error:
        click.echo(f"engine: {error}", err=True)
        sys.exit(BACKEND)
    _show(found, form, limit)
    sys.exit(0 if found.rows or found.error else NOTHING)


def _show(found: Insight, form: str, limit: int) -> None:
    if form == "json":
        click.echo(as_json(found))
        return
    for line in lines(found, limit):
        click.echo(line.rstrip())


@contextmanager
def _state(config: str | None, settings: Settings) -> Iterator[Store | None]:
    """Yield the state of the engine that runs with these settings; None if there is none."""
    if config is None or not settings.state.url:
        yield None
        return
    try:
        store = open_state(config)
    except EngineError:
        yield None
        return
    with closing(store):
        yield store

"""What commands that look at a real Prometheus' history share: when, where, and how far they have come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from engine.errors import EngineError
from engine.load.incidents import read_instant
from engine.load.settings import load_settings
from engine.model.duration import Duration
from engine.model.settings import PrometheusSettings, Settings

MOST_SAMPLES = 2_000_000
"""Of one answer; the chunks that are asked for bring far less."""

BACKEND, NOTHING = 3, 5

prometheus_option = click.option(
    "--prometheus", metavar="URL", help="The server to ask; else that of engine.yaml."
)
config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="engine.yaml; else ./engine.yaml or ./deploy/engine.yaml.",
)


class Instant(click.ParamType):
    """An instant: `now`, a length of time before now such as `-14d`, RFC 3339, or Unix seconds."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Callable[[datetime], datetime]:
        """Return what says the instant, once it is known when now is."""
        text = str(value).strip()
        try:
            if text == "now":
                return lambda now: now
            if text.startswith("-"):
                before = Duration.parse(text[1:])
                return lambda now: now - before
            at = read_instant(text)
        except ValueError:
            self.fail(f"{value!r}: write now, -14d, 2026-03-01T12:00:00Z or Unix seconds", param, ctx)
        return lambda _now: at

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "TIME"


def settings_of(config: str | None, prometheus: str | None) -> Settings:
    """Return the settings to look at history with."""
    found = next((path for path in ("engine.yaml", "deploy/engine.yaml") if Path(path).is_file()), None)
    settings = load_settings(config or found)
    before = settings.prometheus if prometheus is None else PrometheusSettings(url=prometheus)
    if prometheus is not None and "://" not in prometheus:
        raise EngineError(f"--prometheus {prometheus}: write the whole address, such as http://{prometheus}")
    asked = replace(before, max_samples=max(before.max_samples, MOST_SAMPLES))
    return replace(settings, prometheus=asked)


@contextmanager
def progress(what: str, start: datetime, end: datetime) -> Iterator[Callable[[datetime], None]]:
    """Show how far something has come from `start` to `end`, on stderr, if somebody is looking."""
    if not sys.stderr.isatty():
        yield lambda _at: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import, and few look
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    words = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[at]}"),
        TimeRemainingColumn(),
    )
    with Progress(*words, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=(end - start).total_seconds(), at="")

        def show(at: datetime) -> None:
            bar.update(task, completed=(at - start).total_seconds(), at=f"{at:%Y-%m-%d %H:%M}")

        yield show

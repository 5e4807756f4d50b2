"""`engine run`."""

from __future__ import annotations

import sys

import click

from engine.cli import HELP
from engine.errors import LoadError
from engine.serve.log import log_to_stderr
from engine.serve.service import Service

LAST_PORT = 65535


@click.command("run", context_settings=HELP)
@click.option("--config", "config", type=click.Path(exists=True, dir_okay=False), help="engine.yaml")
@click.option(
    "--listen", default="0.0.0.0:9109", show_default=True, help="HOST:PORT of health, metrics and reload."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(config: str | None, listen: str, log_format: str, log_level: str) -> None:
    """Watch the clusters: evaluate rules, tell people, heal what may be healed."""
    log_to_stderr(log_format, log_level)
    host, _, port = listen.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= LAST_PORT):
        raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
    try:
        Service(config, host=host.strip("[]"), port=int(port)).run()
    except LoadError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        click.echo(f"engine: {len(error.problems)} problem(s); not started. Try: engine check", err=True)
        sys.exit(2)

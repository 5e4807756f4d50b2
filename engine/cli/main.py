"""The command `engine`."""

from __future__ import annotations

import importlib
import sys

import click

from engine.cli import HELP
from engine.errors import EngineError, LoadError

_COMMANDS = {
    "run": ("engine.cli.run", "Watch the clusters: the service itself."),
    "test-rule": ("engine.cli.test_rule", "Run the tests of rule files."),
    "backtest": ("engine.cli.backtest", "Run rules over the history of a real Prometheus."),
    "query": ("engine.cli.query", "Print what a rule sees and thinks now."),
    "check": ("engine.cli.check", "Check rules, playbooks and settings without running anything."),
    "playbook": ("engine.cli.playbook", "See, approve and reject remediation runs."),
    "explain": ("engine.cli.explain", "Print every decision about an alert, with its reason."),
}


class Lazy(click.Group):
    """Subcommands that are imported when called, so that each starts as fast as it can."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(_COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=Lazy, context_settings=HELP)
@click.version_option(package_name="ray-alert-engine", prog_name="engine")
def cli() -> None:
    """Alerting and auto-remediation for Ray clusters."""


def main() -> None:
    """Run the command; the engine's own errors become one line each and exit code 2, never a traceback."""
    try:
        cli(prog_name="engine")
    except LoadError as error:
        for problem in error.problems:
            click.echo(str(problem), err=True)
        sys.exit(2)
    except EngineError as error:
        click.echo(f"engine: {error}", err=True)
        sys.exit(2)

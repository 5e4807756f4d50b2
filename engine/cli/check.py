"""`engine check`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from engine.check.files import Checked, check_files
from engine.cli import HELP
from engine.load.settings import load_settings


@click.command("check", context_settings=HELP)
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="engine.yaml to hold receivers' names against.",
)
def command(paths: tuple[str, ...], config: str | None) -> None:
    """Check rule files, test files, playbooks and settings (default: rules and playbooks).

    Prints every problem as file:line:column. Exit code: 0 nothing found, or advice only; 1 something found.
    """
    settings = load_settings(config) if config else None
    usual = [name for name in ("rules", "playbooks") if Path(name).is_dir()]
    checked = check_files(paths or usual or ["rules"], settings=settings)
    for problem in checked.problems:
        click.echo(str(problem))
    if checked.problems:
        sys.exit(1)
    for advice in checked.advice:
        click.echo(f"{advice} (advice)")
    click.echo(_summary(checked))


def _summary(checked: Checked) -> str:
    kinds = Counter(kind.value for kind in checked.files.values())
    rules = sum(len(group.rules) for group in checked.groups)
    parts = [
        f"{count} {kind}{'' if count == 1 or kind.endswith('s') else 's'}"
        for kind, count in sorted(kinds.items())
    ]
    return f"ok: {', '.join(parts) or 'no files'}; {rules} rule{'' if rules == 1 else 's'}"

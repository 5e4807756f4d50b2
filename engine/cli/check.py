"""`engine check`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import click

from engine.check.files import Checked, check_files
from engine.check.output import FORMATS, as_github, as_json, as_sarif, as_text
from engine.check.run import Finding
from engine.check.subject import Severity
from engine.cli import HELP
from engine.clock import SystemClock
from engine.load.settings import load_settings
from engine.ray.contract import version_number


def _version(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
    try:
        if value:
            version_number(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no version such as 2.60") from None
    return value or ""


@click.command("check", context_settings=HELP)
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="engine.yaml to hold receivers' names against.",
)
@click.option(
    "--ray-version",
    callback=_version,
    metavar="VERSION",
    help="The Ray that rules are held against (default: `ray.version` in engine.yaml, else the newest known).",
)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--advice", is_flag=True, help="Print advice too, not only errors and warnings.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="What makes the exit code 1.",
)
def command(
    paths: tuple[str, ...], config: str | None, ray_version: str, form: str, advice: bool, fail_on: str
) -> None:
    """Check rule files, test files, playbooks and settings (default: rules and playbooks).

    Prints every problem as file:line:column, and for what Ray or PromQL would make of it the line with a mark.
    Exit code: 0 nothing found, 1 something found; warnings count with --fail-on warning, advice never.
    """
    settings = load_settings(config) if config else None
    usual = [name for name in ("rules", "playbooks") if Path(name).is_dir()]
    today = _today()
    checked = check_files(
        paths or usual or ["rules"], today=today, settings=settings, ray_version=ray_version
    )
    shown = [each for each in checked.findings if advice or each.severity is not Severity.ADVICE]
    _print(checked, shown, form)
    worst = Severity.WARNING if fail_on == "warning" else Severity.ERROR
    if checked.problems or any(each.severity.value >= worst.value for each in checked.findings):
        sys.exit(1)


def _today() -> date:
    return SystemClock().now().date()


def _print(checked: Checked, shown: Sequence[Finding], form: str) -> None:
    if form == "json":
        click.echo(as_json(checked.problems, shown))
    elif form == "sarif":
        click.echo(as_sarif(checked.problems, shown))
    elif form == "github":
        for line in as_github(checked.problems, shown):
            click.echo(line)
    else:
        _print_text(checked, shown)


def _print_text(checked: Checked, shown: Sequence[Finding]) -> None:
    for problem in checked.problems:
        click.echo(str(problem))
    for finding in shown:
        for line in as_text(finding):
            click.echo(line)
    counts = Counter(each.severity for each in checked.findings)
    found = [_counted(counts[each], str(each)) for each in (Severity.ERROR, Severity.WARNING) if counts[each]]
    if not checked.problems and not counts[Severity.ERROR]:
        click.echo(_summary(checked) + "".join(f", {each}" for each in found) + _hidden(counts, shown))
    elif found:
        click.echo(f"found: {', '.join(found)}{_hidden(counts, shown)}")


def _hidden(counts: Counter[Severity], shown: Sequence[Finding]) -> str:
    hidden = sum(counts.values()) - len(shown)
    return f" ({hidden} more with --advice)" if hidden else ""


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _summary(checked: Checked) -> str:
    kinds = Counter(kind.value for kind in checked.files.values())
    rules = sum(len(group.rules) for group in checked.groups)
    parts = [
        f"{count} {kind}{'' if count == 1 or kind.endswith('s') else 's'}"
        for kind, count in sorted(kinds.items())
    ]
    return f"ok: {', '.join(parts) or 'no files'}; {_counted(rules, 'rule')}"

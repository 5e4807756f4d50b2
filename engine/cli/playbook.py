"""`engine playbook`: the runs in the store, and a person's answer to those that wait."""

from __future__ import annotations

import getpass

import click

from engine.cli import HELP
from engine.cli.state import config_option, open_state
from engine.clock import SystemClock
from engine.errors import EngineError
from engine.model.playbook import Run, RunState
from engine.model.ports import Store

_by = click.option("--by", default=getpass.getuser, show_default="you", help="Who answers; goes on record.")


@click.group("playbook", context_settings=HELP)
def command() -> None:
    """See, approve and reject remediation runs."""


@command.command("list", context_settings=HELP)
@config_option
def list_(config: str | None) -> None:
    """Print the runs, newest first."""
    store = open_state(config)
    runs = store.runs()
    for run in runs:
        click.echo(
            f"{run.id}  {run.created_at:%Y-%m-%d %H:%M:%S}  {run.state:12}  {run.playbook}  {run.target}  {run.reason}"
        )
    if not runs:
        click.echo("no runs")
    store.close()


@command.command(context_settings=HELP)
@click.argument("run_id")
@config_option
def show(run_id: str, config: str | None) -> None:
    """Print one run: its plan, its calls and their answers."""
    store = open_state(config)
    click.echo("\n".join(_lines(_find(store, run_id))))
    store.close()


@command.command(context_settings=HELP)
@click.argument("run_id")
@_by
@config_option
def approve(run_id: str, by: str, config: str | None) -> None:
    """Let a waiting run go on. What was shown is what runs."""
    _answer(run_id, config, by=by, yes=True)


@command.command(context_settings=HELP)
@click.argument("run_id")
@_by
@config_option
def reject(run_id: str, by: str, config: str | None) -> None:
    """Refuse a waiting run."""
    _answer(run_id, config, by=by, yes=False)


def _answer(run_id: str, config: str | None, *, by: str, yes: bool) -> None:
    store = open_state(config)
    run = _find(store, run_id)
    if run.state is not RunState.WAITING:
        raise EngineError(f"run {run_id} is {run.state}, not waiting for an answer: {run.reason}")
    now = SystemClock().now()
    if run.approve_until is not None and now >= run.approve_until:
        raise EngineError(
            f"run {run_id} could be answered only until {run.approve_until:%Y-%m-%d %H:%M:%S} UTC"
        )
    store.decide(run_id, approve=yes, by=by, at=now)
    decision = store.decision(run_id)
    store.close()
    if decision != (yes, by):
        word = "approved" if decision and decision[0] else "rejected"
        raise EngineError(f"run {run_id} was already {word} by {decision[1] if decision else 'somebody'}")
    click.echo(f"{'approved' if yes else 'rejected'}: {run.playbook} on {run.target}")


def _find(store: Store, run_id: str) -> Run:
    run = store.run(run_id)
    if run is None:
        raise EngineError(f"no run has the id {run_id!r}; see: engine playbook list")
    return run


def _lines(run: Run) -> list[str]:
    lines = [
        f"run        {run.id}",
        f"playbook   {run.playbook} on {run.target}, mode {run.mode}",
        f"alert      {run.labels}",
        f"state      {run.state}: {run.reason}",
        f"planned    {run.created_at:%Y-%m-%d %H:%M:%S} UTC",
    ]
    if run.approved_by:
        lines.append(f"approved   by {run.approved_by}")
    for number, step in enumerate(run.steps, 1):
        lines.append(f"step {number}     {step.name}: {step.state}")
        lines.append(
            f"           would {step.description}" if not step.attempt else f"           {step.description}"
        )
        if step.key:
            lines.append(f"           attempt {step.attempt} of {step.attempts}, key {step.key}")
        if step.message:
            lines.append(f"           {step.message}")
    return lines

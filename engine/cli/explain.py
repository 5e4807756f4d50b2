"""`engine explain`: every decision about an alert or a run, in order, with its reason."""

from __future__ import annotations

import click

from engine.cli.state import config_option, open_state
from engine.model.event import Event


@click.command("explain")
@click.argument("what")
@config_option
@click.option("--limit", default=200, show_default=True, help="At most so many events, the newest.")
def command(what: str, config: str | None, limit: int) -> None:
    """Print every decision about WHAT: an alert's name or fingerprint, a rule's id, or a run's id."""
    store = open_state(config)
    events = store.events(subject=what, limit=limit) or [
        event
        for event in store.events(limit=100_000)
        if what in (event.data.get("alert"), event.data.get("fingerprint"))
    ]
    store.close()
    for event in events[-limit:]:
        click.echo(_line(event))
    if not events:
        click.echo(f"nothing is on record about {what!r}", err=True)
        raise SystemExit(1)


def _line(event: Event) -> str:
    data = event.data
    detail = {
        "transition": f"{data.get('alert')} {data.get('before')} → {data.get('after')} {data.get('labels', '')}",
        "notified": f"to {data.get('receiver')} ({data.get('integration')}), {data.get('state', '')}",
        "notification_failed": f"to {data.get('receiver')} ({data.get('integration')})",
        "run": f"{data.get('playbook')} {data.get('state', '')}",
    }.get(event.kind.value, "")
    return f"{event.at:%Y-%m-%d %H:%M:%S}  {event.kind.value:20}  {event.subject}  {detail}: {event.reason}"

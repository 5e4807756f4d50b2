"""`engine explain`: every decision about an alert or a run, in order, with its reason."""

from __future__ import annotations

from collections.abc import Sequence

import click

from engine.cli import HELP
from engine.cli.state import config_option, open_state
from engine.model.event import Event, Kind
from engine.store.memory import KEPT_EVENTS


@click.command("explain", context_settings=HELP)
@click.argument("what")
@config_option
@click.option("--limit", default=200, show_default=True, help="At most so many events, the newest.")
def command(what: str, config: str | None, limit: int) -> None:
    """Print every decision about WHAT: an alert's name or fingerprint, a rule's id, or a run's id."""
    store = open_state(config)
    events = _about(what, store.events(limit=KEPT_EVENTS))
    store.close()
    for event in events[-limit:]:
        click.echo(_line(event))
    if not events:
        click.echo(f"nothing is on record about {what!r}", err=True)
        raise SystemExit(1)


def _about(what: str, events: Sequence[Event]) -> list[Event]:
    """Return the events of a subject; an alert's are those of its name's fingerprints, and of its runs."""
    alerts = {what} | {e.subject for e in events if e.kind is Kind.TRANSITION and e.data["alert"] == what}
    subjects = alerts | {e.subject for e in events if e.data.get("fingerprint") in alerts}
    return [e for e in events if e.subject in subjects or e.data.get("alert") in alerts]


def _line(event: Event) -> str:
    data = event.data
    detail = {
        "transition": f"{data.get('alert')} {data.get('before')} → {data.get('after')} {data.get('labels', '')}",
        "notified": f"to {data.get('receiver')} ({data.get('integration')}), {data.get('state', '')}",
        "notification_failed": f"to {data.get('receiver')} ({data.get('integration')})",
        "run": f"{data.get('playbook')} {data.get('state', '')}",
    }.get(event.kind.value, "")
    said = f"{detail}: {event.reason}" if detail else event.reason
    return f"{event.at:%Y-%m-%d %H:%M:%S}  {event.kind.value:20}  {event.subject}  {said}"

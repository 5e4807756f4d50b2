"""The state that a running engine keeps, for commands that look at it or answer in it."""

from __future__ import annotations

from pathlib import Path

import click

from engine.errors import EngineError
from engine.load.settings import load_settings
from engine.model.ports import Store
from engine.store.sql import open_store

config_option = click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="engine.yaml, which says where state is kept.",
)


def open_state(config: str | None) -> Store:
    """Return the state of the engine that runs with these settings; EngineError if there is none."""
    url = load_settings(config).state.url
    path = url.removeprefix("sqlite:///")
    if path != url and not Path(path).exists():
        raise EngineError(
            f"no state in {path}: has this engine run? Say with --config which engine.yaml it runs with"
        )
    return open_store(url)

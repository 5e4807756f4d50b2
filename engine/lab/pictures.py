"""A picture for each alert of the past, as people would have got it with the alert."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from engine.enrich.graph import Graph
from engine.errors import EngineError, QueryUnavailable
from engine.lab.backtest import Episode, Record
from engine.lang.readable import plural
from engine.model.alert import Picture
from engine.model.duration import Duration
from engine.model.ports import Scene, Source

MOST = 200
"""So many pictures are drawn at most: each takes half a second."""

_NO_NAME = re.compile(r"[^\w.-]+")


def write_pictures(folder: Path, records: Sequence[Record], source: Source) -> str:
    """Write a PNG for each alert, as of when it began to fire; return what to tell of it."""
    wanted = [(record, episode) for record in records for episode in record.episodes]
    count = 0
    for record, episode in wanted[:MOST]:
        picture = _picture(record, episode, source)
        if picture is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _name(episode)).write_bytes(picture.png)
            count += 1
    words = f"wrote {plural(count, 'picture')} to {folder}"
    return words if len(wanted) <= MOST else f"{words}; {len(wanted) - MOST} further alerts have none"


def _name(episode: Episode) -> str:
    alert = episode.alert
    return _NO_NAME.sub("-", f"{alert.name}-{episode.since:%Y%m%dT%H%M%S}-{alert.fingerprint[:8]}") + ".png"


def _picture(record: Record, episode: Episode, source: Source) -> Picture | None:
    """Return what the enricher `graph` draws, as the rule configures it; else of twice what its detector sees."""
    rule = record.rule
    own = next((each for each in rule.enrich if isinstance(each, Graph)), None)
    graph = own or Graph(range=max(Duration(hours=1), Duration.of(2 * rule.detect.lookback)))
    scene = Scene(alert=episode.alert, rule=rule, at=episode.since, source=source, ray=None)
    try:
        evidence = graph.collect(scene)
    except QueryUnavailable:
        raise
    except EngineError:
        return None
    return evidence if isinstance(evidence, Picture) else None

"""Alerts of the past held against what people remember: hits, misses, false alarms, and how early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from engine.lab.availability import Availability
from engine.lab.backtest import Episode, Record
from engine.model.incident import Incident

_JUDGEABLE = 0.5  # of the time in which an alert would have counted must have data


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one incident. `episode` is the first alert that saw it; `judged` is false without data."""

    incident: Incident
    episode: Episode | None
    judged: bool

    @property
    def lead(self) -> timedelta | None:
        """How long before the incident the alert began to fire; negative if after."""
        return None if self.episode is None else self.incident.start - self.episode.since


@dataclass(frozen=True, slots=True)
class Hindsight:
    """A rule and all incidents that concern it."""

    outcomes: tuple[Outcome, ...]
    false_alarms: tuple[Episode, ...]

    @property
    def hits(self) -> list[Outcome]:
        """Incidents that were seen."""
        return [each for each in self.outcomes if each.episode is not None]

    @property
    def misses(self) -> list[Outcome]:
        """Incidents that were not, though there was data."""
        return [each for each in self.outcomes if each.episode is None and each.judged]

    @property
    def unjudged(self) -> list[Outcome]:
        """Incidents of which nobody can say."""
        return [each for each in self.outcomes if each.episode is None and not each.judged]

    @property
    def lead(self) -> timedelta | None:
        """The median lead time of the hits."""
        leads = [each.lead.total_seconds() for each in self.hits if each.lead is not None]
        return timedelta(seconds=median(leads)) if leads else None


def look_back(
    record: Record, incidents: Sequence[Incident], held: Availability, end: datetime
) -> Hindsight | None:
    """Return what a rule made of the incidents that concern it; None if none does."""
    mine = [each for each in incidents if each.concerns(record.rule.alert)]
    if not mine:
        return None
    seen: set[int] = set()
    outcomes = []
    for incident in mine:
        fitting = [
            place
            for place, episode in enumerate(record.episodes)
            if incident.fits(episode.alert.labels) and incident.overlaps(episode.since, episode.end(end))
        ]
        seen.update(fitting)
        first = record.episodes[fitting[0]] if fitting else None
        judged = held.within(incident.start - incident.early, incident.end) >= _JUDGEABLE
        outcomes.append(Outcome(incident, first, judged))
    others = (episode for place, episode in enumerate(record.episodes) if place not in seen)
    return Hindsight(tuple(outcomes), tuple(others))

"""What a person, or a program, reads after `engine backtest`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from engine.lab.availability import Availability
from engine.lab.backtest import Episode, Record
from engine.lab.hindsight import Hindsight, Outcome
from engine.lab.report import Line
from engine.lang.readable import columns, plural, span
from engine.lang.units import unit_of
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME

_SHOWN = 20  # alerts of a rule, gaps, remedies
_WIDE = 110


@dataclass(frozen=True, slots=True)
class Judged:
    """A rule with what it did and what that was worth."""

    record: Record
    held: Availability
    hindsight: Hindsight | None

    @property
    def a_day(self) -> float:
        """Alarms a day of data."""
        days = self.held.length / timedelta(days=1)
        return len(self.record.episodes) / days if days else 0.0

    def figures(self, end: datetime) -> dict[str, object]:
        """Return the figures as JSON has them; lengths in seconds."""
        record, hindsight = self.record, self.hindsight
        lengths = [(each.end(end) - each.since).total_seconds() for each in record.episodes]
        found: dict[str, object] = {
            "fires": len(record.episodes),
            "fires_a_day": round(self.a_day, 4),
            "flaps": record.flaps,
            "pending": record.pendings,
            "firing_share": round(record.firing / record.slots, 6) if record.slots else 0.0,
            "median_length": median(lengths) if lengths else None,
        }
        if hindsight is not None:
            found |= {
                "hits": len(hindsight.hits),
                "misses": len(hindsight.misses),
                "not_judged": len(hindsight.unjudged),
                "false_alarms": len(hindsight.false_alarms),
                "median_lead": None if hindsight.lead is None else hindsight.lead.total_seconds(),
            }
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One combination of the sweep and what came of each rule; `values` is empty for the rules as they stand."""

    values: Mapping[str, str]
    rules: Sequence[Judged]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """All that came of one call: the rules as they stand, and each combination of the sweep."""

    where: str
    start: datetime
    end: datetime
    base: Trial
    sweep: Sequence[Trial]
    seconds: float
    queries: int
    samples: int
    notes: Sequence[str] = ()

    @property
    def missed(self) -> bool:
        """Whether a rule missed an incident or could not be evaluated."""
        return any(
            each.record.errors or (each.hindsight and each.hindsight.misses) for each in self.base.rules
        )

    @property
    def blind(self) -> bool:
        """Whether there was nothing to judge for any rule."""
        return all(each.held.first is None for each in self.base.rules)


def lines(it: Backtest) -> Iterator[Line]:
    """Yield the lines of the report."""
    length = Duration.of(timedelta(seconds=round((it.end - it.start).total_seconds())))
    yield "plain", f"{it.where}, {_at(it.start)} to {_at(it.end)} UTC ({length})"
    for judged in it.base.rules:
        yield "plain", ""
        yield from _rule(judged, it)
    if it.sweep:
        yield "plain", ""
        yield from (("plain", text) for text in _table(it))
    yield "plain", ""
    yield from (("faint", note) for note in it.notes)
    yield (
        "faint",
        (
            f"{plural(it.base.rules[0].record.slots, 'slot')} of "
            f"{plural(1 + len(it.sweep), 'variant')}, {plural(it.queries, 'query').replace('querys', 'queries')} for "
            f"{plural(it.samples, 'sample')}, in {it.seconds:.2f} s"
        ),
    )


def _rule(it: Judged, whole: Backtest) -> Iterator[Line]:
    record = it.record
    yield "bold", f"{record.rule.alert}  {record.rule.origin.file}:{record.rule.origin.line}"
    for style, name, text in _facts(it, whole):
        yield style, f"  {name:10} {text}"
    show = unit_of(record.rule.expr).show
    for episode in record.episodes[:_SHOWN]:
        yield "plain", f"    {_episode(episode, it, whole.end, show)}"
    if len(record.episodes) > _SHOWN:
        yield "faint", f"    … {len(record.episodes) - _SHOWN} more; --format json has them all"


def _facts(it: Judged, whole: Backtest) -> Iterator[tuple[str, str, str]]:
    record = it.record
    yield from _data(it.held, whole)
    if record.abstained:
        share = record.abstained / record.judged
        blind = record.blind * record.interval
        words = f"{share:.1%} of all judgements" + (
            f"; of no series anything for {span(blind.total_seconds())}" if blind else ""
        )
        yield "plain", "abstained", words
    if record.errors:
        yield "bad", "errors", f"at {plural(record.errors, 'slot')}: {record.error}"
    yield "plain", "fires", _fires(it, whole.end)
    if it.hindsight is not None:
        yield from _incidents(it.hindsight)
    yield from _remedies(record)


def _data(held: Availability, whole: Backtest) -> Iterator[tuple[str, str, str]]:
    length = span((whole.end - whole.start).total_seconds())
    if held.trouble:
        yield "plain", "data", f"nobody knows for how much of {length}: {held.trouble}"
        return
    if held.first is None:
        yield "bad", "data", f"none in {length}: is it still exported under this name, and kept for so long?"
        return
    words = f"{span(held.length.total_seconds())} of {length} ({held.share:.1%})"
    if held.starts_late:
        words += f"; history begins at {_at(held.first)}, only that was judged"
    yield "plain", "data", words
    if gaps := held.gaps:
        longest = max(gaps, key=lambda gap: gap.length)
        words = (
            f"{len(gaps)}, the longest of {span(longest.length.total_seconds())} from {_at(longest.start)}"
        )
        yield "plain", "gaps", words


def _fires(it: Judged, end: datetime) -> str:
    record = it.record
    if not record.episodes:
        pending = f"; its condition began to hold {record.pendings} times" if record.pendings else ""
        return f"never{pending}"
    lengths = [(each.end(end) - each.since).total_seconds() for each in record.episodes]
    return (
        f"{len(record.episodes)}, {it.a_day:.2g} a day of data; {plural(record.flaps, 'flap')}; median length "
        f"{span(median(lengths))}; firing {record.firing / record.slots:.1%} of the time"
    )


def _incidents(hindsight: Hindsight) -> Iterator[tuple[str, str, str]]:
    words = f"{len(hindsight.hits)} of {len(hindsight.hits) + len(hindsight.misses)} seen"
    if hindsight.lead is not None:
        words += f", median lead {_lead(hindsight.lead)}"
    if hindsight.unjudged:
        words += f"; {len(hindsight.unjudged)} without data"
    words += f"; {plural(len(hindsight.false_alarms), 'alert')} about none of them"
    yield "plain", "incidents", words
    for outcome in hindsight.outcomes[:_SHOWN]:
        style, word = _word(outcome)
        yield style, "", f"{_at(outcome.incident.start)}  {outcome.incident.name}: {word}"


def _word(outcome: Outcome) -> tuple[str, str]:
    if outcome.lead is not None:
        return "good", f"seen, {_lead(outcome.lead)}"
    return ("bad", "missed") if outcome.judged else ("faint", "no data, not judged")


def _lead(lead: timedelta) -> str:
    seconds = lead.total_seconds()
    return f"{span(seconds)} before" if seconds >= 0 else f"{span(-seconds)} late"


def _remedies(record: Record) -> Iterator[tuple[str, str, str]]:
    counts: dict[tuple[str, str], int] = {}
    for each in record.remedies:
        said = f"refused by {each.refused_by}" if each.refused_by else each.decision
        counts[each.playbook, said] = counts.get((each.playbook, said), 0) + 1
    for (playbook, said), count in counts.items():
        yield "plain", "remedies", f"{playbook}, {count} times: {said}"


def _episode(episode: Episode, it: Judged, end: datetime, show: object) -> str:
    assert callable(show)
    alert = episode.alert
    length = span((episode.end(end) - episode.since).total_seconds())
    over = f"for {length}" if episode.until is not None else f"still firing after {length}"
    labels = alert.labels.without(ALERT_NAME, *it.record.rule.labels)
    words = f"{_at(episode.since)}  {over}  {labels}  {show(alert.value)}"
    if "eta" in alert.details:
        words += f"  eta {span(alert.details['eta'])}"
    if it.hindsight is not None:
        about = [each.incident.name for each in it.hindsight.hits if each.episode is episode]
        words += (
            f"  {about[0]}"
            if about
            else ("  about nothing known" if episode in it.hindsight.false_alarms else "")
        )
    return words


def _table(it: Backtest) -> list[str]:
    keys = list(it.sweep[0].values)
    several = len(it.base.rules) > 1
    judged = any(each.hindsight is not None for each in it.base.rules)
    header = [*(["rule"] if several else []), *keys, "fires", "a day", "flaps", "firing"]
    header += ["seen", "missed", "false", "lead"] if judged else []
    rows = []
    for trial in (it.base, *it.sweep):
        for each in trial.rules:
            cells = [each.record.rule.alert] if several else []
            cells += [trial.values.get(key, "as it is") for key in keys]
            rows.append([*cells, *_cells(each, judged=judged)])
    return columns(header, rows, _WIDE)


def _cells(it: Judged, *, judged: bool) -> list[str]:
    record, hindsight = it.record, it.hindsight
    share = record.firing / record.slots if record.slots else 0.0
    cells = [str(len(record.episodes)), f"{it.a_day:.2g}", str(record.flaps), f"{share:.1%}"]
    if judged and hindsight is not None:
        lead = "" if hindsight.lead is None else span(hindsight.lead.total_seconds())
        cells += [
            str(len(hindsight.hits)),
            str(len(hindsight.misses)),
            str(len(hindsight.false_alarms)),
            lead,
        ]
    return cells


def _at(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"


def as_json(it: Backtest) -> str:
    """Return the report as JSON: times in RFC 3339, lengths in seconds."""
    found = {
        "prometheus": it.where,
        "from": it.start.isoformat(),
        "to": it.end.isoformat(),
        "rules": [_rule_json(each, it.end) for each in it.base.rules],
        "sweep": [
            {"values": dict(trial.values), "rule": each.record.rule.id, **each.figures(it.end)}
            for trial in it.sweep
            for each in trial.rules
        ],
        "queries": it.queries,
        "samples": it.samples,
        "seconds": round(it.seconds, 3),
        "notes": list(it.notes),
    }
    return json.dumps(found, indent=2, ensure_ascii=False)


def _rule_json(it: Judged, end: datetime) -> dict[str, object]:
    record, held = it.record, it.held
    found: dict[str, object] = {
        "rule": record.rule.id,
        "alert": record.rule.alert,
        "data": {
            "share": round(held.share, 6),
            "first": None if held.first is None else held.first.isoformat(),
            "gaps": [{"from": gap.start.isoformat(), "to": gap.end.isoformat()} for gap in held.gaps],
            "trouble": held.trouble,
        },
        "slots": record.slots,
        "errors": record.errors,
        "error": record.error,
        "abstained_share": round(record.abstained / record.judged, 6) if record.judged else 0.0,
        "blind": record.blind * record.interval.total_seconds(),
        **it.figures(end),
        "alerts": [_alert_json(each) for each in record.episodes],
        "remedies": [
            {
                "at": each.at.isoformat(),
                "playbook": each.playbook,
                "labels": dict(each.labels),
                "decision": each.decision,
                "refused_by": each.refused_by,
            }
            for each in record.remedies
        ],
    }
    if it.hindsight is not None:
        found["incidents"] = [_incident_json(each) for each in it.hindsight.outcomes]
    return found


def _alert_json(episode: Episode) -> dict[str, object]:
    alert = episode.alert
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "active_at": alert.active_at.isoformat(),
        "fired_at": episode.since.isoformat(),
        "resolved_at": None if episode.until is None else episode.until.isoformat(),
        "value": alert.value,
        "details": dict(alert.details),
    }


def _incident_json(outcome: Outcome) -> dict[str, object]:
    return {
        "name": outcome.incident.name,
        "start": outcome.incident.start.isoformat(),
        "end": outcome.incident.end.isoformat(),
        "outcome": "seen" if outcome.episode else "missed" if outcome.judged else "not judged",
        "lead": None if outcome.lead is None else outcome.lead.total_seconds(),
    }

"""A piece of history as a test: the series that rules asked for, and the alerts that they made of them.

The file is of promtool's format, and is run before it is written: an alert is expected where the test shows what
history did. Samples are those of a range query, one an evaluation, or one a scrape where an expression looks at
ranges; so a rate may come out a little different, and what differs is left out and told.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.errors import EngineError, ExpressionError, LoadError, QueryRejected
from engine.lab.alert_check import named
from engine.lab.backtest import Course, Episode, Record
from engine.lab.files import bench_of
from engine.lab.story import Story
from engine.lab.tester import live
from engine.lang.promql.parse import parse
from engine.lang.promql.syntax import Call, RangeSelector, Selector, Subquery, walk
from engine.lang.readable import plural
from engine.load.decode import MAX_BYTES
from engine.load.rules import read_rules
from engine.model.alert import Alert
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME, METRIC_NAME, Labels, quote
from engine.model.ports import Source
from engine.model.rule import AlertingRule, RecordingRule, RuleGroup
from engine.model.series import Window

WHOLE = 30_000
"""A period with no more samples than this is written as a whole; of a longer one, what is around the alerts."""

MOST_TESTS, MOST_SAMPLES = 10, 200_000  # of one rule; of one test
_AFTER = timedelta(hours=1)  # how much of a long alert is shown
_LEARNED_FROM = timedelta(minutes=15)
_DATED = frozenset(
    {"time", "timestamp", "minute", "hour", "day_of_week", "day_of_month", "day_of_year", "days_in_month"}
    | {"month", "year"}
)


class _Asked(NamedTuple):
    """What a rule asks for: selectors, and how far back it looks."""

    selectors: tuple[str, ...]
    back: timedelta
    ranges: bool  # whether it looks at ranges of samples
    dated: bool  # whether it matters what time it is


@dataclass(slots=True)
class _Test:
    """One test: evaluations from `start`, a slot of the rule's, to `end`."""

    record: Record
    start: datetime
    end: datetime
    step: timedelta
    series: Window
    dated: bool  # whether the test must be at its time; promtool knows `start_timestamp` since 3.9 only
    moments: list[datetime]  # at which alerts are looked at
    alerts: dict[datetime, list[Alert]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.record.rule.alert} {self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class Fixture:
    """Writes tests of what `records` hold into `path`."""

    path: Path
    course: Course
    groups: Sequence[RuleGroup]
    source: Source

    def __post_init__(self) -> None:
        intervals = {str(group.interval) for group in self.groups}
        if len(intervals) > 1:
            raise EngineError(
                f"--save-fixture: a test file has one evaluation_interval, and these groups have "
                f"{' and '.join(sorted(intervals))}; name one file, or choose alerts with -k"
            )

    def write(self, records: Sequence[Record]) -> list[str]:
        """Write the file; return what there is to tell of it."""
        notes: list[str] = []
        tests = [test for record in records for test in self._tests(record, notes)]
        while tests and len(self._text(tests)) > MAX_BYTES:
            notes.append(f"left out, the file is as large as one may be: {tests.pop().name}")
        if not tests:
            return [*notes, f"{self.path}: there is nothing to write"]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        shown = self._shown(tests, records, notes)
        self.path.write_text(self._text(tests), encoding="utf-8")
        expected = sum(len(test.moments) for test in tests)
        head = f"wrote {plural(len(tests), 'test')} to {self.path}"
        return [f"{head}; {shown} of {expected} moments came out as in history", *notes]

    def _tests(self, record: Record, notes: list[str]) -> Iterator[_Test]:
        try:
            asked = self._asked(record.rule)
        except ExpressionError as error:
            notes.append(f"{record.rule.alert}: cannot be read without a server, so it has no test: {error}")
            return
        step = self._step(asked, record)
        for start, end, moments in self._pieces(record, asked, step):
            try:
                found = [self.source.range(each, start, end, step) for each in asked.selectors]
            except QueryRejected as error:
                notes.append(f"{record.rule.alert} at {start:%Y-%m-%d %H:%M}: no test: {error}")
                continue
            series = _together(found)
            if series.values.size > MOST_SAMPLES:
                samples = f"{series.values.size:,} samples, more than {MOST_SAMPLES:,}"
                notes.append(f"{record.rule.alert} at {start:%Y-%m-%d %H:%M}: no test: {samples}")
                continue
            yield _Test(record, start, end, step, series, asked.dated, moments)

    def _asked(self, rule: AlertingRule) -> _Asked:
        """Return what a rule asks for, also by way of the recording rules of its files."""
        recorded = {
            each.record: each.expr
            for group in self.groups
            for each in group.rules
            if isinstance(each, RecordingRule)
        }
        exprs, seen = [rule.expr, *rule.inputs.values()], set[str]()
        selectors: dict[str, None] = {}
        back, ranges = rule.detect.lookback + rule.detect.step + rule.hold, False
        dated = bool(rule.detect.lookback)
        while exprs:
            for node in walk(parse(exprs.pop())):
                if isinstance(node, RangeSelector | Subquery):
                    back += timedelta(milliseconds=node.length_ms)
                    ranges = True
                dated |= isinstance(node, Call) and node.function in _DATED
                if isinstance(node, Selector):
                    back += timedelta(milliseconds=max(0, node.shift.offset_ms))
                    dated |= node.shift.at is not None
                    name = next((each.value for each in node.matchers if each.name == METRIC_NAME), "")
                    if name in recorded and name not in seen:
                        seen.add(name)
                        exprs.append(recorded[name])
                    elif name not in recorded:
                        selectors[_text_of(node)] = None
        return _Asked(tuple(selectors), back, ranges, dated)

    def _step(self, asked: _Asked, record: Record) -> timedelta:
        """Return how far samples lie apart: as evaluations do, or as scrapes do if these are more."""
        if not asked.ranges:
            return record.interval
        counts = []
        at = record.episodes[0].since if record.episodes else self.course.end
        for selector in asked.selectors:
            text = f"max(count_over_time({selector}[{Duration.of(_LEARNED_FROM)}]))"
            counts += [float(each) for each in self.source.instant(text, at).last()]
        if not counts or max(counts) < 2:
            return record.interval
        parts = round(record.interval / (_LEARNED_FROM / max(counts)))
        whole = record.interval // timedelta(seconds=1)
        fitting = [each for each in range(1, whole + 1) if whole % each == 0 and each <= max(parts, 1)]
        return record.interval / max(fitting, default=1)

    def _pieces(
        self, record: Record, asked: _Asked, step: timedelta
    ) -> Iterator[tuple[datetime, datetime, list[datetime]]]:
        """Yield start, end and moments to look at of each piece of history; starts are slots."""
        interval, course = record.interval, self.course
        last = record.first + (record.slots - 1) * interval
        count = self.source.instant(f"count({' or '.join(asked.selectors)})", last).last()
        points = (float(count[0]) if len(count) else 1.0) * ((course.end - course.start) / step)
        episodes = record.episodes
        done = tests = 0
        before = -(-asked.back // interval) * interval
        if points <= WHOLE:
            yield record.first - before, last, _moments(episodes, interval, record.first, last) or [last]
            return
        before += 30 * interval
        while done < len(episodes) and tests < MOST_TESTS:
            tests += 1
            since = episodes[done].since
            start = since - before
            end = min(episodes[done].end(last) + 2 * interval, since + _AFTER, last)
            yield start, end, _moments(episodes, interval, start, end)
            done = next((place for place, each in enumerate(episodes) if each.since > end), len(episodes))
        if not episodes:
            yield last - before, last, [last]

    def _shown(self, tests: Sequence[_Test], records: Sequence[Record], notes: list[str]) -> int:
        """Run the tests, and note what alerts there are where they are those of history; return at how many moments."""
        problems: list[object] = []
        loaded = read_rules(str(self.path), self._text(tests).encode(), problems)  # type: ignore[arg-type]
        if problems:
            raise LoadError(problems)  # type: ignore[arg-type]
        file = loaded.tests[0]
        bench = bench_of(file, self.course.settings, self.course.playbooks)
        count = 0
        for test, group in zip(tests, file.tests, strict=True):
            story = live(group, bench)
            for moment in test.moments:
                alerts = _firing(story, test, moment)
                wanted = _wanted(records, test.record.rule.alert, moment)
                if {alert.labels for alert in alerts} == wanted:
                    test.alerts[moment] = alerts
                    count += 1
                else:
                    notes.append(f"{test.name}: other alerts at {moment:%H:%M:%S} than in history; left out")
        return count

    def _text(self, tests: Sequence[_Test]) -> str:
        return "\n".join(self._lines(tests)) + "\n"

    def _lines(self, tests: Sequence[_Test]) -> Iterator[str]:
        files = dict.fromkeys(group.file for group in self.groups)
        folder = self.path.parent
        period = f"{self.course.start:%Y-%m-%d %H:%M} to {self.course.end:%Y-%m-%d %H:%M} UTC"
        yield f"# Recorded by `engine backtest`, {period}."
        yield f"rule_files: [{', '.join(json.dumps(os.path.relpath(file, folder)) for file in files)}]"
        yield f"evaluation_interval: {Duration.of(tests[0].record.interval)}"
        yield "tests:"
        for test in tests:
            yield f"  - name: {json.dumps(test.name)}"
            yield f"    interval: {Duration.of(test.step)}"
            if test.dated:
                yield f"    start_timestamp: {test.start.timestamp():.3f}"
            yield "    input_series:"
            for row, labels in enumerate(test.series.labels):
                yield f"      - series: {json.dumps(str(labels), ensure_ascii=False)}"
                yield f'        values: "{_notation(test.series, row)}"'
            yield "    alert_rule_test:"
            for moment in test.moments if not test.alerts else test.alerts:
                yield from _expectation(test, moment)


def _expectation(test: _Test, moment: datetime) -> Iterator[str]:
    yield f"      - eval_time: {Duration.of(moment - test.start)}"
    yield f"        alertname: {json.dumps(test.record.rule.alert)}"
    alerts = test.alerts.get(moment, [])
    yield f"        exp_alerts:{'' if alerts else ' []'}"
    for alert in alerts:
        labels, texts = alert.labels.without(ALERT_NAME), dict(alert.annotations)
        yield f"          - exp_labels: {json.dumps(dict(labels), ensure_ascii=False)}"
        if texts:
            yield f"            exp_annotations: {json.dumps(texts, ensure_ascii=False)}"


def _moments(
    episodes: Sequence[Episode], interval: timedelta, start: datetime, end: datetime
) -> list[datetime]:
    """Return when to look: at the evaluation before an alert fires, when it does, and when it does no more."""
    found = set()
    for episode in episodes:
        found |= {episode.since - interval, episode.since}
        found |= {episode.until} if episode.until is not None else set()
    return sorted(at for at in found if start <= at <= end)[: 3 * MOST_TESTS]


def _firing(story: Story, test: _Test, moment: datetime) -> list[Alert]:
    return [alert for alert in named(story.at(moment - test.start), test.record.rule.alert) if alert.firing]


def _wanted(records: Sequence[Record], name: str, moment: datetime) -> set[Labels]:
    """Return the labels of the alerts of that name that fired at a moment of history."""
    return {
        episode.alert.labels
        for record in records
        if record.rule.alert == name
        for episode in record.episodes
        if episode.since <= moment and (episode.until is None or moment < episode.until)
    }


def _text_of(node: Selector) -> str:
    return "{" + ", ".join(f"{each.name}{each.op}{quote(each.value)}" for each in node.matchers) + "}"


def _together(windows: Sequence[Window]) -> Window:
    """Return the series of several answers on one grid, each once."""
    rows = {
        labels: (window.values[row], window.present[row])
        for window in windows
        for row, labels in enumerate(window.labels)
    }
    if not rows:
        return replace(windows[0])
    values, present = zip(*rows.values(), strict=True)
    return Window(tuple(rows), windows[0].times, np.array(values), np.array(present))


def _notation(series: Window, row: int) -> str:
    """Return samples in promtool's notation; a series that is not there any more ends with a stale marker."""
    words: list[str] = []
    was_there = False
    for value, there in zip(series.values[row].tolist(), series.present[row].tolist(), strict=True):
        words.append(_figure(value) if there else "stale" if was_there else "_")
        was_there = there
    found: list[str] = []
    place = 0
    while place < len(words):
        run = next((k for k in range(place, len(words)) if words[k] != words[place]), len(words)) - place
        found += _repeated(words[place], run)
        place += run
    return " ".join(found)


def _repeated(word: str, times: int) -> list[str]:
    """Return a word so many times, in short where the notation can: `_x3` is three, `5x3` four."""
    if times == 1 or word in ("NaN", "Inf", "-Inf", "stale"):
        return [word] * times
    return [f"_x{times}" if word == "_" else f"{word}x{times - 1}"]


def _figure(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return repr(value).removesuffix(".0")

"""What an alert saw in a test, drawn: in the terminal, or as the picture that people get with the alert."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine.errors import ExpressionError, QueryError
from engine.lab.alert_check import named, timeline
from engine.lab.story import Moment, Story
from engine.lab.tester import Bench, Result
from engine.lab.weakness import Rules, questions
from engine.lang.units import unit_of
from engine.model.alert import Alert, AlertState, Picture
from engine.model.duration import Duration
from engine.model.labels import ALERT_NAME, METRIC_NAME
from engine.model.ports import Scene
from engine.model.rule import AlertingRule
from engine.model.series import Floats, Window
from engine.model.testing import Never, TestGroup, Timeline

_WIDTH, _HEIGHT = 64, 10  # of the terminal's chart, in characters
_MOST_LINES = 5  # series
_NO_NAME = re.compile(r"[^\w.-]+")


def drawn(test: TestGroup, story: Story, rules: Rules) -> Iterator[str]:
    """Yield the lines of a chart for each alert that a test speaks of."""
    for name in _names(test):
        for rule in rules.named(name)[:1]:
            yield from _chart(rule, test, story)


def _names(test: TestGroup) -> list[str]:
    return list(dict.fromkeys(it.alertname for it in questions(test)))


def _asked(test: TestGroup, story: Story, name: str) -> Moment:
    """Return the moment to look at: the last one that the test asks about by this name, else its end."""
    times = [
        it.eval_time
        for it in questions(test)
        if not isinstance(it, Never | Timeline) and it.alertname == name
    ]
    return story.at(max(times)) if times else story.moments[-1]


def _range(rule: AlertingRule, story: Story) -> tuple[Window, float | None]:
    """Return a rule's signal over the whole test, and its threshold."""
    from engine.lang.promql import signal_of  # noqa: PLC0415

    expr, threshold = signal_of(rule.expr)
    start, end = story.moments[0].at, story.moments[-1].at
    if rule.expr in story.stage.signals:
        expr = rule.expr
    step = max((end - start) / (2 * _WIDTH), timedelta(seconds=1))
    return story.stage.range(expr, start, end, step), threshold


def _chart(rule: AlertingRule, test: TestGroup, story: Story) -> Iterator[str]:
    from engine.lang.promql import signal_of  # noqa: PLC0415

    try:
        window, threshold = _range(rule, story)
    except (ExpressionError, QueryError) as error:
        yield f"{rule.alert}: {error}"
        return
    moment = _asked(test, story, rule.alert)
    rows = [row for row in window.values if np.isfinite(row).any()][:_MOST_LINES]
    signal = " ".join(signal_of(rule.expr)[0].split())
    if not rows or len(window.times) < 2:
        yield f"{rule.alert}: nothing to draw, {signal} has no samples"
        return
    yield f"{rule.alert}: {signal}"
    plot = Plot(window.times - story.start.timestamp(), np.array(rows), threshold, _way(rule, moment, story))
    yield from plot.lines(unit_of(signal).show)
    yield timeline(rule.alert, story, moment.at - story.start).strip()


def _way(rule: AlertingRule, moment: Moment, story: Story) -> Way | None:
    """Return the line of a forecast: from the level of the moment to the bound."""
    now = (moment.at - story.start).total_seconds()
    for alert in named(moment, rule.alert):
        details = alert.details
        if {"eta", "level", "bound"} <= details.keys():
            return Way(now, now + details["eta"], details["level"], details["bound"])
    return None


class Way(NamedTuple):
    """The way to a bound: seconds from the test's start, and the signal's unit."""

    start: float
    end: float
    level: float
    bound: float


@dataclass(frozen=True, slots=True)
class Plot:
    """One chart; times in seconds from the test's start."""

    times: Floats
    rows: Floats  # one a series
    threshold: float | None
    way: Way | None
    when: Callable[[float], str] = lambda seconds: str(Duration(seconds=round(seconds)))

    def lines(self, show: Callable[[float], str]) -> Iterator[str]:
        """Yield the chart, its axes, and what its dots mean."""
        import plotille  # noqa: PLC0415 - few ask

        low, high = self._heights()
        end = self._end()
        figure = plotille.Figure()
        figure.width, figure.height = _WIDTH, _HEIGHT
        figure.with_colors = figure.origin = False
        figure.set_x_limits(0, end)
        figure.set_y_limits(low, high)
        self._draw(figure, end)
        drawn = [line.partition("| ")[2] for line in figure.show().splitlines() if "| " in line]
        drawn = drawn[:_HEIGHT]
        for index, line in enumerate(drawn):
            height = high - (index + 1) * (high - low) / len(drawn)  # at the bottom of the line
            yield f"{show(height):>12} ┤{line}".rstrip("\u2800 ")
        yield f"{'':12} └{'─' * _WIDTH}"
        begin = self.when(0)
        yield f"{'':14}{begin}{self.when(end):>{_WIDTH - len(begin)}}"
        if self.threshold is not None:
            yield f"{'':14}dotted: threshold {show(self.threshold)}"
        if self.way is not None:
            yield f"{'':14}dotted: forecast, {show(self.way.bound)} at {self.when(self.way.end)}"

    def _end(self) -> float:
        """Return where the time axis ends: a forecast may reach beyond the test, but not by more than half."""
        end = float(self.times[-1])
        return end if self.way is None else max(end, min(self.way.end, 1.5 * end))

    def _heights(self) -> tuple[float, float]:
        values = [*self.rows[np.isfinite(self.rows)]]
        values += [] if self.threshold is None else [self.threshold]
        values += [] if self.way is None else [self.way.level, self.way.bound]
        low, high = float(min(values)), float(max(values))
        room = 0.05 * (high - low) or 1.0
        return low - room, high + room

    def _draw(self, figure: Any, end: float) -> None:
        for row in self.rows:
            there = np.isfinite(row)
            figure.plot(self.times[there].tolist(), row[there].tolist())
        dots = np.linspace(0, end, _WIDTH)
        if self.threshold is not None:
            figure.plot(dots.tolist(), [self.threshold] * len(dots), interp=None)
        if self.way is not None:
            start, until, level, bound = self.way
            dots = dots[(dots >= start) & (dots <= until)]
            share = (dots - start) / ((until - start) or 1.0)
            figure.plot(dots.tolist(), (level + share * (bound - level)).tolist(), interp=None)


def picture_writer(folder: Path, bench: Bench) -> Callable[[TestGroup, Story, Result], None]:
    """Return a witness that writes a PNG for each test and alert into a folder."""

    def write(test: TestGroup, story: Story, result: Result) -> None:
        for name in _names(test):
            for rule in Rules(bench.groups).named(name)[:1]:
                if (picture := _picture(rule, test, story)) is not None:
                    folder.mkdir(parents=True, exist_ok=True)
                    stem = _NO_NAME.sub("-", f"{Path(test.origin.file).stem}-{result.name}-{name}").strip(
                        "-"
                    )[:120]
                    (folder / f"{stem}.png").write_bytes(picture.png)

    return write


def _picture(rule: AlertingRule, test: TestGroup, story: Story) -> Picture | None:
    """Return the picture that comes with an alert, as of the moment that a test asks about."""
    from engine.enrich.graph import Graph  # noqa: PLC0415 - matplotlib is slow to import

    moment = _asked(test, story, rule.alert)
    alert = next(iter(named(moment, rule.alert)), None) or _nobody(rule, story, moment)
    length = moment.at - story.start
    if alert is None or length <= timedelta():
        return None
    scene = Scene(alert=alert, rule=replace(rule, enrich=()), at=moment.at, source=story.stage, ray=None)
    try:
        evidence = Graph(range=Duration.of(length)).collect(scene)
    except (ExpressionError, QueryError):
        return None
    return evidence if isinstance(evidence, Picture) else None


def _nobody(rule: AlertingRule, story: Story, moment: Moment) -> Alert | None:
    """Return an alert that is not there, so that its signal can be drawn."""
    try:
        window, _ = _range(rule, story)
    except (ExpressionError, QueryError):
        return None
    if not len(window):
        return None
    signal = window.labels[0].without(METRIC_NAME)
    return Alert(
        rule_id=rule.id,
        labels=signal.updated(rule.labels).updated({ALERT_NAME: rule.alert}),
        signal=signal,
        state=AlertState.PENDING,
        value=float(window.last()[0]),
        active_at=moment.at,
    )

"""Series that are published now and then: asked over a window in which a living one must have been seen.

Ray's recorder publishes some gauges in one scrape of several; Prometheus ends such a series at the first
scrape without it. Asked as it is, the gap resets `for`, and a sum misses its part. So every selector is widened
to the newest sample of its presence window. The window is three times the period at which the series is
published, which is learned from how many samples it had lately, and learned anew every hour. What is gone for
longer is gone.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta

from engine.errors import ExpressionError, QueryError
from engine.lang.promql.rewrite import over_presence
from engine.model.duration import Duration
from engine.model.ports import Source
from engine.model.rule import Staleness

LEARNED_FROM = timedelta(minutes=15)
LEARNED_AGAIN = timedelta(hours=1)
PERIODS = 3  # a series not seen for so many of its periods is gone
LONGEST = timedelta(minutes=5)  # what Prometheus itself bridges where no scrape says that a series ended
_MANY = 10  # samples that say enough about a period


class Presence:
    """The presence windows of selectors, as they were learned from one source."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._learned: dict[str, tuple[datetime, str | None]] = {}  # until when it holds, and the window

    def expr_of(self, expr: str, staleness: Staleness | Duration, at: datetime) -> str:
        """Return the expression to ask at an instant; unchanged if the rule means what Prometheus means."""
        if staleness is Staleness.PROMETHEUS:
            return expr
        try:
            if isinstance(staleness, Duration):
                return over_presence(expr, lambda _selector: str(staleness))
            return over_presence(expr, lambda selector: self._window(selector, at))
        except ExpressionError:
            return expr  # newer PromQL than can be read here: as the server takes it

    def _window(self, selector: str, at: datetime) -> str | None:
        until, window = self._learned.get(selector, (at, None))
        if at >= until or until - at > LEARNED_AGAIN:  # the latter after a clock went back
            window = self._learn(selector, at, window)
        return window

    def _learn(self, selector: str, at: datetime, known: str | None) -> str | None:
        """Return the window of a selector, and keep it for a while."""
        seconds = LEARNED_FROM.total_seconds()
        try:
            # That of its oldest series; those that began lately have fewer samples.
            answer = self._source.instant(f"max(count_over_time({selector}[{int(seconds)}s]))", at)
        except QueryError:
            return known  # asked again at the next slot
        count = float(answer.last()[0]) if len(answer) else 0.0
        if count < 2:
            return known
        longest = LONGEST.total_seconds()
        window = str(Duration(seconds=math.ceil(min(PERIODS * seconds / count, longest))))
        holds = LEARNED_AGAIN if count >= _MANY else LEARNED_FROM
        self._learned[selector] = (at + holds, window)
        return window

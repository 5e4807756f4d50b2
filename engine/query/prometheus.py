"""Prometheus, or what speaks its API: Thanos, Mimir, VictoriaMetrics. The door to prometheus-api-client."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from engine.model.series import Window, instant_of
from engine.model.settings import PrometheusSettings
from engine.query.answer import (
    Answer,
    Grid,
    instant_window,
    milliseconds,
    most_series,
    range_window,
    too_many,
)

MOST_POINTS = 11_000  # Prometheus answers no range query with more for one series


class PrometheusSource:
    """Asks a server over HTTP. Threads may share one.

    `settings.timeout` limits each request, from the look-up of the name to the answer's last byte; a range of
    more than `MOST_POINTS` points takes several.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        from prometheus_api_client import PrometheusConnect  # noqa: PLC0415 - slow to import
        from urllib3 import Retry  # noqa: PLC0415

        from engine.query.session import Session  # noqa: PLC0415

        self._settings = settings
        self._session = Session(settings)
        self._client: Any = PrometheusConnect(
            url=settings.url.rstrip("/"), session=self._session, retry=Retry(total=0), method="POST"
        )

    def instant(self, expr: str, at: datetime) -> Window:
        instant = milliseconds(at)
        limit = self._settings.max_samples + 1
        answer: Answer = self._client.custom_query(
            expr, params={"time": _seconds(instant), **self._bounds(limit)}
        )
        return instant_window(answer, instant, self._settings.max_samples, self._session.where)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        grid = Grid.of(start, end, step)
        if grid.count > self._settings.max_samples:
            raise too_many(f"{grid.count:,} points for each series", self._settings.max_samples)
        answers = [(piece, self._ask_range(expr, piece, grid)) for piece in grid.chunks(MOST_POINTS)]
        return range_window(answers, grid, self._settings.max_samples, self._session.where)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _ask_range(self, expr: str, piece: Grid, whole: Grid) -> Answer:
        params = {
            # The client would round both to whole seconds.
            "start": _seconds(piece.start),
            "end": _seconds(piece.end),
            # Without it VictoriaMetrics moves the instants to multiples of the step.
            "nocache": "1",
            **self._bounds(most_series(whole, self._settings.max_samples) + 1),
        }
        start, end = instant_of(piece.start / 1000), instant_of(piece.end / 1000)
        answer: Answer = self._client.custom_query_range(
            expr, start, end, _seconds(piece.step), params=params
        )
        return answer

    def _bounds(self, series: int) -> dict[str, str]:
        """Return what keeps the server from working in vain; Prometheus 3 cuts a result at `limit` series."""
        # A little less than our own limit, so that it is the server that says what took too long.
        return {"limit": str(series), "timeout": f"{self._settings.timeout.total_seconds() * 0.9:.3f}"}


def _seconds(instant: int) -> str:
    """Return milliseconds as the seconds that Prometheus reads."""
    return f"{instant / 1000:.3f}"

"""What Prometheus tells an Alertmanager: the body of `POST /api/v2/alerts`, and when an alert is in it.

Pure functions; the rules are Prometheus' own. An alert that fires is told again and again, each time with an end
that lies ahead (`endsAt`): when nobody tells of it any more, the Alertmanager takes it for resolved by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from engine.lang.promql.canonical import canonical
from engine.lang.template.quoting import escape_query
from engine.model.alert import Alert, AlertState
from engine.model.labels import Labels

RESEND_DELAY = timedelta(minutes=1)
_LOST_MESSAGES = 4  # so many may be lost before the Alertmanager takes an alert for resolved
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


def payload(
    alerts: Iterable[Alert],
    *,
    at: datetime,
    interval: timedelta,
    resend_delay: timedelta,
    generator_url: Callable[[Alert], str],
    external_labels: Mapping[str, str] = _NO_LABELS,
) -> list[dict[str, Any]]:
    """Return the body that tells of firing and resolved alerts, found so by the evaluation at `at`.

    `interval` is the time between two evaluations, `resend_delay` that between two messages about one alert.
    """
    still_fires_until = at + _LOST_MESSAGES * max(interval, resend_delay)
    return [
        {
            **_annotations(alert),
            "endsAt": _instant(alert.resolved_at or still_fires_until),
            "startsAt": _instant(alert.fired_at or alert.active_at),
            "generatorURL": generator_url(alert),
            "labels": dict(Labels(external_labels).updated(alert.labels)),
        }
        for alert in alerts
    ]


def needs_sending(alert: Alert, *, last_sent: datetime | None, at: datetime, resend_delay: timedelta) -> bool:
    """Tell whether the evaluation at `at` is to tell of an alert.

    `last_sent` is the evaluation that last told of this episode of it (`Alert.episode`), None if none has.
    """
    if alert.state is AlertState.PENDING:
        return False
    if last_sent is None or (alert.resolved_at is not None and alert.resolved_at > last_sent):
        return True
    return last_sent + resend_delay < at


def graph_link(external_url: str, expr: str) -> str:
    """Return the page on which the Prometheus at `external_url` shows `expr`."""
    return f"{external_url.rstrip('/')}/graph?g0.expr={escape_query(canonical(expr))}&g0.tab=1"


def _annotations(alert: Alert) -> dict[str, dict[str, str]]:
    """Return the annotations under their key, which is left out where there are none."""
    texts = {name: alert.annotations[name] for name in sorted(alert.annotations)}
    return {"annotations": texts} if texts else {}


def _instant(at: datetime) -> str:
    """Return an instant as Alertmanager's API writes it: RFC 3339 in UTC, always with milliseconds."""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"

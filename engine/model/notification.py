"""One message to one receiver, and why it was sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from engine.model.alert import Alert, Evidence
from engine.model.labels import Labels
from engine.model.playbook import Run


class Reason(StrEnum):
    """Why a notification is sent; the first five are Alertmanager's."""

    FIRST = "first notification"
    NEW_ALERTS = "new alerts added to the group"
    RESOLVED = "some alerts resolved"
    ALL_RESOLVED = "all alerts resolved"
    REPEAT = "repeat interval elapsed"
    APPROVAL = "a remediation run waits for approval"  # to the receiver that the playbook names
    ESCALATION = "remediation did not help"  # to the receiver that the playbook names
    PROGRESS = "remediation progressed"  # only to receivers that update their message in place


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What one receiver is to be told about one group of alerts."""

    receiver: str
    group_key: str
    group_labels: Labels
    alerts: tuple[Alert, ...]  # firing ones first
    evidence: Mapping[str, tuple[Evidence, ...]] = field(default_factory=dict)  # by fingerprint
    runs: tuple[Run, ...] = ()
    reason: Reason
    at: datetime
    external_url: str = ""

    @property
    def firing(self) -> tuple[Alert, ...]:
        """Those that fire."""
        return tuple(alert for alert in self.alerts if alert.firing)

    @property
    def resolved(self) -> tuple[Alert, ...]:
        """Those that have resolved."""
        return tuple(alert for alert in self.alerts if not alert.firing)


Receipt = Mapping[str, str]
"""What a notifier needs to find its message again, such as Slack's channel id and ts; kept in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """An entry of the notification log: what one integration of a receiver was last told about a group."""

    key: str  # receiver, integration and group key
    firing: frozenset[str] = frozenset()  # fingerprints told as firing
    resolved: frozenset[str] = frozenset()
    progress: str = ""  # digest of the runs that were told
    at: datetime
    receipt: Receipt = field(default_factory=dict)
    owed: frozenset[str] = (
        frozenset()
    )  # firing alerts whose delivery failed: told even if they resolve meanwhile

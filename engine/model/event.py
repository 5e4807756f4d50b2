"""Every decision, with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Kind(StrEnum):
    """What was decided or happened. Those in `LASTING` are kept in the store."""

    EVALUATED = "evaluated"
    FAILED = "evaluation_failed"
    RECOVERED = "evaluation_recovered"
    MISSED = "slots_missed"
    TRANSITION = "transition"
    MUTED = "muted"
    NOTIFIED = "notified"
    NOT_NOTIFIED = "notification_failed"
    RUN = "run"
    STEP = "step"
    TROUBLE = "trouble"  # the engine itself could not do something; `subject` says which part of it


LASTING = frozenset(Kind) - {Kind.EVALUATED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something the engine decided: about what (`subject`: a rule id, fingerprint or run id), and why."""

    at: datetime
    kind: Kind
    subject: str
    reason: str
    data: Mapping[str, str] = field(default_factory=dict)

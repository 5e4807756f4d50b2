"""One cluster, asked now and then: is GCS there, do the APIs answer, what do actors, jobs and owners use."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from engine.clock import Stopwatch
from engine.errors import ClusterError
from engine.model.settings import ProbeSettings
from engine.probe.actors import InView, Meters, Use, read_actors
from engine.ray.owners import Owner, owners

T = TypeVar("T")

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
MOST_OWNERS = 20


class Ray(Protocol):
    """What is asked of a cluster. Raises ClusterError."""

    def check_gcs(self) -> None:
        """Return if GCS answers the dashboard."""
        ...

    def version(self) -> str:
        """Return Ray's version."""
        ...

    def actors(self) -> list[dict[str, Any]]:
        """Return the dashboard's actors."""
        ...

    def jobs(self) -> list[dict[str, Any]]:
        """Return the Job API's jobs."""
        ...

    def objects(self) -> list[dict[str, Any]]:
        """Return the State API's objects, in detail."""
        ...


class Api(StrEnum):
    """The parts of Ray that are asked, by the word in the label `api`."""

    GCS = "gcs"
    DASHBOARD = "dashboard"
    ACTORS = "actors"
    JOBS = "jobs"
    STATE = "state"


class Condition(StrEnum):
    """How a part answered last."""

    OK = "ok"
    HUNG = "hung"  # no answer in time
    GONE = "gone"  # nobody listens there
    UNAUTHORIZED = "unauthorized"  # it wants a token
    FORBIDDEN = "forbidden"  # it does not take ours
    FAILING = "failing"  # another status, or an answer that makes no sense


@dataclass(slots=True)
class Asked:
    """What came of asking one part, all in all."""

    codes: Counter[str] = field(default_factory=Counter)  # by HTTP status, or the condition without one
    buckets: Counter[float] = field(default_factory=Counter)  # by upper bound
    seconds: float = 0.0
    condition: Condition | None = None
    newest: float = math.nan  # seconds that the newest answer took; a hang counts up to the timeout
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What is known of a cluster now; None or empty where it could not be asked."""

    version: str = ""
    uses: Sequence[Use] = ()
    jobs: Mapping[str, int] | None = None
    owners: Sequence[Owner] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


class ClusterProbe:
    """Asks one cluster. `probe` belongs to one thread; others may read what it found."""

    def __init__(self, name: str, ray: Ray, settings: ProbeSettings) -> None:
        self.name = name
        self.asked: Mapping[Api, Asked] = {api: Asked() for api in Api}
        self.readings = Readings()
        self._ray = ray
        self._settings = settings
        self._meters = Meters()
        self._view = InView(settings.max_actors)
        self._due: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._halted: Callable[[], bool] = lambda: False

    def probe(
        self, at: datetime, halted: Callable[[], bool] = lambda: False
    ) -> list[tuple[Api, Condition, str]]:
        """Ask what is due. Return the parts whose condition changed, and what they said.

        Once it is `halted`, nothing further is asked: at most one answer is waited for.
        """
        if not self._is_due("all", at, self._settings.interval.total_seconds()):
            return []
        before = {api: asked.condition for api, asked in self.asked.items()}
        self._halted = halted
        self._ask(Api.GCS, self._ray.check_gcs)
        version = self._ask(Api.DASHBOARD, self._ray.version)
        if self.asked[Api.DASHBOARD].condition in (Condition.HUNG, Condition.GONE):
            # Whoever does not answer the cheapest question is not asked the others: each would cost a timeout.
            self.readings = Readings()
        else:
            self._measure(version or "", at)
        return [
            (api, asked.condition, asked.error)
            for api, asked in self.asked.items()
            if asked.condition is not None and asked.condition is not before[api]
        ]

    def _measure(self, version: str, at: datetime) -> None:
        rows = self._ask(Api.ACTORS, self._ray.actors)
        jobs = self._ask(Api.JOBS, self._ray.jobs)
        uses, dropped = self._uses(rows, at) if rows is not None else ((), {})
        owned = self.readings.owners
        pause = self._settings.owners_interval.total_seconds()
        if pause and self._is_due("owners", at, pause):
            objects = self._ask(Api.STATE, self._ray.objects)
            owned = owners(objects, jobs or ()) if objects is not None else ()
        if len(owned) > MOST_OWNERS:
            dropped = {**dropped, "owners": len(owned) - MOST_OWNERS}
        self.readings = Readings(
            version=version,
            uses=uses,
            jobs=None if jobs is None else Counter(str(job.get("status") or "UNKNOWN") for job in jobs),
            owners=owned[:MOST_OWNERS],
            dropped=dropped,
        )

    def _uses(self, rows: Sequence[Mapping[str, Any]], at: datetime) -> tuple[Sequence[Use], dict[str, int]]:
        actors, unread = read_actors(rows)
        uses = self._meters.read(actors, at.timestamp())
        chosen = self._view.choose(uses, at.timestamp())
        return chosen, {"actors": len(uses) - len(chosen), "unread_actors": unread}

    def _is_due(self, what: str, at: datetime, pause: float) -> bool:
        last = self._due.get(what)
        if last is not None and 0 <= (at - last).total_seconds() < pause:
            return False
        self._due[what] = at
        return True

    def _ask(self, api: Api, question: Callable[[], T]) -> T | None:
        """Return the answer, None if there is none; either is noted."""
        if self._halted():
            return None
        watch = Stopwatch()
        try:
            answer = question()
        except ClusterError as error:
            condition = _condition(error)
            self._note(api, condition, str(error.status or condition.value), watch.seconds(), str(error))
            return None
        self._note(api, Condition.OK, "200", watch.seconds(), "")
        return answer

    def _note(self, api: Api, condition: Condition, code: str, seconds: float, error: str) -> None:
        with self._lock:
            before = self.asked[api]
            buckets = before.buckets + Counter({next((b for b in BUCKETS if seconds <= b), math.inf): 1})
            after = Asked(
                codes=before.codes + Counter({code: 1}),
                buckets=buckets,
                seconds=before.seconds + seconds,
                condition=condition,
                newest=seconds,
                error=error,
            )
            self.asked = {**self.asked, api: after}


def _condition(error: ClusterError) -> Condition:
    if error.status is None:
        return Condition.HUNG if error.late else Condition.GONE
    return {401: Condition.UNAUTHORIZED, 403: Condition.FORBIDDEN}.get(error.status, Condition.FAILING)

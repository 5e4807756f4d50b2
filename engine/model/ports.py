"""What the engine asks of the outside, and of its plug-ins, on one page.

Everything replaceable is one of these. The stages implement them, `flow` uses
them, and tests bring their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.series import Window
from engine.model.verdict import NOTHING, Memory, Verdicts

if TYPE_CHECKING:  # the other modules of the model name these ports in their fields
    from engine.model.alert import Alert, Evidence
    from engine.model.event import Event
    from engine.model.notification import Notification, Receipt, Sent
    from engine.model.playbook import Mode, Playbook, Refusal, Run
    from engine.model.rule import AlertingRule


class Source(Protocol):
    """Answers PromQL. Raises QueryRejected or QueryUnavailable, nothing else, and always returns in bounded time."""

    def instant(self, expr: str, at: datetime) -> Window:
        """Evaluate `expr` at one instant: a window of one column. A scalar is one series without labels."""
        ...

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        """Evaluate `expr` at every `step` from `start` to `end`, both included."""
        ...


class Point(NamedTuple):
    """One sample to be written: a value, or None for a stale marker that ends the series."""

    labels: Labels
    at: datetime
    value: float | None


class Writer(Protocol):
    """Takes series into a Prometheus. Raises QueryRejected or QueryUnavailable, and returns in bounded time."""

    def write(self, points: Sequence[Point]) -> None:
        """Write the points, which are of one instant or rising ones for each series."""
        ...


@runtime_checkable
class Recorder(Protocol):
    """A source that takes the series which rules make, so that later rules can ask for them."""

    def record(self, points: Sequence[Point]) -> None:
        """Take samples of one instant."""
        ...


class Detector(Protocol):
    """Says which series are bad now. A pure function: no clock, no network, and what it notes is a value."""

    details: ClassVar[Mapping[str, str]]
    """The names of `$detect` that it may fill, each with a line of explanation."""

    @property
    def lookback(self) -> Duration:
        """How much history of the signal to fetch; zero means the newest sample only."""
        ...

    @property
    def step(self) -> Duration:
        """The resolution of that history."""
        ...

    @property
    def inputs(self) -> Mapping[str, str]:
        """Further PromQL that it needs at the instant, by name, such as a bound."""
        ...

    over: ClassVar[str | None]
    """What becomes of the samples between two points of the history: `min`, `max`, `avg` or `median` of them.

    None: the last one counts.

    Prometheus does it (`min_over_time`), so that an hour of samples is not sent for one figure.
    """

    def judge(
        self, signal: Window, inputs: Mapping[str, Window], at: datetime, memory: Memory = NOTHING
    ) -> Verdicts:
        """Return a verdict on every series of `signal`; nothing later than `at` counts.

        `memory` is that of the verdicts at the evaluation before, perhaps with other series.
        """
        ...


@runtime_checkable
class Rewriter(Protocol):
    """A detector that also asks its rule's own expression in other ways, such as over other windows."""

    def inputs_of(self, expr: str) -> Mapping[str, str]:
        """Return the PromQL that it needs at the instant, by name. ExpressionError if `expr` does not lend itself."""
        ...


@runtime_checkable
class Comparer(Protocol):
    """A detector that also looks back at other signals."""

    @property
    def histories(self) -> Mapping[str, str]:
        """Further PromQL of which it needs the history, by name: as long and as fine as the signal's.

        Each point is the mean of its step. The answers are among the inputs.
        """
        ...


@runtime_checkable
class Cautious(Protocol):
    """A detector that ought to be surer where a playbook follows."""

    def before_acting(self) -> Self:
        """Return itself as it is then; what the rule says outright stays."""
        ...


@runtime_checkable
class Dependent(Protocol):
    """A detector that reads the alerts of other rules."""

    @property
    def alerts(self) -> tuple[str, ...]:
        """The names of these alerts."""
        ...


@runtime_checkable
class Fitter(Protocol):
    """A detector with a model that takes longer to fit than an evaluation may.

    The flow has it fitted beside the evaluations and hands what came of it to `judge` with the memory.
    """

    @property
    def history(self) -> Duration:
        """How much history of the signal a fit needs, at the detector's `step`."""
        ...

    @property
    def refit(self) -> Duration:
        """How long after a fit the next one is due."""
        ...

    def fit(self, signal: Window, at: datetime) -> Memory:
        """Return what the model learned, as columns of the memory that `judge` is given from then on.

        Called in another process: as pure as `judge`, and the detector can be pickled. `judge` hands the columns
        on in its own memory; of series that it has not seen yet nothing is kept.
        """
        ...


class RayApi(Protocol):
    """Ray's HTTP APIs of one cluster. Raises ClusterError."""

    def nodes(self) -> list[dict[str, Any]]:
        """Return the State API's nodes."""
        ...

    def objects(self) -> list[dict[str, Any]]:
        """Return the State API's objects, in detail."""
        ...

    def tasks(self) -> list[dict[str, Any]]:
        """Return the State API's unfinished tasks, in detail."""
        ...

    def jobs(self) -> list[dict[str, Any]]:
        """Return the Job API's jobs."""
        ...

    def job(self, submission_id: str) -> dict[str, Any] | None:
        """Return one job, None if there is none of that id."""
        ...

    def submit(self, submission_id: str, entrypoint: str, **options: Any) -> None:
        """Submit a job; an id that is already taken is a success."""
        ...

    def stop(self, submission_id: str) -> None:
        """Ask for a job to be stopped."""
        ...

    def logs(self, submission_id: str) -> str:
        """Return a job's log so far."""
        ...

    def ensure_package(self, name: str, content: bytes) -> str:
        """Upload a package unless the cluster has it, and return its `gcs://` URI."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What an enricher may look at: the alert, its rule, and the way to more."""

    alert: Alert
    rule: AlertingRule
    at: datetime
    source: Source
    ray: RayApi | None  # None: no cluster in engine.yaml fits the alert's labels


class Enricher(Protocol):
    """Fetches what a person would look at next. May raise EngineError; the alert is told anyway."""

    def collect(self, scene: Scene) -> Evidence:
        """Return the evidence."""
        ...


class Notifier(Protocol):
    """Tells one place. Constructing it reads no file and opens no connection."""

    updates_in_place: ClassVar[bool]
    """Whether a later notification of the same group changes the first message rather than adding one."""

    @property
    def send_resolved(self) -> bool:
        """Whether resolved alerts are told."""
        ...

    def notify(self, notification: Notification, previous: Receipt | None) -> Receipt:
        """Deliver, or raise NotifyError. `previous` is the receipt of the incident's last delivery."""
        ...


class Progress(StrEnum):
    """How far a step's call is."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an action's call has come to."""

    progress: Progress
    message: str


class Action(Protocol):
    """What a step calls. Text fields are templates in a playbook and filled in once planned."""

    def fix(self, folder: str) -> Self:
        """Return itself with what must not change between planning and running nailed down.

        `folder` is where the playbook's file lies. ActionError if something is missing there.
        """
        ...

    def describe(self) -> str:
        """Return in words what `start` would do."""
        ...

    def start(self, ray: RayApi, key: str) -> Answer:
        """Make the call. Calling it twice with one `key` has the effect of calling it once."""
        ...

    def poll(self, ray: RayApi, key: str) -> Answer:
        """Say how far the call with that `key` is."""
        ...

    def cancel(self, ray: RayApi, key: str) -> None:
        """Ask for the call with that `key` to be ended; its terminal answer is still to come."""
        ...


HISTORY = timedelta(days=7)
"""How far back guardrails can look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a guardrail decides on."""

    playbook: Playbook
    run: Run
    alert: Alert
    mode: Mode  # the strictest of the playbook's, the global one, and the one that the run was planned in
    history: Sequence[Run]  # all runs of the last days, newest first, without this one
    at: datetime

    @property
    def earlier(self) -> Sequence[Run]:
        """Runs of the same playbook that have acted or are about to, newest first."""
        return [run for run in self.history if run.playbook == self.playbook.name and run.let_through]


class Guardrail(Protocol):
    """May say no."""

    def check(self, case: Case) -> Refusal | None:
        """Return the reason why not, or None."""
        ...


class Store(Protocol):
    """State that survives a restart. Raises StoreError. Each call is one transaction."""

    def alerts(self, rule_id: str) -> Sequence[Alert]:
        """Return the alerts of a rule as they were last saved."""
        ...

    def save_alerts(
        self,
        group_id: str,
        slot: datetime,
        alerts: Mapping[str, Sequence[Alert]],
        memories: Mapping[str, Memory] = MappingProxyType({}),
    ) -> None:
        """Replace the alerts and the memories of these rules, and note the slot at which they were so."""
        ...

    def memory(self, rule_id: str) -> Memory:
        """Return what a rule's detector had noted when it was last saved."""
        ...

    def forget_alerts_except(self, rule_ids: Collection[str]) -> Sequence[Alert]:
        """Drop alerts and memories of all other rules, and return the alerts: their rules are gone."""
        ...

    def last_slot(self, group_id: str) -> datetime | None:
        """Return the slot of the group's last evaluation."""
        ...

    def sent(self, key: str) -> Sent | None:
        """Return the entry of the notification log."""
        ...

    def save_sent(self, entry: Sent) -> None:
        """Replace an entry of the notification log."""
        ...

    def add_run(self, run: Run) -> bool:
        """Insert a run; False if one of that id is there already."""
        ...

    def save_run(self, run: Run) -> None:
        """Replace a run."""
        ...

    def run(self, run_id: str) -> Run | None:
        """Return one run."""
        ...

    def runs(self, *, since: datetime | None = None, open_only: bool = False) -> Sequence[Run]:
        """Return runs, newest first."""
        ...

    def decide(self, run_id: str, *, approve: bool, by: str, at: datetime) -> None:
        """Note a person's answer to a waiting run; the first answer holds."""
        ...

    def decision(self, run_id: str) -> tuple[bool, str] | None:
        """Return (approved, by whom), None while nobody has answered."""
        ...

    def add_events(self, events: Iterable[Event]) -> None:
        """Append events."""
        ...

    def events(self, *, subject: str | None = None, limit: int = 1000) -> Sequence[Event]:
        """Return events, oldest first."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


Observer = Callable[["Event"], None]
"""Is told every event as it happens; must be quick and must not raise."""

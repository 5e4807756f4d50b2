"""Remediation: plan what alerts ask for, ask the guardrails, advance each run by at most one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from queue import SimpleQueue

from engine.errors import ActionError, ClusterError, EngineError, QueryError, StoreError
from engine.flow.clusters import Clusters
from engine.flow.dispatch import escalation_key
from engine.flow.events import Events
from engine.model.alert import Alert
from engine.model.event import Kind
from engine.model.playbook import Mode, Playbook, Refusal, Run, RunState
from engine.model.ports import Case, Source, Store
from engine.model.rule import AlertingRule
from engine.remediate.guard import refusals
from engine.remediate.plan import plan, run_id
from engine.remediate.runner import World, advance
from engine.remediate.verify import observe

HISTORY = timedelta(days=7)  # what guardrails look back on
_REPLAN = timedelta(seconds=10)  # after a plan failed because Ray did not answer


class Healer:
    """All runs, and who may begin one."""

    def __init__(
        self,
        *,
        playbooks: Mapping[str, Playbook],
        mode: Mode,
        source: Source,
        clusters: Clusters,
        store: Store,
        events: Events,
    ) -> None:
        self._playbooks = playbooks
        self._mode = mode
        self._source = source
        self._clusters = clusters
        self._store = store
        self._events = events
        self._settled: dict[tuple[str, str], datetime | None] = {}  # (episode, playbook) → when to ask again
        self._open: dict[str, Run] = {run.id: run for run in store.runs(open_only=True)}
        # Evaluations run on other threads; only `step` and `consider` change runs, and they share one.
        self._inbox: SimpleQueue[tuple[str, bool | None, datetime]] = SimpleQueue()

    @property
    def open_runs(self) -> Sequence[Run]:
        """Runs that are not over."""
        return tuple(self._open.values())

    def observe(
        self, verdict_of: Callable[[Run], bool | None], rule_ids: frozenset[str], slot: datetime
    ) -> None:
        """Hand over what an evaluation said of the alerts of open runs; the next `step` takes note of it."""
        for run in self.open_runs:
            if run.rule_id in rule_ids:
                self._inbox.put((run.id, verdict_of(run), slot))

    def _take_in(self) -> None:
        """Take note of the evaluations since the last step."""
        while not self._inbox.empty():
            run_id, bad, slot = self._inbox.get()
            if (run := self._open.get(run_id)) is not None:
                after = observe(run, bad=bad, slot=slot)
                if after is not run:
                    self._save(after)

    def consider(self, alert: Alert, rule: AlertingRule, at: datetime) -> None:
        """Plan a run if the alert asks for one, has fired long enough, and has none in this episode."""
        wanted = rule.remediate
        if wanted is None or alert.fired_at is None or not alert.firing or at < alert.fired_at + wanted.after:
            return
        playbook = self._playbooks.get(wanted.playbook)
        if playbook is None:
            return
        settled = (alert.episode, playbook.name)
        if settled in self._settled and not _due(self._settled[settled], at):
            return
        mode = Mode.stricter(playbook.mode, self._mode)
        if mode is Mode.OFF:
            self._settled[settled] = None
            self._events.tell(at, Kind.RUN, alert.fingerprint, "mode is off", playbook=playbook.name)
            return
        self._begin(playbook, alert, mode, settled, at)

    def _begin(
        self, playbook: Playbook, alert: Alert, mode: Mode, settled: tuple[str, str], at: datetime
    ) -> None:
        number = self._next_number(alert, playbook.name, at)
        if number is None:
            self._settled[settled] = None
            return
        cluster = self._clusters.of(alert.labels)
        try:
            run = plan(
                playbook, alert, cluster=cluster.name, ray=cluster.ray, mode=mode, number=number, at=at
            )
        except (ActionError, ClusterError, EngineError) as error:
            if settled not in self._settled:
                self._events.tell(
                    at, Kind.RUN, alert.fingerprint, f"cannot plan: {error}", playbook=playbook.name
                )
            self._settled[settled] = at + _REPLAN
            return
        run = self._guarded(run, playbook, alert, at)
        self._settled[settled] = run.refusal.until if run.refusal else None
        if self._store.add_run(run):
            self._tell(run, at)
            if not run.state.terminal:
                self._open[run.id] = run

    def _next_number(self, alert: Alert, playbook: str, at: datetime) -> int | None:
        """Return which run of the episode the next one is; None if the last one was not a refusal for a while."""
        number = 0
        while (last := self._store.run(run_id(alert, playbook, number))) is not None:
            if last.refusal is None or last.refusal.until is None or not _due(last.refusal.until, at):
                return None
            number += 1
        return number

    def _guarded(self, run: Run, playbook: Playbook, alert: Alert, at: datetime) -> Run:
        history = [other for other in self._store.runs(since=at - HISTORY) if other.id != run.id]
        case = Case(playbook=playbook, run=run, alert=alert, mode=run.mode, history=history, at=at)
        said = refusals(case)
        if said:
            return _refused(run, said[0], "; ".join(f"{no.guardrail}: {no.reason}" for no in said), at)
        if run.mode is Mode.APPROVE and run.approved_by is None:
            until = at + playbook.approval.timeout
            return replace(
                run,
                state=RunState.WAITING,
                approve_until=until,
                reason=f"waiting for approval until {until:%H:%M:%S} UTC: engine playbook approve {run.id}",
            )
        return replace(run, state=RunState.ACTING, reason="guardrails passed", updated_at=at)

    def step(self, alert_of: Callable[[Run], Alert | None], at: datetime) -> None:
        """Advance each open run by at most one call."""
        self._take_in()
        for run in self.open_runs:
            alert = alert_of(run)
            try:
                after = self._advance(run, alert, at)
            except (QueryError, StoreError) as error:
                self._events.tell(at, Kind.STEP, run.id, f"put off: {error}", playbook=run.playbook)
                continue
            if after is not run:
                self._note(after)
                self._tell(after, at)

    def _advance(self, run: Run, alert: Alert | None, at: datetime) -> Run:
        playbook = self._playbooks.get(run.playbook)
        if playbook is None:
            no = Refusal(guardrail="match", reason=f"playbook {run.playbook} is not loaded any more")
            return self._saved(_refused(run, no, no.reason, at))
        if run.state is RunState.WAITING:
            return self._decide(run, playbook, alert, at)
        if run.state is RunState.DID_NOT_HELP:
            return self._passed_on(run, playbook, at)
        world = World(
            ray=self._clusters.of(run.labels).ray,
            returns_anything=lambda expr: bool(self._source.instant(expr, at).present.any()),
            firing=alert is not None and alert.firing,
            save=self._save,
        )
        return advance(run, playbook, world, at)

    def _decide(self, run: Run, playbook: Playbook, alert: Alert | None, at: datetime) -> Run:
        """Take a person's answer to a waiting run, or give up waiting."""
        decision = self._store.decision(run.id)
        assert run.approve_until is not None
        if alert is None or not alert.firing:
            said = "the alert fires no more"
        elif decision is None and at < run.approve_until:
            return run
        elif decision is None:
            said = f"nobody answered by {run.approve_until:%H:%M:%S} UTC"
        elif not decision[0]:
            said = f"rejected by {decision[1]}"
        else:
            approved = replace(run, approved_by=decision[1], state=RunState.PLANNED)
            return self._saved(self._guarded(approved, playbook, alert, at))
        return self._saved(_refused(run, Refusal(guardrail="approval", reason=said), said, at))

    def _passed_on(self, run: Run, playbook: Playbook, at: datetime) -> Run:
        """End a run that did not help once a person has been told (which `flush` does, and notes)."""
        if playbook.escalate is None:
            said = "the playbook names nobody to escalate to"
        elif self._store.sent(escalation_key(run)) is not None:
            said = f"{playbook.escalate} was told"
        else:
            return run
        return self._saved(
            replace(run, state=RunState.ESCALATED, updated_at=at, reason=f"{run.reason}; {said}")
        )

    def escalations(self) -> list[tuple[Run, str]]:
        """Return runs that did not help, with the receiver that is to be told."""
        found = []
        for run in self.open_runs:
            playbook = self._playbooks.get(run.playbook)
            if run.state is RunState.DID_NOT_HELP and playbook is not None and playbook.escalate is not None:
                found.append((run, playbook.escalate))
        return found

    def _saved(self, run: Run) -> Run:
        self._save(run)
        return run

    def _save(self, run: Run) -> None:
        self._store.save_run(run)
        self._note(run)

    def _note(self, run: Run) -> None:
        if run.state.terminal:
            self._open.pop(run.id, None)
        else:
            self._open[run.id] = run

    def _tell(self, run: Run, at: datetime) -> None:
        self._events.tell(
            at,
            Kind.RUN,
            run.id,
            run.reason,
            state=run.state.value,
            playbook=run.playbook,
            target=run.target,
            fingerprint=run.fingerprint,
        )


def _refused(run: Run, no: Refusal, reason: str, at: datetime) -> Run:
    return replace(run, state=RunState.REFUSED, refusal=no, reason=reason, updated_at=at)


def _due(until: datetime | None, at: datetime) -> bool:
    return until is not None and at >= until

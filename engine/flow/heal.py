"""Remediation: plan what alerts ask for, ask the guardrails, advance each run by at most one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from queue import SimpleQueue

from engine.clock import Stopwatch
from engine.errors import EngineError, QueryError, StoreError, TemplateError
from engine.flow.clusters import Clusters
from engine.flow.dispatch import announcement_key
from engine.flow.events import Events
from engine.model.alert import Alert
from engine.model.event import Kind
from engine.model.notification import Reason
from engine.model.playbook import Mode, Playbook, Refusal, Run, RunState, StepState
from engine.model.ports import HISTORY, Case, Source, Store
from engine.model.rule import AlertingRule
from engine.remediate.guard import refusals
from engine.remediate.plan import plan, rebuild, run_id, second_signal
from engine.remediate.runner import World, advance
from engine.remediate.verify import observe

SLOW = 3.0  # seconds for one plan or step, from which on a cluster is left alone for a while
_REPLAN = timedelta(seconds=10)  # after a plan failed, such as because Ray did not answer


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
        halted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._halted = halted
        self._slow: dict[
            str, datetime
        ] = {}  # clusters that took long to answer: until when they are left alone
        self._playbooks = playbooks
        self._mode = mode
        self._source = source
        self._clusters = clusters
        self._store = store
        self._events = events
        self._settled: dict[tuple[str, str], datetime | None] = {}  # (episode, playbook) → when to ask again
        self._delays: dict[str, str] = {}  # by run: why it was put off, as it was last told
        # Other threads read what is open, so a change makes a new dict.
        self._open: Mapping[str, Run] = {run.id: run for run in store.runs(open_only=True)}
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

    def forget(self, firing: Iterable[Alert]) -> None:
        """Forget what was settled in the episodes that are over: all but those of these alerts."""
        episodes = {alert.episode for alert in firing}
        self._settled = {key: until for key, until in self._settled.items() if key[0] in episodes}

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
        try:
            if wanted.confirm is None or self._confirmed(wanted.confirm, alert, playbook.name, at):
                self._begin(playbook, alert, mode, settled, at)
            else:
                self._settled[settled] = at + _REPLAN
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001  a fault in a guardrail or an action is a no, to this alert alone
            self._events.trouble(at, "remediation", error, playbook=playbook.name, alert=alert.fingerprint)
            self._settled[settled] = at + _REPLAN

    def _confirmed(self, text: str, alert: Alert, playbook: str, at: datetime) -> bool:
        """Tell whether the second signal agrees; why it does not is told once, not at every look."""
        key, said = f"{alert.episode};{playbook}", ""
        try:
            expr = second_signal(text, alert, cluster=self._clusters.of(alert.labels).name)
            if not self._source.instant(expr, at).present.any():
                said = f"not confirmed: no series for {expr}"
        except (EngineError, TemplateError) as error:
            said = f"cannot be confirmed: {error}"
        if said and self._delays.get(key) != said:
            self._events.tell(at, Kind.RUN, alert.fingerprint, said, playbook=playbook)
        self._delays[key] = said
        return not said

    def _begin(
        self, playbook: Playbook, alert: Alert, mode: Mode, settled: tuple[str, str], at: datetime
    ) -> None:
        number = self._next_number(alert, playbook.name, at)
        if number is None:
            self._settled[settled] = None
            return
        cluster = self._clusters.of(alert.labels)
        if self._is_slow(cluster.name, at):
            return
        watch = Stopwatch()
        try:
            run = plan(
                playbook,
                alert,
                cluster=cluster.name,
                ray=cluster.ray,
                missing=cluster.missing,
                mode=mode,
                number=number,
                at=at,
            )
        except EngineError as error:
            if settled not in self._settled:
                self._events.tell(
                    at, Kind.RUN, alert.fingerprint, f"cannot plan: {error}", playbook=playbook.name
                )
            self._settled[settled] = at + _REPLAN
            return
        finally:
            self._note_slow(cluster.name, watch, at)
        run = self._guarded(run, playbook, alert, at)
        if self._store.add_run(run):
            self._note(run)
            self._tell(run, at)
        self._settled[settled] = run.refusal.until if run.refusal else None  # not before it is stored

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
        mode = self._mode_of(run, playbook)
        case = Case(playbook=playbook, run=run, alert=alert, mode=mode, history=history, at=at)
        said = refusals(case)
        if said:
            return _refused(run, said[0], "; ".join(f"{no.guardrail}: {no.reason}" for no in said), at)
        if mode is Mode.APPROVE and run.approved_by is None:
            until = at + playbook.approval.timeout
            return replace(
                run,
                state=RunState.WAITING,
                approve_until=until,
                reason=f"waiting for approval until {until:%H:%M:%S} UTC: engine playbook approve {run.id}",
            )
        return replace(run, state=RunState.ACTING, reason="guardrails passed", updated_at=at)

    def _mode_of(self, run: Run, playbook: Playbook) -> Mode:
        """Return the strictest mode that holds now: a reload can hold up runs that are under way."""
        return Mode.stricter(run.mode, Mode.stricter(playbook.mode, self._mode))

    def step(
        self, alert_of: Callable[[Run], Alert | None], judged: Callable[[str], bool], at: datetime
    ) -> None:
        """Advance each open run by at most one call.

        `judged` tells of a rule's id whether its alerts are as its newest evaluation found them.
        """
        self._take_in()
        for run in self.open_runs:
            cluster = self._clusters.of(run.labels).name
            if self._halted():
                return
            if self._is_slow(cluster, at):
                continue
            watch = Stopwatch()
            try:
                alert = alert_of(run)
                after = self._advance(run, alert, _fires(alert, judged=judged(run.rule_id)), at)
            except Exception as error:  # noqa: BLE001  the door of one step: the other runs go on
                self._put_off(run, error, at)
                continue
            finally:
                self._note_slow(cluster, watch, at)
            self._delays.pop(run.id, None)
            if after is not run:
                self._tell(after, at)

    def _is_slow(self, cluster: str, at: datetime) -> bool:
        """Tell whether a cluster is to be left alone: one that hangs must not hold up the runs of the others."""
        return at < self._slow.get(cluster, at)

    def _note_slow(self, cluster: str, watch: Stopwatch, at: datetime) -> None:
        if watch.seconds() > SLOW:
            self._slow[cluster] = at + timedelta(seconds=watch.seconds()) + _REPLAN

    def _put_off(self, run: Run, error: Exception, at: datetime) -> None:
        """Say once, not every second, why a run cannot be advanced."""
        if self._delays.get(run.id) == str(error):
            return
        self._delays[run.id] = str(error)
        if isinstance(error, QueryError | StoreError):
            self._events.tell(at, Kind.STEP, run.id, f"put off: {error}", playbook=run.playbook)
        else:
            self._events.trouble(at, "remediation", error, run=run.id, playbook=run.playbook)

    def _advance(self, run: Run, alert: Alert | None, firing: bool | None, at: datetime) -> Run:
        playbook = self._playbooks.get(run.playbook)
        if playbook is None:
            return self._saved(self._abandoned(run, at))
        if run.state is RunState.WAITING:
            return self._decide(run, playbook, alert, firing, at)
        if run.state is RunState.DID_NOT_HELP:
            return self._passed_on(run, playbook, alert, at)
        mode = self._mode_of(run, playbook)
        world = World(
            ray=self._clusters.of(run.labels).ray,
            returns_anything=lambda expr: bool(self._source.instant(expr, at).present.any()),
            firing=firing,
            save=self._save,
            halted=f"mode is {mode.value} by now" if mode in (Mode.OFF, Mode.DRY_RUN) else "",
        )
        return advance(run, playbook, world, at)

    def _abandoned(self, run: Run, at: datetime) -> Run:
        """End a run whose playbook is gone, and what it has begun."""
        said = f"playbook {run.playbook} is not loaded any more"
        if not run.acted:
            return _refused(run, Refusal(guardrail="match", reason=said), said, at)
        ray = self._clusters.of(run.labels).ray
        for step in run.steps:
            if ray is not None and step.state in (StepState.INTENDED, StepState.RUNNING):
                try:
                    rebuild(step).cancel(ray, step.key)
                except EngineError as error:
                    said += f"; {step.name} could not be ended: {error}"
        return replace(run, state=RunState.ESCALATED, updated_at=at, reason=said)

    def _decide(
        self, run: Run, playbook: Playbook, alert: Alert | None, firing: bool | None, at: datetime
    ) -> Run:
        """Take a person's answer to a waiting run, or give up waiting."""
        assert run.approve_until is not None
        yes, by = self._store.decision(run.id) or (None, "")
        if alert is None or firing is False:
            said = "the alert fires no more"
        elif yes is False:
            said = f"rejected by {by}"
        elif at >= run.approve_until:
            # An answer may have been given while this engine did not run.
            word = "nobody answered" if yes is None else f"the approval by {by} could not be acted on"
            said = f"{word} by {run.approve_until:%H:%M:%S} UTC"
        elif yes is None or firing is None:
            return run
        else:
            approved = replace(run, approved_by=by, state=RunState.PLANNED)
            after = self._saved(self._guarded(approved, playbook, alert, at))
            self._settled[alert.episode, playbook.name] = after.refusal.until if after.refusal else None
            return after
        return self._saved(_refused(run, Refusal(guardrail="approval", reason=said), said, at))

    def _passed_on(self, run: Run, playbook: Playbook, alert: Alert | None, at: datetime) -> Run:
        """End a run that did not help once a person has been told (which `flush` does, and notes)."""
        if playbook.escalate is None:
            said = "the playbook names nobody to escalate to"
        elif self._store.sent(announcement_key(run, Reason.ESCALATION)) is not None:
            said = f"{playbook.escalate} was told"
        elif alert is None:
            said = f"the alert is gone, so {playbook.escalate} was not told"
        else:
            return run
        return self._saved(
            replace(run, state=RunState.ESCALATED, updated_at=at, reason=f"{run.reason}; {said}")
        )

    def announcements(self) -> list[tuple[Run, str, Reason]]:
        """Return runs that need a person, with the receiver that is to be told, and why."""
        found = []
        for run in self.open_runs:
            playbook = self._playbooks.get(run.playbook)
            if playbook is None:
                continue
            if run.state is RunState.DID_NOT_HELP and playbook.escalate is not None:
                found.append((run, playbook.escalate, Reason.ESCALATION))
            elif run.state is RunState.WAITING and playbook.approval.receiver is not None:
                found.append((run, playbook.approval.receiver, Reason.APPROVAL))
        return found

    def _saved(self, run: Run) -> Run:
        self._save(run)
        return run

    def _save(self, run: Run) -> None:
        self._store.save_run(run)
        self._note(run)

    def _note(self, run: Run) -> None:
        others = {id_: other for id_, other in self._open.items() if id_ != run.id}
        self._open = others if run.state.terminal else {**others, run.id: run}

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


def _fires(alert: Alert | None, *, judged: bool) -> bool | None:
    """Tell whether an alert fires; None if nobody can say at present.

    That is so while what is known of it is from before a restart or an outage, and while only
    `keep_firing_for` holds it: it may be over.
    """
    if alert is None or not alert.firing:
        return False
    return True if judged and alert.keep_firing_since is None else None


def _due(until: datetime | None, at: datetime) -> bool:
    return until is not None and at >= until

"""What would have been done: playbooks that alerts of the past ask for, and what guardrails would have said.

Nothing is ever done here, and nothing here can: no client of a cluster is made, no step of a playbook is
planned, and the module that makes calls is not imported. What only the cluster of that time could say is left
out. A run that guardrails let through is taken to have acted at once and to have helped, so `cooldown` and
`max_per_hour` count it, and `breaker` never opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from engine.errors import EngineError, QueryError
from engine.flow.clusters import Clusters
from engine.lab.cluster import LabRay
from engine.model.alert import Alert
from engine.model.labels import Labels
from engine.model.playbook import Mode, PlannedStep, Playbook, Refusal, Run, RunState, StepState
from engine.model.ports import HISTORY, Case, RayApi, Source
from engine.model.rule import AlertingRule
from engine.model.settings import RayCluster, Settings
from engine.remediate.guard import refusals
from engine.remediate.plan import run_id, second_signal, target_of

_WORDS = {
    Mode.AUTO: "would run",
    Mode.APPROVE: "would ask for approval",
    Mode.DRY_RUN: "would be shown, mode is dry_run",
}
_ACTED = PlannedStep(
    name="all steps",
    action="",
    params={},
    description="",
    timeout=0,
    attempts=1,
    backoff=0,
    wait=0,
    state=StepState.SUCCEEDED,
    attempt=1,
)


class Remedy(NamedTuple):
    """What became of an alert's wish for a playbook."""

    at: datetime
    playbook: str
    labels: Labels  # of the alert
    decision: str  # in words
    refused_by: str  # the guardrail; "" if none


class Remedies:
    """The wishes of one evaluation of history, in the order of time."""

    def __init__(self, settings: Settings, playbooks: Mapping[str, Playbook], source: Source) -> None:
        self._mode = settings.remediation.mode
        self._playbooks = playbooks
        self._source = source
        self._clusters = Clusters(settings.ray.clusters, _no_cluster)
        self._runs: list[Run] = []  # newest first
        self._settled: dict[tuple[str, str], datetime | None] = {}  # as the healer's
        self.found: list[Remedy] = []

    def consider(self, alert: Alert, rule: AlertingRule, at: datetime) -> None:
        """Note what a firing alert asks for, once in its episode, or again when a guardrail's time is over."""
        wanted = rule.remediate
        if wanted is None or alert.fired_at is None or at < alert.fired_at + wanted.after:
            return
        key = alert.episode, wanted.playbook
        if key in self._settled and ((until := self._settled[key]) is None or at < until):
            return
        playbook = self._playbooks.get(wanted.playbook)
        if playbook is None:
            self._settle(key, alert, wanted.playbook, at, "no playbook of that name is loaded")
            return
        if wanted.confirm is not None and not self._confirmed(wanted.confirm, alert, at):
            return
        try:
            self._decide(key, playbook, alert, at)
        except EngineError as error:
            said = f"cannot be known without the cluster of that time: {error}"
            self._settle(key, alert, playbook.name, at, said)

    def _decide(self, key: tuple[str, str], playbook: Playbook, alert: Alert, at: datetime) -> None:
        mode = Mode.stricter(playbook.mode, self._mode)
        if mode is Mode.OFF:
            self._settle(key, alert, playbook.name, at, "mode is off")
            return
        run = self._run(playbook, alert, at)
        self._runs = [each for each in self._runs if at - each.created_at < HISTORY]
        # With the mode that lets all through: what the others would say is what is asked.
        case = Case(playbook=playbook, run=run, alert=alert, mode=Mode.AUTO, history=self._runs, at=at)
        if said := refusals(case):
            words = "; ".join(f"{no.guardrail}: {no.reason}" for no in said)
            self._settle(key, alert, playbook.name, at, f"refused: {words}", said[0])
            return
        self._runs.insert(0, run)
        self._settle(key, alert, playbook.name, at, _WORDS[mode])

    def _run(self, playbook: Playbook, alert: Alert, at: datetime) -> Run:
        assert alert.fired_at is not None
        return Run(
            id=run_id(alert, playbook.name, len(self._runs)),
            playbook=playbook.name,
            rule_id=alert.rule_id,
            labels=alert.labels,
            signal=alert.signal,
            fired_at=alert.fired_at,
            target=target_of(playbook, alert, cluster=self._clusters.of(alert.labels).name),
            mode=Mode.DRY_RUN,
            state=RunState.HELPED,
            steps=(_ACTED,),
            created_at=at,
            updated_at=at,
            acted_at=at,
        )

    def _confirmed(self, text: str, alert: Alert, at: datetime) -> bool:
        try:
            expr = second_signal(text, alert, cluster=self._clusters.of(alert.labels).name)
            return bool(self._source.instant(expr, at).present.any())
        except QueryError:
            return False

    def _settle(
        self,
        key: tuple[str, str],
        alert: Alert,
        playbook: str,
        at: datetime,
        said: str,
        no: Refusal | None = None,
    ) -> None:
        self._settled[key] = no.until if no is not None else None
        self.found.append(Remedy(at, playbook, alert.labels, said, no.guardrail if no else ""))


def _no_cluster(_entry: RayCluster, _address: str) -> RayApi:
    """Return a cluster that exists only here: no connection is ever opened."""
    return LabRay()

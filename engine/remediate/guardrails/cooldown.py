"""Not twice on the same target within a while."""

from __future__ import annotations

from dataclasses import dataclass

from engine.model.duration import Duration
from engine.model.playbook import Refusal, RunState
from engine.model.ports import HISTORY, Case
from engine.registry import guardrail


@guardrail("cooldown")
@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """Refuses while a run of this playbook acted on the same target less than `per_target` ago, or still does.

    Counted from the run's last step, in the store, so a restart does not forget it.
    """

    per_target: Duration

    def __post_init__(self) -> None:
        if self.per_target > HISTORY:
            raise ValueError(
                f"cooldown: per_target {self.per_target} is longer than runs are looked back on ({HISTORY.days}d)"
            )

    def check(self, case: Case) -> Refusal | None:
        for run in case.earlier:
            if run.target != case.run.target:
                continue
            acted_at = run.acted_at or run.updated_at
            # A run that did not help stays open until somebody was told of it, which may take for ever.
            over = run.state.terminal or run.state is RunState.DID_NOT_HELP
            until = (acted_at if over else case.at) + self.per_target
            if until > case.at:
                return Refusal(
                    guardrail="cooldown",
                    reason=f"run {run.id} acted on {run.target} at {acted_at:%H:%M:%S}; cooldown is {self.per_target}",
                    until=until,
                )
        return None

"""Not too often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from engine.model.playbook import Refusal
from engine.model.ports import Case
from engine.registry import guardrail

_HOUR = timedelta(hours=1)


@guardrail("max_per_hour")
@dataclass(frozen=True, slots=True, kw_only=True)
class MaxPerHour:
    """Refuses when `runs` runs of this playbook have acted within the last hour, whatever their targets."""

    runs: int

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise ValueError(
                f"max_per_hour must be at least 1, not {self.runs}; to forbid a playbook write `mode: off`"
            )

    def check(self, case: Case) -> Refusal | None:
        acted = sorted(run.created_at for run in case.earlier if case.at - run.created_at < _HOUR)
        if len(acted) < self.runs:
            return None
        return Refusal(
            guardrail="max_per_hour",
            reason=f"{len(acted)} runs of {case.playbook.name} acted within the last hour; at most {self.runs} may",
            until=acted[-self.runs] + _HOUR,
        )

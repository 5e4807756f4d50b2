"""What does not help is not tried for ever."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from engine.model.duration import Duration
from engine.model.playbook import Refusal, RunState
from engine.model.ports import HISTORY, Case
from engine.registry import guardrail


@guardrail("breaker")
@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Refuses for `open_for` after `failures` runs of this playbook in a row that acted and did not help."""

    failures: int = 2
    open_for: Duration = Duration(hours=6)

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ValueError(f"breaker: failures must be at least 1, not {self.failures}")
        if self.open_for > HISTORY:
            raise ValueError(
                f"breaker: open_for {self.open_for} is longer than runs are looked back on ({HISTORY.days}d)"
            )

    def check(self, case: Case) -> Refusal | None:
        ended = [run for run in case.earlier if _ended(run.state)]
        failed = list(takewhile(lambda run: run.state is not RunState.HELPED, ended))
        if len(failed) < self.failures:
            return None
        until = failed[0].updated_at + self.open_for
        if until <= case.at:
            return None
        return Refusal(
            guardrail="breaker",
            reason=f"the last {len(failed)} runs of {case.playbook.name} did not help; "
            f"open until {until:%Y-%m-%d %H:%M} UTC",
            until=until,
        )


def _ended(state: RunState) -> bool:
    return state in (RunState.HELPED, RunState.DID_NOT_HELP, RunState.ESCALATED)

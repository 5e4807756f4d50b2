"""Did it help? The alert's own rule says, never the job's status.

The *condition* is asked, not the alert's state: `keep_firing_for` does not count, and the alert still
resolves in its own time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from engine.model.playbook import Run, RunState

GOOD_EVALUATIONS = 2


def observe(run: Run, *, bad: bool | None, slot: datetime) -> Run:
    """Take note of one evaluation of the run's rule for its alert; None says that it had too little to go on."""
    if run.state is not RunState.VERIFYING or run.acted_at is None or bad is None:
        return run
    if slot <= (run.judged_at or run.acted_at):
        return run  # from before the last step, or seen already
    return replace(run, good_evaluations=0 if bad else run.good_evaluations + 1, judged_at=slot)

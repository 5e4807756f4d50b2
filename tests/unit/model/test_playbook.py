"""Modes and states of remediation."""

from __future__ import annotations

from itertools import product

import pytest

from engine.model.playbook import Mode, RunState


@pytest.mark.parametrize(("one", "other"), list(product(Mode, Mode)))
def test_of_two_modes_the_stricter_wins(one: Mode, other: Mode) -> None:
    rising = [Mode.OFF, Mode.DRY_RUN, Mode.APPROVE, Mode.AUTO]
    assert Mode.stricter(one, other) is rising[min(rising.index(one), rising.index(other))]


def test_a_run_that_did_not_help_is_not_over_until_somebody_was_told() -> None:
    over = {state for state in RunState if state.terminal}
    assert over == {RunState.HELPED, RunState.REFUSED, RunState.ESCALATED}

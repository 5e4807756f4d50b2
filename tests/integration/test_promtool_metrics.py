"""The engine's own metrics follow Prometheus' conventions, by promtool's word."""

from __future__ import annotations

import subprocess
from pathlib import Path

from engine.serve.metrics import Metrics, State
from tests.flow.test_healing import APPROVE, asking


def test_promtool_has_nothing_to_say_about_the_engines_own_metrics(prometheus_bin: Path) -> None:
    stage = asking(APPROVE)
    metrics = Metrics()
    metrics.registry.register(State(lambda: stage.engine, lambda: 0))
    stage.run(35)
    for event in stage.events:
        metrics.observe(event)
    metrics.count_job("missed", "f;g")
    done = subprocess.run(
        [prometheus_bin / "promtool", "check", "metrics"],
        input=metrics.render(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")

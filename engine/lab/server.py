"""A test's series in a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path

from engine.lab.sources import Ground, samples_of
from engine.lab.tester import OpenGround
from engine.model.ports import Point
from engine.model.series import instant_of
from engine.model.testing import TestGroup
from engine.query.managed import ManagedPrometheus


def on_server(program: Path) -> OpenGround:
    """Return what opens a fresh server of that program for a test."""
    return partial(_open, program)


@contextmanager
def _open(program: Path, test: TestGroup, interval: timedelta, subquery_step: timedelta) -> Iterator[Ground]:
    with ManagedPrometheus(program, subquery_step) as server:
        for labels, times, values, stale in samples_of(test, interval):
            columns = zip(times, values.tolist(), stale.tolist(), strict=True)
            server.add(
                [Point(labels, instant_of(at / 1000), None if ends else value) for at, value, ends in columns]
            )
        yield server

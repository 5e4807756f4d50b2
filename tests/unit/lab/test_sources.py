"""What stands for the server in a test."""

from datetime import timedelta

import numpy as np
import pytest

from engine.lab.sources import figure_window
from engine.lang.promql import Storage
from engine.lang.promql.rewrite import over_step
from engine.model.labels import Labels
from engine.model.series import Window, instant_of
from engine.query.embedded import EmbeddedSource

START = 1_800_000_000.0


@pytest.mark.parametrize("figure", ["min", "max", "avg", "median"])
@pytest.mark.parametrize("minutes", [1, 5])
def test_figures_of_an_input_signal_are_those_that_the_server_would_give(figure, minutes):
    rng = np.random.default_rng(1)
    values = np.where(rng.random((3, 40)) < 0.2, np.nan, rng.normal(size=(3, 40)))
    values[2, 10:] = np.nan
    times = START + 60 * np.arange(40)
    labels = [Labels(__name__="m", node=f"n{node}") for node in range(3)]
    storage, step = Storage(), timedelta(minutes=minutes)
    for name, row in zip(labels, values, strict=True):
        there = ~np.isnan(row)
        storage.add(
            name, np.round(times[there] * 1000).astype(int).tolist(), row[there], [False] * there.sum()
        )
    server = EmbeddedSource(storage).range(
        over_step("m", figure, step), instant_of(times[0]), instant_of(times[-1]), timedelta(minutes=1)
    )
    found = figure_window(Window.of(labels, times, values), figure, step)
    assert found.labels == server.labels
    np.testing.assert_array_equal(found.present, server.present)
    np.testing.assert_allclose(found.values, server.values, rtol=1e-12)

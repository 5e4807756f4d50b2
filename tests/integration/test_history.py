"""What a detector is given of a real Prometheus: the same as the embedded evaluator gives."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from engine.flow.evaluate import fetch
from engine.lang.promql import Storage
from engine.model.labels import Labels
from engine.model.settings import PrometheusSettings
from engine.query.embedded import EmbeddedSource
from engine.query.prometheus import PrometheusSource
from engine.query.rolling import RollingSource
from tests.integration.remote_write import write
from tests.unit.flow.test_fetch import Looks

AT = datetime(2026, 1, 31, 12, 0, 7, tzinfo=UTC)
OUT_OF_ORDER = {"storage": {"tsdb": {"out_of_order_time_window": "20y"}}}


def series(seed):
    """Labels and samples of three series, one of which has a gap and one of which ends."""
    rng = np.random.default_rng(seed)
    newest = round(AT.timestamp() * 1000)
    for pid, skipped in (("1", range(0)), ("2", range(20, 50)), ("3", range(90, 120))):
        samples = [
            (newest - 15_000 * (119 - i) - 1300, float(rng.normal())) for i in range(120) if i not in skipped
        ]
        yield {"__name__": "m", "pid": pid}, samples


@pytest.mark.parametrize("over", [None, "min", "max", "avg"])
@pytest.mark.parametrize(
    "expr", ["m", "m * 2", "sum(m)", "m offset 1m", "last_over_time(m[30s])", "time()", 'm{pid="none"}']
)
def test_the_history_is_what_the_embedded_evaluator_makes_of_it(prometheus_server, over, expr):
    server = prometheus_server(config=OUT_OF_ORDER)
    write(server.url, list(series(7)))
    storage = Storage()
    for labels, samples in series(7):
        storage.add(Labels(labels), [at for at, _ in samples], [value for _, value in samples])
    source = PrometheusSource(PrometheusSettings(url=server.url))
    real = fetch(expr, Looks(over=over), source, AT, passed=timedelta(seconds=22))
    source.close()
    own = fetch(expr, Looks(over=over), EmbeddedSource(storage), AT, passed=timedelta(seconds=22))
    assert real.times.tolist() == own.times.tolist()
    assert sorted(real.labels, key=str) == sorted(own.labels, key=str)
    order = [own.labels.index(labels) for labels in real.labels]
    np.testing.assert_array_equal(real.present, own.present[order])
    np.testing.assert_allclose(real.values, own.values[order], rtol=1e-12)


@pytest.mark.parametrize(
    "expr", ["m", "rate(m[2m])", "sum(m)", "max_over_time(m[5m:30s])", 'm{pid="3"}', "m > 0.5"]
)
def test_a_window_that_rolls_is_the_one_that_the_server_gives(prometheus_server, expr):
    server = prometheus_server(config=OUT_OF_ORDER)
    write(server.url, list(series(8)))
    fresh = PrometheusSource(PrometheusSettings(url=server.url))
    rolling = RollingSource(fresh, 50_000)
    step, span = timedelta(seconds=30), timedelta(minutes=15)
    for at in (AT - timedelta(minutes=10) + stride * step for stride in (0, 1, 2, 5, 6, 18, 19, 25)):
        rolled, wanted = (source.range(expr, at - span, at, step) for source in (rolling, fresh))
        assert sorted(rolled.labels, key=str) == sorted(wanted.labels, key=str)
        order = [rolled.labels.index(labels) for labels in wanted.labels]
        np.testing.assert_array_equal(rolled.times, wanted.times)
        np.testing.assert_array_equal(rolled.present[order], wanted.present)
        np.testing.assert_array_equal(rolled.values[order], wanted.values)
        assert set(wanted.warnings) <= set(rolled.warnings)
    fresh.close()

"""The writer and a real Prometheus that takes remote writes."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from deploy.demo.prometheus import Prometheus
from engine.clients.remote_write import RemoteWriter
from engine.clients.write_queue import BATCH, FanOut, Fate
from engine.errors import QueryRejected, QueryUnavailable, SamplesRejected
from engine.model.labels import Labels
from engine.model.ports import Point
from engine.model.settings import PrometheusSettings, RemoteWrite
from engine.query.prometheus import PrometheusSource

T0 = datetime.now(UTC).replace(microsecond=123_000) - timedelta(minutes=10)
SECOND = timedelta(seconds=1)


@pytest.fixture
def server(prometheus_server):
    return prometheus_server()


@pytest.fixture
def writer(server):
    return writer_of(server)


def writer_of(server: Prometheus) -> RemoteWriter:
    return RemoteWriter(RemoteWrite(url=f"{server.url}/api/v1/write"))


def samples(server: Prometheus, expr: str, at: datetime) -> dict[Labels, float]:
    source = PrometheusSource(PrometheusSettings(url=server.url))
    window = source.instant(expr, at)
    source.close()
    return dict(zip(window.labels, window.values[:, 0].tolist(), strict=True))


def test_what_was_written_is_what_is_queried(server, writer):
    values = [0.0, -0.0, 1.0, 60.5, 1e300, 5e-324, math.inf, -math.inf]
    points = [
        Point(Labels(__name__="m", n=str(number), text='quo"te\\\n é 漢'), T0, value)
        for number, value in enumerate(values)
    ]
    writer.write([*points, Point(Labels(__name__="m_nan"), T0, math.nan)])
    found = samples(server, "m", T0)
    assert found == {point.labels: point.value for point in points}
    assert [math.copysign(1, found[point.labels]) for point in points[:2]] == [1, -1]
    assert math.isnan(samples(server, "m_nan", T0)[Labels(__name__="m_nan")])
    assert samples(server, "m", T0 - timedelta(milliseconds=1)) == {}


def test_a_request_may_be_large(server, writer):
    pad = "x" * 500
    writer.write([Point(Labels(__name__="m", n=str(n), pad=pad), T0, float(n)) for n in range(BATCH)])
    assert samples(server, "sum(m)", T0) == {Labels(): sum(range(BATCH))}


def test_several_instants_of_one_series_may_come_at_once(server, writer):
    writer.write([Point(Labels(__name__="m"), T0 + step * SECOND, float(step)) for step in range(5)])
    assert [list(samples(server, "m", T0 + step * SECOND).values()) for step in range(5)] == [
        [n] for n in range(5)
    ]


def test_a_stale_marker_ends_a_series_at_once(server, writer):
    alert = Labels(__name__="ALERTS", alertname="A", alertstate="firing")
    writer.write([Point(alert, T0, 1.0), Point(alert, T0 + 5 * SECOND, None)])
    assert samples(server, "ALERTS", T0 + 4.999 * SECOND) == {alert: 1.0}
    assert samples(server, "ALERTS", T0 + 5 * SECOND) == {}
    writer.write([Point(alert, T0 + 6 * SECOND, 1.0)])
    assert samples(server, "ALERTS", T0 + 6 * SECOND) == {alert: 1.0}


def test_one_sample_out_of_order_costs_no_other(server, writer):
    writer.write([Point(Labels(__name__="m", n=str(n)), T0, 1.0) for n in range(20)])
    later = [Point(Labels(__name__="m", n=str(n)), T0 + SECOND, 2.0) for n in range(20)]
    later[13] = later[13]._replace(at=T0 - SECOND)
    with pytest.raises(SamplesRejected, match=r"out of order.*n=\"13\".*1 of 20 samples") as caught:
        writer.write(later)
    assert caught.value.count == 1
    assert samples(server, "sum(m)", T0 + SECOND) == {Labels(): 19 * 2.0 + 1.0}


def test_what_was_delivered_already_may_be_delivered_again(server, writer):
    points = [Point(Labels(__name__="m", n=str(n)), T0, 1.0) for n in range(3)]
    writer.write(points)
    writer.write(points)
    with pytest.raises(SamplesRejected, match=r"duplicate sample.*n=\"1\""):
        writer.write([points[0], points[1]._replace(value=9.0), points[2]])
    assert samples(server, "sum(m)", T0) == {Labels(): 3.0}


def test_a_prometheus_that_takes_no_remote_writes_refuses_and_the_way_out_is_said(prometheus_server):
    server = prometheus_server(remote_write_receiver=False)
    with pytest.raises(QueryRejected, match=r"answered 404.*--web\.enable-remote-write-receiver"):
        writer_of(server).write([Point(Labels(__name__="m"), T0, 1.0)])


def test_a_server_that_was_down_for_a_while_gets_what_was_queued(server):
    told: Counter[Fate] = Counter()

    def count(_: str, fate: Fate, number: int) -> None:
        told[fate] += number

    fan_out = FanOut.of([RemoteWrite(url=f"{server.url}/api/v1/write")], count)
    (queue,) = fan_out.queues
    alert = Labels(__name__="ALERTS", alertname="A", alertstate="firing")

    def evaluate(step: int) -> None:
        """Every second the alert's sample; at the last one its end."""
        value = None if step == 9 else 1.0
        fan_out.write([Point(alert, T0 + step * SECOND, value)])

    evaluate(0)
    queue.flush(T0)
    server.stop()
    for step in range(1, 10):
        evaluate(step)
    with pytest.raises(QueryUnavailable, match="connection refused"):
        queue.flush(T0 + 9 * SECOND)
    assert queue.pending == 9
    server.start()
    queue.flush(T0 + 9.5 * SECOND)  # it is left alone for a second
    assert queue.pending == 9
    queue.flush(T0 + 10 * SECOND)
    assert queue.pending == 0
    assert told == {Fate.WRITTEN: 10}
    assert samples(server, "count_over_time(ALERTS[1m])", T0 + 9 * SECOND) == {alert.without("__name__"): 9.0}
    assert samples(server, "ALERTS", T0 + 9 * SECOND) == {}

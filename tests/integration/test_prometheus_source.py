"""The source and a real Prometheus 3."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from engine.errors import QueryRejected, QueryUnavailable
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.settings import PrometheusSettings
from engine.query.prometheus import PrometheusSource
from tests.integration.remote_write import write

START_MS = 1_700_000_000_500  # not on a whole second
START = datetime.fromtimestamp(START_MS / 1000, UTC)
STEP = timedelta(seconds=15)
OUT_OF_ORDER = {"storage": {"tsdb": {"out_of_order_time_window": "20y"}}}


def at(step):
    return START + step * STEP


@pytest.fixture
def server(prometheus_server):
    return prometheus_server(config=OUT_OF_ORDER)


@pytest.fixture
def source(server):
    source = PrometheusSource(PrometheusSettings(url=server.url))
    yield source
    source.close()


def fill(server, series):
    """Write values, one at each step; None is no sample."""
    write(
        server.url,
        [
            (labels, [(START_MS + 15_000 * i, value) for i, value in enumerate(values) if value is not None])
            for labels, values in series
        ],
    )


def test_values_gaps_and_numbers_that_are_none_come_as_they_are(server, source):
    odd = [0.1, None, float("nan"), float("inf"), float("-inf"), 5e-324]
    fill(server, [({"__name__": "m", "k": 'quo"te\né'}, odd)])
    window = source.range("last_over_time(m[1s])", at(0), at(5), STEP)
    assert window.labels == (Labels(__name__="m", k='quo"te\né'),)
    assert window.times.tolist() == [at(i).timestamp() for i in range(6)]
    assert window.present.tolist() == [[value is not None for value in odd]]
    np.testing.assert_array_equal(window.values, [[np.nan if value is None else value for value in odd]])
    last = source.instant("m", at(5))
    assert last.values.tolist() == [[5e-324]]
    assert last.times.tolist() == [at(5).timestamp()]


def test_an_instant_before_the_first_sample_sees_nothing(server, source):
    fill(server, [({"__name__": "m"}, [1.0])])
    assert len(source.instant("m", START - timedelta(milliseconds=1))) == 0
    assert len(source.instant("m", START)) == 1


def test_the_steps_of_a_range_are_those_of_instants(server, source):
    fill(server, [({"__name__": "m"}, [float(i * i) for i in range(50)])])
    step = timedelta(milliseconds=7_300)
    window = source.range("deriv(m[1m])", at(10), at(20), step)
    for column, instant in enumerate(window.times):
        alone = source.instant("deriv(m[1m])", datetime.fromtimestamp(instant, UTC))
        np.testing.assert_allclose(alone.values[0, 0], window.values[0, column], rtol=1e-12)


def test_a_range_longer_than_prometheus_answers_comes_whole(server, source):
    window = source.range("time()", START, START + timedelta(seconds=25_000), timedelta(seconds=1))
    assert window.values.shape == (1, 25_001)
    np.testing.assert_array_equal(window.values[0], window.times)
    assert window.labels == (Labels(),)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("sum by (", "400 bad_data: .*parse error"),
        ("m / on() n", "422 execution: .*many-to-one|found duplicate series"),
        ("m[5m]", "returns a matrix, not one number"),
        ('"hello"', "returns a string"),
        ("m{n=~'.*'}", "more than 3 series, where prometheus.max_samples allows 3"),
    ],
)
def test_a_query_that_is_wrong_is_refused_in_prometheus_words(server, expr, message):
    fill(server, [({"__name__": name, "n": str(n)}, [1.0]) for n in range(5) for name in "mn"])
    source = PrometheusSource(PrometheusSettings(url=server.url, max_samples=3))
    with pytest.raises(QueryRejected, match=message):
        source.instant(expr, START)
    source.close()


def test_a_range_of_too_many_series_is_refused_although_prometheus_cuts_it(server):
    fill(server, [({"__name__": "m", "n": str(n)}, [1.0] * 5) for n in range(100)])
    source = PrometheusSource(PrometheusSettings(url=server.url, max_samples=50))
    with pytest.raises(QueryRejected, match=r"prometheus.max_samples allows 50"):
        source.range("m", at(0), at(4), STEP)
    assert len(source.range("topk(10, m)", at(0), at(4), STEP)) == 10
    source.close()


def test_what_prometheus_says_beside_the_answer_is_kept(server, source):
    fill(server, [({"__name__": "m"}, [1.0, 2.0])])
    (remark,) = source.instant("rate(m[1m])", at(1)).warnings
    assert remark.startswith("PromQL info: metric might not be a counter")


def test_a_query_that_takes_too_long_is_ended_by_prometheus_itself(server):
    fill(server, [({"__name__": "m", "n": str(n)}, [float(i) for i in range(40)]) for n in range(200)])
    source = PrometheusSource(PrometheusSettings(url=server.url, timeout=Duration(milliseconds=200)))
    slow = "count(quantile_over_time(0.9, m[10m:10ms]))"
    with pytest.raises(QueryUnavailable, match=r"503 timeout: query timed out|no whole answer within 200ms"):
        source.range(slow, at(0), at(40), timedelta(milliseconds=100))
    source.close()


def test_a_server_that_was_started_anew_is_asked_again_at_once(server, source):
    source.instant("1", START)
    server.stop()
    with pytest.raises(QueryUnavailable, match="connection refused"):
        source.instant("1", START)
    server.start()
    assert source.instant("1", START).values.tolist() == [[1.0]]


def test_a_restart_between_two_queries_goes_unnoticed(server, source):
    source.instant("1", START)
    server.stop()
    server.start()
    assert source.instant("2", START).values.tolist() == [[2.0]]


def test_threads_share_a_source(source):
    with ThreadPoolExecutor(32) as pool:
        values = pool.map(lambda number: source.instant(f"vector({number})", START).values[0, 0], range(500))
        assert list(values) == list(range(500))


def test_a_large_answer_needs_little_memory(server):
    """50,000 samples, the most by default: the process stays far below what a service is given."""
    fill(server, [({"__name__": "m", "n": str(n), "pad": "x" * 200}, [float(n)] * 50) for n in range(1000)])
    script = f"""
from datetime import UTC, datetime, timedelta
from engine.model.settings import PrometheusSettings
from engine.query.prometheus import PrometheusSource
source = PrometheusSource(PrometheusSettings(url={server.url!r}))
start = datetime.fromtimestamp({START_MS / 1000!r}, UTC)
window = source.range("m", start, start + timedelta(seconds=15 * 49), timedelta(seconds=15))
with open("/proc/self/status") as status:  # not getrusage: its peak begins with that of the parent
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(window.values.shape, peak // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    shape, _, peak = done.stdout.strip().rpartition(" ")
    assert shape == "(1000, 50)"
    assert int(peak) < 150  # MiB

"""How long the embedded evaluator takes, beside a real Prometheus asked over HTTP in the same run.

A thousand series of six hours at 15 s. A range has 361 steps a minute apart, an instant is its last one. Each figure is
the least of several runs; the ratio is what to compare between machines.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from deploy.demo import parts
from deploy.demo.prometheus import Prometheus
from engine.lang.promql import Storage, evaluate
from engine.model.labels import Labels
from tests.fixtures.promql.server import ANY_AGE, Query, Server
from tests.integration.remote_write import write

SERIES = 1000
SAMPLES = 1440
START_MS = 1_600_000_000_000
STEP_MS = 15_000
STEPS = 361
RUNS = 3
QUERIES = (
    "sum by (node) (rate(bulk[5m]))",
    "avg_over_time(bulk[5m])",
    "quantile_over_time(0.9, bulk[5m])",
    "stddev_over_time(bulk[5m])",
    "max by (node) (bulk)",
    "topk(3, bulk)",
    "deriv(bulk[1h])",
    "predict_linear(bulk[1h], 3600)",
    "max_over_time(rate(bulk[5m])[30m:1m])",
)


def make_series() -> list[tuple[Labels, list[tuple[int, float | None]]]]:
    """Return counters of 20 nodes."""
    rng = random.Random(1)
    return [
        (Labels(__name__="bulk", node=f"n{index % 20}", id=str(index)), list(_counter(rng)))
        for index in range(SERIES)
    ]


def _counter(rng: random.Random) -> Iterator[tuple[int, float | None]]:
    value = 0.0
    for index in range(SAMPLES):
        value += rng.choice((0.0, 1.0, 2.5, 10.0))
        yield START_MS + index * STEP_MS, value


def store(series: list[tuple[Labels, list[tuple[int, float | None]]]]) -> Storage:
    """Return a storage that holds the series."""
    storage = Storage()
    for labels, samples in series:
        storage.add(labels, [at for at, _ in samples], [value or 0.0 for _, value in samples])
    return storage


def least(run: Callable[[], object]) -> float:
    """Return the seconds of the shortest of several runs."""
    durations = []
    for _ in range(RUNS):
        began = time.perf_counter()
        run()
        durations.append(time.perf_counter() - began)
    return min(durations)


def import_time() -> float:
    """Return the seconds that importing the evaluator adds to a bare interpreter."""

    def python(code: str) -> float:
        return least(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    return python("import engine.lang.promql") - python("pass")


def measure(server: Server, storage: Storage) -> Iterator[tuple[str, list[float]]]:
    """Yield each expression with the seconds of range and instant: ours, the server's."""
    end = START_MS + (SAMPLES - 1) * STEP_MS
    for expr in QUERIES:
        figures = []
        for query in (Query(expr, end - 60_000 * (STEPS - 1), 60_000, STEPS), Query(expr, end, 60_000, 1)):
            seconds = query.seconds

            def ours(expr: str = expr, seconds: list[float] = seconds) -> object:
                return evaluate(expr, storage, seconds)

            def theirs(query: Query = query) -> object:
                return server.raw(query)

            figures += [least(ours), least(theirs)]
        yield expr, figures


def report() -> Iterator[str]:
    """Yield the lines of the table."""
    series = make_series()
    storage = store(series)
    with (
        tempfile.TemporaryDirectory() as folder,
        Prometheus(Path(folder), programs=parts.part("prometheus"), **ANY_AGE) as running,
    ):
        server = Server(running.url)
        for start in range(0, SERIES, 100):
            write(server.url, series[start : start + 100])
        yield (
            f"{SERIES} series x {SAMPLES} samples, {STEPS} steps; Prometheus {server.version}; least of {RUNS} runs, ms"
        )
        yield f"{'':42}{'range: ours':>12}{'theirs':>8}{'ratio':>7}{'instant: ours':>15}{'theirs':>8}{'ratio':>7}"
        for expr, (ours, theirs, our_instant, their_instant) in measure(server, storage):
            yield (
                f"{expr:42}{ours * 1e3:12.0f}{theirs * 1e3:8.0f}{ours / theirs:7.2f}"
                f"{our_instant * 1e3:15.1f}{their_instant * 1e3:8.1f}{our_instant / their_instant:7.2f}"
            )
    yield f"importing engine.lang.promql: {import_time() * 1e3:.0f} ms"

"""What an evaluation of ten thousand series costs: fetch from a real Prometheus, read, judge, and the whole tick.

One core and one BLAS thread are what counts (`OPENBLAS_NUM_THREADS=1`). Each figure is the least of several runs,
as time that passes, and as time of the processors, Prometheus' included, which other work on the machine disturbs less.
The series are of Ray's shape: memory of processes, with labels of 200 bytes, in whole bytes, a sample a minute.
"""

import gc
import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import psutil

from deploy.demo import parts
from deploy.demo.prometheus import Prometheus
from engine.flow.build import Loaded, build
from engine.load.rules import read_rules
from engine.load.settings import read_settings
from engine.model.labels import Labels
from engine.model.ports import Detector
from engine.model.series import Window
from engine.model.settings import PrometheusSettings
from engine.query import answer
from engine.query.matrix import read_rows
from engine.query.prometheus import PrometheusSource
from engine.query.rolling import RollingSource
from engine.registry import detector
from engine.store.memory import MemoryStore
from tests.integration.remote_write import _field, _snappy, _varint

SERIES = 10_000
POINTS = 240
MORE_POINTS = 960
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
LENGTHS = (120, 240, 480, 960)  # leak wants 96 points or more
BYTES = 1 << 30
MINUTE = timedelta(minutes=1)
END = datetime(2026, 1, 31, 12, tzinfo=UTC)
RUNS = 3
_ANY_AGE = {"storage": {"tsdb": {"out_of_order_time_window": "20y"}}}
_NO_LIMIT = PrometheusSettings().max_samples * 1000
_JUDGED = {
    "leak": "lookback: {length}m, step: 1m, seasonality: none",
    "forecast": "lookback: {length}m, step: 1m, bound: 4e9",
    "anomaly": "",
}
_RULES = """
groups:
  - name: g
    interval: 1m
    rules:
      - alert: A
        expr: process_memory_bytes{series="10000"}
        for: 5m
        detect: {forecast: {bound: 4294967296}}
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.pid }} has {{ $value | humanize1024 }}B"}
"""


_servers: list[psutil.Process] = []


class _Cost(NamedTuple):
    """Seconds that passed, those of the processors, and what came of it."""

    passed: float
    worked: float
    made: Any

    def __add__(self, other: tuple) -> "_Cost":  # type: ignore[override]
        return _Cost(self.passed + other[0], self.worked + other[1], None)


def report() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="speed-", ignore_cleanup_errors=True) as folder:
        flags = ("--query.max-samples=200000000",)
        server = Prometheus(
            Path(folder),
            programs=parts.part("prometheus"),
            config=_ANY_AGE,
            flags=flags,
            scrape_interval="1m",
        )
        with server:
            assert server._child is not None
            _servers[:] = [psutil.Process(server._child.pid)]
            began = time.perf_counter()
            for size, lot in zip(SIZES, _lots(), strict=True):
                _load(server.url, size, lot, POINTS + 10)
            _load(server.url, 0, range(2_000), MORE_POINTS)
            yield f"(loaded in {time.perf_counter() - began:.0f} s)"
            yield from _fetches(server.url)
            yield from _whole(server.url)
            yield from _curves(server.url)


def _lots() -> Iterator[range]:
    """Return which series each size adds to those before."""
    first = 0
    for size in SIZES:
        yield range(first, size)
        first = size


def _fetches(url: str) -> Iterator[str]:
    source = PrometheusSource(PrometheusSettings(url=url, max_samples=_NO_LIMIT))
    expr = _of(SERIES)
    body = _body(url, expr)
    grid = answer.Grid.of(END - (POINTS - 1) * MINUTE, END, MINUTE)
    assert read_rows(body) is not None
    yield f"{SERIES:,} series x {POINTS} points, a point a minute{'':>19}passes  processors"
    yield _line(f"Prometheus alone, to the last of {len(body) / 1e6:.0f} MB", _best(lambda: _body(url, expr)))
    raw = _best(lambda: _fetched(source, expr, POINTS))
    window: Window = raw.made
    yield _line("fetch, all samples", raw)
    pushed = _best(lambda: _fetched(source, f"min_over_time({expr}[10m])", 24, 10 * MINUTE))
    yield _line("fetch, the least of ten minutes (24 points)", pushed)
    tails = [_best(_rolled(source, expr), runs=1) for _ in range(RUNS)]
    tail = _Cost(min(one.passed for one in tails), min(one.worked for one in tails), None)
    yield _line("fetch, the end of what is kept", tail)
    plain, quick = _best(lambda: _through_json(body, grid)), _best(lambda: _read(body, grid))
    yield _line("read the answer through JSON", plain)
    yield _line("read it without", quick, f"{plain.worked / quick.worked:.1f} times faster")
    judged = _Cost(0.0, 0.0, None)
    for name, detect in _detectors(POINTS):
        one = _judged(detect, window)
        judged += one
        yield _line(f"judge {name}", one, f"says something of {one.made.known.mean():.0%}")
    yield _line("these together", judged, "floor 0.8 s, aim 0.2 s")
    yield _line("with the fetch of all samples", judged + raw, "floor 2 s, aim 1 s")
    yield _line("with the fetch of the end", judged + tail)
    source.close()


def _whole(url: str) -> Iterator[str]:
    """Measure whole evaluations of one rule, the first of which fetches everything."""
    problems: list[Any] = []
    text = f"prometheus: {{max_samples: {_NO_LIMIT}}}\nroute: {{receiver: r}}\nreceivers: [{{name: r}}]\n"
    settings = read_settings("engine.yaml", text.encode(), problems)
    rules = _RULES.replace('{series="10000"}', _of(SERIES).removeprefix("process_memory_bytes"))
    groups = read_rules("rules.yaml", rules.encode(), problems).groups
    assert not problems, problems
    assert settings is not None
    source = PrometheusSource(PrometheusSettings(url=url, max_samples=_NO_LIMIT))
    engine = build(Loaded(settings=settings, groups=groups, playbooks={}), source=source, store=MemoryStore())
    (group,) = engine.groups
    slots = iter([END + (index - 8) * MINUTE for index in range(6)])
    yield _line(
        "evaluate a forecast rule, the first time", _best(lambda: engine.tick(group, next(slots)), runs=1)
    )
    yield _line("evaluate it again", _best(lambda: engine.tick(group, next(slots)), runs=5))
    assert not engine.status[f"{group};A"].error, engine.status[f"{group};A"].error
    source.close()


def _curves(url: str) -> Iterator[str]:
    source = PrometheusSource(PrometheusSettings(url=url, max_samples=_NO_LIMIT))
    names = [name for name, _ in _detectors(POINTS)]
    yield f"{'seconds of processors':<22}{'fetch':>10}" + "".join(f"{name:>10}" for name in names)
    by_size = [_costs(source, _of(size), POINTS) for size in SIZES]
    for size, costs in zip(SIZES, by_size, strict=True):
        yield f"{size:>6,} series x {POINTS:<4}" + "".join(f"{seconds:>9.3f}s" for seconds in costs)
    yield f"{'cost ~ series to the':>20}  " + _exponents(SIZES, by_size)
    by_length = [_costs(source, 'process_memory_bytes{lot="0"}', points) for points in LENGTHS]
    for points, costs in zip(LENGTHS, by_length, strict=True):
        yield f"{2_000:>6,} series x {points:<4}" + "".join(f"{seconds:>9.3f}s" for seconds in costs)
    yield f"{'cost ~ points to the':>20}  " + _exponents(LENGTHS, by_length)
    source.close()


def _costs(source: PrometheusSource, expr: str, points: int) -> list[float]:
    """Return the seconds of a fetch, then of each detector on what came."""
    fetched = _best(lambda: _fetched(source, expr, points))
    return [fetched.worked, *(_judged(detect, fetched.made).worked for _, detect in _detectors(points))]


def _exponents(sizes: Sequence[int], costs: Sequence[Sequence[float]]) -> str:
    """Return the slopes of log cost over log size; 1 is linear."""
    slopes = np.polyfit(np.log(sizes), np.log(np.array(costs)), 1)[0]
    return "".join(f"{slope:>10.2f}" for slope in slopes)


def _detectors(points: int) -> Iterator[tuple[str, Detector]]:
    """Return the detectors that there are, for a history of so many minutes."""
    for name, fields in _JUDGED.items():
        if name in detector:
            rule = f"{{alert: A, expr: m, detect: {{{name}: {{{fields.format(length=points - 1)}}}}}}}"
            problems: list[Any] = []
            (group,) = read_rules(
                "r.yaml", f"groups: [{{name: g, rules: [{rule}]}}]".encode(), problems
            ).groups
            assert not problems, problems
            yield name, group.rules[0].detect


def _judged(detect: Detector, window: Window) -> _Cost:
    """Measure one judgement, with the notes of one before, on all points of the window.

    The one before is so long ago that those which judge only now and then are due again.
    """
    times = END.timestamp() - detect.step.total_seconds() * np.arange(len(window.times))[::-1]
    signal = Window(window.labels, times, window.values, window.present)
    nothing = Window((), times[-1:], np.empty((0, 1)), np.empty((0, 1), dtype=np.bool_))
    inputs = dict.fromkeys(detect.inputs, nothing)
    before = detect.judge(signal, inputs, END - max(detect.step, detect.lookback / 24))
    return _best(lambda: detect.judge(signal, inputs, END, before.memory))


def _fetched(source: PrometheusSource, expr: str, points: int, step: timedelta = MINUTE) -> Window:
    return source.range(expr, END - (points - 1) * step, END, step)


def _rolled(source: PrometheusSource, expr: str) -> Callable[[], Window]:
    rolling = RollingSource(source, _NO_LIMIT)
    rolling.range(expr, END - POINTS * MINUTE, END - MINUTE, MINUTE)
    return lambda: rolling.range(expr, END - (POINTS - 1) * MINUTE, END, MINUTE)


def _through_json(body: bytes, grid: answer.Grid) -> Window:
    envelope = json.loads(body)
    said = answer.Answer(envelope["data"]["resultType"], envelope["data"]["result"], ())
    return answer.range_window([(grid, said)], grid, _NO_LIMIT, "")


def _read(body: bytes, grid: answer.Grid) -> Window:
    return answer.range_window([(grid, answer.read_answer(200, body, ""))], grid, _NO_LIMIT, "")


def _best(work: Callable[[], Any], *, runs: int = RUNS) -> _Cost:
    """Return the least that several runs cost, and what came of the last."""
    passed = worked = np.inf
    made = None
    for _ in range(runs):
        del made
        gc.collect()
        began, before = time.perf_counter(), _processors()
        made = work()
        passed, worked = min(passed, time.perf_counter() - began), min(worked, _processors() - before)
    return _Cost(passed, worked, made)


def _processors() -> float:
    """Return the seconds that this process and the servers have had of the processors."""
    return time.process_time() + sum(sum(server.cpu_times()[:2]) for server in _servers)


def _line(what: str, cost: _Cost, remark: str = "") -> str:
    return f"  {what:<48}{cost.passed:>8.3f} s{cost.worked:>8.3f} s{'   ' + remark if remark else ''}"


def _of(size: int) -> str:
    """Return the selector of the first `size` series."""
    lots = "|".join(str(known) for known in SIZES if known <= size)
    return f'process_memory_bytes{{lot=~"{lots}"}}'


def _body(url: str, expr: str) -> bytes:
    start = END.timestamp() - 60 * (POINTS - 1)
    form = f"query={quote(expr)}&start={start}&end={END.timestamp()}&step=60"
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{form}", timeout=60) as reply:
        return reply.read()


def _load(url: str, lot: int, numbers: range, points: int) -> None:
    """Write series through remote write; a sample is 18 bytes, laid out for all series of a request at once."""
    last = round(END.timestamp() * 1000)
    times = last - 60_000 * np.arange(points, dtype=np.int64)[::-1]
    stamps = np.array([list(_varint(int(time_))) for time_ in times], dtype=np.uint8)
    sample = np.empty((points, 12 + stamps.shape[1]), dtype=np.uint8)
    sample[:, 0], sample[:, 1], sample[:, 2] = 0x12, 10 + stamps.shape[1], 0x09
    sample[:, 11], sample[:, 12:] = 0x10, stamps
    for first in range(numbers.start, numbers.stop, 250):
        body = []
        for number in range(first, min(first + 250, numbers.stop)):
            sample[:, 3:11] = _values(number, points).view(np.uint8).reshape(points, 8)
            names = b"".join(
                _field(1, _field(1, name.encode()) + _field(2, text.encode()))
                for name, text in _labels(lot, number).items()
            )
            body.append(_field(1, names + sample.tobytes()))
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        request = urllib.request.Request(f"{url}/api/v1/write", data=_snappy(b"".join(body)), headers=headers)
        with urllib.request.urlopen(request, timeout=60):
            pass


def _labels(lot: int, number: int) -> Labels:
    return Labels(
        __name__="process_memory_bytes",
        SessionName="session_2026-01-31_08-00-00_000000_1234",
        instance=f"10.0.{number // 200}.{number % 200}:8080",
        Component="ray::IDLE",
        actor_id=f"{number:032x}",
        pid=str(1000 + number),
        lot=str(lot),
    )


def _values(number: int, points: int) -> np.ndarray:
    """Return the memory of a process, in bytes: a level, noise, at times growth."""
    rng = np.random.default_rng(number)
    level = rng.uniform(0.2, 2) * BYTES
    growth = (number % 50 == 0) * np.linspace(0, 0.3 * BYTES, points)
    return np.round(level + growth + rng.normal(0, 0.01 * level, points))

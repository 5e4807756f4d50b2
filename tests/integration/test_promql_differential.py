"""The embedded evaluator and a real Prometheus 3 give the same answers to random queries on nasty data.

Differences that remain, and are no defects:

* `topk` and `bottomk` take any of several equal values, here and there.
* Parts of dates of infinite or huge values: Prometheus answers what an integer overflow leaves, we NaN.
* The last bits of `exp`, `stddev` and the like, which `count_values` turns into labels.
* Over a range, `label_replace` and `label_join` of series that become equal but are never there together:
  Prometheus refuses the range whole, although it answers each of its instants, as we do.

Sums that cancel out and comparisons of their last bits are counted as differences; they are what is allowed for.
"""

import json
import math
import random
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from deploy.demo.prometheus import Prometheus
from engine.errors import ExpressionError
from engine.lang.promql import Storage, evaluate
from engine.model.labels import Labels
from tests.integration.remote_write import write

START_MS = 1_600_000_020_000  # not on a full minute's grid
STEP_MS = 15_000
LENGTH = 160  # samples, 40 minutes
TOLERANCE = 1e-9
DATES = ("hour", "minute", "day_of_week", "day_of_month", "day_of_year", "month", "year", "days_in_month")

Samples = list[tuple[int, float | None]]


# ── Data ─────────────────────────────────────────────────────────────────────


def make_series(rng: random.Random) -> list[tuple[Labels, Samples]]:
    """Return series on the grid and beside it, with gaps, resets, NaN, infinities and stale markers."""
    series = []
    for metric, kind in (
        ("gauge", _walk),
        ("events_total", _counter),
        ("ramp", _ramp),
        ("ramp_total", _counter),
    ):
        jitter = 0 if metric.startswith("ramp") else 4_000
        for a in "123":
            for b in "xy":
                labels = Labels(__name__=metric, a=a, b=b, only=metric[0] if b == "x" else "")
                series.append((labels, list(_spoiled(kind(rng), rng, jitter))))
    for a in "12":
        series += _histogram(a, rng)
    return series


def _walk(rng: random.Random) -> Iterator[float]:
    value = rng.uniform(-5, 50)
    while True:
        value += rng.choice((0, 0, rng.gauss(0, 3)))
        yield value


def _ramp(rng: random.Random) -> Iterator[float]:
    value, slope = rng.choice((0, 5, -7)), rng.choice((0, 1, 10, -3))
    while True:
        yield float(value)
        value += slope


def _counter(rng: random.Random) -> Iterator[float]:
    value = 0.0
    while True:
        value = 0.0 if rng.random() < 0.03 else value + rng.choice((0, 1, 10, 2.5))
        yield value


def _spoiled(values: Iterator[float], rng: random.Random, jitter: int) -> Iterator[tuple[int, float | None]]:
    nasty = rng.random() < 0.3
    gap = range(0)
    for index in range(LENGTH):
        value = next(values)
        if rng.random() < 0.02:
            gap = range(index, index + rng.choice((1, 3, 25)))
        if index in gap:
            continue
        at = START_MS + index * STEP_MS + rng.randint(0, jitter)
        if rng.random() < 0.02:
            yield at, None
        elif nasty and rng.random() < 0.05:
            yield at, rng.choice((math.nan, math.inf, -math.inf))
        else:
            yield at, value


def _histogram(a: str, rng: random.Random) -> list[tuple[Labels, Samples]]:
    bounds = ("0.1", "0.5", "1", "5", "+Inf") if a == "1" else ("-1", "0", "2.5", "+Inf")
    columns: list[Samples] = [[] for _ in bounds]
    counts = [0.0] * len(bounds)
    for index in range(LENGTH):
        hit = rng.randrange(len(bounds))
        counts = [count + (place >= hit) for place, count in enumerate(counts)]
        for column, count in zip(columns, counts, strict=True):
            if rng.random() > 0.02:
                column.append((START_MS + index * STEP_MS, count))
    names = [Labels(__name__="seconds_bucket", a=a, le=bound) for bound in bounds]
    return list(zip(names, columns, strict=True))


# ── Queries ──────────────────────────────────────────────────────────────────

COUNTERS = ("events_total", "ramp_total")
METRICS = ("gauge", "events_total", "ramp", "ramp_total", "seconds_bucket", "nothing")
_STATISTICS = ("avg", "min", "max", "sum", "count", "last", "present", "stddev", "stdvar")
OVER_TIME = tuple(f"{name}_over_time" for name in _STATISTICS)
MATH = (
    "abs", "ceil", "floor", "exp", "sqrt", "ln", "log2", "log10", "sgn", "deg", "rad", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
)  # fmt: skip
RANGES = ("30s", "1m", "2m", "5m", "7m30s", "10m")


class Grammar:
    """Makes random queries that parse."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def pick(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def vector(self, depth: int) -> str:
        """Return an expression of an instant vector."""
        if depth <= 0:
            return self.selector() + self.shift()
        makers: tuple[Callable[[int], str], ...] = (
            self.ranged, self.ranged, self.aggregated, self.aggregated, self.joined, self.joined, self.compared,
            self.computed, self.united, self.relabelled, self.histogram, self.peculiar,
        )  # fmt: skip
        return self.rng.choice(makers)(depth - 1)

    def selector(self) -> str:
        matchers = [
            f'{name}{self.pick("=", "!=")}"{value}"'
            if self.rng.random() < 0.6
            else f'{name}=~"{value}|1|x.*"'
            for name, value in (("a", self.pick("1", "2")), ("b", self.pick("x", "y", "")))
            if self.rng.random() < 0.3
        ]
        return self.pick(*METRICS) + ("{" + ",".join(matchers) + "}" if matchers else "")

    def shift(self) -> str:
        offset = f" offset {self.pick('1m', '3m', '-1m', '7s')}" if self.rng.random() < 0.12 else ""
        middle = START_MS // 1000 + 900
        at = f" @ {self.pick('start()', 'end()', str(middle))}" if self.rng.random() < 0.08 else ""
        return at + offset

    def range(self, depth: int) -> str:
        if depth > 0 and self.rng.random() < 0.3:
            step = self.pick("", "30s", "1m", "20s")
            return f"({self.vector(depth - 1)})[{self.pick('2m', '5m')}:{step}]{self.shift()}"
        return f"{self.selector()}[{self.pick(*RANGES)}]{self.shift()}"

    def scalar(self) -> str:
        number = self.pick("0", "1", "2", "-1", "10", "0.5", "100", "1e3")
        return self.pick(number, number, number, f"scalar({self.vector(0)})", "(time() / 1e9)", "NaN", "Inf")

    def ranged(self, depth: int) -> str:
        if self.rng.random() < 0.4:
            counter = f"{self.pick(*COUNTERS)}[{self.pick(*RANGES)}]{self.shift()}"
            return f"{self.pick('rate', 'increase', 'irate', 'resets')}({counter})"
        inner = self.range(depth)
        return self.pick(
            f"{self.pick(*OVER_TIME)}({inner})",
            f"{self.pick('delta', 'idelta', 'deriv', 'changes', 'resets', 'rate', 'increase')}({inner})",
            f"quantile_over_time({self.pick('0.5', '0.9', '0', '1.5')}, {inner})",
            f"predict_linear({inner}, {self.pick('60', '3600')})",
            f"absent_over_time({inner})",
        )

    def aggregated(self, depth: int) -> str:
        inner = self.vector(depth)
        by = self.pick("", " by (a)", " by (b, only)", " without (b)", " without ()", " by (a, b)")
        plain = self.pick("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")
        return self.pick(
            f"{plain}{by} ({inner})",
            f"{plain}{by} ({inner})",
            f"{plain}{by} ({inner})",
            f"quantile{by} ({self.pick('0.5', '0.99', '-1')}, {inner})",
            f"{self.pick('topk', 'bottomk')}{by} ({self.pick('1', '2', '0')}, {inner})",
            f'count_values{by} ("v", {inner})',
        )

    def joined(self, depth: int) -> str:
        """Return arithmetic or a comparison between two vectors."""
        operator = self.pick(
            "+", "-", "*", "/", "%", "^", "atan2", "==", "!=", ">", "<", ">=", "<= bool", "> bool"
        )
        on = self.pick(
            "", "on (a)", "on (a, b)", "ignoring (only)", "ignoring (only, b)", "on (a, __name__)", "on ()"
        )
        if on and self.rng.random() < 0.4:
            on += self.pick(" group_left ", " group_right ", " group_left (only) ", " group_right (b) ")
        left = self.vector(depth)
        right = self.vector(depth) if self.rng.random() < 0.5 else f"max by (a, b) ({self.vector(depth)})"
        return f"({left}) {operator} {on} ({right})"

    def compared(self, depth: int) -> str:
        """Return arithmetic or a comparison of a vector with a scalar."""
        operator = self.pick("+", "-", "*", "/", "%", "^", ">", "<", "==", "!=", ">= bool", "<=")
        sides = [f"({self.vector(depth)})", self.scalar()]
        self.rng.shuffle(sides)
        return f"{sides[0]} {operator} {sides[1]}"

    def united(self, depth: int) -> str:
        on = self.pick("", "on (a)", "ignoring (only)", "on (b)", "on ()")
        return f"({self.vector(depth)}) {self.pick('and', 'or', 'unless')} {on} ({self.vector(depth)})"

    def computed(self, depth: int) -> str:
        inner = self.vector(depth)
        math_function = self.pick(*MATH)
        date = self.pick(*DATES)
        return self.pick(
            f"{math_function}({inner})",
            f"{date}({inner})",
            f"-({inner})",
            f"round({inner}, {self.pick('1', '5', '0.1')})",
            f"clamp({inner}, {self.pick('0', '10', '30')}, 20)",
            f"clamp_{self.pick('min', 'max')}({inner}, {self.scalar()})",
        )

    def relabelled(self, depth: int) -> str:
        inner = self.vector(depth)
        return self.pick(
            f'label_replace({inner}, "{self.pick("c", "a", "__name__")}", "{self.pick("$1", "n$1", "")}", "a", "(.*)")',
            f'label_replace({inner}, "c", "${{n}}-$$-$2", "{self.pick("a", "b", "none")}", "(?P<n>[12x])?")',
            f'label_join({inner}, "{self.pick("c", "b")}", "-", "a", "b", "none")',
        )

    def histogram(self, _: int) -> str:
        buckets = self.pick(
            "seconds_bucket",
            f"rate(seconds_bucket[{self.pick('1m', '5m')}])",
            "sum by (le) (seconds_bucket)",
            "sum by (le, a) (increase(seconds_bucket[2m]))",
        )
        quantile = self.pick("0.5", "0.9", "0.99", "0", "1", "-1", "2", "NaN")
        return f"histogram_quantile({quantile}, {buckets})"

    def peculiar(self, depth: int) -> str:
        inner = self.vector(depth)
        return self.pick(
            f"timestamp({self.pick(self.selector() + self.shift(), inner)})",
            f"absent({self.pick(self.selector(), inner)})",
            f"sort({inner})",
            f"sort_desc({inner})",
            f"vector(scalar({inner}))",
            f"sum({inner}) or vector(0)",
        )


# ── Answers ──────────────────────────────────────────────────────────────────

Answer = dict[Labels, dict[float, float]]
"""Values by labels and Unix seconds."""


class Query(NamedTuple):
    """An expression at instants: milliseconds, a step apart."""

    expr: str
    start_ms: int
    step_ms: int
    steps: int

    @property
    def seconds(self) -> list[float]:
        return [(self.start_ms + index * self.step_ms) / 1000 for index in range(self.steps)]


def make_query(rng: random.Random) -> Query:
    on_grid = rng.random() < 0.5
    start = START_MS + rng.randint(0, LENGTH + 20) * STEP_MS + (0 if on_grid else rng.randint(0, STEP_MS))
    steps = rng.choice((1, 1, 7, 12))
    return Query(Grammar(rng).vector(rng.randint(0, 3)), start, rng.choice((15_000, 47_000, 60_000)), steps)


class Server:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def answer(self, query: Query) -> Answer | None:
        """Return the answer, None if the query is refused."""
        kind = "query" if query.steps == 1 else "query_range"
        first, last = query.seconds[0], query.seconds[-1]
        bounds = (
            {"time": first}
            if query.steps == 1
            else {"start": first, "end": last, "step": query.step_ms / 1000}
        )
        form = urllib.parse.urlencode({"query": query.expr, **bounds}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{kind}", form, timeout=20) as response:
                result = json.load(response)["data"]["result"]
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in (400, 422):
                raise
            return None
        return {
            Labels(one["metric"]): {
                float(at): float(value) for at, value in one.get("values") or [one["value"]]
            }
            for one in result
        }


def embedded_answer(query: Query, storage: Storage) -> Answer | None:
    try:
        window = evaluate(query.expr, storage, query.seconds)
    except ExpressionError:
        return None
    return {
        labels: {
            float(at): float(value)
            for at, value, is_there in zip(window.times, values, present, strict=True)
            if is_there
        }
        for labels, values, present in zip(window.labels, window.values, window.present, strict=True)
    }


def agree(ours: Answer | None, theirs: Answer | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return ours.keys() == theirs.keys() and all(
        ours[labels].keys() == theirs[labels].keys()
        and all(_close(value, theirs[labels][at]) for at, value in ours[labels].items())
        for labels in ours
    )


def _close(one: float, other: float) -> bool:
    return (math.isnan(one) and math.isnan(other)) or math.isclose(
        one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE
    )


def is_documented(query: Query, ours: Answer | None, theirs: Answer | None) -> bool:
    """Tell whether answers that differ do so in a way that the top of this file names."""
    if ours is None or theirs is None:
        return ours is not None and query.steps > 1 and "label_" in query.expr
    return any(f"{word}(" in query.expr for word in DATES) or any(
        word in query.expr for word in ("topk", "bottomk", "count_values")
    )


def compare(
    server: Server, storage: Storage, rng: random.Random, count: int
) -> tuple[Counter[str], list[Query]]:
    """Return how often the answers were equal, empty, refused, documented or different, and the different ones."""
    tally: Counter[str] = Counter()
    different = []
    for _ in range(count):
        query = make_query(rng)
        ours, theirs = embedded_answer(query, storage), server.answer(query)
        if agree(ours, theirs):
            tally["refused" if ours is None else "equal" if ours else "empty"] += 1
        elif is_documented(query, ours, theirs):
            tally["documented"] += 1
        else:
            tally["different"] += 1
            different.append(query)
    return tally, different


# ── The real thing ───────────────────────────────────────────────────────────


# A server that takes samples of any age and does not throw them away.
ANY_AGE: dict[str, Any] = {
    "evaluation_interval": "1m",  # the default step of subqueries
    "config": {"storage": {"tsdb": {"out_of_order_time_window": "50y"}}},
    "flags": ["--storage.tsdb.retention.time=100y"],
}


def fill(server: Server, rng: random.Random) -> Storage:
    """Return a storage with the same random samples that the server is given."""
    series = make_series(rng)
    write(server.url, series)
    storage = Storage()
    for labels, samples in series:
        values = [math.nan if value is None else value for _, value in samples]
        storage.add(
            labels, [at for at, _ in samples], np.array(values), [value is None for _, value in samples]
        )
    return storage


@pytest.mark.parametrize("seed", [1, 2])
def test_random_queries_are_answered_as_prometheus_answers_them(
    seed: int, prometheus_server: Callable[..., Prometheus]
) -> None:
    rng = random.Random(seed)
    server = Server(prometheus_server(**ANY_AGE).url)
    storage = fill(server, rng)
    tally, different = compare(server, storage, rng, 600)
    assert tally["equal"] > 300, f"the queries say too little: {tally}"
    assert len(different) <= 0.003 * (tally["equal"] + len(different)), (tally, different)
    assert tally["documented"] <= 0.02 * tally["equal"], tally

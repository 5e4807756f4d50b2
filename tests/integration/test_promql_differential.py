"""The embedded evaluator and a real Prometheus 3 give the same answers to random queries on nasty data.

Answers may differ in the ways of `KINDS`, each of which says why, and holds the two answers to all that it does not
excuse. Sums that cancel out and comparisons of their last bits are counted as differences: they are what is allowed for.
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from deploy.demo.prometheus import Prometheus
from engine.errors import ExpressionError
from engine.lang.promql import Storage, evaluate
from engine.lang.promql.parse import parse
from engine.lang.promql.syntax import Aggregation, Call, walk
from tests.fixtures.promql.grammar import DATES, make_query
from tests.fixtures.promql.refusals import BEYOND, REFUSED, SERIES, TAKEN, UNUSABLE
from tests.fixtures.promql.series import make_series, store
from tests.fixtures.promql.server import ANY_AGE, Answer, Query, Server, agree, close, embedded_answer
from tests.integration.remote_write import write

# ── Differences that are no defects ──────────────────────────────────────────


class Difference(NamedTuple):
    """A query, both answers to it, and the server to ask more."""

    query: Query
    ours: Answer | None
    theirs: Answer | None
    server: Server

    def uses(self, *words: str) -> bool:
        """Tell whether the expression calls one of these functions or aggregations."""
        nodes = walk(parse(self.query.expr))
        return any(
            (isinstance(node, Call) and node.function in words)
            or (isinstance(node, Aggregation) and node.operator in words)
            for node in nodes
        )


def same_values(found: Difference) -> bool:
    """Tell whether at every instant the values are the same, whatever elements have them."""
    if not found.uses("topk", "bottomk") or found.ours is None or found.theirs is None:
        return False
    pairs = zip(_columns(found.ours, found.query), _columns(found.theirs, found.query), strict=True)
    return all(len(ours) == len(theirs) and all(map(close, ours, theirs)) for ours, theirs in pairs)


def _columns(answer: Answer, query: Query) -> list[list[float]]:
    columns = [[row[step] for row in answer.values() if step in row] for step in range(query.steps)]
    return [sorted(column, key=lambda value: (math.isnan(value), value)) for column in columns]


def same_but_for_unreadable_dates(found: Difference) -> bool:
    """Tell whether the answers are the same but for values that are NaN here."""
    if not found.uses(*DATES) or found.ours is None or found.theirs is None:
        return False
    theirs = {
        labels: {
            step: math.nan if math.isnan(found.ours.get(labels, {}).get(step, 0.0)) else value
            for step, value in row.items()
        }
        for labels, row in found.theirs.items()
    }
    return agree(found.ours, theirs)


def same_but_for_last_digits(found: Difference) -> bool:
    """Tell whether the same numbers were counted, if those that are close are the same."""
    root = parse(found.query.expr)
    counts = isinstance(root, Aggregation) and root.operator == "count_values"
    if not counts or found.ours is None or found.theirs is None:
        return False
    ours, theirs = _counted(found.ours), _counted(found.theirs)
    return len(ours) == len(theirs) and all(
        mine[:-1] == other[:-1] and close(mine[-1], other[-1])
        for mine, other in zip(ours, theirs, strict=True)
    )


def _counted(answer: Answer) -> list[tuple[str, int, bool, float]]:
    """Return (group, step, is it NaN, number) of every element that was counted, from the label `v`."""
    return sorted(
        (str(labels.without("v")), step, labels["v"] == "NaN", float(labels["v"].replace("NaN", "0")))
        for labels, row in answer.items()
        for step, count in row.items()
        for _ in range(round(count))
    )


def same_at_each_instant(found: Difference) -> bool:
    """Tell whether the server refuses the range, but answers each instant as we do."""
    if not found.uses("label_replace", "label_join") or found.theirs is not None or found.ours is None:
        return False
    for step, query in enumerate(found.query.instants):
        ours = {labels: {0: row[step]} for labels, row in found.ours.items() if step in row}
        if not agree(ours, found.server.answer(query)):
            return False
    return True


KINDS: dict[str, tuple[str, Callable[[Difference], bool]]] = {
    "ties": ("topk and bottomk take any of several equal values, here and there", same_values),
    "dates": (
        "of values that no calendar reaches Prometheus answers what an integer overflow leaves, we NaN",
        same_but_for_unreadable_dates,
    ),
    "digits": (
        "count_values makes labels of the last bits of exp, stddev and the like",
        same_but_for_last_digits,
    ),
    "ranges": (
        "over a range Prometheus refuses relabelled series that become equal, even if never there together",
        same_at_each_instant,
    ),
}


# ── Random queries ───────────────────────────────────────────────────────────


def compare(
    server: Server, storage: Storage, rng: random.Random, count: int
) -> tuple[Counter[str], list[Query]]:
    """Return how often the answers were equal, empty, refused, of a kind or different, and the different ones."""
    tally: Counter[str] = Counter()
    different = []
    for _ in range(count):
        query = make_query(rng)
        ours, theirs = embedded_answer(query, storage), server.answer(query)
        if agree(ours, theirs):
            tally["refused" if ours is None else "equal" if ours else "empty"] += 1
            continue
        found = Difference(query, ours, theirs, server)
        kind = next((name for name, (_, excuses) in KINDS.items() if excuses(found)), "different")
        tally[kind] += 1
        if kind == "different":
            different.append(query)
    return tally, different


@pytest.mark.parametrize("seed", [1, 2])
def test_random_queries_are_answered_as_prometheus_answers_them(
    seed: int, prometheus_server: Callable[..., Prometheus]
) -> None:
    rng = random.Random(seed)
    server = Server(prometheus_server(**ANY_AGE).url)
    series = make_series(rng)
    write(server.url, series)
    tally, different = compare(server, store(series), rng, 1000)
    assert tally["equal"] > 500, f"the queries say too little: {tally}"
    assert len(different) <= 0.003 * (tally["equal"] + len(different)), (tally, different)
    assert sum(tally[kind] for kind in KINDS) <= 0.02 * tally["equal"], tally


# ── Refusals ─────────────────────────────────────────────────────────────────


def test_what_prometheus_refuses_is_refused_and_what_it_takes_is_taken(
    prometheus_server: Callable[..., Prometheus],
) -> None:
    server = Server(prometheus_server(**ANY_AGE).url)
    write(server.url, SERIES)
    storage = store(SERIES)
    at = max(at for _, samples in SERIES for at, _ in samples) / 1000

    def is_refused(expr: str) -> bool:
        return isinstance(server.ask("query", query=expr, time=at), str)

    def is_refused_here(expr: str) -> bool:
        try:
            evaluate(expr, storage, [at])
        except ExpressionError:
            return True
        return False

    expected = {
        **dict.fromkeys((expr for expr, *_ in REFUSED), (True, True)),
        **dict.fromkeys(TAKEN, (False, False)),
        **dict.fromkeys(UNUSABLE, (False, True)),
        **dict.fromkeys(itertools.chain(*BEYOND.values()), (None, True)),
    }
    for expr, (there, here) in expected.items():
        assert is_refused_here(expr) == here, expr
        assert there is None or is_refused(expr) == there, expr

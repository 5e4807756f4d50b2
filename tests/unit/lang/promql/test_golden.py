"""The evaluator gives the answers that a real Prometheus gave, recorded by tests/fixtures/promql/record.py."""

import gzip
import json
import math
import re
from collections import Counter
from functools import cache

import pytest

from engine.lang.promql.aggregations import AGGREGATIONS
from engine.lang.promql.functions import FUNCTIONS
from engine.lang.promql.parse import parse
from engine.lang.promql.range_functions import RANGE_FUNCTIONS
from engine.lang.promql.syntax import (
    Aggregation,
    Binary,
    Call,
    Negation,
    RangeSelector,
    Selector,
    Subquery,
    walk,
)
from engine.model.labels import Labels
from tests.fixtures.promql.record import GOLDEN, OPERATORS, SET_OPERATORS
from tests.fixtures.promql.series import store
from tests.fixtures.promql.server import Query, agree, close, embedded_answer


@cache
def golden():
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


@pytest.fixture(scope="module")
def storage():
    return store(
        (
            Labels(one["labels"]),
            [
                (at, None if value is None else float(value))
                for at, value in zip(one["times"], one["values"], strict=True)
            ],
        )
        for one in golden()["series"]
    )


def cases():
    """Yield every recorded query and its answer."""
    for case in golden()["cases"]:
        query = Query(case["expr"], case["start_ms"], case["step_ms"], case["steps"])
        yield (
            query,
            None
            if case["answer"] is None
            else {
                Labels(labels): {int(step): float(value) for step, value in row.items()}
                for labels, row in case["answer"]
            },
        )


def parts_of(expr):
    """Yield the name of every part of the language that `expr` uses."""
    for node in walk(parse(expr)):
        match node:
            case Call(function=name) | Aggregation(operator=name) | Binary(operator=name):
                yield name
        if isinstance(node, Aggregation) and node.grouping.labels:
            yield "by" if node.grouping.by else "without"
        if isinstance(node, Binary):
            yield node.matching.cardinality.value
            yield "on" if node.matching.grouping.by else "ignoring" if node.matching.grouping.labels else ""
            yield "bool" if node.returns_bool else ""
        if isinstance(node, Negation | RangeSelector | Subquery):
            yield type(node).__name__
        if isinstance(node, Selector | Subquery):
            yield "@" if node.shift.at is not None else ""
            yield "offset" if node.shift.offset_ms else ""


def test_every_recorded_answer_is_ours_too(storage):
    wrong = [
        query for query, theirs in cases() if not agree(embedded_answer(query, storage), theirs, floor=0.0)
    ]
    assert not wrong, f"{len(wrong)} answers differ, the first: {wrong[:5]}"


def test_at_one_instant_sorted_elements_come_in_the_recorded_order(storage):
    compared = Counter()
    for query, theirs in cases():
        word = re.match(r"(sort_desc|sort|topk|bottomk) ?\(", query.expr)
        if word and theirs and query.steps == 1:
            ours = embedded_answer(query, storage)
            values, expected = ([row[0] for row in answer.values()] for answer in (ours, theirs))
            assert all(map(close, values, expected)), query
            compared[word[1]] += len(values) > 1
    assert min(compared[word] for word in ("sort", "sort_desc", "topk", "bottomk")) >= 1, compared


def test_every_part_of_the_language_is_recorded_at_least_five_times():
    answered = Counter(part for query, theirs in cases() if theirs for part in set(parts_of(query.expr)))
    parts = {
        *FUNCTIONS, *RANGE_FUNCTIONS, "absent", "absent_over_time", "timestamp", *AGGREGATIONS, *OPERATORS, *SET_OPERATORS,
        "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "@", "offset", "Negation", "RangeSelector", "Subquery",
    }  # fmt: skip
    assert {part: answered[part] for part in parts if answered[part] < 5} == {}


def test_the_recorded_data_is_as_nasty_as_real_data():
    series = golden()["series"]
    values = [value for one in series for value in one["values"]]
    assert None in values  # stale markers
    assert {"nan", "inf", "-inf"} <= {value for value in values if isinstance(value, str)}
    steps = [{b - a for a, b in zip(one["times"], one["times"][1:], strict=False)} for one in series]
    assert any(len(found) > 10 for found in steps), "jitter"
    assert any(all(step % 15_000 == 0 for step in found) and max(found) > 15_000 for found in steps), (
        "a grid with gaps"
    )
    assert {query.steps > 1 for query, _ in cases()} == {True, False}
    assert all(not isinstance(at, float) for one in series for at in one["times"])
    assert golden()["prometheus"].startswith("3.")
    assert any(
        math.isnan(v) for _, theirs in cases() if theirs for row in theirs.values() for v in row.values()
    )

"""What Prometheus refuses is refused with the culprit's place; what only a server may answer is told from what is wrong."""

import pytest

from engine.errors import ExpressionError
from engine.lang.promql import evaluate
from tests.fixtures.promql.refusals import BEYOND, REFUSED, SERIES, TAKEN, UNUSABLE
from tests.fixtures.promql.series import store

STORAGE = store(SERIES)


def refusal_of(expr):
    with pytest.raises(ExpressionError) as refusal:
        evaluate(expr, STORAGE, [1_600_000_000])
    return refusal.value


@pytest.mark.parametrize(("expr", "line", "column", "says"), REFUSED)
def test_what_is_wrong_is_refused_at_its_place(expr, line, column, says):
    refusal = refusal_of(expr)
    assert says in str(refusal)
    assert (refusal.line, refusal.column) == (line, column)
    assert not refusal.beyond


@pytest.mark.parametrize("expr", TAKEN)
def test_what_is_odd_but_right_is_answered(expr):
    evaluate(expr, STORAGE, [1_600_000_000])


@pytest.mark.parametrize("expr", UNUSABLE)
def test_what_has_no_value_at_an_instant_is_refused(expr):
    refusal = refusal_of(expr)
    assert "no value at an instant" in str(refusal)
    assert not refusal.beyond


@pytest.mark.parametrize(("hint", "expr"), [(hint, expr) for hint, exprs in BEYOND.items() for expr in exprs])
def test_what_a_server_may_answer_is_refused_with_the_way_to_ask_one(hint, expr):
    refusal = refusal_of(expr)
    assert refusal.beyond
    assert "--engine prometheus" in str(refusal)
    assert hint in str(refusal)

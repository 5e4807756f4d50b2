"""PromQL made of PromQL."""

from datetime import timedelta

import pytest

from engine.lang.promql import validate
from engine.lang.promql.rewrite import over_time


@pytest.mark.parametrize(
    ("expr", "asked"),
    [
        ("m", "min_over_time(m[1m30s])"),
        ('((m{a="b}"}))', 'min_over_time(m{a="b}"}[1m30s])'),
        ("m offset 5m", "min_over_time(m[1m30s] offset 5m)"),
        ("m @ 100", "min_over_time(m[1m30s] @ 100.000)"),
        ("m > 1 # so be it", "min_over_time((m > 1)[1m30s:9s])"),
        ("sum(m)", "min_over_time((sum(m))[1m30s:9s])"),
        ("time() + 1", "min_over_time((vector(time() + 1))[1m30s:9s])"),
    ],
)
def test_the_least_of_a_step_is_asked_for(expr, asked):
    made = over_time(expr, "min", timedelta(seconds=90), timedelta(seconds=9))
    assert made.replace("{}", "") == asked
    validate(made)


def test_what_only_a_server_can_read_is_asked_for_as_it_is():
    made = over_time("new_function(m) # hm", "avg", timedelta(minutes=1), timedelta(seconds=6))
    assert made == "avg_over_time((new_function(m) # hm\n)[1m:6s])"

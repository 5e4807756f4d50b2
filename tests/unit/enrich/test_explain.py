"""What is said of signals whose truth is known."""

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from engine.enrich.explain import Explain
from engine.errors import AsideError, QueryUnavailable
from engine.model.alert import Alert, AlertState, Text
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.ports import Scene
from engine.model.rule import AlertingRule
from engine.model.series import Window

AT = datetime(2026, 8, 19, 14, 28, 30, tzinfo=UTC)
NOW, HOUR, GIB = AT.timestamp(), 3600.0, 2.0**30
SIGNAL = Labels(instance="n0")


class Series:
    """Returns what a function of time says, and keeps what it was asked."""

    def __init__(self, values, labels=SIGNAL):
        self.values, self.labels, self.asked = values, labels, []

    def range(self, expr, start, end, step):
        self.asked.append((expr, start, end, step))
        times = np.arange(start.timestamp(), end.timestamp() + 0.001, step.total_seconds())
        return Window.of([Labels({"__name__": "x", **self.labels})], times, [self.values(times)])


class Here:
    """Calculates in this process, which saves starting one."""

    def call(self, function, *arguments, timeout):
        return function(*arguments)


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("engine.enrich.explain.Aside", Here)


def scene(source, expr="ray_memory_bytes > 5e9"):
    alert = Alert(
        rule_id="r",
        labels=Labels({"alertname": "Full", **SIGNAL}),
        signal=SIGNAL,
        state=AlertState.FIRING,
        value=1.0,
        active_at=AT - timedelta(minutes=25),
        fired_at=AT - timedelta(minutes=12),
    )
    rule = AlertingRule(alert="Full", expr=expr, detect=None)
    return Scene(alert=alert, rule=rule, at=AT, source=source, ray=None)


def said(values, explain=Explain(), expr="ray_memory_bytes > 5e9"):  # noqa: B008
    evidence = explain.collect(scene(Series(values), expr))
    assert isinstance(evidence, Text)
    return evidence.text


def noise(times, sd=0.05 * GIB, seed=1):
    return np.random.default_rng(seed).normal(0, sd, len(times))


def growing(times):
    """0.3 GiB, which is 307 MiB, an hour for the last twelve hours."""
    return 3 * GIB + 0.3 * GIB * np.clip((times - NOW) / HOUR + 12, 0, None) + noise(times)


def daily(times):
    return 0.6 * GIB * np.sin(2 * np.pi * times / 86_400)


def figures(text):
    found = re.match(r"(\w+) by (.*) MiB an hour \(± (.*) MiB, 90 %\) since about (\d\d):(\d\d) UTC", text)
    assert found, text
    return found[1], float(found[2]), float(found[3]), int(found[4]) + int(found[5]) / 60


@pytest.mark.parametrize("sign", [1, -1])
def test_a_trend_is_told_with_its_interval_and_since_when(sign):
    text = said(lambda times: 20 * GIB + sign * growing(times))
    verb, slope, error, since = figures(text)
    assert verb == ("Grows" if sign > 0 else "Falls")
    assert abs(slope - 307.2) < 1.5 * error
    assert error < 100
    assert abs(since - 2.48) < 2
    assert "none the time of day" in text
    assert text.endswith("What is left looks like noise: the figures can be believed.")


@pytest.mark.usefixtures("here")
def test_the_time_of_day_is_told_apart_from_the_trend():
    text = said(lambda times: growing(times) + daily(times))
    _, slope, error, _ = figures(text)
    assert abs(slope - 307.2) < 1.5 * error
    share = re.search(r"is trend, (\d+)% the time of day, 0% is left", text)
    assert share, text
    assert 10 < int(share[1]) < 30


@pytest.mark.usefixtures("here")
def test_a_day_alone_is_no_trend():
    text = said(lambda times: 3 * GIB + daily(times) + noise(times))
    assert text.startswith("No trend for sure: it may as well fall by ")
    assert re.search(r"9\d% the time of day", text)


@pytest.mark.usefixtures("here")
def test_noise_alone_is_neither():
    text = said(lambda times: 3 * GIB + noise(times))
    assert text.startswith("No trend for sure")
    assert re.search(r"none the time of day, (100|9\d)% is left", text)


@pytest.mark.usefixtures("here")
def test_a_season_is_not_looked_for_where_the_range_holds_less_than_two():
    text = said(growing, Explain(range=Duration(days=1)))
    assert "time of day" not in text
    assert "time of day" not in said(growing, Explain(season=Duration()))


@pytest.mark.usefixtures("here")
def test_what_is_left_and_is_no_noise_is_said():
    def jumping(times):
        places = np.arange(len(times))
        return 3 * GIB + GIB * (places % 4 == 0) + noise(times)

    assert said(jumping).endswith("What is left is no mere noise: the truth may well be outside of ±.")


@pytest.mark.usefixtures("here")
def test_the_unit_is_that_of_the_expression():
    text = said(lambda times: growing(times) / GIB, expr="engine_ray_actor_cpu_cores")
    assert re.match(r"Grows by 0\.\d+ an hour", text)


@pytest.mark.usefixtures("here")
def test_gaps_are_left_out():
    def gappy(times):
        return np.where(np.random.default_rng(4).random(len(times)) < 0.3, np.nan, growing(times))

    _, slope, error, _ = figures(said(gappy))
    assert abs(slope - 307.2) < 1.5 * error


@pytest.mark.usefixtures("here")
def test_it_asks_for_the_signal_until_now_in_a_bounded_number_of_points():
    source = Series(growing)
    Explain(range=Duration(hours=6)).collect(scene(source))
    ((expr, start, end, step),) = source.asked
    assert (expr, start, end) == ("ray_memory_bytes", AT - timedelta(hours=6), AT)
    assert (end - start) / step <= 288


@pytest.mark.parametrize(
    "source",
    [
        Series(growing, Labels(instance="other")),
        Series(lambda times: np.full(len(times), np.nan)),
        Series(lambda times: np.where(times < NOW - 5 * HOUR, np.nan, 1.0)),
        Series(lambda times: np.full(len(times), np.inf)),
    ],
)
def test_too_few_samples_are_said_in_words(source):
    assert "Fewer than 36 samples" in Explain().collect(scene(source)).text


@pytest.mark.parametrize(("value", "shown"), [(3 * GIB, "3 GiB"), (0.0, "0 B")])
def test_what_never_moves_needs_no_model(value, shown):
    assert said(lambda times: np.full(len(times), value)) == f"It hardly moves: {shown} all the time."


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_the_size_of_the_figures_does_not_matter(factor):
    text = said(lambda times: factor * growing(times) / GIB, expr="x")
    assert text.startswith("Grows by ")


def test_a_server_that_does_not_answer_is_the_callers_to_report():
    class Down:
        def range(self, *_):
            raise QueryUnavailable("no answer")

    with pytest.raises(QueryUnavailable):
        Explain().collect(scene(Down()))


def test_a_calculation_that_takes_too_long_is_the_callers_to_report(monkeypatch):
    monkeypatch.setattr("engine.enrich.explain._LONGEST", 0.01)
    with pytest.raises(AsideError, match=r"structure took longer than 0.01 s"):
        Explain().collect(scene(Series(growing)))


@pytest.mark.parametrize("fields", [{"range": Duration()}, {"season": Duration(hours=-1)}])
def test_lengths_that_make_no_sense_are_refused(fields):
    with pytest.raises(ValueError, match="must"):
        Explain(**fields)

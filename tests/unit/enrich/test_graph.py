import io
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from PIL import Image

from engine.enrich.graph import Graph, _Trend
from engine.errors import QueryUnavailable
from engine.lang.units import unit_of
from engine.model.alert import Alert, AlertState, Picture, Text
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.ports import Scene
from engine.model.rule import AlertingRule
from engine.model.series import Window
from engine.registry import enricher

AT = datetime(2026, 8, 19, 14, 28, 30, tzinfo=UTC)
GIB = 2.0**30
FORECAST = {
    "level": 7 * GIB,
    "bound": 10 * GIB,
    "eta": 7200.0,
    "eta_earliest": 5000.0,
    "eta_latest": 10_000.0,
}
RED = (208, 52, 44)


class Series:
    """Returns what it was given, and keeps what it was asked."""

    def __init__(self, *values, labels=None):
        self.values, self.labels, self.asked = values, labels, []

    def range(self, expr, start, end, step):
        self.asked.append((expr, start, end, step))
        count = int((end - start) / step) + 1
        times = start.timestamp() + np.arange(count) * step.total_seconds()
        rows = [
            np.broadcast_to(np.asarray(row(times) if callable(row) else row, float), (count,))
            for row in self.values
        ]
        labels = self.labels or [
            Labels({"__name__": "x", "instance": f"n{index}"}) for index in range(len(rows))
        ]
        return Window.of(labels, times, np.array(rows))


def scene(source, expr="ray_memory_bytes", details=None, **more):
    signal = Labels(instance="n0")
    alert = Alert(
        rule_id="r",
        labels=Labels({"alertname": "Full", **signal}),
        signal=signal,
        state=AlertState.FIRING,
        value=7 * GIB,
        details=details or {},
        active_at=AT - timedelta(minutes=25),
        fired_at=AT - timedelta(minutes=12),
        **more,
    )
    rule = AlertingRule(alert="Full", expr=expr, detect=None)
    return Scene(alert=alert, rule=rule, at=AT, source=source, ray=None)


def pixels(picture):
    return np.asarray(Image.open(io.BytesIO(picture.png)).convert("RGB")).astype(int)


def near(picture, colour):
    """Return where the picture has about that colour."""
    return np.abs(pixels(picture) - np.array(colour)).max(axis=2) < 40


def test_it_is_called_graph():
    assert enricher.get("graph") is Graph


def test_it_is_a_png_of_moderate_size_with_words_for_those_who_do_not_see_it():
    picture = Graph().collect(scene(Series(np.float64(7 * GIB))))
    assert isinstance(picture, Picture)
    assert Image.open(io.BytesIO(picture.png)).size == (1040, 468)
    assert len(picture.png) < 60_000
    assert picture.title == "Full, last 1h"
    assert picture.alt.startswith("7 GiB now, between 7 GiB and 7 GiB in the last 1h")


def test_it_asks_for_the_range_until_now_in_a_bounded_number_of_points():
    source = Series(1.0)
    Graph(range=Duration(hours=6)).collect(scene(source))
    ((expr, start, end, step),) = source.asked
    assert (expr, start, end) == ("ray_memory_bytes", AT - timedelta(hours=6), AT)
    assert (end - start) / step <= 240


def test_of_a_threshold_the_signal_is_drawn_and_the_limit_named():
    source = Series(np.float64(7 * GIB))
    picture = Graph().collect(scene(source, "ray_memory_bytes > 5e9"))
    assert source.asked[0][0] == "ray_memory_bytes"
    assert "limit 4.66 GiB" in picture.alt
    assert near(picture, RED).sum() > near(Graph().collect(scene(source)), RED).sum() + 500


def test_a_forecast_is_drawn_to_its_bound():
    source = Series(np.float64(7 * GIB))
    picture = Graph().collect(scene(source, details=FORECAST))
    assert picture.alt.endswith("limit 10 GiB, reached in about 2h")
    # Something red between now and the bound: right of the samples and below the limit's line.
    red = near(picture, RED)
    assert red[150:300, 600:900].any()


def test_what_is_said_of_a_near_bound_stays_within_the_picture():
    details = {**FORECAST, "eta": 30.0, "eta_earliest": 20.0, "eta_latest": 33.0}
    picture = Graph(range=Duration(minutes=5)).collect(scene(Series(np.float64(7 * GIB)), details=details))
    assert not near(picture, RED)[:, -25:].any()


GREEN, AMBER = (47, 143, 91), (183, 121, 31)
HOUR = 3600.0
LEAK = {
    "slope_per_hour": 0.3 * GIB,
    "slope_low": 0.2 * GIB,
    "slope_high": 0.4 * GIB,
    "since": AT.timestamp() - 10 * HOUR,
    "level": 7 * GIB,
}


def rising(times):
    return 4 * GIB + 0.3 * GIB * np.clip((times - LEAK["since"]) / HOUR, 0, None)


def test_a_trend_is_drawn_from_where_it_began_with_what_was_before():
    source = Series(rising)
    picture = Graph().collect(scene(source, details=LEAK))
    ((_, start, _, _),) = source.asked
    assert timedelta(hours=12) < AT - start < timedelta(hours=14)
    assert picture.title == "Full, last 13h"
    assert picture.alt.endswith("; +307 MiB an hour since 04:28 UTC")
    amber = near(picture, AMBER)
    assert (
        amber[:, 300:900].sum() > near(Graph().collect(scene(Series(rising))), AMBER)[:, 300:900].sum() + 200
    )


def test_the_fan_of_a_trend_is_as_wide_as_the_interval_of_its_slope_says():
    now, since = AT.timestamp(), LEAK["since"]
    trend = _Trend(since, since, now, 7.0, 0.3, 0.2, 0.4)
    low, high = trend.fan(np.array([since, (since + now) / 2, now]))
    np.testing.assert_allclose(low, [3.5, 5.5, 6.5])
    np.testing.assert_allclose(high, [4.5, 5.5, 7.5])


def test_the_chart_reaches_back_two_weeks_at_most_and_never_less_than_its_range():
    for since, range_, length in (
        (AT.timestamp() - 40 * 24 * HOUR, Duration(hours=1), timedelta(days=14)),
        (AT.timestamp() - 40 * 24 * HOUR, Duration(days=20), timedelta(days=20)),
        (AT.timestamp() - 60, Duration(hours=1), timedelta(hours=1)),
        (float("nan"), Duration(hours=1), timedelta(hours=1)),
    ):
        source = Series(np.float64(7 * GIB))
        Graph(range=range_).collect(scene(source, details={**LEAK, "since": since}))
        ((_, start, end, _),) = source.asked
        assert end - start == length


def test_what_is_usual_is_a_band_at_its_height_now():
    usual = {"low": 2 * GIB, "high": 3 * GIB, "expected": 2.5 * GIB}
    picture = Graph().collect(scene(Series(np.float64(7 * GIB)), details=usual))
    assert picture.alt.endswith("; usual now: 2 GiB to 3 GiB")
    green = near(picture, GREEN)
    assert green.any()
    assert not green[:, :700].any()  # of the past nothing is known
    rows = np.flatnonzero(green[:, 700:].any(axis=1))
    assert 200 < rows.mean() < 400  # below the middle: the signal is higher


def test_without_figures_of_a_detector_there_is_neither():
    picture = Graph().collect(scene(Series(np.float64(7 * GIB))))
    assert not near(picture, GREEN).any()
    assert "usual" not in picture.alt
    assert "an hour" not in picture.alt


def test_a_resolved_alert_has_nothing_to_foresee():
    resolved = scene(Series(np.float64(7 * GIB)), details=FORECAST)
    object.__setattr__(resolved.alert, "state", AlertState.RESOLVED)
    assert "reached" not in Graph().collect(resolved).alt


@pytest.mark.parametrize(
    "details",
    [
        {**FORECAST, "eta": 0.0},
        {**FORECAST, "eta": 1e12, "eta_latest": 1e13},
        {name: value for name, value in FORECAST.items() if name != "eta_latest"},
        {"eta": 600.0},
        {"bound": 1e30, "eta": 600.0},
        {"bound": 0.0, "eta": 600.0},
        {"bound": -5.0},
        {"slope_per_hour": 1.0},
        {"slope_per_hour": -1e300, "since": AT.timestamp() - 3600},
        {"slope_per_hour": GIB, "since": AT.timestamp() + 3600},
        {"slope_per_hour": GIB, "since": 0.0, "slope_low": -GIB},
        {"low": 6 * GIB, "high": 6 * GIB},
        {"low": -1e30, "high": 1e30, "expected": 1.0},
        {"low": -GIB, "high": GIB},
        {"expected": 1.0},
    ],
)
def test_any_details_give_a_chart(details):
    assert isinstance(Graph().collect(scene(Series(np.float64(7 * GIB)), details=details)), Picture)


@pytest.mark.parametrize(
    "values",
    [
        0.0,
        -3.0,
        1e300,
        lambda times: np.where(np.arange(len(times)) == 5, 1.0, np.nan),
        lambda times: np.where(np.arange(len(times)) % 2, np.inf, 1.0),
        lambda times: times,
    ],
)
@pytest.mark.parametrize("length", [Duration(seconds=10), Duration(hours=1), Duration(days=30)])
def test_any_samples_give_a_chart(values, length):
    assert isinstance(Graph(range=length).collect(scene(Series(values, np.nan, 5.0))), Picture)


def test_many_other_series_are_bounded():
    few = Graph().collect(scene(Series(*np.arange(1.0, 22.0))))
    many = Graph().collect(scene(Series(*np.arange(1.0, 400.0))))
    assert len(many.png) < 2 * len(few.png)


@pytest.mark.parametrize(
    "source", [Series(labels=[]), Series(1.0, labels=[Labels(instance="other")]), Series(np.nan)]
)
def test_no_samples_of_the_alert_are_said_in_words(source):
    evidence = Graph().collect(scene(source))
    assert isinstance(evidence, Text)
    assert "No samples" in evidence.text


def test_an_expression_that_only_the_server_understands_is_drawn_as_it_is():
    source = Series(1.0)
    Graph().collect(scene(source, "a_function_of_tomorrow(x) > 5"))
    assert source.asked[0][0] == "a_function_of_tomorrow(x) > 5"


def test_a_server_that_does_not_answer_is_the_callers_to_report():
    class Down:
        def range(self, *_):
            raise QueryUnavailable("no answer")

    with pytest.raises(QueryUnavailable):
        Graph().collect(scene(Down()))


def test_a_label_with_dollar_signs_is_no_formula():
    odd = scene(Series(1.0))
    object.__setattr__(odd.alert, "labels", Labels({"alertname": "$\\frac$", "cost": "$1 and $2_{"}))
    assert isinstance(Graph().collect(odd), Picture)


def test_threads_may_draw_at_the_same_time():
    alone = Graph().collect(scene(Series(np.float64(7 * GIB)), details=FORECAST)).png
    drawn = []
    threads = [
        threading.Thread(
            target=lambda: drawn.append(
                Graph().collect(scene(Series(np.float64(7 * GIB)), details=FORECAST)).png
            )
        )
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert drawn == [alone] * 6


def test_a_range_of_nothing_is_refused():
    with pytest.raises(ValueError, match="longer than 0s"):
        Graph(range=Duration())


@pytest.mark.parametrize(
    ("expr", "value", "shown"),
    [
        ("ray_object_store_used_memory", 7 * GIB, "7 GiB"),
        ("sum by (instance) (rate(x_bytes_total[5m]))", GIB, "1 GiB/s"),
        ('deriv(ray_object_store_memory{Location="SPILLED"}[10m])', 5e7, "47.7 MiB/s"),
        ("engine_ray_gcs_health_seconds", 0.14, "140ms"),
        ("quantile_over_time(0.9, engine_ray_gcs_health_seconds[5m])", 90.0, "1m 30s"),
        ("a_memory / b_memory", 0.9, "0.9"),
        ("a_bytes / 1024", 2048.0, "2 KiB"),
        ("count(x_bytes > 5)", 3.0, "3"),
        ('up{kind="memory"}', 1.0, "1"),
        ("sum by (memory) (up)", 1.0, "1"),
        ("rate(x_seconds_total[5m])", 0.5, "0.5"),
        ("engine_ray_actor_cpu_cores", 1.61, "1.61"),
    ],
)
def test_the_unit_is_read_off_the_expression(expr, value, shown):
    assert unit_of(expr).show(value) == shown

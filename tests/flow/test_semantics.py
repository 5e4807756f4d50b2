"""Recorded series, gaps, no data, failing rules and missed slots: what a rule means, and what it never forgets."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import ClassVar

import pytest

from engine.errors import QueryUnavailable
from engine.flow.evaluator import slots_between
from engine.model.event import Kind
from engine.model.ports import Point, Source
from engine.model.series import Window
from tests.flow.play import STEP, T0, Play

HEAD = "groups:\n- name: g\n  interval: 10s\n  rules:\n"


def rule(expr: str, more: str = "") -> str:
    return HEAD + f"  - alert: A\n    expr: {expr}\n" + "".join(f"    {line}\n" for line in more.splitlines())


class Failing:
    """A source that is away while `error` is set."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.error: QueryUnavailable | None = None
        self.ranges: list[str] = []

    def instant(self, expr: str, at: datetime) -> Window:
        if self.error:
            raise self.error
        return self.source.instant(expr, at)

    def range(self, expr: str, start: datetime, end: datetime, step: timedelta) -> Window:
        self.ranges.append(expr)
        if self.error:
            raise self.error
        return self.source.range(expr, start, end, step)


class TestRecording:
    RULES = (
        HEAD
        + "  - record: job:errors:ratio\n    expr: sum by (job) (errors) / sum by (job) (requests)\n    labels: {team: infra}\n"
        + "  - alert: A\n    expr: job:errors:ratio * on (job) group_left () up > 0.5\n"
        + "  - alert: B\n    expr: max_over_time(job:errors:ratio[40s]) > 0.5\n"
        + '  - alert: C\n    expr: count(ALERTS{alertname="A",alertstate="firing"}) > 0\n'
    )
    SERIES: ClassVar = {
        'errors{job="a"}': "0x3 9x3 0x10",
        'requests{job="a"}': "10x20",
        'up{job="a"}': "1x20",
    }

    def test_recorded_series_feed_the_later_rules_of_their_group(self) -> None:
        play = Play(self.RULES, self.SERIES)
        assert play.states(10, "A") == "....FFFFrr"
        alert = next(one for one in play.engine.alerts() if one.name == "A")
        assert alert.signal == {"job": "a", "team": "infra"}

    def test_a_range_sees_what_was_recorded_before(self) -> None:
        assert Play(self.RULES, self.SERIES).states(14, "B") == "....FFFFFFFrrr"

    def test_alerts_are_series_for_later_rules(self) -> None:
        assert Play(self.RULES, self.SERIES).states(10, "C") == "....FFFFrr"

    def test_a_part_that_cannot_be_mixed_is_an_error_that_says_so(self) -> None:
        play = Play(
            HEAD
            + "  - record: r\n    expr: up\n  - alert: A\n    expr: max_over_time((r / up)[1m:10s]) > 0\n",
            self.SERIES,
        )
        play.states(2)
        (reason,) = [event.reason for event in play.events if event.kind is Kind.FAILED]
        assert "cannot be mixed" in reason


class TestStaleness:
    # Published in one scrape of three; each scrape without it ends it.
    GAPPY: ClassVar = {'x{i="1"}': "9 stale stale " * 40, 'x{i="2"}': "9 stale stale " * 10 + "stale _x90"}

    def test_by_prometheus_rules_a_gap_resets_for(self) -> None:
        assert "F" not in Play(rule("x > 5", "for: 30s"), {'x{i="1"}': self.GAPPY['x{i="1"}']}).states(60)

    @pytest.mark.parametrize("staleness", ["auto", "40s"])
    def test_over_a_presence_window_it_does_not(self, staleness: str) -> None:
        play = Play(rule("x > 5", f"for: 30s\nstaleness: {staleness}"), {'x{i="1"}': self.GAPPY['x{i="1"}']})
        play.states(40)
        assert play.states(60) == "F" * 60

    def test_a_sum_over_such_series_is_whole(self) -> None:
        series = {'x{i="1"}': "9 stale stale " * 40, 'x{i="2"}': "stale 9 stale " * 40}
        assert "F" not in Play(rule("sum(x) > 15"), series).states(60)
        play = Play(rule("sum(x) > 15", "staleness: auto"), series)
        play.states(30)
        assert play.states(60) == "F" * 60

    def test_absence_means_absence(self) -> None:
        play = Play(rule("x > 5", "staleness: auto"), {'x{i="1"}': "9 stale stale " * 40 + "_x60"})
        play.states(118)
        states = play.states(40)
        assert states.startswith("FFFFFF")
        assert states.endswith("rrrr")
        assert states.index("r") <= 15, "gone after three periods, and what a stale marker leaves"


class TestNoData:
    def test_a_plain_rule_resolves_as_in_prometheus(self) -> None:
        assert Play(rule("x > 5"), {"x": "9x5 stale"}).states(9) == "FFFFFFrrr"

    def test_kept_alerts_stay_while_the_rule_sees_nothing(self) -> None:
        play = Play(rule("x > 5", "on_no_data: keep"), {"x": "9x5 stale"})
        assert play.states(200) == "F" * 200

    def test_kept_alerts_resolve_when_their_series_says_so(self) -> None:
        assert Play(rule("x > 5", "on_no_data: keep"), {"x": "9x5 1x5"}).states(9) == "FFFFFFrrr"

    def test_a_series_that_is_gone_while_others_are_there_is_given_up(self) -> None:
        play = Play(rule("x > 5", "on_no_data: keep"), {'x{i="1"}': "9x5 stale", 'x{i="2"}': "1x300"})
        states = play.states(120)
        assert states[:90] == "F" * 90
        assert states[-1] == "r"

    def test_a_rule_that_has_seen_no_series_for_long_is_an_alert(self) -> None:
        play = Play(rule("x > 5"), {"y": "1x500"})
        play.states(360)
        assert play.sign("EngineRuleNoData") == "p"
        play.states(40)
        (alert,) = [one for one in play.engine.alerts() if one.name == "EngineRuleNoData"]
        assert alert.firing
        assert alert.labels["rule"] == "A"
        assert "no series" in alert.annotations["description"]

    def test_a_quiet_rule_whose_series_is_there_is_none(self) -> None:
        play = Play(rule("x > 5"), {"x": "1x500"})
        play.states(450)
        assert play.sign("EngineRuleNoData") == "."

    def test_on_no_data_alert_fires_at_once(self) -> None:
        play = Play(rule("x > 5", "on_no_data: alert"), {"y": "1x500"})
        play.states(1)
        assert play.sign("EngineRuleNoData") == "F"


class TestErrors:
    def play(self, more: str = "") -> tuple[Play, Failing]:
        play = Play(rule("x > 5", more), {"x": "9x900"}, wrap=Failing)
        assert isinstance(play.source, Failing)
        play.states(3)
        return play, play.source

    def test_a_rule_that_fails_for_long_is_an_alert_and_its_own_stay(self) -> None:
        play, source = self.play()
        source.error = QueryUnavailable("down")
        assert play.states(30) == "F" * 30
        assert play.sign("EngineRuleFailing") == "p"
        play.states(2)
        assert play.sign("EngineRuleFailing") == "F"
        source.error = None
        play.states(1)
        assert play.sign("EngineRuleFailing") == "r"

    def test_on_error_ok_resolves(self) -> None:
        play, source = self.play("on_error: ok")
        source.error = QueryUnavailable("down")
        assert play.states(3) == "rrr"

    def test_on_error_alert_fires_at_once(self) -> None:
        play, source = self.play("on_error: alert")
        source.error = QueryUnavailable("down")
        assert play.states(1) == "F"
        assert play.sign("EngineRuleFailing") == "F"

    def test_the_engines_own_alerts_survive_a_restart(self) -> None:
        play, source = self.play()
        source.error = QueryUnavailable("down")
        play.states(40)
        play.restart()
        assert play.sign("EngineRuleFailing") == "F"


class TestCatchingUp:
    SERIES: ClassVar = {"x": "1x5 9x5 1x40"}

    def test_missed_slots_are_evaluated_at_their_own_instants(self) -> None:
        whole = Play(rule("x > 5", "for: 20s"), self.SERIES)
        whole.states(20)
        play = Play(rule("x > 5", "for: 20s"), self.SERIES)
        play.states(7)
        slots = [T0 + step * STEP for step in range(7, 19)]
        play.restart()
        assert play.engine.catch_up("rules.yaml;g", slots) == 12
        play.at = T0 + 19 * STEP
        play.states(1)

        def life(which: Play) -> list[tuple[datetime, str]]:
            return [(one.at, one.data["after"]) for one in which.events if one.kind is Kind.TRANSITION]

        assert life(play) == life(whole)
        late = [one.data.get("late") for one in play.events if one.kind is Kind.TRANSITION]
        assert late == [None, "true", "true"], "what was found late says so"

    def test_one_range_query_answers_them_all(self) -> None:
        play = Play(rule("x > 5"), self.SERIES, wrap=Failing)
        assert isinstance(play.source, Failing)
        play.engine.catch_up("rules.yaml;g", [T0 + step * STEP for step in range(30)])
        assert play.source.ranges == ["x > 5", "x"], "the rule, and whether it has data at all"

    def test_what_is_confirmed_in_time_is_late_no_more(self) -> None:
        play = Play(rule("x > 5"), {"x": "9x50"})
        play.engine.catch_up("rules.yaml;g", [T0])
        assert play.engine.alerts()[0].late
        play.at = T0 + STEP
        play.states(1)
        assert not play.engine.alerts()[0].late

    def test_a_server_that_is_away_is_not_asked_for_every_slot(self) -> None:
        play = Play(rule("x > 5"), self.SERIES, wrap=Failing)
        assert isinstance(play.source, Failing)
        play.source.error = QueryUnavailable("down")
        assert play.engine.catch_up("rules.yaml;g", [T0 + step * STEP for step in range(30)]) == 0

    def test_slots_too_long_ago_are_left_out(self) -> None:
        group = Play(rule("x"), self.SERIES).engine.groups["rules.yaml;g"]
        slot = T0 + 1000 * STEP
        assert slots_between(group, T0, slot, timedelta(seconds=35)) == [
            slot - 3 * STEP,
            slot - 2 * STEP,
            slot - STEP,
        ]
        assert slots_between(group, slot - STEP, slot, timedelta(hours=1)) == []


class TestWriting:
    def test_series_are_written_and_ended_as_prometheus_does(self) -> None:
        play = Play(
            HEAD + "  - record: r\n    expr: x > 5\n  - alert: A\n    expr: x > 5\n    for: 10s\n",
            {"x": "9x2 1x5"},
        )
        written: list[Point] = []

        class Writer:
            def write(self, points: list[Point]) -> None:
                written.extend(points)

        play.engine.evaluator._writer = Writer()  # type: ignore[assignment]
        play.states(5)
        told = [(str(point.labels), (point.at - T0).seconds, point.value) for point in written]
        since = T0.timestamp()
        pending, firing = '{alertname="A", alertstate="pending"}', '{alertname="A", alertstate="firing"}'
        assert told == [
            ("r", 0, 9.0),
            (f"ALERTS{pending}", 0, 1.0),
            ('ALERTS_FOR_STATE{alertname="A"}', 0, since),
            ("r", 10, 9.0),
            (f"ALERTS{firing}", 10, 1.0),
            ('ALERTS_FOR_STATE{alertname="A"}', 10, since),
            (f"ALERTS{pending}", 10, None),
            ("r", 20, 9.0),
            (f"ALERTS{firing}", 20, 1.0),
            ('ALERTS_FOR_STATE{alertname="A"}', 20, since),
            ("r", 30, None),
            ('ALERTS_FOR_STATE{alertname="A"}', 30, None),
            (f"ALERTS{firing}", 30, None),
        ]

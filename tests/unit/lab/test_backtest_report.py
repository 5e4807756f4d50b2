"""The report says of each rule what a person decides by."""

from __future__ import annotations

import json

from engine.lab.availability import availability
from engine.lab.backtest_report import Backtest, Judged, Trial, as_json, lines
from engine.lab.hindsight import look_back
from tests.unit.lab.test_backtest import (
    HOT,
    HOUR,
    INCIDENTS,
    MINUTE,
    T0,
    incidents_of,
    storage_of,
    temperature,
    walked,
)

END = T0 + 4 * HOUR


def backtest(source, *, incidents=(), sweep=()):
    records, *others = walked(HOT, source, sweep=sweep or ["for=2m"])

    def trial(values, records):
        held = [availability(record.rule, source, T0, END, MINUTE) for record in records]
        judged = [
            Judged(record, each, look_back(record, incidents, each, END))
            for record, each in zip(records, held, strict=True)
        ]
        return Trial(values=values, rules=judged)

    return Backtest(
        where="http://here",
        start=T0,
        end=END,
        base=trial({}, records),
        sweep=[trial({"for": hold}, each) for hold, each in zip(("0s", "30m"), others, strict=False)]
        if sweep
        else [],
        seconds=1.0,
        queries=3,
        samples=1200,
    )


def text_of(report):
    return "\n".join(text for _, text in lines(report))


def two_fires():
    return storage_of(
        temperature((30, 60, 20), (60, 90, 70), (90, 120, 20), (180, 241, 20)),
        temperature((30, 100, 20), (100, 105, 70), (105, 120, 20), (180, 241, 20), node="b"),
    )


def test_data_fires_and_alerts():
    text = text_of(backtest(two_fires()))
    assert "http://here, 2026-01-01 00:00 to 2026-01-01 04:00 UTC (4h)" in text
    assert "data       2h 31m of 4h (62.7%); history begins at 2026-01-01 00:30, only that was judged" in text
    assert "gaps       1, the longest of 1h from 2026-01-01 02:00" in text
    assert "fires      2, 19 a day of data; 0 flaps; median length 15m 30s" in text
    assert '  for 28m  {node="a"}  70' in text
    assert "240 slots of 1 variant, 3 queries for 1,200 samples, in 1.00 s" in text


def test_incidents_and_false_alarms():
    report = backtest(two_fires(), incidents=incidents_of(INCIDENTS))
    text = text_of(report)
    assert "incidents  2 of 3 seen" in text
    assert "1 without data; 1 alert about none of them" in text
    assert "2026-01-01 01:30  other node: missed" in text
    assert "about nothing known" in text
    assert report.missed
    assert not report.blind


def test_the_table_of_a_sweep_begins_with_the_rules_as_they_stand():
    table = text_of(backtest(two_fires(), sweep=["for=0s,30m"])).split("\n\n")[2].splitlines()
    assert [line.split()[:3] for line in table[1:]] == [
        ["as", "it", "is"],
        ["0s", "2", "19"],
        ["30m", "0", "0"],
    ]
    assert table[0].split() == ["for", "fires", "a", "day", "flaps", "firing"]


def test_without_data_there_is_nothing_to_judge():
    report = backtest(storage_of())
    assert report.blind
    assert "data       none in 4h" in text_of(report)
    assert "fires      never" in text_of(report)


def test_json_has_all_of_it():
    report = json.loads(
        as_json(backtest(two_fires(), incidents=incidents_of(INCIDENTS), sweep=["for=0s,30m"]))
    )
    (rule,) = report["rules"]
    assert (rule["fires"], rule["hits"], rule["misses"], rule["not_judged"], rule["false_alarms"]) == (
        2,
        2,
        1,
        1,
        1,
    )
    assert rule["data"]["gaps"] == [{"from": "2026-01-01T02:00:00+00:00", "to": "2026-01-01T03:00:00+00:00"}]
    assert [each["fires"] for each in report["sweep"]] == [2, 0]
    assert [each["outcome"] for each in rule["incidents"]].count("missed") == 1

from engine.model.alert import AlertState, Picture, Table, Text
from engine.model.notification import Reason
from engine.notify.console import Console, render
from engine.registry import notifier
from tests.unit.notify.builders import PNG, alert, notification, run


def test_it_is_called_console():
    assert notifier.get("console") is Console


def test_a_notification_is_printed_without_colours_where_there_is_no_terminal(capsys):
    Console().notify(notification(alert(annotations={"summary": "n1 is full"})), None)
    out = capsys.readouterr().out
    assert out == (
        "[FIRING 1] Full -> oncall: first notification, 2026-08-19 14:28 UTC\n"
        '  {instance="n1", severity="warning"}\n'
        "  * Full: n1 is full (since 14:16 UTC, 12m)\n"
    )


def test_a_resolved_alert_says_how_long_it_lasted():
    told = notification(alert(state=AlertState.RESOLVED), reason=Reason.ALL_RESOLVED)
    assert "- Full: resolved 14:28 UTC after 12m" in "\n".join(render(told))


def test_alerts_are_told_apart_and_bounded():
    lines = render(notification(*(alert(f"n{index}") for index in range(30))))
    assert '  * Full {instance="n3"}: value 7.75G (since 14:16 UTC, 12m)' in lines
    assert "  … and 10 more" in lines


def test_runs_and_evidence_are_shown():
    evidence = (
        Table("T", ("a", "b"), (("1", "2"),), "note"),
        Text("W", "first\nsecond"),
        Picture("P", PNG, "a line"),
    )
    lines = render(notification(alert(), runs=(run(),), evidence={alert().fingerprint: evidence}))
    text = "\n".join(lines)
    assert "> relieve on prod/n1: auto, acting" in text
    assert "running: free objects [engine-abc]" in text
    for shown in ("1  2", "note", "second", "a line (108 bytes of PNG)"):
        assert shown in text


def test_nothing_that_is_shown_can_steer_the_terminal():
    evil = "\x1b]0;owned\x07\r\x1b[2J"
    told = notification(
        alert(annotations={"summary": evil}, note=evil),
        evidence={alert(note=evil).fingerprint: (Text(evil, evil),)},
    )
    assert all(line.isprintable() for line in render(told))

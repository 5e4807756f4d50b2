import re
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.demo.slack_schema import MAX_ALL_BLOCKS, characters, problems
from engine.lang.mrkdwn import code, fallback, fit, link, words
from engine.model.alert import Alert, AlertState, Picture, Table, Text
from engine.model.labels import Labels
from engine.model.notification import Notification, Reason
from engine.model.playbook import Mode, PlannedStep, Refusal, Run, RunState, StepState
from engine.notify.slack_blocks import MAX_CHARTS, charts_of, compose
from tests.unit.notify.builders import AT, PNG, alert, notification, run, step


def shown(message):
    """All the text of a message's blocks."""
    return "\n".join(texts(message.blocks))


def texts(value):
    if isinstance(value, dict):
        own = [value["text"]] if isinstance(value.get("text"), str) else []
        return own + [text for part in value.values() for text in texts(part)]
    return [text for part in value for text in texts(part)] if isinstance(value, list) else []


# Any notification at all.

ANYTHING = st.text(max_size=400) | st.sampled_from(
    ["<!channel>", "<@U1>", "<https://evil.example|runbook>", "*_~`", "```", "&lt;", ":boom:", "x" * 5000, "\n\n", "&" * 3000]
)  # fmt: skip
NUMBERS = st.floats()
INSTANTS = st.integers(-10_000_000, 10_000_000).map(lambda seconds: AT + timedelta(seconds=seconds))
LABELS = st.dictionaries(ANYTHING, ANYTHING, max_size=12).map(lambda pairs: Labels(pairs, alertname="A"))
DETAILS = st.dictionaries(
    st.sampled_from(
        [
            "eta",
            "eta_earliest",
            "eta_latest",
            "probability",
            "bound",
            "slope_per_hour",
            "expected",
            "low",
            "high",
        ]
    ),
    st.floats(allow_nan=False),
)
ALERTS = st.builds(
    Alert,
    rule_id=st.just("r"),
    labels=LABELS,
    signal=LABELS,
    annotations=st.dictionaries(st.sampled_from(["summary", "description", "runbook_url"]), ANYTHING),
    state=st.sampled_from(AlertState),
    value=NUMBERS,
    details=DETAILS,
    active_at=INSTANTS,
    fired_at=st.none() | INSTANTS,
    resolved_at=st.none() | INSTANTS,
    late=st.booleans(),
    warnings=st.lists(ANYTHING, max_size=4).map(tuple),
)
EVIDENCE = st.one_of(
    st.builds(Text, ANYTHING, ANYTHING),
    st.builds(
        Table,
        ANYTHING,
        st.lists(ANYTHING, max_size=5).map(tuple),
        st.lists(st.lists(ANYTHING, max_size=6).map(tuple), max_size=40).map(tuple),
        ANYTHING,
    ),
    st.builds(Picture, ANYTHING, st.just(PNG), ANYTHING),
)
STEPS = st.builds(
    PlannedStep,
    name=ANYTHING,
    action=ANYTHING,
    params=st.just({}),
    description=ANYTHING,
    message=ANYTHING,
    key=ANYTHING,
    state=st.sampled_from(StepState),
    attempt=st.integers(0, 3),
)
RUNS = st.builds(
    Run,
    id=ANYTHING,
    playbook=ANYTHING,
    labels=LABELS,
    target=ANYTHING,
    mode=st.sampled_from(Mode),
    state=st.sampled_from(RunState),
    steps=st.lists(STEPS, max_size=30).map(tuple),
    created_at=INSTANTS,
    updated_at=INSTANTS,
    fired_at=INSTANTS,
    verify_until=st.none() | INSTANTS,
    acted_at=st.none(),
    judged_at=st.none(),
    approve_until=st.none() | INSTANTS,
    refusal=st.none() | st.builds(Refusal, guardrail=ANYTHING, reason=ANYTHING, until=st.none() | INSTANTS),
    reason=ANYTHING,
    approved_by=st.none() | ANYTHING,
)


@st.composite
def notifications(draw):
    alerts = draw(st.lists(ALERTS, max_size=5))
    alerts *= draw(st.sampled_from([1, 1, 1, 20, 200]))
    evidence = {each.fingerprint: tuple(draw(st.lists(EVIDENCE, max_size=5))) for each in alerts[:5]}
    return Notification(
        receiver="r",
        group_key="g",
        group_labels=Labels(),
        alerts=tuple(alerts),
        evidence=evidence,
        runs=tuple(draw(st.lists(RUNS, max_size=5))),
        reason=draw(st.sampled_from(Reason)),
        at=AT,
        external_url=draw(ANYTHING),
    )


@settings(max_examples=150, deadline=None)
@given(notifications())
def test_any_notification_is_a_message_that_slack_takes(told):
    files = {chart.key: f"F{index:09d}" for index, chart in enumerate(charts_of(told))}
    message = compose(told, files)
    assert problems(message.blocks) == []
    assert characters(message.blocks) + len(message.text) <= MAX_ALL_BLOCKS
    assert 0 < len(message.text) <= 4000


@settings(max_examples=150, deadline=None)
@given(notifications())
def test_nothing_in_a_notification_becomes_a_mention_or_a_link_of_its_own(told):
    message = compose(told)
    mrkdwn = [message.text, *(text["text"] for block in message.blocks for text in mrkdwn_of(block))]
    for text in mrkdwn:
        for target, title in re.findall(r"<([^<>|]*)\|?([^<>]*)>", text):
            assert target.startswith(("http://", "https://"))
            assert title == "Engine" or title.startswith("Runbook")
        assert "<" not in re.sub(r"<[^<>]*>", "", text)


def mrkdwn_of(block):
    for text in [block.get("text"), *block.get("fields", ()), *block.get("elements", ())]:
        if text and text["type"] == "mrkdwn":
            assert text["verbatim"]
            yield text


@given(st.text())
def test_code_spans_and_prose_cannot_be_left(text):
    assert code(text).count("`") == 2
    assert not set("`*~<>") & set(words(text))


# What a person reads.


def test_the_header_says_what_is_wrong():
    header = compose(notification(alert(severity="critical"))).blocks[0]
    assert header["text"]["text"] == "🔴 Full"


@pytest.mark.parametrize(
    ("severity", "dot"), [("critical", "🔴"), ("warning", "🟠"), ("info", "🔵"), ("unheard of", "🟠")]
)
def test_the_colour_is_that_of_the_worst_firing_alert(severity, dot):
    told = notification(alert("n1", severity=severity), alert("n2", severity="info"))
    assert compose(told).blocks[0]["text"]["text"].startswith(dot)


def test_the_status_says_since_when():
    assert "*Firing* · warning · since 14:16 UTC (12m)" in shown(compose(notification(alert())))


def test_a_forecast_says_when_it_will_be_worse_and_how_sure_that_is():
    details = {
        "eta": 7040.0,
        "eta_earliest": 5200.0,
        "eta_latest": 10_100.0,
        "probability": 0.93,
        "bound": 1e10,
    }
    text = shown(compose(notification(alert(details=details))))
    assert "*1h 57m*, at 16:25 UTC\nearliest 1h 27m, latest 2h 48m (93% sure)" in text
    assert "7.75G, limit 10G" in text


@pytest.mark.parametrize(
    ("summary", "value"),
    [
        ("now 7.218GiB", "7.22 GiB"),
        ("spills 7.218 GiB/s", "7.22 GiB/s"),
        ("12GiB of another thing", "7.75G"),
        ("", "7.75G"),
    ],
)
def test_figures_have_the_unit_in_which_the_summary_prints_the_value(summary, value):
    assert (
        f"*Value*\n{value}\n" in shown(compose(notification(alert(annotations={"summary": summary})))) + "\n"
    )


@pytest.mark.parametrize(
    ("details", "words_shown"),
    [
        ({"eta": 0.0}, "*reached*"),
        ({"eta": 1e12}, "more than a year"),
        ({"eta": 60.0, "eta_earliest": 30.0}, "earliest 30s, perhaps never"),
    ],
)
def test_a_forecast_at_its_edges_reads_well(details, words_shown):
    assert words_shown in shown(compose(notification(alert(details=details))))


def test_a_resolved_alert_says_how_long_it_lasted_and_what_helped():
    told = notification(alert(state=AlertState.RESOLVED), runs=(run(state=RunState.HELPED),))
    text = shown(compose(told))
    assert "*Resolved* at 14:28 UTC after 12m" in text
    assert "helped by `relieve`" in text


def test_a_resolved_alert_that_nothing_acted_on_says_so():
    dry = run(step(), mode=Mode.DRY_RUN, state=RunState.PLANNED)
    told = notification(alert(state=AlertState.RESOLVED, details={"eta": 60.0}), runs=(dry,))
    text = shown(compose(told))
    assert "no remedy acted" in text
    assert "Limit reached" not in text


def test_labels_that_all_alerts_share_are_said_once_and_the_others_tell_them_apart():
    text = shown(compose(notification(alert("n1", cluster="prod"), alert("n2", cluster="prod"))))
    assert text.count("cluster=prod") == 1
    assert "• `n1` " in text
    assert "• `n2` " in text


def test_a_thousand_alerts_are_one_message_that_says_how_many_are_not_shown():
    told = notification(*(alert(f"n{index}") for index in range(1000)))
    message = compose(told)
    assert message.blocks[0]["text"]["text"] == "🟠 1,000 alerts: Full"
    assert "… and 985 more" in shown(message)


def test_a_dry_run_says_what_it_would_do_and_that_nothing_was_done():
    text = shown(
        compose(notification(alert(), runs=(run(step(), mode=Mode.DRY_RUN, state=RunState.PLANNED),)))
    )
    assert "*nothing was done*; it would\n→ free objects: would free objects" in text


def test_a_step_shows_its_ray_job():
    assert "▶ free objects `engine-abc`" in shown(compose(notification(alert(), runs=(run(),))))


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (run(state=RunState.REFUSED, refusal=Refusal(guardrail="cooldown", reason="ran 5m ago", until=AT)), "*refused* by `cooldown`: ran 5m ago, not before 14:28 UTC"),
        (run(state=RunState.WAITING, approve_until=AT), "*waiting for approval* until 14:28 UTC, run `run-1`"),
        (run(state=RunState.VERIFYING, good_evaluations=1), "*verifying*, condition false at 1 of 2 evaluations"),
        (run(state=RunState.DID_NOT_HELP), "*did not help*"),
        (run(state=RunState.ESCALATED), "*did not help*, escalated"),
        (run(approved_by="U1"), "*acting*, approved by U1"),
    ],
)  # fmt: skip
def test_a_run_says_in_words_where_it_is(one, says):
    assert says in shown(compose(notification(alert(), runs=(one,))))


def test_a_table_is_aligned_and_says_what_its_note_says():
    table = Table(
        "Largest", ("size", "owner"), (("7.2 GiB", "etl"), ("600 MiB", "a-long-name")), "Total 8 GiB"
    )
    text = shown(compose(notification(alert(), evidence={alert().fingerprint: (table,)})))
    assert "*Largest*\n```   size  owner\n7.2 GiB  etl\n600 MiB  a-long-name```" in text
    assert "Total 8 GiB" in text


def test_charts_are_bounded_and_named_the_same_at_each_notification():
    pictures = tuple(Picture(f"chart {index}", PNG, "alt") for index in range(9))
    told = notification(alert(), evidence={alert().fingerprint: pictures})
    assert len(charts_of(told)) == MAX_CHARTS
    assert [chart.key for chart in charts_of(told)] == [chart.key for chart in charts_of(told)]


def test_a_chart_that_is_not_uploaded_is_not_in_the_message():
    told = notification(alert(), evidence={alert().fingerprint: (Picture("c", PNG, "alt"),)})
    assert not [block for block in compose(told).blocks if block["type"] == "image"]


def test_links_lead_to_the_runbook_and_the_engine():
    url = "https://runbooks.example.com/Full?a=1&b=2"
    told = notification(alert(annotations={"runbook_url": url}), external_url="https://engine.example.com")
    text = shown(compose(told))
    assert (
        "<https://runbooks.example.com/Full?a=1&amp;b=2|Runbook> · <https://engine.example.com|Engine>"
        in text
    )


# Text.


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://a.example/x y|z>", "<https://a.example/x%20y%7Cz%3E|t>"),
        ("javascript:alert(1)", ""),
        ("https://" + "a" * 600, ""),
        ("", ""),
    ],
)
def test_only_web_addresses_become_links(url, safe):
    assert link(url, "t") == safe


@pytest.mark.parametrize(
    ("text", "inert"),
    [
        ("ray_tasks of a_b", "ray_tasks of a_b"),
        ("at 14:05:30", "at 14:05:30"),
        ("a & b", "a &amp; b"),
        ("<!here>", "&lt;!here&gt;"),
        ("two\nlines", "two lines"),
    ],
)
def test_prose_stays_readable_where_it_can(text, inert):
    assert words(text) == inert


def test_markup_in_prose_has_no_effect():
    assert not re.search(r"[*~`]|(?<!\w)_|:fire:", words("*b* _i_ ~s~ `c` :fire:"))


@given(st.lists(st.text(min_size=1, max_size=50), max_size=60), st.integers(40, 500))
def test_lines_are_left_out_whole_and_counted(lines, limit):
    text = fit(lines, limit)
    assert len(text) <= limit
    if (left := re.search(r"… and ([\d,]+) more$", text)) and text != "\n".join(lines):
        kept = len(lines) - int(left[1])
        assert text == "\n".join([*lines[:kept], left[0]])
    else:
        assert text == "\n".join(lines)


@given(st.text(), st.integers(1, 200))
def test_the_fallback_is_cut_after_escaping(text, limit):
    assert len(fallback(text, limit)) <= limit

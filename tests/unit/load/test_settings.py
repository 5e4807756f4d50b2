from pathlib import Path

import pytest

from engine.errors import LoadError
from engine.load.playbooks import read_playbook
from engine.load.rules import read_rules
from engine.load.settings import cross_check, load_settings, read_settings
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.playbook import Mode
from engine.model.route import TimeRange, TimeSpan

FILES = Path(__file__).parents[2] / "fixtures" / "load" / "settings"


@pytest.fixture
def full(monkeypatch):
    monkeypatch.setenv("ENGINE_TEST_HOST", "prometheus")
    return load_settings(FILES / "full.good.yaml")


def problems_of(text):
    problems = []
    read_settings("f", text.encode(), problems)
    return [f"{problem.line}:{problem.column}: {problem.message}" for problem in problems]


def test_variables_are_filled_in_and_two_dollars_are_one(full):
    assert full.prometheus.url == "http://prometheus:9090"
    assert full.prometheus.headers == {"X-Scope-OrgID": "$1"}


def test_a_value_from_the_environment_cannot_become_yaml(monkeypatch):
    monkeypatch.setenv("ENGINE_TEST_HOST", 'x/", timeout: 1s, max_samples: 1, z: "\n- a: {')
    assert load_settings(FILES / "full.good.yaml").prometheus.url.startswith('http://x/", timeout: 1s')


def test_a_variable_may_hold_a_value_of_any_type(monkeypatch):
    monkeypatch.setenv("ENGINE_TEST_TIMEOUT", "7s")
    monkeypatch.setenv("ENGINE_TEST_COUNT", "7")
    problems = []
    text = b"prometheus:\n  timeout: ${ENGINE_TEST_TIMEOUT}\n  max_samples: '${ENGINE_TEST_COUNT}'"
    settings = read_settings("f", text, problems)
    assert problems == []
    assert (settings.prometheus.timeout, settings.prometheus.max_samples) == (Duration(seconds=7), 7)


def test_a_variable_between_braces_needs_quotes_and_that_is_said():
    (problem,) = problems_of("prometheus: {url: ${ENGINE_TEST_HOST}}")
    assert problem.startswith("1:20: not YAML")
    assert problem.endswith("; between braces and brackets, quote what holds ${…}")


def test_paths_start_from_the_folder_of_the_file(full):
    assert full.rule_files == (str(FILES / "rules/*.yaml"), "/etc/rules/*.yml")
    assert full.playbook_files == (str(FILES / "playbooks/*.yaml"),)
    assert full.prometheus.bearer_token_file == str(FILES / "secrets/token")
    assert full.ray.clusters[0].token_file == "/abs/token"


def test_off_is_a_mode_and_not_false(full):
    assert full.remediation.mode is Mode.OFF


def test_the_root_has_alertmanagers_defaults_where_it_is_silent(full):
    root = full.routing.route
    assert (root.group_wait, root.group_interval, root.repeat_interval) == (
        Duration(seconds=10),
        Duration(minutes=5),
        Duration(hours=4),
    )
    assert root.group_by == ("...",)
    assert root.routes[0].group_wait is None


def test_matchers_are_read_in_the_new_and_in_the_old_spelling(full):
    new, old = full.routing.route.routes
    assert str(new.matchers) == '{severity="info",team="a",zone!="z"}'
    assert str(old.matchers) == '{component="gcs",team=~"a|b"}'
    assert old.continue_


def test_inhibit_rules_are_read_in_both_spellings(full):
    new, old = full.routing.inhibit_rules
    assert (str(new.source_matchers), str(new.target_matchers), new.equal) == (
        '{alertname="A"}',
        '{alertname="B"}',
        ("instance",),
    )
    assert (str(old.source_matchers), str(old.target_matchers)) == ('{a="b"}', '{c=~"d.*"}')


def test_receivers_hold_integrations_by_their_word(full):
    oncall = full.routing.receivers["oncall"]
    assert [
        (word, integration.channel, integration.send_resolved) for word, integration in oncall.integrations
    ] == [
        ("radio", 5, False),
        ("radio", 1, True),
    ]
    assert full.routing.receivers["chat"].integrations == ()


def test_the_calendar_is_read(full):
    assert full.routing.time_intervals == {
        "nights": (
            TimeSpan(
                times=(
                    TimeRange(start_minute=1320, end_minute=1440),
                    TimeRange(start_minute=0, end_minute=420),
                ),
                weekdays=((1, 5), (0, 0)),
                days_of_month=((1, 7), (-3, -1), (31, 31)),
                months=((5, 8), (12, 12)),
                years=((2026, 2028), (2030, 2030)),
                location="Europe/Berlin",
            ),
        ),
        "summer": (TimeSpan(months=((6, 8),)),),
    }


@pytest.mark.parametrize("path", [None, FILES / "empty.good.yaml"])
def test_without_settings_everything_is_told_on_the_console(path):
    settings = load_settings(path)
    routing = settings.routing
    assert routing.receivers.keys() == {routing.route.receiver}
    assert [word for word, _ in routing.receivers["console"].integrations] == ["console"]
    assert routing.route.group_wait == Duration(seconds=30)
    assert settings.remediation.mode is Mode.DRY_RUN


def test_a_file_that_is_not_there_is_a_problem(tmp_path):
    with pytest.raises(LoadError, match=r"engine\.yaml:1:1: no such file"):
        load_settings(tmp_path / "engine.yaml")


@pytest.mark.parametrize(
    ("days", "problem"),
    [
        ("'-1:-3'", "ends before it starts"),
        ("'5:1'", "ends before it starts"),
        ("'-3:5'", "counts from both ends"),
        ("0", "must be a day of the month"),
        ("'1:'", "must be a day of the month"),
        ("'5:-1'", None),
    ],
)
def test_days_of_the_month_count_from_one_end(days, problem):
    text = f"route: {{receiver: r}}\nreceivers: [{{name: r}}]\ntime_intervals: [{{name: n, time_intervals: [{{days_of_month: [{days}]}}]}}]"
    found = problems_of(text)
    assert len(found) == (problem is not None)
    assert all(problem in message for message in found)


def test_modules_of_plugins_are_imported_before_their_words_are_read(tmp_path, monkeypatch):
    (tmp_path / "our_plugins_for_a_test.py").write_text("raise RuntimeError('reached')")
    monkeypatch.syspath_prepend(tmp_path)
    assert problems_of("plugins: [our_plugins_for_a_test]") == [
        "1:11: plug-in module 'our_plugins_for_a_test' cannot be imported: reached"
    ]


@pytest.fixture
def three():
    settings = read_settings("s", b"route: {receiver: oncall}\nreceivers: [{name: oncall}]", [])
    rules = b"groups: [{name: g, rules: [{alert: A, expr: x, remediate: {playbook: relieve}}]}]"
    groups = read_rules("r", rules, []).groups
    text = b"playbook: relieve\nmatch: [a=b]\nsteps: [{name: s, action: tell, with: {text: t}}]\nescalate: oncall\n"
    playbook = read_playbook("p", text + b"guardrails: {approval: {receiver: oncal}}", [])
    return settings, groups, {"relieve": playbook}


def test_receivers_of_playbooks_must_exist(three):
    (problem,) = cross_check(*three)
    assert str(problem) == "p:1:1: relieve: approval: no receiver is called 'oncal'; did you mean 'oncall'?"


def test_playbooks_of_rules_must_exist(three):
    settings, groups, _ = three
    (problem,) = cross_check(settings, groups, {})
    assert str(problem) == "r:1:28: A: no playbook is called 'relieve'; name its file in `playbook_files`"


def test_labels_pass_the_matchers_that_were_read(full):
    assert full.routing.route.routes[1].matchers.matches(Labels(component="gcs", team="b"))


def missing_alerts(when):
    text = f"""
groups:
  - name: g
    rules:
      - {{alert: GcsLatency, expr: x > 1}}
      - alert: Cause
        expr: x
        detect: {{composite: {{when: {when}}}}}
"""
    problems = []
    groups = read_rules("r.yaml", text.encode(), problems).groups
    assert problems == []
    return [
        f"{problem.line}:{problem.column}: {problem.message}"
        for problem in cross_check(load_settings(None), groups, {})
    ]


def test_alerts_that_a_rule_depends_on_must_exist():
    assert missing_alerts("GcsLatency") == []
    assert missing_alerts("GcsLatencies unless Nodes") == [
        "8:29: Cause: no other rule's alert is called 'GcsLatencies'; did you mean 'GcsLatency'?",
        "8:29: Cause: no other rule's alert is called 'Nodes'; known: GcsLatency",
    ]
    (itself,) = missing_alerts("GcsLatency or Cause")
    assert "'Cause'" in itself

"""The tests of rules on a real Prometheus, and both evaluators side by side."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from engine.cli.test_rule import command
from engine.errors import LoadError, QueryUnavailable
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.ports import Point
from engine.model.series import instant_of
from engine.query.managed import ManagedPrometheus, find_program

ROOT = Path(__file__).parents[2]
MINUTE = Duration(minutes=1)
MADE = """
groups:
  - name: g
    interval: 30s
    rules:
      - {record: 'room:temperature:max', expr: max by (room) (temperature)}
      - {alert: Hot, expr: 'room:temperature:max > 50', for: 1m, keep_firing_for: 2m, annotations: {summary: "{{ $value }}"}}
      - {alert: Any, expr: 'count(ALERTS{alertname="Hot", alertstate="firing"}) > 0'}
      - {alert: Asks, expr: temperature > 1e9, annotations: {summary: '{{ query "room:temperature:max" }}'}}
tests:
  - name: what rules make is read by others
    interval: 30s
    start_timestamp: %s
    input_series:
      - {series: 'temperature{room="a", n="1"}', values: "20 60x9 stale 60 _x3 70x9"}
      - {series: 'temperature{room="b", n="1"}', values: "20+1x30 NaN Inf 3"}
    promql_expr_test:
      - {expr: 'count_over_time(ALERTS[10m:])', eval_time: 10m, exp_samples: []}
    alert_rule_test:
      - {eval_time: 5m, alertname: Hot, exp_alerts: [{exp_labels: {room: a}}]}
      - {eval_time: 5m, alertname: Any, exp_alerts: [{}]}
"""


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, ["--no-color", *map(str, arguments)])


@pytest.fixture
def program(prometheus_bin: Path) -> Path:
    return prometheus_bin / "prometheus"


@pytest.mark.parametrize("who", ["prometheus", "cross-check"])
def test_the_shipped_rules_pass_on_a_real_server(
    who: str, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    done = run("rules", "--engine", f"{who}={program}")
    assert done.exit_code == 0, done.output
    assert "4 tests" in done.output


@pytest.mark.parametrize("start", ["0", "2026-03-01T12:00:00Z"])
def test_what_rules_make_is_read_on_a_real_server_as_in_memory(
    start: str, program: Path, tmp_path: Path
) -> None:
    (tmp_path / "rules.yaml").write_text(MADE % start)
    embedded = run(tmp_path / "rules.yaml")
    real = run(tmp_path / "rules.yaml", "--engine", f"prometheus={program}")
    both = run(tmp_path / "rules.yaml", "--engine", f"cross-check={program}")
    # The one assertion that is wrong on purpose shows that recorded series arrive: both name the same samples.
    assert embedded.exit_code == real.exit_code == both.exit_code == 1, both.output
    words = [line.partition(" in ")[0] for line in embedded.output.splitlines()]
    assert words == [line.partition(" in ")[0] for line in real.output.splitlines()]
    assert any('alertname="Hot"' in line and line.strip().startswith("+") for line in words)
    assert "DIFF" not in both.output


def test_promql_that_only_a_server_reads_is_tested_there(program: Path, tmp_path: Path) -> None:
    rules = "groups: [{name: g, interval: 1m, rules: [{alert: Hot, expr: 't > 1_000'}]}]\n"
    test = "tests: [{interval: 1m, input_series: [{series: t, values: 2000x9}], timeline: [{alertname: Hot, firing: 0s..}]}]\n"
    (tmp_path / "rules.yaml").write_text(rules + test)
    assert isinstance(run(tmp_path / "rules.yaml").exception, LoadError)
    done = run(tmp_path / "rules.yaml", "--engine", f"prometheus={program}")
    assert done.exit_code == 0, done.output


def test_a_difference_is_named_and_is_exit_code_3(program: Path, tmp_path: Path) -> None:
    # A server that lies: every request goes to the real one, but it is told another evaluation interval.
    liar = tmp_path / "prometheus"
    liar.write_text(
        "#!/bin/sh\n"
        'for each in "$@"; do case $each in --config.file=*) '
        'sed -i "s/evaluation_interval: 1m/evaluation_interval: 10s/" "${each#--config.file=}";; esac; done\n'
        f'exec {program} "$@"\n'
    )
    liar.chmod(0o755)
    rules = "groups: [{name: g, interval: 1m, rules: [{alert: Many, expr: 'count_over_time(t[2m:]) > 3'}]}]\n"
    test = "tests: [{interval: 1m, input_series: [{series: t, values: 1x9}], never: [Many]}]\n"
    (tmp_path / "rules.yaml").write_text(rules + test)
    done = run(tmp_path / "rules.yaml", "--engine", f"cross-check={liar}")
    assert done.exit_code == 3, done.output
    assert "DIFF " in done.output
    assert "embedded: nothing; Prometheus: firing since" in done.output


def test_a_program_that_is_too_old_or_does_not_start_is_named(tmp_path: Path) -> None:
    old, broken = tmp_path / "old", tmp_path / "broken"
    old.write_text('#!/bin/sh\necho "prometheus, version 2.42.0+ds (branch: debian/sid)"\n')
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "prometheus, version 3.5.3" && exit\necho "no space left" >&2; exit 1\n'
    )
    for each in (old, broken):
        each.chmod(0o755)
    with pytest.raises(QueryUnavailable, match=r"is version 2\.42\.0"):
        find_program(str(old))
    with (
        pytest.raises(QueryUnavailable, match="does not start: no space left"),
        ManagedPrometheus(find_program(str(broken)), MINUTE),
    ):
        pass


def test_a_server_leaves_nothing_behind_and_one_that_dies_is_noticed(program: Path) -> None:
    with ManagedPrometheus(program, MINUTE) as server:
        folder, process = Path(server._folder.name), server._process
        server.add([Point(Labels(__name__="t"), instant_of(0), 1.0)])
        assert server.instant("t", instant_of(1)).last().tolist() == [1.0]
    assert not folder.exists()
    assert process.poll() is not None
    with ExitStack() as stack:
        server = stack.enter_context(ManagedPrometheus(program, MINUTE))
        server._process.kill()
        os.waitid(os.P_PID, server._process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(QueryUnavailable, match="ended during the test"):
            stack.close()

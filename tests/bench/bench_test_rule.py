"""How long `engine test-rule` takes, beside promtool on the same files in the same run: whole processes.

One rule with a hundred test groups of an hour at 15 s, a hundred rules with one such group, and the shipped spill rule,
which promtool cannot read.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from deploy.demo import parts

COUNT = 100
RUNS = 3
SHIPPED = Path(__file__).parents[2] / "rules" / "spill.yaml"
SERIES = """
    interval: 15s
    input_series:
      - {series: 'requests_total{code="500", instance="n1"}', values: "0+30x60 1800+150x180"}
      - {series: 'requests_total{code="500", instance="n2"}', values: "0+10x240"}
    alert_rule_test:
"""


def rule(name: str, threshold: float) -> str:
    return f"""
      - alert: {name}
        expr: rate(requests_total{{code="500"}}[5m]) > {threshold}
        for: 5m
        labels: {{severity: page}}
        annotations: {{summary: "{{{{ $labels.instance }}}} is at {{{{ $value | humanize }}}}"}}"""


def questions(name: str) -> str:
    labels, texts = '{severity: page, code: "500", instance: n1}', "{summary: n1 is at 10}"
    return f"""      - {{eval_time: 10m, alertname: {name}}}
      - eval_time: 60m
        alertname: {name}
        exp_alerts: [{{exp_labels: {labels}, exp_annotations: {texts}}}]
"""


def write(folder: Path, rules: int, groups: int) -> Path:
    """Write a rule file and its tests, and return the latter."""
    names = [f"Hot{index}" for index in range(rules)]
    body = "".join(rule(name, 5 + index / COUNT) for index, name in enumerate(names))
    (folder / "rules.yml").write_text(f"groups:\n  - name: g\n    rules:{body}\n")
    tests = "".join(f"  - name: t{index}{SERIES}{''.join(map(questions, names))}" for index in range(groups))
    file = folder / "tests.yml"
    file.write_text(f"rule_files: [rules.yml]\nevaluation_interval: 15s\ntests:\n{tests}")
    return file


def measure(*command: str | Path, bytecode: Path) -> tuple[float, float]:
    """Return the seconds and the MiB of the quickest of several runs. An installed package has its bytecode, so has this."""
    found = []
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode)}
    for _ in range(RUNS):
        began = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
        )
        _, status, usage = os.wait4(process.pid, 0)
        found.append((time.perf_counter() - began, usage.ru_maxrss / 1024))
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}")
    return min(found)


def rows() -> Iterator[str]:
    """Yield the lines of the table."""
    engine = Path(sys.executable).with_name("engine")
    promtool = parts.part("prometheus") / "promtool"
    yield f"whole processes; least of {RUNS} runs"
    yield f"{'':42}{'ours':>12}{'promtool':>12}{'ratio':>7}{'ours':>10}"
    with tempfile.TemporaryDirectory() as name:
        folder, bytecode = Path(name), Path(name, "bytecode")
        for text, rules, groups in (
            ("1 rule, 100 test groups", 1, COUNT),
            ("100 rules, 1 test group", COUNT, 1),
        ):
            file = write(folder, rules, groups)
            ours, memory = measure(engine, "test-rule", file, bytecode=bytecode)
            theirs, _ = measure(promtool, "test", "rules", file, bytecode=bytecode)
            yield f"{text:42}{ours:10.2f} s{theirs:10.2f} s{ours / theirs:7.2f}{memory:6.0f} MiB"
        ours, memory = measure(engine, "test-rule", SHIPPED, bytecode=bytecode)
        yield f"{'rules/spill.yaml':42}{ours:10.2f} s{'':19}{memory:6.0f} MiB"


if __name__ == "__main__":
    for line in rows():
        sys.stdout.write(f"{line}\n")

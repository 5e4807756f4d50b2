"""Coverage asks that the playbook of a rule is seen planned."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli.test_rule import command

ROOT = Path(__file__).parents[3]
RULES = (ROOT / "rules" / "spill.yaml").read_text()
PLANNED = "      - {eval_time: 20m, exp_playbooks: [relieve-object-store]}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RULES, "coverage: 1 of 1 rules are tested, 100 %"),
        (RULES.replace(PLANNED, ""), "no remediation_test sees relieve-object-store planned"),
    ],
    ids=["planned", "not planned"],
)
def test_a_rule_with_a_playbook_is_tested_when_a_test_sees_it_planned(tmp_path, text, said):
    assert PLANNED in RULES
    file = tmp_path / "spill.yaml"
    file.write_text(text)
    result = CliRunner().invoke(
        command, [str(file), "--coverage", "--config", str(ROOT / "deploy" / "engine.yaml")]
    )
    assert result.exit_code == 0
    assert said in result.output

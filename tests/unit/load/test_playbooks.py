from pathlib import Path

import pytest

from engine.errors import LoadError
from engine.load.playbooks import load_playbooks, read_playbook
from engine.model.duration import Duration
from engine.model.labels import Labels
from engine.model.playbook import Mode

FILES = Path(__file__).parents[2] / "fixtures" / "load" / "playbooks"
LEAST = "playbook: {}\nmatch: [alertname=A]\nsteps: [{{name: s, action: tell, with: {{text: t}}}}]\n"


@pytest.fixture
def playbook():
    return load_playbooks([FILES / "relieve.good.yaml"])["relieve"]


def test_match_is_a_list_of_which_one_must_fit(playbook):
    assert [matchers.matches(Labels(alertname="Full")) for matchers in playbook.match] == [True, False]
    assert [matchers.matches(Labels(alertname="Other", severity="page")) for matchers in playbook.match] == [
        False,
        True,
    ]


def test_guardrails_are_plug_ins_and_approval_is_none(playbook):
    assert [type(each).__name__ for each in playbook.guardrails] == ["Rest", "Tries"]
    assert playbook.guardrails[0].period == Duration(minutes=30)
    assert (playbook.approval.receiver, playbook.approval.timeout) == ("oncall", Duration(minutes=5))


def test_a_step_has_its_action_with_templates_as_written(playbook):
    (step,) = playbook.steps
    assert (step.act.text, step.act.times, step.act.words) == (
        "{{ $labels.instance }}",
        2,
        ("{{ $plan.owner.id }}",),
    )
    assert (step.timeout, step.retry.attempts, step.retry.backoff) == (
        Duration(minutes=1),
        2,
        Duration(seconds=30),
    )
    assert step.unless == 'up{instance="{{ $labels.instance }}"} == 1'
    assert step.origin.line == 13


def test_the_rest_is_read_too(playbook):
    assert playbook.mode is Mode.AUTO
    assert playbook.verify.within == Duration(minutes=10)
    assert playbook.escalate == "oncall"
    assert playbook.origin.file == str(FILES / "relieve.good.yaml")


def test_what_is_not_said_is_careful():
    playbook = read_playbook("f", LEAST.format("p").encode(), [])
    assert playbook.mode is Mode.DRY_RUN
    assert playbook.guardrails == ()
    assert playbook.approval.receiver is None


def test_two_playbooks_of_one_name_are_refused_and_the_first_is_named(tmp_path):
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(LEAST.format("same"))
    with pytest.raises(LoadError, match=r"b\.yaml:1:1: playbook 'same' is defined twice; first in .*a\.yaml"):
        load_playbooks([tmp_path / "*.yaml"])


def test_a_second_document_is_not_silently_left_out():
    problems = []
    read_playbook("f", (LEAST.format("p") + "---\n" + LEAST.format("q")).encode(), problems)
    assert [problem.message for problem in problems] == [
        "a playbook file holds one YAML document; put the next into a file of its own"
    ]

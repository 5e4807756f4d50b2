"""A plan has everything filled in, and nothing that an alert carries can become code."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ActionError, ClusterError
from engine.lang.promql import Storage, evaluate
from engine.load.playbooks import read_playbook
from engine.model.alert import Alert, AlertState
from engine.model.labels import Labels
from engine.model.playbook import Mode, Playbook, Run, RunState, StepState
from engine.model.ports import RayApi
from engine.remediate.actions.ray_job import RayJob
from engine.remediate.actions.ray_stop_job import RayStopJob
from engine.remediate.facts import gather
from engine.remediate.plan import plan, rebuild, run_id, step_key
from tests.unit.remediate.stand_in import StandInRay

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
ALERT = Alert(
    rule_id="f;g;Hot",
    labels=Labels(alertname="Hot", instance="10.0.0.1:8080", severity="page", room="a"),
    signal=Labels(instance="10.0.0.1:8080", room="a"),
    state=AlertState.FIRING,
    value=60.5,
    details={"eta": 90.0},
    active_at=T0,
    fired_at=T0,
)


class Cluster(StandInRay):
    """Ray with two jobs that own objects, the larger of which is a job of the engine's own if told so."""

    def __init__(self, owner: str | None = "hog") -> None:
        super().__init__()
        self.owner = owner

    def objects(self) -> list[dict[str, Any]]:
        return [
            {"object_id": job.rjust(48, "f").ljust(56, "0"), "object_size": size}
            for job, size in (("01000000", 10), ("02000000", 300), ("02000000", 300))
        ]

    def jobs(self) -> list[dict[str, Any]]:
        return [
            {"job_id": "01000000", "submission_id": "small"},
            {"job_id": "02000000", "submission_id": self.owner},
        ]


def a_playbook(*steps: str, more: str = "") -> Playbook:
    text = 'playbook: cool\nmatch: [alertname="Hot"]\nmode: approve\n' + more
    text += "steps:\n" + "".join(f"  - {step}\n" for step in steps)
    problems: list[Any] = []
    playbook = read_playbook(str(PLAYBOOKS / "cool.yaml"), text.encode(), problems)
    assert problems == []
    assert playbook is not None
    return playbook


def planned(
    playbook: Playbook, alert: Alert = ALERT, ray: RayApi | None = None, number: int = 0, missing: str = ""
) -> Run:
    """The plan; `missing` says why there is no Ray, and then there is none."""
    return plan(
        playbook,
        alert,
        cluster="prod",
        ray=None if missing else ray or Cluster(),
        missing=missing,
        mode=Mode.APPROVE,
        number=number,
        at=T0,
    )


STOP = '{name: stop, action: ray_stop_job, with: {job: "%s"}}'
STOP_OWNER = STOP % "{{ $plan.largest_owner.submission_id }}"


def test_every_template_is_filled_in_and_what_was_shown_is_what_runs() -> None:
    job = (
        "{name: gc, action: ray_job, with: {entrypoint: [python, -m, ray_ops.global_gc, "
        '"--room={{ $labels.room }}", "{{ $value }}", "{{ $detect.eta }}"]}}'
    )
    playbook = a_playbook(
        job,
        STOP_OWNER.replace('}}"}}', '}}"}, wait: 45s, timeout: 1m, retry: {attempts: 3, backoff: 5s}}'),
        more='target: "{{ $identity.cluster }}/{{ $identity.node }}"\n',
    )
    run = planned(playbook)
    assert run.target == "prod/10.0.0.1"
    assert run.state is RunState.PLANNED
    assert run.mode is Mode.APPROVE
    assert (run.labels, run.signal, run.fired_at) == (ALERT.labels, ALERT.signal, T0)
    gc, stop = run.steps
    assert gc.params["entrypoint"] == ("python", "-m", "ray_ops.global_gc", "--room=a", "60.5", "90")
    assert gc.description == "submit a Ray job: python -m ray_ops.global_gc --room=a 60.5 90"
    assert (gc.action, gc.state, gc.attempt, gc.key) == ("ray_job", StepState.PLANNED, 0, "")
    assert stop.params == {"job": "hog"}
    assert (stop.wait, stop.timeout, stop.attempts, stop.backoff) == (45, 60, 3, 5)
    assert isinstance(rebuild(gc), RayJob)
    assert rebuild(stop) == RayStopJob(job="hog")


def test_a_run_read_back_from_a_store_rebuilds_the_same_action() -> None:
    (step,) = planned(a_playbook("{name: gc, action: ray_job, with: {entrypoint: [python, -m, x]}}")).steps
    params = {name: list(value) if isinstance(value, tuple) else value for name, value in step.params.items()}
    assert rebuild(replace(step, params=params)) == rebuild(step), "JSON has no tuples"


def test_only_the_facts_that_a_playbook_names_are_looked_up() -> None:
    ray = Cluster()
    ray.objects = lambda: pytest.fail("nobody asked for it")  # type: ignore[method-assign]
    run = planned(a_playbook(STOP % "fixed"), ray=ray)
    assert run.steps[0].params == {"job": "fixed"}


def test_the_largest_owner_is_no_job_of_the_engines_own() -> None:
    assert planned(a_playbook(STOP_OWNER)).steps[0].params == {"job": "hog"}
    run = planned(a_playbook(STOP_OWNER), ray=Cluster(owner="engine-0123"))
    assert run.steps[0].params == {"job": "small"}


@pytest.mark.parametrize("owner", [None, ""])
def test_a_fact_that_the_cluster_does_not_have_makes_the_step_impossible_and_says_why(
    owner: str | None,
) -> None:
    run = planned(a_playbook(STOP % "first", STOP_OWNER.replace("stop,", "owner,")), ray=Cluster(owner))
    assert run.steps[0].impossible == ""
    assert "submission_id" in run.steps[1].impossible
    assert "cannot be done" in run.steps[1].description
    assert "{{" not in run.steps[1].impossible


def test_a_cluster_without_objects_has_no_owner() -> None:
    ray = Cluster()
    ray.objects = list  # type: ignore[method-assign]
    assert planned(a_playbook(STOP_OWNER), ray=ray).steps[0].impossible


def test_an_unknown_fact_is_named_with_the_nearest() -> None:
    with pytest.raises(ActionError, match=r"\$plan\.largest_ownr; did you mean 'largest_owner'\?"):
        planned(a_playbook(STOP % "{{ $plan.largest_ownr.submission_id }}"))
    with pytest.raises(ActionError, match="known: largest_owner"):
        gather(["zzz"], ALERT, Cluster())


def test_a_fact_needs_a_cluster_and_the_plan_says_so() -> None:
    playbook = a_playbook(STOP_OWNER)
    with pytest.raises(ActionError, match=r"cool needs Ray's APIs: no entry fits: .*alertname=\"Hot\""):
        planned(playbook, missing="no entry fits")
    run = planned(a_playbook(STOP % "x"), missing="no entry fits")
    assert run.steps[0].params == {"job": "x"}, "one that needs no facts can be planned, and shown"


def test_ray_that_does_not_answer_makes_no_plan() -> None:
    ray = Cluster()
    ray.objects = lambda: (_ for _ in ()).throw(ClusterError("http://ray: refused"))  # type: ignore[method-assign]
    with pytest.raises(ClusterError):
        planned(a_playbook(STOP_OWNER), ray=ray)


def test_code_that_is_not_there_makes_no_plan() -> None:
    playbook = a_playbook("{name: gc, action: ray_job, with: {entrypoint: [x], code: nowhere}}")
    with pytest.raises(ActionError, match=r"no Python code in .*nowhere"):
        planned(playbook)


EVIL = [
    'quote"',
    "back\\slash",
    "two\nlines",
    "$(touch /tmp/x)",
    "`id`; rm -rf /",
    "{{ $labels.room }}",
    "{{ range }}",
    '") or vector(1) #',
    '"} or vector(1) or {a="',
    "' || true",
    "\\",
    '\\"',
    "\u2028\x00é",
]
EVIL_LABELS = st.one_of(st.sampled_from(EVIL), st.text(min_size=1, max_size=20))


def evil(value: str) -> Alert:
    return replace(ALERT, labels=ALERT.labels.updated({"room": value}))


@given(EVIL_LABELS)
def test_no_label_can_change_a_query(value: str) -> None:
    playbook = a_playbook(
        "{name: stop, action: ray_stop_job, with: {job: x}, unless: 'sum(temperature{room=\"{{ $labels.room }}\"}) < 5'}",
        more="verify: {expr: 'temperature{room=\"{{ $labels.room }}\"} < 5'}\n",
    )
    run = planned(playbook, evil(value))
    storage = Storage()
    storage.add(Labels({"__name__": "temperature", "room": value}), [0], [3.0])
    storage.add(Labels({"__name__": "temperature", "room": "another"}), [0], [1.0])
    for expr, labels in (
        (run.steps[0].unless, {}),
        (run.verify_expr, {"__name__": "temperature", "room": value}),
    ):
        assert expr is not None
        window = evaluate(expr, storage, [0.0])
        assert list(window.labels) == [labels]
        assert window.values.tolist() == [[3.0]], "it asks about that room, and about no other"


def unless(expr: str, value: str) -> str | None:
    step = "{name: stop, action: ray_stop_job, with: {job: x}, unless: " + json.dumps(expr) + "}"
    return planned(a_playbook(step), evil(value)).steps[0].unless


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        ("temperature{room=`{{ $labels.room }}`} > 5", "`} or vector(1) #"),
        ("temperature{room='{{ $labels.room }}'} > 5", "'} or vector(1) #"),
        ("temperature{room={{ $labels.room }}} > 5", '"a"'),
        ("{{ $labels.room }} > 5", "vector(9)"),
        ("sum({{ $labels.room }}) > 5", "a) or vector(1"),
        ("temperature[{{ $labels.room }}]", "5m"),
        ("temperature > {{ $labels.room }}", "5 or vector(1)"),
        ("temperature > {{ $labels.room }}", ""),
        ("temperature > 5 # {{ $labels.room }}\n or vector({{ $labels.room }})", "x\n"),
    ],
)
def test_a_value_that_is_no_string_in_double_quotes_makes_no_plan_when_it_would_be_code(
    expr: str, value: str
) -> None:
    with pytest.raises(ActionError, match="in double quotes a value cannot change the query"):
        unless(expr, value)


@pytest.mark.parametrize(
    ("expr", "value", "filled"),
    [
        ("temperature{room=`{{ $labels.room }}`} > 5", "plain", "temperature{room=`plain`} > 5"),
        ("temperature{room='{{ $labels.room }}'} > 5", "plain", "temperature{room='plain'} > 5"),
        ("temperature > {{ $value }} - {{ $labels.room }}", "1e+06", "temperature > 60.5 - 1e+06"),
        ("temperature < {{ $labels.room }}", "+Inf", "temperature < +Inf"),
        ('{{ if eq $labels.room "a" }}up{{ else }}down{{ end }} > 5', "b", "down > 5"),
        ('up{a="{{ $labels.room }}"} # {{ $labels.room }}', "x\ny", 'up{a="x\\ny"} # x\\ny'),
    ],
)
def test_a_value_that_is_a_number_or_stays_in_its_string_is_filled_in(
    expr: str, value: str, filled: str
) -> None:
    assert unless(expr, value) == filled


@given(EVIL_LABELS)
def test_an_argument_stays_one_argument(value: str) -> None:
    playbook = a_playbook(
        '{name: gc, action: ray_job, with: {entrypoint: [python, -c, pass, "{{ $labels.room }}", "--room={{ $labels.room }}"]}}'
    )
    (step,) = planned(playbook, evil(value)).steps
    assert step.params["entrypoint"] == ("python", "-c", "pass", value, f"--room={value}")
    seen: list[str] = []
    ray = Cluster()
    ray.submit = lambda _id, entrypoint, **_: seen.append(entrypoint)  # type: ignore[method-assign]
    rebuild(step).start(ray, "k")
    assert shlex.split(seen[0]) == ["python", "-c", "pass", value, f"--room={value}"]


@given(EVIL_LABELS)
def test_what_was_filled_in_is_not_rendered_again(value: str) -> None:
    run = planned(
        a_playbook(STOP % "{{ $labels.room }}", more='target: "x/{{ $labels.room }}"\n'), evil(value)
    )
    assert run.steps[0].params == {"job": value}
    assert run.target == f"x/{value}"


@given(EVIL_LABELS)
def test_a_description_is_one_line(value: str) -> None:
    job = '{name: gc, action: ray_job, with: {entrypoint: [echo, "{{ $labels.room }}"]}}'
    for step in planned(a_playbook(STOP % "{{ $labels.room }}", job), evil(value)).steps:
        assert len(step.description.splitlines()) == 1
        assert step.description.isprintable()


def test_a_label_that_is_not_there_is_empty() -> None:
    run = planned(a_playbook(STOP % "a{{ $labels.nowhere }}b", more='target: "{{ $labels.nowhere }}"\n'))
    assert run.steps[0].params == {"job": "ab"}
    assert run.target == ""


def test_a_run_has_the_same_id_for_whoever_plans_it() -> None:
    playbook = a_playbook(STOP % "x")
    assert planned(playbook).id == planned(playbook).id == run_id(ALERT, "cool", 0)
    others = {
        run_id(ALERT, "cool", 1),
        run_id(ALERT, "warm", 0),
        run_id(replace(ALERT, fired_at=T0.replace(hour=1)), "cool", 0),
        run_id(evil("b"), "cool", 0),
    }
    assert len(others | {run_id(ALERT, "cool", 0)}) == 5


def test_a_key_is_of_one_attempt_at_one_step_of_one_run() -> None:
    playbook = a_playbook(STOP % "x", (STOP % "x").replace("stop,", "again,"))
    run, other = planned(playbook), planned(playbook, number=1)
    keys = [step_key(run, index, attempt) for index in (0, 1) for attempt in (1, 2)]
    assert len({*keys, step_key(other, 0, 1)}) == 5
    assert keys[0] == step_key(planned(playbook), 0, 1), "a restart finds the same"
    twins = replace(run, steps=(run.steps[0], run.steps[0]))
    assert step_key(twins, 0, 1) != step_key(twins, 1, 1), "whatever the steps are called"
    assert all(key.startswith("engine-") and len(key) == 39 for key in keys)

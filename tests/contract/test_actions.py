"""What holds for every action, whatever it calls.

A new action adds an instance to `EXAMPLES`, and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ClusterError
from engine.model.playbook import PlannedStep
from engine.model.ports import Action, Progress
from engine.registry import action
from engine.remediate.actions.ray_job import RayJob
from engine.remediate.actions.ray_stop_job import RayStopJob
from engine.remediate.plan import rebuild
from tests.unit.remediate.stand_in import StandInRay

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
EXAMPLES: dict[str, Action] = {
    "ray_job": RayJob(entrypoint=("python", "-m", "ray_ops.global_gc")),
    "ray_stop_job": RayStopJob(job="hog"),
}
ALL = pytest.mark.parametrize("word", EXAMPLES)


def fixed(word: str) -> Action:
    return EXAMPLES[word].fix(str(PLAYBOOKS))


def a_ray() -> StandInRay:
    ray = StandInRay()
    ray.statuses["hog"] = "RUNNING"
    return ray


def effects(ray: StandInRay) -> tuple[list[str], set[str]]:
    """What has been done to the cluster: jobs submitted, and jobs stopped."""
    return ray.submissions, set(ray.stops)


def test_every_action_has_an_example() -> None:
    assert set(action) == set(EXAMPLES)


@ALL
def test_it_says_in_one_line_what_it_would_do_and_does_nothing(word: str) -> None:
    ray = a_ray()
    text = fixed(word).describe()
    assert text
    assert len(text.splitlines()) == 1
    assert effects(ray) == ([], set())


@ALL
def test_its_docstring_is_its_page_and_its_fields_are_its_schema(word: str) -> None:
    cls = action.get(word)
    assert cls.__doc__ is not None
    assert not cls.__doc__.startswith(f"{cls.__name__}("), "a dataclass without a docstring makes one up"
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]


@ALL
def test_what_is_fixed_can_be_kept_as_json_and_rebuilt(word: str) -> None:
    act = fixed(word)
    params = {field.name: getattr(act, field.name) for field in dataclasses.fields(act)}  # type: ignore[arg-type]
    step = PlannedStep(
        name="s",
        action=word,
        params=json.loads(json.dumps(params)),
        description="",
        timeout=1,
        attempts=1,
        backoff=0,
        wait=0,
    )
    assert rebuild(step) == act


@ALL
def test_starting_it_twice_with_one_key_has_one_effect(word: str) -> None:
    ray, act = a_ray(), fixed(word)
    first = act.start(ray, "engine-1")
    once = tuple(map(len, effects(ray)))
    assert sum(once) == 1
    second = act.start(ray, "engine-1")
    assert tuple(map(len, effects(ray))) == once
    assert (first.progress, bool(first.message)) == (Progress.RUNNING, True)
    assert second.progress is not Progress.FAILED


@ALL
def test_starting_it_again_after_its_end_tells_the_end_and_does_nothing(word: str) -> None:
    ray, act = a_ray(), fixed(word)
    act.start(ray, "engine-1")
    for job in ray.statuses:
        ray.finish(job, "SUCCEEDED")
    before = [*ray.submissions], [*ray.stops]
    assert act.start(ray, "engine-1").progress is Progress.SUCCEEDED
    assert ([*ray.submissions], [*ray.stops]) == before


@ALL
@pytest.mark.parametrize(
    "status", ["PENDING", "RUNNING", "SUCCEEDED", "FAILED", "STOPPED", "SOMETHING_NEW", ""]
)
def test_it_can_say_how_far_it_is_whatever_ray_answers(word: str, status: str) -> None:
    ray, act = a_ray(), fixed(word)
    act.start(ray, "engine-1")
    ray.statuses = dict.fromkeys(ray.statuses, status)
    answer = act.poll(ray, "engine-1")
    assert len(answer.message.splitlines()) == 1
    assert (answer.progress is Progress.RUNNING) is (status not in ("SUCCEEDED", "FAILED", "STOPPED"))
    assert tuple(map(len, effects(ray))) in ((1, 0), (0, 1)), "asking does nothing"


@ALL
def test_a_job_that_ray_does_not_know_is_a_failure_and_named(word: str) -> None:
    ray, act = a_ray(), fixed(word)
    act.start(ray, "engine-1")
    ray.statuses = {}
    answer = act.poll(ray, "engine-1")
    assert answer.progress is Progress.FAILED
    assert "Ray knows no job" in answer.message


@ALL
@pytest.mark.parametrize("call", ["start", "poll"])
def test_a_cluster_that_does_not_answer_is_an_error_of_the_cluster(word: str, call: str) -> None:
    ray, act = a_ray(), fixed(word)
    ray.down = True
    with pytest.raises(ClusterError):
        getattr(act, call)(ray, "engine-1")


@ALL
def test_cancelling_what_never_started_does_no_harm(word: str) -> None:
    ray, act = a_ray(), fixed(word)
    act.cancel(ray, "engine-1")
    assert ray.submissions == []
    assert ray.statuses["hog"] == "RUNNING"


def test_a_job_that_is_gone_cannot_be_stopped() -> None:
    ray = StandInRay()
    answer = RayStopJob(job="hog").start(ray, "k")
    assert (answer.progress, answer.message) == (Progress.FAILED, "Ray knows no job hog")
    assert ray.stops == []


def test_what_a_job_said_last_is_told() -> None:
    ray, act = a_ray(), fixed("ray_job")
    act.start(ray, "k")
    ray.finish("k", "SUCCEEDED")
    assert act.poll(ray, "k").message == "the job SUCCEEDED: global gc: 80 MiB before, 10 MiB after"
    ray.finish("k", "FAILED")
    assert act.poll(ray, "k").message == "the job FAILED: said Ray"


def test_a_job_that_fails_with_many_words_is_told_in_one_line() -> None:
    ray, act = a_ray(), fixed("ray_job")
    act.start(ray, "k")
    ray.finish("k", "FAILED")
    tell: Any = ray.job
    ray.job = lambda id_: {**tell(id_), "message": "Traceback\n" * 300}  # type: ignore[method-assign]
    message = act.poll(ray, "k").message
    assert len(message.splitlines()) == 1
    assert len(message) < 500

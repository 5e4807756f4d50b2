"""A run advances by at most one call, and no call is made twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine.errors import QueryUnavailable, StoreError
from engine.model.duration import Duration
from engine.model.labels import Labels, Matchers
from engine.model.playbook import (
    Mode,
    OnFailure,
    PlannedStep,
    Playbook,
    Run,
    RunState,
    Step,
    StepState,
    Verify,
)
from engine.remediate.actions.ray_job import RayJob
from engine.remediate.actions.ray_stop_job import RayStopJob
from engine.remediate.runner import World, advance
from engine.remediate.verify import observe
from tests.unit.remediate.stand_in import StandInRay

T0 = datetime(2026, 1, 1, tzinfo=UTC)
CODE = Path(__file__).parents[3] / "playbooks"
GC = RayJob(entrypoint=("python", "-m", "ray_ops.global_gc")).fix(str(CODE))


def planned(name: str, act: RayJob | RayStopJob, **changes: object) -> PlannedStep:
    word = "ray_job" if isinstance(act, RayJob) else "ray_stop_job"
    fields = {field: getattr(act, field) for field in act.__dataclass_fields__}
    step = PlannedStep(
        name=name,
        action=word,
        params=fields,
        description=act.describe(),
        timeout=60,
        attempts=1,
        backoff=10,
        wait=0,
    )
    return replace(step, **changes)


def a_run(*steps: PlannedStep) -> Run:
    return Run(
        id="r1",
        playbook="relieve",
        rule_id="f;g;A",
        labels=Labels(alertname="A", instance="n1"),
        signal=Labels(instance="n1"),
        fired_at=T0,
        target="c/n1",
        mode=Mode.AUTO,
        state=RunState.ACTING,
        steps=steps,
        created_at=T0,
        updated_at=T0,
    )


PLAYBOOK = Playbook(
    playbook="relieve",
    match=(Matchers(),),
    steps=(Step(name="gc", act=GC),),
    verify=Verify(within=Duration(minutes=5)),
)


class Stage:
    """Drives one run in virtual time, one second a round, and keeps what was saved."""

    def __init__(self, run: Run, ray: StandInRay) -> None:
        self.run, self.ray, self.at = run, ray, T0
        self.saved: list[Run] = [run]
        self.firing = True
        self.answers: Callable[[str], bool] = lambda _expr: False
        self.save: Callable[[Run], None] = self.saved.append

    def step(self, seconds: float = 1) -> Run:
        self.at += timedelta(seconds=seconds)
        world = World(ray=self.ray, returns_anything=self.answers, firing=self.firing, save=self.save)
        self.run = advance(self.run, PLAYBOOK, world, self.at)
        return self.run

    def crash(self) -> None:
        """Forget everything but what was saved."""
        self.run = self.saved[-1]

    def judge(self, *, bad: bool | None) -> None:
        self.at += timedelta(seconds=1)
        self.run = observe(self.run, bad=bad, slot=self.at)


def test_a_job_is_submitted_followed_and_verified_by_the_rules_condition() -> None:
    stage = Stage(a_run(planned("gc", GC)), StandInRay())
    assert stage.step().steps[0].state is StepState.RUNNING
    key = stage.run.steps[0].key
    assert stage.ray.submissions == [key]
    assert stage.step() is stage.saved[-1], "nothing new, nothing saved"
    stage.ray.finish(key)
    assert stage.step().steps[0].state is StepState.SUCCEEDED
    assert "10 MiB after" in stage.run.steps[0].message, "the last line of the job's log is told"
    assert stage.step().state is RunState.VERIFYING
    stage.judge(bad=False)
    assert stage.step().state is RunState.VERIFYING, "one good evaluation is not enough"
    stage.judge(bad=False)
    assert stage.step().state is RunState.HELPED


def test_the_intent_is_saved_before_the_call() -> None:
    stage = Stage(a_run(planned("gc", GC)), StandInRay())
    states_when_called: list[StepState] = []
    submit = stage.ray.submit

    def watched(submission_id: str, entrypoint: str, **options: object) -> None:
        states_when_called.append(stage.saved[-1].steps[0].state)
        assert stage.saved[-1].steps[0].key == submission_id
        submit(submission_id, entrypoint, **options)

    stage.ray.submit = watched  # type: ignore[method-assign]
    stage.step()
    assert states_when_called == [StepState.INTENDED]


def test_nothing_is_called_when_the_intent_cannot_be_saved() -> None:
    stage = Stage(a_run(planned("gc", GC)), StandInRay())

    def full(_run: Run) -> None:
        raise StoreError("disk full")

    stage.save = full
    with pytest.raises(StoreError):
        stage.step()
    assert stage.ray.submissions == []


def test_a_crash_between_submit_and_record_does_not_submit_twice() -> None:
    stage = Stage(a_run(planned("gc", GC)), StandInRay())
    stage.step()
    intended = next(run for run in stage.saved if run.steps[0].state is StepState.INTENDED)
    stage.saved = [intended]  # killed before the answer was saved
    stage.save = stage.saved.append
    stage.crash()
    stage.step()
    assert stage.run.steps[0].state is StepState.RUNNING
    assert len(stage.ray.submissions) == 1


def test_a_crash_before_submit_submits_once_under_the_same_key() -> None:
    stage = Stage(a_run(planned("gc", GC)), StandInRay())
    stage.ray.down = True
    stage.step()
    key = stage.run.steps[0].key
    stage.crash()
    stage.ray.down = False
    stage.step()
    assert stage.ray.submissions == [key]


def test_a_submit_that_times_out_after_being_accepted_is_found_again() -> None:
    ray = StandInRay()
    ray.submit_times_out = True
    stage = Stage(a_run(planned("gc", GC, attempts=3)), ray)
    assert stage.step().steps[0].state is StepState.INTENDED
    assert stage.step().steps[0].state is StepState.RUNNING
    assert len(ray.submissions) == 1


def test_a_new_attempt_has_a_new_key_and_only_follows_a_terminal_answer() -> None:
    stage = Stage(a_run(planned("gc", GC, attempts=2)), StandInRay())
    stage.step()
    first = stage.run.steps[0].key
    stage.step(30)
    assert stage.ray.submissions == [first], "PENDING is no terminal answer"
    stage.ray.finish(first, "FAILED")
    assert stage.step().steps[0].state is StepState.PLANNED
    assert stage.step(5).steps[0].attempt == 1, "the backoff is waited for"
    stage.step(10)
    second = stage.run.steps[0].key
    assert stage.ray.submissions == [first, second]
    assert first != second
    stage.ray.finish(second, "FAILED")
    assert stage.step().steps[0].state is StepState.FAILED
    stage.step()
    assert stage.run.state is RunState.VERIFYING, "a job that says FAILED may have worked: the metrics say"


def test_a_job_that_takes_too_long_is_stopped_and_then_retried() -> None:
    stage = Stage(a_run(planned("gc", GC, attempts=2, backoff=0.0)), StandInRay())
    stage.step()
    first = stage.run.steps[0].key
    stage.step(61)
    assert stage.ray.stops == [first]
    stage.step()
    stage.step()
    assert len(stage.ray.submissions) == 2


def test_a_job_that_is_pending_for_ever_is_given_up_without_a_second_one() -> None:
    stage = Stage(a_run(planned("gc", GC, attempts=3)), StandInRay())
    stage.step()
    stage.ray.stop = lambda _id: None  # type: ignore[method-assign]
    stage.step(61)
    stage.step(61)
    assert stage.run.steps[0].state is StepState.FAILED
    assert "no terminal answer" in stage.run.steps[0].message
    stage.step()
    assert len(stage.ray.submissions) == 1


def test_ray_that_stays_down_ends_the_step_without_another_attempt() -> None:
    stage = Stage(a_run(planned("gc", GC, attempts=3)), StandInRay())
    stage.step()
    stage.ray.down = True
    stage.step(30)
    assert stage.run.steps[0].state is StepState.RUNNING
    assert "connection refused" in stage.run.steps[0].message
    stage.step(100)
    assert stage.run.steps[0].state is StepState.FAILED
    assert len(stage.ray.submissions) == 1


def test_a_step_is_left_out_while_its_unless_holds_and_only_after_its_wait() -> None:
    stop = RayStopJob(job="hog")
    ray = StandInRay()
    ray.statuses["hog"] = "RUNNING"
    stage = Stage(a_run(planned("gc", GC), planned("stop", stop, wait=20.0, unless="enough")), ray)
    asked: list[str] = []
    stage.answers = lambda expr: bool(asked.append(expr)) or True
    stage.step()
    ray.finish(stage.run.steps[0].key)
    stage.step()
    stage.step(5)
    assert asked == [], "metrics get time to show what the first step did"
    stage.step(20)
    assert stage.run.steps[1].state is StepState.SKIPPED
    assert asked == ["enough"]
    assert ray.stops == []


def test_a_second_step_stops_the_job_when_unless_does_not_hold() -> None:
    ray = StandInRay()
    ray.statuses["hog"] = "RUNNING"
    stage = Stage(a_run(planned("stop", RayStopJob(job="hog"), unless="enough")), ray)
    stage.step()
    assert ray.stops == ["hog"]
    assert stage.step().steps[0].state is StepState.SUCCEEDED


def test_a_query_that_fails_puts_the_decision_off() -> None:
    stage = Stage(a_run(planned("stop", RayStopJob(job="hog"), unless="enough")), StandInRay())

    def blind(_expr: str) -> bool:
        raise QueryUnavailable("Prometheus is down")

    stage.answers = blind
    with pytest.raises(QueryUnavailable):
        stage.step()
    assert stage.run.steps[0].state is StepState.PLANNED


def test_nothing_more_is_done_once_the_alert_fires_no_more() -> None:
    ray = StandInRay()
    ray.statuses["hog"] = "RUNNING"
    stage = Stage(a_run(planned("stop", RayStopJob(job="hog"))), ray)
    stage.firing = False
    assert stage.step().steps[0].state is StepState.SKIPPED
    assert ray.stops == []


def test_a_step_that_cannot_be_done_is_left_out_with_its_reason() -> None:
    stage = Stage(a_run(planned("stop", RayStopJob(job=""), impossible="has no submission id")), StandInRay())
    assert stage.step().steps[0].state is StepState.SKIPPED
    assert stage.run.steps[0].message == "has no submission id"


@pytest.mark.parametrize(("on_failure", "stops"), [(OnFailure.CONTINUE, ["hog"]), (OnFailure.STOP, [])])
def test_a_failed_step_ends_the_acting_unless_it_says_otherwise(
    on_failure: OnFailure, stops: list[str]
) -> None:
    ray = StandInRay()
    ray.statuses["hog"] = "RUNNING"
    stage = Stage(
        a_run(planned("gc", GC, on_failure=on_failure), planned("stop", RayStopJob(job="hog"))), ray
    )
    stage.step()
    ray.finish(stage.run.steps[0].key, "FAILED")
    for _ in range(4):
        stage.step()
    assert ray.stops == stops
    assert stage.run.state is RunState.VERIFYING


def test_what_did_not_help_says_so_when_its_time_is_over() -> None:
    stage = Stage(a_run(planned("stop", RayStopJob(job="gone"))), StandInRay())
    stage.step()
    stage.step()
    assert stage.run.state is RunState.VERIFYING
    stage.judge(bad=False)
    stage.judge(bad=True)
    stage.judge(bad=False)
    stage.step()
    assert stage.run.state is RunState.VERIFYING, "good evaluations have to follow each other"
    stage.step(301)
    assert stage.run.state is RunState.DID_NOT_HELP


def test_an_evaluation_that_knows_nothing_counts_neither_way() -> None:
    stage = Stage(a_run(planned("stop", RayStopJob(job="gone"))), StandInRay())
    stage.step()
    stage.step()
    stage.judge(bad=False)
    stage.judge(bad=None)
    stage.judge(bad=False)
    assert stage.step().state is RunState.HELPED


def test_code_that_changed_after_planning_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "ray_ops"
    folder.mkdir()
    (folder / "fix.py").write_text("print(1)")
    act = RayJob(entrypoint=("python", "-m", "ray_ops.fix")).fix(str(tmp_path))
    (folder / "fix.py").write_text("print(2)")
    stage = Stage(a_run(planned("fix", act)), StandInRay())
    assert stage.step().steps[0].state is StepState.FAILED
    assert "changed after this run was planned" in stage.run.steps[0].message
    assert stage.ray.submissions == []


def test_an_entrypoint_cannot_be_broken_out_of() -> None:
    act = replace(GC, entrypoint=("python", "-c", "$(touch /tmp/x); `id` 'quoted' \"too\"\nnewline"))
    seen: list[str] = []
    ray = StandInRay()
    ray.submit = lambda _id, entrypoint, **_: seen.append(entrypoint)  # type: ignore[method-assign]
    act.start(ray, "k")
    import shlex  # noqa: PLC0415

    assert shlex.split(seen[0]) == list(act.entrypoint)

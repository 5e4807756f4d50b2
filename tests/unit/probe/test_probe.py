"""One cluster, asked: what is exported, and what is said of parts that do not answer."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.errors import ClusterError
from engine.model.duration import Duration
from engine.model.settings import ProbeSettings
from engine.probe.export import render
from engine.probe.probe import Api, ClusterProbe, Condition
from tests.unit.probe.test_actors import row

AT = datetime(2026, 1, 1, tzinfo=UTC)
EVERY = timedelta(seconds=15)


class Ray:
    """A cluster that answers what the test wants, and keeps what it was asked."""

    def __init__(self):
        self.asked = []
        self.errors = {}
        self.rows = [row()]
        self.held = []

    def _answer(self, name, answer):
        self.asked.append(name)
        if name in self.errors:
            raise self.errors[name]
        return answer

    def check_gcs(self):
        return self._answer("gcs", None)

    def version(self):
        return self._answer("dashboard", "2.60.0")

    def actors(self):
        return self._answer("actors", self.rows)

    def jobs(self):
        jobs = [{"status": "RUNNING", "job_id": "01000000", "submission_id": "j1"}, {"status": "FAILED"}]
        return self._answer("jobs", jobs)

    def objects(self):
        return self._answer("state", self.held)


def probe_of(ray, **settings):
    return ClusterProbe("prod", ray, ProbeSettings(**settings))


def samples(probe):
    text = render([probe]).decode()
    return {
        (
            sample.name,
            *sorted(f"{name}={value}" for name, value in sample.labels.items() if name != "cluster"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_healthy_cluster_is_exported():
    ray = Ray()
    ray.held = [{"object_id": "ff" * 20 + "01000000" + "00" * 4, "object_size": 100}]
    probe = probe_of(ray)
    probe.probe(AT)
    ray.rows = [row(cpu=25.0, tasks=35)]
    probe.probe(AT + EVERY)
    found = samples(probe)
    assert found["engine_ray_gcs_up",] == 1.0
    assert found["engine_ray_gcs_health_seconds",] < 1.0
    assert found["engine_ray_api_condition", "api=gcs", "condition=ok"] == 1.0
    assert found["engine_ray_api_condition", "api=gcs", "condition=hung"] == 0.0
    assert found["engine_ray_api_requests_total", "api=actors", "code=200"] == 2.0
    assert found["engine_ray_api_request_seconds_count", "api=jobs"] == 2.0
    assert found["engine_ray_api_request_seconds_bucket", "api=jobs", "le=+Inf"] == 2.0
    actor = ("actor_id=a1", "actor_name=", "class_name=Worker", "node=10.0.0.7", "ray_job_id=01000000")
    assert found["engine_ray_actor_cpu_cores", *actor] == 1.0
    assert found["engine_ray_actor_rss_bytes", *actor] == 1e8
    assert found["engine_ray_actor_tasks_per_second", *actor] == 2.0
    assert found["engine_ray_jobs", "state=RUNNING"] == 1.0
    assert found["engine_ray_object_owner_bytes", "ray_job_id=01000000", "submission_id=j1"] == 100.0
    assert found["engine_ray_info", "version=2.60.0"] == 1.0
    assert found["engine_ray_probe_dropped", "kind=actors"] == 0.0


def test_it_asks_no_more_often_than_it_may():
    ray = Ray()
    probe = probe_of(ray)
    for second in range(61):
        probe.probe(AT + timedelta(seconds=second))
    assert ray.asked.count("actors") == 5
    assert ray.asked.count("state") == 2
    assert probe_of(ray, owners_interval=Duration()).probe(AT) != []


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (ClusterError("x", late=True), Condition.HUNG),
        (ClusterError("x"), Condition.GONE),
        (ClusterError("x", status=401), Condition.UNAUTHORIZED),
        (ClusterError("x", status=403), Condition.FORBIDDEN),
        (ClusterError("x", status=503), Condition.FAILING),
    ],
)
def test_it_says_how_a_part_fails_and_when_it_is_back(error, condition):
    ray = Ray()
    ray.errors["jobs"] = error
    probe = probe_of(ray)
    assert (Api.JOBS, condition, "x") in probe.probe(AT)
    assert probe.probe(AT + EVERY) == []
    found = samples(probe)
    assert found["engine_ray_api_condition", "api=jobs", f"condition={condition}"] == 1.0
    assert not any(name[0] == "engine_ray_jobs" for name in found)
    del ray.errors["jobs"]
    assert probe.probe(AT + 2 * EVERY) == [(Api.JOBS, Condition.OK, "")]


def test_gcs_that_does_not_answer_is_down():
    ray = Ray()
    ray.errors["gcs"] = ClusterError("unhealthy", status=503)
    probe = probe_of(ray)
    probe.probe(AT)
    assert samples(probe)["engine_ray_gcs_up",] == 0.0


@pytest.mark.parametrize("late", [True, False])
def test_a_dashboard_that_does_not_answer_says_nothing_of_gcs_and_is_asked_nothing_more(late):
    ray = Ray()
    ray.errors = {name: ClusterError("x", late=late) for name in ("gcs", "dashboard")}
    probe = probe_of(ray)
    probe.probe(AT)
    assert ray.asked == ["gcs", "dashboard"]
    assert ("engine_ray_gcs_up",) not in samples(probe)
    ray.errors = {}
    probe.probe(AT + EVERY)
    assert samples(probe)["engine_ray_gcs_up",] == 1.0


def test_once_halted_nothing_further_is_asked():
    ray = Ray()
    probe_of(ray).probe(AT, halted=lambda: len(ray.asked) == 1)
    assert ray.asked == ["gcs"]


def test_three_hundred_actors_and_two_thousand_dead_ones_are_bounded():
    ray = Ray()
    dead = [row(f"d{i}", state="DEAD", processStats=None) for i in range(2000)]
    ray.rows = [*(row(f"a{i}", rss=float(i)) for i in range(300)), *dead]
    probe = probe_of(ray)
    probe.probe(AT)
    found = samples(probe)
    assert sum(name[0] == "engine_ray_actor_rss_bytes" for name in found) == 100
    assert found["engine_ray_probe_dropped", "kind=actors"] == 200.0

"""Actors as the dashboard shows them: what they use, and which of them are in view."""

import math

from hypothesis import given
from hypothesis import strategies as st

from engine.model.labels import Labels
from engine.probe.actors import HELD, LATELY, InView, Meters, Use, read_actors


def row(actor_id="a1", *, cpu=10.0, rss=1e8, tasks=5, pid=7, created=100.0, **more):
    return {
        "actorId": actor_id,
        "className": "Worker",
        "name": "",
        "jobId": "01000000",
        "state": "ALIVE",
        "ipAddress": "10.0.0.7",
        "numExecutedTasks": tasks,
        "processStats": {
            "pid": pid,
            "createTime": created,
            "cpuTimes": {"user": cpu - 1, "system": 1.0},
            "memoryInfo": {"rss": rss},
        },
        **more,
    }


def use(actor_id, cores=0.0, rss=0.0):
    return Use(Labels(actor_id=actor_id), rss, cores, 0.0)


def test_living_actors_are_read_and_the_dead_are_left_out():
    rows = [row("a1"), row("a2", state="DEAD", processStats=None), row("a3", processStats=None)]
    actors, unread = read_actors(rows)
    assert list(actors) == ["a1"]
    assert unread == 0
    assert dict(actors["a1"].labels) == {
        "actor_id": "a1",
        "class_name": "Worker",
        "ray_job_id": "01000000",
        "node": "10.0.0.7",
    }
    assert actors["a1"].rss == 1e8
    assert (actors["a1"].process, actors["a1"].cpu, actors["a1"].tasks) == ((7, 100.0), 10.0, 5.0)


def test_rows_that_make_no_sense_are_counted():
    rows = [row("a1"), {**row("a2"), "processStats": {"pid": 1}}, {**row("a3"), "numExecutedTasks": "many"}]
    rows += [row(""), row("a4", pid=float("inf"))]
    actors, unread = read_actors(rows)
    assert (list(actors), unread) == (["a1"], 4)


@given(
    st.dictionaries(st.sampled_from(list(row())), st.none() | st.integers() | st.text() | st.lists(st.none()))
)
def test_whatever_the_dashboard_says_is_read_or_counted(strange):
    actors, unread = read_actors([{**row(), **strange}])
    assert len(actors) + unread <= 1


def metered(*looks):
    """Return cores and tasks a second after each look (seconds, cpu, tasks, created)."""
    meters, found = Meters(), []
    for at, cpu, tasks, created in looks:
        actors, _ = read_actors([row(cpu=cpu, tasks=tasks, created=created)])
        use = meters.read(actors, at)["a1"]
        found.append((use.cores, use.tasks))
    return found


def test_rates_are_over_the_time_between_two_refreshes_of_a_count():
    looks = [(0, 10, 5, 1.0), (15, 25, 5, 1.0), (30, 25, 35, 1.0), (45, 40, 35, 1.0)]
    rates = metered(*looks)
    assert [cores for cores, _ in rates[1:]] == [1.0, 1.0, 0.5], "held while it is not refreshed"
    assert math.isnan(rates[1][1])
    assert [tasks for _, tasks in rates[2:]] == [1.0, 1.0]


def test_a_count_that_stands_still_is_idle_and_wakes_at_its_own_rate():
    looks = [(15.0 * index, 10, 5, 1.0) for index in range(40)]
    assert metered(*looks)[-1] == (0.0, 0.0)
    cores, _ = metered(*looks, (600, 25, 5, 1.0))[-1]
    assert 15 / HELD <= cores <= 1.0, "over the last minute at most, not over ten"


def test_a_restarted_actor_and_a_clock_set_back_begin_anew():
    (_, (cores, tasks)) = metered((0, 10, 5, 1.0), (15, 12, 9, 2.0))
    assert math.isnan(cores)
    assert math.isnan(tasks)
    assert math.isnan(metered((15, 10, 5, 1.0), (0, 12, 9, 1.0))[-1][0])
    assert metered((0, 10, 5, 1.0), (15, 5, 5, 1.0))[-1][0] == 0.0, "a count never falls"


def test_the_busiest_and_the_largest_are_in_view():
    view = InView(1)
    uses = {"busy": use("busy", cores=2.0), "large": use("large", rss=9.0), "other": use("other", 1.0, 1.0)}
    assert [each.labels["actor_id"] for each in view.choose(uses, 0.0)] == ["busy", "large"]


def test_who_was_in_view_stays_for_a_while_unless_it_is_gone():
    view = InView(1)
    ids = lambda uses, now: [each.labels["actor_id"] for each in view.choose(uses, now)]  # noqa: E731
    assert ids({"a": use("a", 2.0), "b": use("b", 1.0)}, 0.0) == ["a"]
    assert ids({"a": use("a", 0.0), "b": use("b", 1.0, 1.0)}, LATELY - 1) == ["a", "b"]
    assert ids({"a": use("a", 0.0), "b": use("b", 1.0, 1.0)}, LATELY) == ["b"]
    assert ids({"c": use("c")}, LATELY + 1) == ["c"]


def test_the_view_is_bounded():
    view = InView(2)
    for index in range(50):
        uses = {f"a{i:03}": use(f"a{i:03}", cores=float(i == index)) for i in range(100)}
        chosen = view.choose(uses, float(index))
        assert len(chosen) <= 8
    assert "a049" in {each.labels["actor_id"] for each in chosen}

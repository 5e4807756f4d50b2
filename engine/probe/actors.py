"""What each actor uses. Ray's own series sum over all processes of a class on a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.model.labels import Labels

LATELY = 1800.0
"""Seconds for which an actor that was among the first stays in view, so that its series has no holes."""


SHORTEST = 5.0
"""Seconds over which a rate is taken at least: when within its last refresh Ray counted is not known."""

HELD = 60.0
"""Seconds over which a count that stands still is taken to do so: Ray refreshes each about every 15 s."""


@dataclass(frozen=True, slots=True)
class Actor:
    """A living actor, as the dashboard shows it."""

    labels: Labels
    rss: float  # bytes
    process: tuple[int, float]  # its pid, and when it was created: a restarted actor has another
    cpu: float  # seconds of user and system time until now
    tasks: float  # that it has executed until now; NaN where Ray does not say


class Meter(NamedTuple):
    """A count that is read more often than it is refreshed: how it grows between its refreshes."""

    value: float
    at: float  # when it changed last, in seconds, or from when on it is known to stand still
    rate: float = float("nan")  # a second, over the last refresh

    def read(self, value: float, at: float) -> Meter:
        """Return the meter after the count was read again."""
        since = at - self.at
        if since < 0:  # somebody set the clock
            return Meter(value, at)
        if value != self.value and since >= SHORTEST:
            return Meter(value, at, max(0.0, value - self.value) / since)
        if value == self.value and since >= HELD:
            return Meter(value, at - HELD / 2, 0.0)
        return self


@dataclass(frozen=True, slots=True)
class Use:
    """What an actor uses. The rates are NaN until its counts have been refreshed once."""

    labels: Labels
    rss: float  # bytes
    cores: float
    tasks: float  # a second


def read_actors(rows: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Actor], int]:
    """Return the living actors by id, and how many rows could not be read.

    A living actor without figures (its node's agent has not reported yet) is neither.
    """
    found: dict[str, Actor] = {}
    unread = 0
    for row in rows:
        if row.get("state") != "ALIVE" or not row.get("processStats"):
            continue
        try:
            actor = _actor(row)
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
            unread += 1
        else:
            found[actor.labels["actor_id"]] = actor
    return found, unread


def _actor(row: Mapping[str, Any]) -> Actor:
    if not row["actorId"]:
        raise ValueError("an actor without an id")
    stats, times = row["processStats"], row["processStats"]["cpuTimes"]
    labels = Labels(
        actor_id=str(row["actorId"]),
        class_name=str(row.get("className") or row.get("actorClass") or ""),
        actor_name=str(row.get("name") or ""),
        ray_job_id=str(row.get("jobId") or ""),
        node=str(row.get("ipAddress") or row["address"]["ipAddress"]),
    )
    return Actor(
        labels,
        rss=float(stats["memoryInfo"]["rss"]),
        process=(int(stats["pid"]), float(stats["createTime"])),
        cpu=float(times["user"]) + float(times["system"]),
        tasks=float(row.get("numExecutedTasks", "nan")),
    )


class Meters:
    """The counts of all actors."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, tuple[int, float]], tuple[Meter, Meter]] = {}

    def read(self, actors: Mapping[str, Actor], at: float) -> dict[str, Use]:
        """Return what each actor uses, by id; actors that are gone are forgotten."""
        uses, after = {}, {}
        for id_, actor in actors.items():
            cpu, tasks = self._meters.get((id_, actor.process)) or (
                Meter(actor.cpu, at),
                Meter(actor.tasks, at),
            )
            cpu, tasks = cpu.read(actor.cpu, at), tasks.read(actor.tasks, at)
            after[id_, actor.process] = cpu, tasks
            uses[id_] = Use(actor.labels, actor.rss, cores=cpu.rate, tasks=tasks.rate)
        self._meters = after
        return uses


class InView:
    """Which actors are exported: the `most` busiest, the `most` largest, and whoever was one lately."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[str, float] = {}  # by id: when it was last among the first, in seconds

    def choose(self, uses: Mapping[str, Use], now: float) -> Sequence[Use]:
        """Return those in view, at most four times `most`: of those that were lately, the newest."""
        by_cores = sorted(uses, key=lambda id_: (-_or_zero(uses[id_].cores), id_))[: self._most]
        by_size = sorted(uses, key=lambda id_: (-uses[id_].rss, id_))[: self._most]
        self._seen.update(dict.fromkeys([*by_size, *by_cores], now))
        newest = sorted(self._seen.items(), key=lambda item: (-item[1], item[0]))[: 4 * self._most]
        self._seen = {id_: at for id_, at in newest if id_ in uses and 0 <= now - at < LATELY}
        return [uses[id_] for id_ in sorted(self._seen)]


def _or_zero(value: float) -> float:
    return value if value == value else 0.0  # noqa: PLR0124 - NaN

"""One worker asked for by pid, where Ray sums workers by class and node."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World, equals
from engine.lang.promql.syntax import selected_metric

_ACTORS = {
    "ray_component_cpu_percentage": "engine_ray_actor_cpu_cores",
    "ray_component_rss_bytes": "engine_ray_actor_rss_bytes",
}


@query_check("ray/worker-pid")
def worker_pid(query: Query, world: World) -> Iterator[Note]:
    """Note a pid demanded of a worker's process."""
    for selector in query.selectors:
        name = selected_metric(selector.matchers) or ""
        if not name.startswith("ray_component_") or world.series(selector) is None:
            continue
        of_workers = any(each.name == "Component" and "ray::" in each.value for each in selector.matchers)
        for index, matcher in enumerate(selector.matchers):
            if of_workers and matcher.name == "pid" and not matcher.matches({}):
                message = (
                    f"{name} of workers has no pid: Ray sums all processes of one class on a node, so nothing is "
                    "selected; the figures of one actor are the probe's"
                )
                spot = query.at(query.places.matcher(selector, index))
                component = equals(selector, "Component") or "ray::…"
                rewrite = _of_actors(name, component)
                yield Note(Severity.ERROR, message, spot, rewrite)


def _of_actors(name: str, component: str) -> str:
    """Return the probe's series of each actor of the class, or else the sum over its processes on a node."""
    actors = _ACTORS.get(name)
    if actors is not None:
        return f'{actors}{{class_name="{component.removeprefix("ray::")}"}}'
    return f'sum by (ip) ({name}{{Component="{component}"}})'

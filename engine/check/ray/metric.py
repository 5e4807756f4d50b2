"""A metric that this version of Ray does not export: renamed, removed, or never there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from engine.check.registering import query_check
from engine.check.subject import Note, Query, Severity, World, is_ray_name
from engine.lang.promql.syntax import Selector, selected_metric
from engine.model.labels import METRIC_NAME
from engine.ray.contract import HISTOGRAM_PARTS, exported_by

_CUTOFF = 0.9  # of difflib's ratio: nearer is a slip of the pen


@query_check("ray/metric")
def metric(query: Query, world: World) -> Iterator[Note]:
    """Hold every name that looks like Ray's against the contract."""
    for selector in query.selectors:
        name = selected_metric(selector.matchers)
        if name is None or world.knows(name):
            continue
        change = world.contract.change(name)
        if change is None and (world.contract.find(name) is not None or ":" in name):
            continue  # a colon is how recorded names are told from others
        if is_ray_name(name) or change is not None:
            severity, message, rewrite = _unknown(name, world)
        elif (prefixed := _without_prefix(name, selector, world)) is not None:
            severity, message, rewrite = prefixed
        else:
            continue
        yield Note(severity, message, query.at(query.places.head(selector)), rewrite)


def _unknown(name: str, world: World) -> tuple[Severity, str, str]:
    contract = world.contract
    missing = f"Ray {contract.version} exports no {name}"
    if (change := contract.change(name)) is not None:
        return Severity.ERROR, f"{missing}: {change.why}", change.rewrite
    if (found := contract.metrics.get(name)) is not None and found.type == "histogram":
        rewrite = f"histogram_quantile(0.99, sum by (le, instance) (rate({name}_bucket[5m])))"
        return Severity.ERROR, f"{missing}: it is a histogram, with {name}_bucket, _sum and _count", rewrite
    if near := _other_suffix(name, world):
        return Severity.ERROR, f"{missing}: it is called {near}", near
    if versions := exported_by(name):
        return Severity.ERROR, f"{missing}; Ray {', '.join(versions)} did", _near(name, world)
    if near := _near(name, world):
        return Severity.ERROR, f"{missing}; did you mean {near}?", near
    message = (
        f"{missing}, as far as scrapes and its dashboards have shown; if an application makes it, "
        "say so with `# engine disable ray/metric`"
    )
    return Severity.WARNING, message, ""


def _other_suffix(name: str, world: World) -> str:
    """Return the name as it is, with or without `_total`."""
    other = name.removesuffix("_total") if name.endswith("_total") else f"{name}_total"
    return other if world.contract.find(other) is not None else ""


def _near(name: str, world: World) -> str:
    base = next((name.removesuffix(part) for part in HISTOGRAM_PARTS if name.endswith(part)), name)
    near = difflib.get_close_matches(base, world.contract.metrics, n=1, cutoff=_CUTOFF)
    if not near:
        return ""
    return near[0] + name[len(base) :] if world.contract.find(near[0] + name[len(base) :]) else near[0]


def _without_prefix(name: str, selector: Selector, world: World) -> tuple[Severity, str, str] | None:
    """Return what to say of a name that would be Ray's with `ray_` before it.

    It is an error only if a label that only Ray has, or the name itself, leaves no doubt that it is meant.
    """
    series = world.contract.find(f"ray_{name}")
    if series is None or "_" not in name:
        return None
    own = {each.name for each in selector.matchers} - {METRIC_NAME}
    certain = name.startswith(("object_store_", "spill_manager_", "gcs_")) or any(
        label[0].isupper() and label in series.labels for label in own
    )
    message = f"Ray exports ray_{name}; {name} lacks the prefix, and nothing else is known to export it"
    return (Severity.ERROR if certain else Severity.ADVICE), message, f"ray_{name}"

"""What a plan has to know about the cluster, found through Ray's APIs while planning.

A playbook names a fact as `$plan.<fact>.<field>`; only the facts that it names are looked up.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping

from engine.errors import ActionError
from engine.model.alert import Alert
from engine.model.ports import RayApi
from engine.ray.owners import owners

ENGINE_JOBS = "engine-"  # how submission ids of the engine's own jobs begin

Fact = Mapping[str, str]


def largest_owner(_alert: Alert, ray: RayApi) -> Fact:
    """Return job_id, bytes and, if it has one, submission_id of the job that owns most bytes of objects."""
    found = owners(ray.objects(), ray.jobs())
    others = [owner for owner in found if not (owner.submission_id or "").startswith(ENGINE_JOBS)]
    if not others:
        return {}
    first = others[0]
    fact = {"job_id": first.job_id, "bytes": str(first.bytes)}
    return fact | ({"submission_id": first.submission_id} if first.submission_id else {})


FACTS: Mapping[str, Callable[[Alert, RayApi], Fact]] = {"largest_owner": largest_owner}


def gather(names: Iterable[str], alert: Alert, ray: RayApi) -> dict[str, Fact]:
    """Look up these facts; ActionError for a name that is none, ClusterError if Ray does not answer."""
    return {name: _fact(name)(alert, ray) for name in sorted(set(names))}


def _fact(name: str) -> Callable[[Alert, RayApi], Fact]:
    if name not in FACTS:
        near = difflib.get_close_matches(name, FACTS, n=1)
        raise ActionError(
            f"no fact is called $plan.{name}; "
            + (f"did you mean {near[0]!r}?" if near else f"known: {', '.join(FACTS)}")
        )
    return FACTS[name]

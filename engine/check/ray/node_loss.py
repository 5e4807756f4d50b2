"""A lost node asked of `up`, which Ray's service discovery takes away."""

from __future__ import annotations

from collections.abc import Iterator

from engine.check.registering import rule_check
from engine.check.subject import Note, Severity, Subject, World, about_ray_job
from engine.lang.promql.syntax import Binary, Number, Selector, selected_metric, walk
from engine.model.duration import Duration
from engine.model.rule import AlertingRule

_GONE_AFTER = Duration(seconds=26)  # measured: from the kill of a raylet until its `up` is gone
_INSTEAD = "sum(ray_cluster_active_nodes) < max_over_time(sum(ray_cluster_active_nodes)[15m:1m])"


@rule_check("ray/node-loss")
def node_loss(subject: Subject, _world: World) -> Iterator[Note]:
    """Note `up == 0` of Ray's targets held for longer than a dead node stays a target."""
    if not isinstance(subject.rule, AlertingRule) or subject.rule.hold < _GONE_AFTER:
        return
    query = subject.expr
    for node in walk(query.root):
        if isinstance(node, Binary) and _is_down(node):
            message = (
                f"Ray's discovery drops a dead node, and with it `up`, within {_GONE_AFTER}: held for "
                f"{subject.rule.hold} this never fires"
            )
            yield Note(Severity.ERROR, message, query.at(query.places.of(node.left)), _INSTEAD)


def _is_down(node: Binary) -> bool:
    return (
        node.operator in ("==", "<", "<=")
        and isinstance(node.right, Number)
        and node.right.value in (0.0, 1.0)
        and isinstance(node.left, Selector)
        and selected_metric(node.left.matchers) == "up"
        and any(map(about_ray_job, node.left.matchers))
    )

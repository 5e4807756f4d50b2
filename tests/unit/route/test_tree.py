"""Routing follows Alertmanager: depth first, the deepest match, `continue`, inheritance."""

import pytest

from engine.model.duration import Duration
from engine.model.labels import Labels, Matcher, Matchers, MatchOp
from engine.model.route import Route
from engine.route.tree import receivers_of


def matchers(**labels: str) -> Matchers:
    return Matchers(Matcher(name, MatchOp.EQUAL, value) for name, value in labels.items())


TREE = Route(
    receiver="default",
    group_by=("alertname",),
    routes=(
        Route(
            receiver="pager",
            matchers=matchers(severity="page"),
            group_wait=Duration(seconds=5),
            mute_time_intervals=("nights",),
            active_time_intervals=("weekdays",),
            routes=(
                Route(receiver="database", matchers=matchers(team="db"), group_by=("...",)),
                Route(matchers=matchers(team="web"), repeat_interval=Duration(hours=1), group_by=()),
            ),
        ),
        Route(receiver="audit", matchers=matchers(audit="yes"), continue_=True),
        Route(receiver="web", matchers=matchers(team="web")),
    ),
)


@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ({}, ["default"]),
        ({"severity": "page"}, ["pager"]),
        ({"severity": "page", "team": "db"}, ["database"]),
        ({"severity": "page", "team": "web"}, ["pager"]),
        ({"severity": "page", "audit": "yes"}, ["pager"]),
        ({"team": "web"}, ["web"]),
        ({"audit": "yes"}, ["audit"]),
        ({"audit": "yes", "team": "web"}, ["audit", "web"]),
    ],
)
def test_an_alert_goes_to_the_deepest_nodes_that_match(labels: dict[str, str], receivers: list[str]) -> None:
    assert [route.receiver for route in receivers_of(TREE, Labels(labels))] == receivers


def test_the_root_has_alertmanagers_defaults() -> None:
    (route,) = receivers_of(Route(receiver="all"), Labels())
    assert [str(length) for length in (route.group_wait, route.group_interval, route.repeat_interval)] == [
        "30s",
        "5m",
        "4h",
    ]
    assert route.group_by == ()


def test_a_node_inherits_all_but_time_intervals() -> None:
    (pager,) = receivers_of(TREE, Labels(severity="page"))
    (web,) = receivers_of(TREE, Labels(severity="page", team="web"))
    assert (pager.mute_time_intervals, pager.active_time_intervals) == (("nights",), ("weekdays",))
    assert (web.mute_time_intervals, web.active_time_intervals) == ((), ())
    assert (web.receiver, str(web.group_wait), str(web.group_interval), str(web.repeat_interval)) == (
        "pager",
        "5s",
        "5m",
        "1h",
    )
    assert (pager.group_by, web.group_by) == (("alertname",), ())  # an empty list is a list of its own


def test_keys_are_printed_as_alertmanager_prints_them() -> None:
    labels = Labels(alertname="X", severity="page", team="db")
    assert receivers_of(TREE, labels)[0].group_key(labels) == (
        '{}/{severity="page"}/{team="db"}:{alertname="X", severity="page", team="db"}'
    )
    labels = Labels(alertname="X", severity="page")
    assert receivers_of(TREE, labels)[0].group_key(labels) == '{}/{severity="page"}:{alertname="X"}'
    assert receivers_of(Route(receiver="all"), labels)[0].group_key(labels) == "{}:{}"


def test_matchers_of_a_key_are_in_order_of_name_value_and_operator() -> None:
    unordered = Matchers(
        [
            Matcher("b", MatchOp.REGEX, "x|y"),
            Matcher("a", MatchOp.NOT_REGEX, "z"),
            Matcher("a", MatchOp.NOT_EQUAL, "z"),
            Matcher("a", MatchOp.NOT_EQUAL, 'q"'),
        ]
    )
    (route,) = receivers_of(Route(receiver="r", routes=(Route(matchers=unordered),)), Labels(b="x"))
    assert route.key == r'{}/{a!="q\"",a!="z",a!~"z",b=~"x|y"}'


def test_group_labels_are_those_that_the_alert_has() -> None:
    (route,) = receivers_of(Route(receiver="r", group_by=("alertname", "missing")), Labels())
    assert route.group_labels(Labels(alertname="X", other="y")) == {"alertname": "X"}


def test_siblings_with_the_same_matchers_share_a_key_but_not_an_identity() -> None:
    twin = Route(receiver="one", matchers=matchers(a="b"), continue_=True)
    other = Route(receiver="two", matchers=matchers(a="b"))
    first, second = receivers_of(
        Route(receiver="r", routes=(twin, Route(matchers=matchers(c="d")), other)), Labels(a="b")
    )
    assert first.key == second.key == first.id == '{}/{a="b"}'
    assert second.id == '{}/{a="b"}#2'


def test_a_route_put_before_others_changes_no_identity() -> None:
    before = receivers_of(TREE, Labels(team="web"))[0]
    new = Route(receiver="new", matchers=matchers(new="yes"))
    after = receivers_of(
        Route(receiver="default", group_by=("alertname",), routes=(new, *TREE.routes)), Labels(team="web")
    )[0]
    assert before == after

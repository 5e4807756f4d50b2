"""An alert's labels say which Ray cluster it is about."""

from __future__ import annotations

from engine.flow.clusters import Clusters
from engine.lab.cluster import LabRay
from engine.model.labels import Labels, Matcher, Matchers, MatchOp
from engine.model.ports import RayApi
from engine.model.settings import RayCluster

PROD = RayCluster(
    name="prod",
    address="http://prod:8265",
    matchers=Matchers([Matcher("cluster", MatchOp.EQUAL, "prod")]),
)
KUBERAY = RayCluster(
    name="{{ $labels.ray_io_cluster }}",
    address="http://{{ $labels.ray_io_cluster }}-head-svc.{{ $labels.namespace }}:8265",
    matchers=Matchers([Matcher("ray_io_cluster", MatchOp.REGEX, ".+")]),
)
REST = RayCluster(name="default", address="http://default:8265")


class Connections:
    """Makes clients, and notes of which entry and address."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def __call__(self, entry: RayCluster, address: str) -> RayApi:
        self.made.append((entry.name, address))
        return LabRay()


def test_the_first_entry_whose_matchers_fit_is_the_alerts() -> None:
    clusters = Clusters([PROD, KUBERAY, REST], Connections())
    assert clusters.of(Labels(cluster="prod", ray_io_cluster="a")).name == "prod"
    assert clusters.of(Labels(ray_io_cluster="a", namespace="ray")).name == "a"
    assert clusters.of(Labels(cluster="test")).name == "default"


def test_an_alert_that_fits_no_entry_has_no_cluster_and_the_reason_is_told() -> None:
    found = Clusters([PROD], Connections()).of(Labels(cluster="test"))
    assert (found.name, found.ray) == ("", None)
    assert found.missing == "no entry of ray.clusters in engine.yaml fits the alert's labels"
    assert Clusters([], Connections()).of(Labels()).ray is None


def test_name_and_address_are_filled_in_from_the_labels() -> None:
    connect = Connections()
    found = Clusters([KUBERAY], connect).of(Labels(ray_io_cluster="a", namespace="ray"))
    assert found.name == "a"
    assert connect.made == [(KUBERAY.name, "http://a-head-svc.ray:8265")]


def test_nothing_is_connected_before_it_is_asked_for_and_then_once_an_address() -> None:
    connect = Connections()
    clusters = Clusters([PROD, KUBERAY], connect)
    assert connect.made == []
    one = clusters.of(Labels(cluster="prod"))
    same = clusters.of(Labels(cluster="prod", instance="n2"))
    others = [clusters.of(Labels(ray_io_cluster=name, namespace="ray")) for name in "ab"]
    assert one.ray is same.ray
    assert len({id(found.ray) for found in (one, *others)}) == 3
    assert len(connect.made) == 3


def test_two_entries_with_one_address_have_clients_of_their_own() -> None:
    other = RayCluster(name="other", address=PROD.address, token_file="other-token")
    connect = Connections()
    clusters = Clusters([PROD, other], connect)
    assert clusters.of(Labels(cluster="prod")).ray is not clusters.of(Labels()).ray
    assert connect.made == [("prod", PROD.address), ("other", PROD.address)]


def test_an_address_that_cannot_be_filled_in_is_no_cluster_and_says_why() -> None:
    broken = RayCluster(name="broken", address="http://{{ $labels.a | humanize }}")
    found = Clusters([broken], Connections()).of(Labels(a="x"))
    assert (found.name, found.ray) == ("broken", None)
    assert found.missing.startswith("ray.clusters in engine.yaml: broken: ")

"""What each version of Ray exports: held against facts that scrapes of real ones have shown."""

import tomllib
from pathlib import Path

import pytest

from engine.ray.contract import contract, exported_by, version_number, versions

ROOT = Path(__file__).parents[3]


def test_there_is_a_contract_for_three_versions_in_order():
    assert versions() == ("2.9", "2.49", "2.60")


@pytest.mark.parametrize(
    ("asked", "used"),
    [("", "2.60"), ("2.60.0", "2.60"), ("2.59", "2.49"), ("2.10", "2.9"), ("1.0", "2.9"), ("3", "2.60")],
)
def test_the_newest_contract_that_is_not_newer_holds(asked, used):
    assert contract(asked).metrics == contract(used).metrics


def test_what_changed_from_gauge_to_histogram_is_found_by_what_can_be_asked_for():
    name = "ray_grpc_server_req_process_time_ms"
    assert contract("2.9").find(name).metric.type == "gauge"
    assert contract("2.9").find(f"{name}_bucket") is None
    assert contract("2.60").find(name) is None
    bucket = contract("2.60").find(f"{name}_bucket")
    assert (bucket.metric.type, bucket.grows, "le" in bucket.labels) == ("histogram", True, True)
    assert "le" not in contract("2.60").find(f"{name}_sum").labels


def test_labels_of_the_nodes_came_with_a_later_version():
    assert "IsHeadNode" in contract("2.60").metrics["ray_node_cpu_utilization"].labels
    assert "IsHeadNode" not in contract("2.9").metrics["ray_node_cpu_utilization"].labels


def test_what_no_scrape_shows_is_kept_beside_it():
    tasks = contract("2.60").metrics["ray_tasks"]
    assert (tasks.source, tasks.once, tasks.offsets, tasks.dropped) == ("Source", "owner", True, {"WorkerId"})
    assert contract("2.49").metrics["ray_tasks"].labels >= {"WorkerId"}
    spills = contract("2.60").metrics["ray_spill_manager_request_total"]
    assert (spills.type, spills.cumulative) == ("gauge", True)
    assert not contract("2.60").metrics["ray_node_mem_total"].cumulative
    assert contract("2.60").metrics["ray_memory_manager_worker_eviction_total"].born_at_one
    memory = contract("2.60").metrics["ray_object_store_memory"]
    assert {"Location", "NodeAddress"} <= memory.always
    assert memory.sometimes == {"WorkerId", "ObjectState"}
    assert memory.values["Location"] == ("MMAP_DISK", "MMAP_SHM", "SPILLED", "WORKER_HEAP")


def test_a_name_that_came_or_went_is_known_to_have():
    assert exported_by("ray_component_mem_shared_bytes") == ["2.9", "2.49"]
    assert exported_by("ray_component_shared_bytes") == ["2.60"]
    assert exported_by("ray_node_count") == []


@pytest.mark.parametrize("version", versions())
def test_no_metric_is_renamed_to_one_that_the_version_does_not_export(version):
    known = contract(version)
    wrong = [
        change
        for change in known.changes
        if change.since <= known.number < change.until
        and not change.label
        and change.rewrite.isidentifier()
        and known.find(change.rewrite) is None
    ]
    assert wrong == []


@pytest.mark.parametrize("version", versions())
def test_no_metric_that_the_version_exports_is_said_to_be_gone(version):
    known = contract(version)
    assert [name for name in known.names() if known.change(name)] == []


def test_a_change_of_a_label_is_chosen_by_its_value():
    head = contract("2.60").change("ray_node_cpu_utilization", "node_type", "head")
    assert head.rewrite == 'IsHeadNode="true"'
    assert contract("2.60").change("ray_cluster_active_nodes", "node_type") is None


@pytest.mark.parametrize("text", ["newest", "", "2.x"])
def test_what_is_no_version_is_refused(text):
    with pytest.raises(ValueError):
        version_number(text)


def test_the_data_lie_in_the_package_that_the_wheel_takes_whole():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["engine"]}
    assert len(list((ROOT / "engine" / "ray" / "metrics").glob("*.tsv"))) == 4

"""Why pods of one kind are rejected is found out once, until something changes."""

from __future__ import annotations

from search_kit import House, reasons

from builders import a_node, a_pod
from kubesched.scheduler.search import Path


def two_full_nodes() -> tuple[House, list[Path]]:
    house = House([a_node("n1", cpu="1"), a_node("n2", cpu="2")])
    paths: list[Path] = []
    house.search.observer = paths.append
    return house, paths


def test_pods_alike_are_rejected_from_memory() -> None:
    house, paths = two_full_nodes()
    first, second = house.failure(a_pod("a", cpu="4")), house.failure(a_pod("b", cpu="4"))
    assert paths == [Path.FULL_SCAN, Path.SIGNATURE]
    assert first.message() == second.message() == "0/2 nodes are available: 2 Insufficient cpu."
    assert second.diagnosis.unschedulable_plugins == {"NodeResourcesFit"}
    assert first.state is not second.state


def test_a_changed_node_is_evaluated_again() -> None:
    house, paths = two_full_nodes()
    house.failure(a_pod("a", cpu="4"))
    house.cache.set_node(a_node("n2", cpu="2", unschedulable=True))
    again = house.failure(a_pod("b", cpu="4"))
    assert paths == [Path.FULL_SCAN, Path.FULL_SCAN]
    assert reasons(again.diagnosis.statuses)["n2"][1] == ("node(s) were unschedulable",)
    house.cache.set_node(a_node("n3", cpu="8"))
    assert house.find(a_pod("c", cpu="4")).node.name == "n3"


def test_a_removed_node_is_not_counted() -> None:
    house, _ = two_full_nodes()
    house.failure(a_pod("a", cpu="4"))
    house.cache.remove_node("n1")
    assert house.failure(a_pod("b", cpu="4")).message() == "0/1 nodes are available: 1 Insufficient cpu."


def test_another_kind_of_pod_is_evaluated_itself() -> None:
    house, paths = two_full_nodes()
    house.failure(a_pod("a", cpu="4"))
    assert house.find(a_pod("b", cpu="2")).node.name == "n2"
    assert house.failure(a_pod("c", cpu="3")).all_nodes == 2
    assert paths == [Path.FULL_SCAN, Path.SIGNATURE, Path.FULL_SCAN]

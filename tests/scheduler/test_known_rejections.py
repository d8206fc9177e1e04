"""Reasons why pods of one kind are rejected are found out once, until something changes."""

from __future__ import annotations

from builders import a_node, a_pod
from kubesched.scheduler.core.search import Path
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.queue.nominator import Nominator
from search_kit import House, reasons


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


def test_a_node_rejected_for_the_same_reason_changes_nothing() -> None:
    house, paths = two_full_nodes()
    house.failure(a_pod("a", cpu="4"))
    house.add(a_pod("b", cpu="1", on="n1"))
    assert house.failure(a_pod("c", cpu="4")).message() == "0/2 nodes are available: 2 Insufficient cpu."
    house.nominated = nominator = Nominator(None, lambda key: PodInfo(a_pod(key, cpu="1", priority=5)))
    house.search = house.fresh_search()
    house.search.observer = paths.append
    house.failure(a_pod("d", cpu="4"))
    nominator.add(a_pod("e", cpu="1"), NominatingInfo.override("n2"))
    house.failure(a_pod("f", cpu="4"))
    nominator.add(a_pod("g", cpu="1"), NominatingInfo.override("n1"))
    known = house.failure(a_pod("h", cpu="4"))
    assert paths == [
        Path.FULL_SCAN, Path.SIGNATURE, Path.FULL_SCAN, Path.FULL_SCAN, Path.NOMINATIONS
    ]  # fmt: skip
    assert reasons(known.diagnosis.statuses) == reasons(
        house.failure(a_pod("i", cpu="4"), fresh=True).diagnosis.statuses
    )


def test_a_node_rejected_for_another_reason_is_counted_with_it() -> None:
    house, paths = two_full_nodes()
    house.failure(a_pod("a", cpu="4"))
    house.cache.set_node(a_node("n1", cpu="1", pods=0))
    again = house.failure(a_pod("b", cpu="4"))
    assert again.message() == "0/2 nodes are available: 1 Too many pods, 2 Insufficient cpu."
    assert paths == [Path.FULL_SCAN, Path.FULL_SCAN]


def test_nominated_pods_count_in_the_reasons_without_a_what_if() -> None:
    house, _ = two_full_nodes()
    house.nominated = nominator = Nominator(None, lambda key: PodInfo(a_pod(key, cpu="1", priority=5)))
    house.search = house.fresh_search()
    nominator.add(a_pod("a", cpu="1"), NominatingInfo.override("n2"))
    house.cache.set_node(a_node("n2", cpu="2", pods=1))
    found = house.failure(a_pod("b", cpu="1500m"))
    assert reasons(found.diagnosis.statuses)["n2"][1] == ("Too many pods", "Insufficient cpu")
    assert found.message() == house.failure(a_pod("b", cpu="1500m"), fresh=True).message()
    nominator.delete(a_pod("a", cpu="1"))
    assert house.find(a_pod("b", cpu="1500m")).node.name == "n2"

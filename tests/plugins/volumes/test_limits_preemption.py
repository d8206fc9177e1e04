"""Preemption by pods with volumes: who has to leave so that disks, claims and attachments are free."""

from __future__ import annotations

from typing import Any

import pytest
from limits_kit import JSON, a_claim, a_csi_node, a_csi_volume, claims

from kubesched.lab.conformance.world import World
from kubesched.lab.conformance.written_attempt import rejection_of
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.plugins.preemption.outcomes import FastTrials

DISK = {"gcePersistentDisk": {"pdName": "disk"}}
NO_VICTIMS = "No preemption victims found for incoming pod"


def pod(name: str, sources: list[JSON], on: str = "", priority: int = 0, cpu: str = "1") -> JSON:
    volumes = [{"name": f"v{number}", **source} for number, source in enumerate(sources)]
    spec: JSON = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], "priority": priority}
    spec |= {"volumes": volumes, **({"nodeName": on} if on else {})}
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": spec,
        "status": {"startTime": "2026-01-01T00:00:00Z"},
    }


def node(name: str) -> JSON:
    return {
        "metadata": {"name": name, "labels": {}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }


def bound(*names: str, modes: tuple[str, ...] = ("ReadWriteOnce",)) -> list[JSON]:
    found = []
    for name in names:
        claim = a_claim(name, f"v-{name}", modes=modes)
        claim["metadata"]["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        found += [{**claim, "status": {"phase": "Bound"}}, a_csi_volume(f"v-{name}")]
    return found


def preempted(incoming: JSON, pods: list[JSON], objects: list[JSON]) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Node to the pods that would have to leave; and node to why preemption does not help there."""
    world, found = question(incoming, pods, objects)
    rejection = rejection_of(world, found)
    plugin: Any = world.frameworks["default-scheduler"].plugins["DefaultPreemption"]
    candidates, rejected = plugin.list_candidates(rejection.state, found, rejection.diagnosis.statuses)
    victims = {name: [victim.name for victim in each] for name, (each, _) in candidates.items()}
    return victims, {name: status.message() for name, status in rejected.items() if isinstance(status, Status)}


def question(incoming: JSON, pods: list[JSON], objects: list[JSON]) -> tuple[World, PodInfo]:
    nodes = [node("a"), node("b")]
    scenario = {"config": None, "nodes": nodes, "pods": pods, "pending": [incoming], "objects": objects}
    world = World(scenario, in_tree_registry())
    return world, world.pending[0]


def test_a_pod_with_an_attached_volume_leaves_and_those_beside_it_stay() -> None:
    objects = [*bound("x", "y", "z"), a_csi_node("a", d=1), a_csi_node("b", d=1)]
    pods = [
        pod("plain", [], "a"), pod("low", claims("x"), "a", priority=1), pod("high", claims("y"), "b", priority=100),
        pod("small", [], "b"),
    ]  # fmt: skip
    victims, rejected = preempted(pod("p", claims("z"), priority=10), pods, objects)
    assert victims == {"a": ["low"]}
    assert rejected == {"b": "node(s) exceed max volume count"}


def test_both_users_of_a_shared_volume_have_to_leave() -> None:
    objects = [*bound("x", "z"), a_csi_node("a", d=1), a_csi_node("b", d=0)]
    pods = [pod("one", claims("x"), "a", priority=1), pod("two", claims("x"), "a", priority=2), pod("plain", [], "b")]
    victims, rejected = preempted(pod("p", claims("z"), priority=10), pods, objects)
    assert victims == {"a": ["two", "one"]}
    assert rejected == {"b": "node(s) exceed max volume count"}


def test_a_volume_that_the_pod_shares_needs_no_victim() -> None:
    objects = [*bound("x", "y"), a_csi_node("a", d=1), a_csi_node("b", d=1)]
    pods = [pod("mine", claims("x"), "a", cpu="4"), pod("other", claims("y"), "b", priority=100)]
    victims, rejected = preempted(pod("p", claims("x"), priority=10, cpu="4"), pods, objects)
    assert victims == {"a": ["mine"]}
    assert list(rejected) == ["b"]


@pytest.mark.parametrize(
    ("mine", "theirs", "objects"),
    [
        (claims("c"), claims("c"), bound("c", modes=("ReadWriteOncePod",))),
        ([DISK], [DISK], []),
    ],
)  # fmt: skip
def test_the_pod_that_uses_what_cannot_be_shared_leaves(
    mine: list[JSON], theirs: list[JSON], objects: list[JSON]
) -> None:
    pods = [pod("user", theirs, "a", priority=1), pod("plain", [], "a"), pod("full", [], "b", priority=100, cpu="4")]
    victims, _ = preempted(pod("p", mine, priority=10), pods, objects)
    assert victims == {"a": ["user"]}


def test_a_claim_used_on_another_node_is_not_freed_by_victims_here() -> None:
    pods = [pod("user", claims("c"), "a", priority=100), pod("plain", [], "b")]
    victims, rejected = preempted(pod("p", claims("c"), priority=10), pods, bound("c", modes=("ReadWriteOncePod",)))
    assert victims == {}
    assert rejected["a"] == NO_VICTIMS
    assert "ReadWriteOncePod" in rejected["b"]


@pytest.mark.parametrize(
    ("sources", "objects", "fast"),
    [
        ([], [], True),
        ([{"secret": {"secretName": "s"}}], [], True),
        # Where a volume is decides about nodes, not about the pods on them.
        ([DISK], [], False),
        (claims("c"), bound("c", modes=("ReadWriteOncePod",)), False),
    ],
)
def test_the_fast_dry_run_is_for_pods_whose_volumes_no_victim_can_free(
    sources: list[JSON], objects: list[JSON], fast: bool
) -> None:
    users = [pod("one", sources, "a", cpu="4"), pod("two", [], "b", cpu="4")]
    world, found = question(pod("p", sources, priority=10), users, objects)
    rejection = rejection_of(world, found)
    handle = world.frameworks["default-scheduler"].plugins["DefaultPreemption"].handle
    assert (FastTrials(handle).of(rejection.state, found, frozenset()) is not None) == fast

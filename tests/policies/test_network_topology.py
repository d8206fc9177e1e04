"""Network-aware policies: the published example, columns against the rule for one node, order of the queue."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from policy_kit import load, nodes_of, placement, scores_of, simulated

from builders import a_node, a_pod
from kubesched.api.types import Node, Pod
from kubesched.lab.simulate.trials.placement import Placement
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

network = load("network_topology")
groups = load("network_topology.groups")

#: KEP 260: P1 talks to P2, and P2 to P3.
CHAIN = {
    "a1": {"p1": [{"workload": "p2", "maxNetworkCost": 15}], "p2": [{"workload": "p3", "maxNetworkCost": 20}], "p3": []}
}
NETWORK = {
    "appGroups": CHAIN,
    "zones": [{"from": "z1", "to": "z2", "cost": 5}, {"from": "z3", "to": "z4", "cost": 10}],
    "regions": [{"from": "us-west-1", "to": "us-east-1", "cost": 20}],
}
REGIONS = {"z1": "us-west-1", "z2": "us-west-1", "z3": "us-east-1", "z4": "us-east-1"}


def at(name: str, zone: str) -> Node:
    labels = {"topology.kubernetes.io/region": REGIONS[zone], "topology.kubernetes.io/zone": zone} if zone else {}
    return a_node(name, cpu="64", labels=labels)


def member(name: str, workload: str, group: str = "a1") -> Pod:
    return a_pod(name, labels={groups.GROUP: group, groups.WORKLOAD: workload})


#: Eight nodes, two in each zone.
EIGHT = [at(f"n{2 * index + more}", zone) for index, zone in enumerate(REGIONS) for more in (1, 2)]


def with_placed(nodes: list[Node], *placed: tuple[Pod, str]) -> Placement:
    cluster = placement(network.NetworkOverhead, nodes, args=NETWORK)
    for pod, node_name in placed:
        cluster.framework.plugins["NetworkOverhead"].places.put(pod, node_name)
    return cluster


def test_nodes_and_scores_of_the_published_example() -> None:
    """P2 is on N1 and P3 on N4. P1 accepts a cost of 15 to P2: the other region is rejected, N1 is the best."""
    cluster = with_placed(EIGHT, (member("x", "p2"), "n1"), (member("y", "p3"), "n4"))
    assert scores_of(cluster, "NetworkOverhead", member("p", "p1")) == {"n1": 0, "n2": 1, "n3": 5, "n4": 5}
    assert cluster.place(member("p", "p1")) == "n1"
    # P2 depends on P3, and accepts 20: all nodes remain.
    costs = scores_of(cluster, "NetworkOverhead", member("q", "p2"))
    assert costs == {"n4": 0, "n3": 1, "n1": 5, "n2": 5, "n5": 20, "n6": 20, "n7": 20, "n8": 20}
    assert cluster.place(member("q", "p2")) == "n4"


def test_scores_are_reversed_between_least_and_most() -> None:
    normalized = network.NetworkOverhead.asks.normalized
    assert normalized(np.array([0, 1, 5, 20]), 0, 20).tolist() == [100, 95, 75, 0]
    assert normalized(np.array([7, 7]), 7, 7).tolist() == [100, 100]


def cost_of_one(origin: Node, to: Node) -> float | None:
    if origin.name == to.name:
        return 0
    a, b = origin.metadata.labels or {}, to.metadata.labels or {}
    if not a or not b:
        return None
    if a == b:
        return 1
    zones = {a["topology.kubernetes.io/zone"], b["topology.kubernetes.io/zone"]}
    if a["topology.kubernetes.io/region"] != b["topology.kubernetes.io/region"]:
        return 20
    return 5 if zones == {"z1", "z2"} else 10


@pytest.mark.parametrize("seed", range(6))
def test_columns_agree_with_the_rule_for_one_node(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [at(f"n{index}", rng.choice([*REGIONS, ""])) for index in range(12)]
    by_name = {node.name: node for node in nodes}
    placed = [(member(f"x{index}", rng.choice(("p2", "p3"))), rng.choice(nodes).name) for index in range(7)]
    cluster = with_placed(nodes, *placed)
    for workload, needed, limit in (("p1", "p2", 15), ("p2", "p3", 20)):
        expected = {}
        for node in nodes:
            costs = [
                cost_of_one(node, by_name[where])
                for pod, where in placed
                if (pod.metadata.labels or {})[groups.WORKLOAD] == needed
            ]
            known = [cost for cost in costs if cost is not None]
            if sum(cost > limit for cost in known) <= sum(cost <= limit for cost in known):
                expected[node.name] = sum(100 if cost is None else cost for cost in costs)
        assert scores_of(cluster, "NetworkOverhead", member("p", workload)) == expected


def test_pods_that_come_and_go_are_followed() -> None:
    cluster = with_placed(EIGHT)
    plugin, table = cluster.framework.plugins["NetworkOverhead"], cluster.cache.table
    assert plugin.ask(PodInfo(member("p", "p1")), table) is None
    assert cluster.place(member("q", "p2")) is not None
    assert plugin.ask(PodInfo(member("p", "p1")), table) is not None
    assert plugin.ask(PodInfo(member("p", "p1", "other")), table) is None
    assert plugin.ask(PodInfo(a_pod()), table) is None
    plugin.places.on_delete(SimpleNamespace(obj=member("q", "p2")))
    assert plugin.places.nodes == {}
    # Labels of nodes may change, and nodes may go.
    plugin.places.put(member("q", "p2"), "n1")
    assert cluster.place(member("p", "p1")) == "n1"
    cluster.cache.set_node(at("n1", "z4"))
    assert set(scores_of(cluster, "NetworkOverhead", member("r", "p1"))) == {"n1", "n5", "n6", "n7", "n8"}
    cluster.cache.remove_node("n1")
    assert set(scores_of(cluster, "NetworkOverhead", member("r", "p1")).values()) == {0}


def queued(pod: Pod, timestamp: float) -> QueuedPodInfo:
    return QueuedPodInfo(PodInfo(pod), timestamp)


#: A frontend that talks to nine workloads, of which the first talks to another one.
SHOP: dict[str, list[dict[str, str]]] = {f"p{number}": [] for number in range(1, 12)} | {
    "p1": [{"workload": f"p{number}"} for number in range(2, 11)],
    "p2": [{"workload": "p11"}],
}


def test_the_order_of_the_queue() -> None:
    handle = SimpleNamespace(watch=lambda kind, handler: None)
    sort: Any = network.TopologicalSort({"appGroups": {"shop": SHOP, **CHAIN}}, handle)
    assert [groups.AppGroups({"a": CHAIN["a1"]}).order["a", name] for name in ("p1", "p2", "p3")] == [0, 1, 2]
    assert [groups.AppGroups({"a": CHAIN["a1"]}, "ReverseKahn").order["a", name] for name in ("p1", "p2")] == [2, 1]
    pods = [
        queued(member("c", "p3"), 1.0),
        queued(a_pod("plain"), 2.0),
        queued(member("a", "p1"), 3.0),
        queued(member("other", "p5", "shop"), 2.5),
        queued(a_pod("important", priority=10), 9.0),
        queued(member("b", "p2"), 4.0),
    ]
    for pod in pods:
        sort.on_add(pod.pod_info.pod, False)
    assert [pod.pod_info.name for pod in sorted(pods, key=sort.sort_key)] == [
        "important", "a", "b", "c", "plain", "other",
    ]  # fmt: skip
    assert sort.less(pods[2], pods[5])
    for name, workload in (("a", "p1"), ("b", "p2"), ("c", "p3")):
        assert ("ns", "a1") in sort.since
        sort.on_delete(member(name, workload))
    assert ("ns", "a1") not in sort.since


def test_users_of_a_workload_come_before_it_in_the_published_order() -> None:
    """KEP 260 gives this order for the Online Boutique: P1, P10 down to P2, P11."""
    order = groups.AppGroups({"shop": SHOP}).order
    ordered = sorted(SHOP, key=lambda workload: order["shop", workload])
    assert ordered == ["p1", *(f"p{number}" for number in range(10, 1, -1)), "p11"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "appGroups: None; expected groups by name"),
        ({"appGroups": {"a": {"x": [{"workload": "y"}]}}}, r"appGroups.a.x: depends on y, which is not given"),
        ({"appGroups": {"a": {"x": [{"name": "x"}]}}}, r"appGroups.a.x: \{'name': 'x'\}; expected workload"),
        (
            {"appGroups": {"a": {"x": [{"workload": "y"}], "y": [{"workload": "x"}]}}},
            "appGroups.a: the dependencies of x, y form a circle",
        ),
        ({"appGroups": CHAIN, "zones": [{"from": "z1"}]}, r"zones\[0\]: \{'from': 'z1'\}; expected from, to and cost"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(args: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        placement(network.NetworkOverhead, [], args=args)


def test_the_example_keeps_an_application_together(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("0", "1"):
        result = simulated(
            capsys, "network-topology.yaml", "config/network-topology.yaml", "network_topology", "--seed", seed
        )
        assert nodes_of(result) == {"p1": "n5", "p2": "n5", "p3": "n7"}
        assert result["warnings"] == []

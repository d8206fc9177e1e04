"""Questions from a trial of explanations: each cause is named with its numbers, and what helps is proposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from explain_kit import a_claim, a_class, a_house, a_slice, explained, helps, texts, uses
from msgspec.structs import replace

from builders import a_node, a_pod, a_port, a_taint, info
from kubesched.api.decode import from_builtins
from kubesched.api.types import Affinity, Pod, TopologySpreadConstraint
from kubesched.scheduler.config.args import PodTopologySpreadArgs
from kubesched.scheduler.plugins.pod_topology_spread import PodTopologySpread
from search_kit import House

NUMA = "gpu.example.com/numa"
ZONE = "topology.kubernetes.io/zone"


def on_numa(value: int) -> Mapping[str, Any]:
    return {"attributes": {NUMA: {"int": value}}}


def far_from(app: str, key: str) -> Affinity:
    rule = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return from_builtins({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}, Affinity)


# -- nodes, ports and neighbours ---------------------------------------------------------------------------


def test_a_selector_that_matches_nothing_and_too_much_cpu_are_a_pair_of_changes() -> None:
    house = a_house([a_node("n1", labels={"disk": "ssd"}), a_node("n2", labels={"disk": "hdd"})])
    found = explained(house, a_pod(cpu="100", node_selector={"disk": "nvme"}))
    assert texts(found) == [
        "nodeSelector disk=nvme: nodes have ssd (1), hdd (1)",
        "cpu: asks for 100, but the largest of these nodes has 4; at most 4 is free (n1)",
    ]
    assert helps(found) == [(("drop nodeSelector disk=nvme", "ask for 96 less cpu"), 2)]


def test_the_holders_of_a_host_port_are_named_and_can_be_evicted() -> None:
    there = [
        a_pod("one", on="n1", ports=[a_port(80)]),
        a_pod("two", on="n2", ports=[a_port(80)]),
        a_pod("other", on="n1", cpu="1"),
    ]
    found = explained(a_house([a_node("n1"), a_node("n2")], there), a_pod(ports=[a_port(80)]))
    assert texts(found) == ["host port 80/TCP: held by ns/one on n1, ns/two on n2"]
    assert helps(found) == [(("do without the host port 80/TCP",), 2)]
    assert found.evictions is not None
    assert (found.evictions.pods, found.evictions.nodes) == (("ns/one",), ("n1",))


def test_the_largest_users_of_a_resource_are_named() -> None:
    there = [a_pod(f"p{number}", on="n1", cpu=f"{number * 100}m") for number in range(1, 6)]
    found = explained(a_house([a_node("n1")], there), a_pod(cpu="3"))
    assert texts(found) == ["cpu: asks for 3; at most 2500m is free (n1, used by ns/p5 500m, ns/p4 400m, ns/p3 300m and 2 more)"]  # fmt: skip


def test_a_node_with_all_the_pods_it_may_have_is_named() -> None:
    found = explained(a_house([a_node("n1", pods=1)], [a_pod("a", on="n1")]), a_pod())
    assert texts(found) == ["pods: each of these nodes has as many as it may have, at most 1 of 1 (n1)"]
    assert found.evictions is not None
    assert found.evictions.pods == ("ns/a",)


def test_pods_with_an_anti_affinity_are_named_and_only_what_helps_is_proposed() -> None:
    nodes = [a_node("n1", zone="a"), a_node("n2", zone="a", labels={"disk": "ssd"})]
    loner = with_affinity(a_pod("loner", on="n1"), far_from("web", ZONE))
    found = explained(
        a_house(nodes, [loner, a_pod("bystander", on="n2")]),
        a_pod(labels={"app": "web"}, node_selector={"disk": "ssd"}),
    )
    assert texts(found) == [
        f"other pods have an anti-affinity to pods with app=web, in {ZONE} a (ns/loner)",
        "nodeSelector disk=ssd: nodes have ssd (1)",
    ]
    assert helps(found) == [(("drop the label app=web of the pod",), 1)]
    assert found.evictions is not None
    assert (found.evictions.node, found.evictions.pods, found.evictions.nodes) == ("n2", ("ns/loner",), ("n1",))


def test_pods_with_an_anti_affinity_are_named_to_a_pod_with_many_terms() -> None:
    nodes = [a_node("n1", labels={"host": "n1"})]
    rules = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": f"web-{number}"}}}
                for number in range(40)
            ]
        }
    }
    loner = with_affinity(a_pod("loner", on="n1"), far_from("web", "host"))
    pod = with_affinity(a_pod(labels={"app": "web"}), from_builtins(rules, Affinity))
    found = explained(a_house(nodes, [loner]), pod)
    assert texts(found) == ["other pods have an anti-affinity to pods with app=web, in host n1 (ns/loner)"]
    full = [a_pod(f"p{number}", on="n1", labels={"app": f"web-{number}"}) for number in range(40)]
    assert texts(explained(a_house(nodes, full), pod)) == ["anti-affinity with 40 required terms"]


def test_default_spread_constraints_of_the_profile_have_numbers() -> None:
    class Spread(PodTopologySpread):
        """PodTopologySpread of a profile with a hard default."""

        name = "Spread"

        def __init__(self, args: Any, handle: Any) -> None:
            default = TopologySpreadConstraint(topology_key=ZONE, max_skew=1, when_unsatisfiable="DoNotSchedule")
            super().__init__(PodTopologySpreadArgs(default_constraints=(default,), defaulting_type="List"), handle)

    nodes = [a_node("n1", zone="a"), a_node("n2", zone="b", cpu="1")]
    house = House(nodes, plugins=("NodeResourcesFit", Spread))
    house.objects.put(
        "services", "ns/web", {"metadata": {"name": "web", "namespace": "ns"}, "spec": {"selector": {"app": "web"}}}
    )
    house.add(a_pod("one", on="n1", labels={"app": "web"}), a_pod("two", on="n1", labels={"app": "web"}))
    found = explained(house, a_pod(cpu="2", labels={"app": "web"}))
    assert texts(found) == [
        "cpu: asks for 2, but the largest of these nodes has 1; at most 1 is free (n2)",
        f"by default pods with app=web by {ZONE}: b 0, a 2; a domain may have at most 1 more than the least",
    ]
    assert (f"give the pod its own constraints, with whenUnsatisfiable: ScheduleAnyway for {ZONE}",) in dict(
        helps(found)
    )


def with_affinity(pod: Pod, affinity: Affinity) -> Pod:
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


# -- devices -----------------------------------------------------------------------------------------------

TWO_NUMAS = [a_slice("n1", [on_numa(0), on_numa(0), on_numa(1)]), a_slice("n2", [on_numa(0), on_numa(1)])]
NUMA_IS_9 = 'device.attributes["gpu.example.com"].numa == 9'
TAINTED = {"taints": [{"key": "broken", "value": "fan", "effect": "NoSchedule"}]}
SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
COUNTED = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "30Gi"}}}]}

#: (what the claim asks for, slices, other claims, texts, changes that help with their nodes)
DEVICES: list[tuple[str, Any, list[Any], list[Any], list[str], dict[str, int]]] = [
    (
        "a constraint names its attribute, the values and by how much it fails",
        {"count": 3, "constraints": [{"matchAttribute": NUMA}]}, TWO_NUMAS, [],
        [
            "claim c, request gpu: asks for 3 devices of class gpu; n2 has 2 that match, 2 free",
            f"claim c: needs 3 devices with one value of {NUMA}; best node n1 has 2 with numa 0, 1 too few (numa 0: 2, numa 1: 1 free)",
        ],
        {
            "ask for 2 devices instead of 3 in request gpu of claim c": 1,
            f"drop the constraint matchAttribute {NUMA} of claim c": 1,
        },
    ),
    (
        "values have to differ",
        {"count": 3, "constraints": [{"distinctAttribute": NUMA}]}, [a_slice("n1", [on_numa(0), on_numa(0), on_numa(1)])], [],
        [f"claim c: needs 3 devices with different values of {NUMA}; best node n1 has 2 values (numa 0: 2, numa 1: 1)"],
        {f"drop the constraint distinctAttribute {NUMA} of claim c": 1},
    ),
    (
        "devices in use name the claims and pods that have them",
        {"count": 3}, [a_slice("n1", 3)], [a_claim("taken", held=["gpu-0", "gpu-1"], users=["user"])],
        ["claim c, request gpu: asks for 3 devices of class gpu; n1 has 3 that match, 1 free, 2 used by claim ns/taken of user"],
        {"ask for 1 device instead of 3 in request gpu of claim c": 1},
    ),
    (
        "a selector that matches nothing",
        {"selectors": [{"cel": {"expression": NUMA_IS_9}}]}, TWO_NUMAS[:1], [],
        [f"claim c, request gpu: asks for 1 device of class gpu that {NUMA_IS_9}; none matches, but n1 has 3 of the class"],
        {f"drop the selector {NUMA_IS_9} of request gpu of claim c": 1},
    ),
    (
        "taints of devices",
        {}, [a_slice("n1", [TAINTED, TAINTED])], [],
        ["claim c, request gpu: asks for 1 device of class gpu; n1 has 2 that match, 0 free, 2 with taint broken=fan:NoSchedule"],
        {"tolerate the device taint broken=fan:NoSchedule in request gpu of claim c": 1},
    ),
    (
        "capacity of a shared device",
        {"capacity": {"requests": {"memory": "50Gi"}}}, [a_slice("n1", [SHARED])], [],
        ["claim c, request gpu: asks for 1 device of class gpu with 50Gi memory; n1 has 1 that match, 0 free, 1 with less capacity (at most 40Gi memory left)"],
        {"ask for 40Gi memory instead of 50Gi in request gpu of claim c": 1},
    ),
    (
        "admin access",
        {"count": 2, "adminAccess": True}, [a_slice("n1", 1)], [],
        ["claim c, request gpu: asks for 2 devices with admin access of class gpu; n1 has 1 that match, 1 free"],
        {"ask for 1 device instead of 2 in request gpu of claim c": 1},
    ),
    (
        "a claim with devices ties the pod to their node",
        {"held": ["gpu-0"], "node": "n1", "users": ["user"]}, [a_slice("n1", 1)], [],
        ["claim c has devices already, gpu-0 of pool n1, used by user: it can be used only where these devices are"],
        {"do without the resource claim c": 1},
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("asks", "slices", "others", "expected", "helping"), [row[1:] for row in DEVICES], ids=[row[0] for row in DEVICES]
)
def test_devices(asks: Any, slices: list[Any], others: list[Any], expected: list[str], helping: dict[str, int]) -> None:
    # The node of the claim that has devices is full.
    nodes = [a_node("n1"), a_node("n2")] if len(slices) > 1 else [a_node("n1")]
    taken = []
    if "held" in asks:
        nodes, taken = [a_node("n1", cpu="1"), a_node("n2")], [a_pod("full", on="n1", cpu="1")]
    found = explained(
        a_house(nodes, taken, [a_class(), *slices, *others, a_claim(**asks)]), uses("c", cpu="1" if taken else "")
    )
    assert [text for text in texts(found) if text.startswith("claim")] == expected
    assert helping.items() <= {" AND ".join(changes): rows for changes, rows in helps(found)}.items()


def test_shared_counters_that_are_used_up() -> None:
    counters = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 2}
    slices = [a_slice("n1", [COUNTED, COUNTED], pool=pool), a_slice("n1", [], pool=pool, sharedCounters=counters)]
    slices[1] = replace(slices[1], metadata=replace(slices[1].metadata, name="counters"))
    taken = a_claim("taken", held=["gpu-0"], users=["user"])
    found = explained(a_house([a_node("n1")], (), [a_class(), *slices, taken, a_claim()]), uses("c"))
    assert texts(found) == [
        "claim c, request gpu: asks for 1 device of class gpu; n1 has 2 that match, 0 free, 1 used by claim ns/taken of user, "
        "1 without enough left of the pool's shared counters"
    ]


def test_a_constraint_and_a_taint_are_a_pair_of_changes() -> None:
    node = a_node("n1", taints=[a_taint("dedicated=gpu:NoSchedule")])
    claim = a_claim(count=3, constraints=[{"matchAttribute": NUMA}])
    found = explained(a_house([node], (), [a_class(), TWO_NUMAS[0], claim]), uses("c"))
    drop, tolerate = (
        f"drop the constraint matchAttribute {NUMA} of claim c",
        "tolerate the taint dedicated=gpu:NoSchedule",
    )
    assert helps(found) == [((drop, tolerate), 1)]


def test_a_class_that_does_not_exist_is_named() -> None:
    found = explained(a_house([a_node("n1")], (), [a_claim()]), uses("c"))
    assert texts(found) == ["resource claim c: request gpu: device class gpu does not exist"]


def test_room_that_is_kept_for_nominated_pods_is_named() -> None:
    house = a_house([a_node("n1", cpu="2")], [a_pod("small", on="n1", cpu="1")])
    house.nominated.pods["n1"] = [info(name="vip", cpu="1", priority=5)]
    found = explained(house, a_pod(cpu="1", priority=1))
    assert texts(found) == ["room is kept for nominated pods: ns/vip on n1"]
    assert found.evictions is not None
    assert found.evictions.pods == ("ns/small",)


# -- one more node -----------------------------------------------------------------------------------------


def test_one_more_node_of_a_kind() -> None:
    nodes = [a_node("small-1", cpu="2"), a_node("small-2", cpu="2"), a_node("large-1", cpu="8", unschedulable=True)]
    found = explained(a_house(nodes, [a_pod("a", on="large-1", cpu="8")]), a_pod(cpu="4"))
    assert [(one.like, one.count) for one in found.new_nodes] == [("large-1", 1)]
    assert [one.like for one in explained(a_house(nodes), a_pod(cpu="9")).new_nodes] == []


def test_one_more_node_of_a_zone_does_not_help_where_the_zone_is_closed() -> None:
    nodes = [a_node("n1", zone="a"), a_node("n2", zone="b", cpu="1")]
    loner = with_affinity(a_pod("loner", on="n1"), far_from("web", ZONE))
    house = a_house(nodes, [loner, a_pod("full", on="n2", cpu="1")])
    assert [one.like for one in explained(house, a_pod(cpu="1", labels={"app": "web"})).new_nodes] == ["n2"]
    assert house.names(house.cache.table.order()) == ["n1", "n2"]


def test_one_more_node_has_the_devices_of_its_kind() -> None:
    taken = a_claim("taken", held=["gpu-0", "gpu-1"], users=["user"])
    house = a_house([a_node("n1"), a_node("n2", cpu="2")], (), [a_class(), a_slice("n1", 2), taken, a_claim(count=2)])
    assert [one.like for one in explained(house, uses("c")).new_nodes] == ["n1"]
    assert [one.like for one in explained(house, uses("c")).new_nodes] == ["n1"], "nothing of the first one is left"

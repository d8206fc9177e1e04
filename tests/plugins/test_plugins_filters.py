"""Verdicts of each node-level filter on one pod and one node, in upstream's words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from node_bench import Bench, is_skip
from node_twins import fit

from builders import (
    a_container,
    a_node,
    a_pod,
    a_port,
    a_taint,
    a_toleration,
    field_term,
    info,
    node_affinity,
    requirement,
    term,
)
from kubesched.api.selectors import SelectorError
from kubesched.api.types import ContainerRestartRule, Node, NodeSelectorRequirement, Pod
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.config.args import NodeAffinityArgs, NodeResourcesFitArgs
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import many_resources
from kubesched.scheduler.plugins.node_affinity import NodeAffinity
from kubesched.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from kubesched.scheduler.plugins.node_name import NodeName
from kubesched.scheduler.plugins.node_ports import NodePorts
from kubesched.scheduler.plugins.node_resources_fit import NodeResourcesFit
from kubesched.scheduler.plugins.node_unschedulable import NodeUnschedulable
from kubesched.scheduler.plugins.scheduling_gates import SchedulingGates
from kubesched.scheduler.plugins.taint_toleration import TaintToleration

PASS = None


def unresolvable(*reasons: str) -> tuple[int, tuple[str, ...]]:
    return int(Code.UNSCHEDULABLE_AND_UNRESOLVABLE), reasons


def unschedulable(*reasons: str) -> tuple[int, tuple[str, ...]]:
    return int(Code.UNSCHEDULABLE), reasons


CORDONED = unresolvable("node(s) were unschedulable")
ELSEWHERE = unresolvable("node(s) didn't match the requested node name")
TAINTED = unresolvable("node(s) had untolerated taint(s)")
NO_MATCH = unresolvable("node(s) didn't match Pod's node affinity/selector")
ENFORCED = unresolvable("node(s) didn't match scheduler-enforced node affinity")
TAKEN = unschedulable("node(s) didn't have free ports for the requested pod ports")
LACKING = unresolvable("node(s) didn't match Pod's required features")


@dataclass
class Case:
    name: str
    plugin: type
    pod: Pod
    want: tuple[int, tuple[str, ...]] | None
    node: Node = field(default_factory=lambda: a_node("n1"))
    there: Sequence[Pod] = ()
    args: Any = None


def case(name: str, plugin: type, pod: Pod, want: Any, node: Node | None = None, *there: Pod, args: Any = None) -> Case:
    return Case(name, plugin, pod, want, node if node is not None else a_node("n1"), there, args)


def labelled(**labels: str) -> Node:
    return a_node("n1", labels=labels)


def required(*terms: Any, **more: Any) -> Pod:
    return a_pod(affinity=node_affinity(required=terms), **more)


cordoned = a_node("n1", unschedulable=True)
ssd = term(requirement("disk", "In", "ssd"))
broken = term(requirement("disk", "Gt", "big"))


def holder(*ports: Any) -> Pod:
    return a_pod("holder", on="n1", ports=ports)


CASES = [
    # NodeUnschedulable
    case("an open node takes any pod", NodeUnschedulable, a_pod(), PASS),
    case("a cordoned node takes no pod", NodeUnschedulable, a_pod(), CORDONED, cordoned),
    case(
        "a pod that tolerates the cordon taint gets in",
        NodeUnschedulable,
        a_pod(tolerations=[a_toleration("node.kubernetes.io/unschedulable:NoSchedule")]),
        PASS,
        cordoned,
    ),
    case(
        "a pod that tolerates everything gets in", NodeUnschedulable, a_pod(tolerations=[a_toleration("")]), PASS, cordoned
    ),
    case(
        "an Equal toleration needs an empty value",
        NodeUnschedulable,
        a_pod(tolerations=[a_toleration("node.kubernetes.io/unschedulable=true:NoSchedule")]),
        CORDONED,
        cordoned,
    ),
    case(
        "tolerating its NoExecute effect does not help",
        NodeUnschedulable,
        a_pod(tolerations=[a_toleration("node.kubernetes.io/unschedulable:NoExecute")]),
        CORDONED,
        cordoned,
    ),
    # NodeName
    case("no node is named", NodeName, a_pod(), PASS),
    case("this node is named", NodeName, a_pod(on="n1"), PASS),
    case("another node is named", NodeName, a_pod(on="n2"), ELSEWHERE),
    # TaintToleration
    case("an untolerated NoSchedule taint", TaintToleration, a_pod(), TAINTED, a_node("n1", taints=[a_taint("k=v:NoSchedule")])),
    case("an untolerated NoExecute taint", TaintToleration, a_pod(), TAINTED, a_node("n1", taints=[a_taint("k:NoExecute")])),
    case("PreferNoSchedule rejects no pod", TaintToleration, a_pod(), PASS, a_node("n1", taints=[a_taint("k:PreferNoSchedule")])),
    case("an unknown effect rejects no pod", TaintToleration, a_pod(), PASS, a_node("n1", taints=[a_taint("k:Shout")])),
    case(
        "the value must be equal",
        TaintToleration,
        a_pod(tolerations=[a_toleration("k=w:NoSchedule")]),
        TAINTED,
        a_node("n1", taints=[a_taint("k=v:NoSchedule")]),
    ),
    case(
        "Exists ignores the value",
        TaintToleration,
        a_pod(tolerations=[a_toleration("k:NoSchedule")]),
        PASS,
        a_node("n1", taints=[a_taint("k=v:NoSchedule")]),
    ),
    case(
        "every taint has to be tolerated",
        TaintToleration,
        a_pod(tolerations=[a_toleration("k:NoSchedule")]),
        TAINTED,
        a_node("n1", taints=[a_taint("k=v:NoSchedule"), a_taint("l:NoSchedule")]),
    ),
    case(
        "Gt is no operator while its gate is off",
        TaintToleration,
        a_pod(tolerations=[a_toleration("k=1:NoSchedule", "Gt")]),
        TAINTED,
        a_node("n1", taints=[a_taint("k=2:NoSchedule")]),
    ),
    # NodeAffinity
    case("a node selector that matches", NodeAffinity, a_pod(node_selector={"disk": "ssd"}), PASS, labelled(disk="ssd")),
    case("a node selector that does not", NodeAffinity, a_pod(node_selector={"disk": "ssd"}), NO_MATCH, labelled(disk="hdd")),
    case("an empty node selector does not skip", NodeAffinity, a_pod(node_selector={}), PASS),
    case("one of several terms is enough", NodeAffinity, required(term(requirement("zone", "Exists")), ssd), PASS, labelled(disk="ssd")),
    case("zero terms match no node", NodeAffinity, required(), NO_MATCH),
    case("an empty term matches no node", NodeAffinity, required(term()), NO_MATCH),
    case("an unparsable term never matches", NodeAffinity, required(broken), NO_MATCH, labelled(disk="9")),
    case("with an unparsable term others still count", NodeAffinity, required(broken, ssd), PASS, labelled(disk="ssd")),
    case("selector and affinity are both needed", NodeAffinity, required(ssd, node_selector={"zone": "a"}), NO_MATCH, labelled(disk="ssd")),
    case("Gt reads labels as numbers", NodeAffinity, required(term(requirement("rank", "Gt", "0206"))), PASS, labelled(rank="207")),
    case("Lt is strict", NodeAffinity, required(term(requirement("rank", "Lt", "207"))), NO_MATCH, labelled(rank="207")),
    case("NotIn holds where the label is absent", NodeAffinity, required(term(requirement("rank", "NotIn", "1"))), PASS),
    case("a node asked for by name", NodeAffinity, required(field_term("n1")), PASS),
    case("another node asked for by name", NodeAffinity, required(field_term("n2")), NO_MATCH),
    case("two names in one In match no node", NodeAffinity, required(field_term("n1", "n2")), NO_MATCH),
    case(
        "an unknown field reads as empty",
        NodeAffinity,
        required(term(fields=[requirement("spec.podCIDR", "NotIn", "x")])),
        PASS,
    ),
    case(
        "and is no value asked for",
        NodeAffinity,
        required(term(fields=[requirement("spec.podCIDR", "In", "x")])),
        NO_MATCH,
    ),
    case("but the empty one", NodeAffinity, required(term(fields=[requirement("spec.podCIDR", "In", "")])), PASS),
    case(
        "added affinity is asked first",
        NodeAffinity,
        a_pod(node_selector={"disk": "ssd"}),
        ENFORCED,
        args=NodeAffinityArgs(added_affinity=node_affinity(required=[ssd])),
    ),
    case(
        "added affinity with zero terms rejects every node",
        NodeAffinity,
        a_pod(),
        ENFORCED,
        labelled(disk="ssd"),
        args=NodeAffinityArgs(added_affinity=node_affinity(required=[])),
    ),
    case(
        "behind added affinity comes the pod's own",
        NodeAffinity,
        a_pod(node_selector={"zone": "a"}),
        NO_MATCH,
        labelled(disk="ssd"),
        args=NodeAffinityArgs(added_affinity=node_affinity(required=[ssd])),
    ),
    # NodePorts
    case("the same port on another protocol", NodePorts, a_pod(ports=[a_port(80)]), PASS, None, holder(a_port(80, "UDP"))),
    case("the same port is taken", NodePorts, a_pod(ports=[a_port(80)]), TAKEN, None, holder(a_port(80, "TCP", "0.0.0.0"))),
    case("the same port on another address", NodePorts, a_pod(ports=[a_port(80, ip="10.0.0.1")]), PASS, None, holder(a_port(80, ip="10.0.0.2"))),
    case("any address conflicts with a certain one", NodePorts, a_pod(ports=[a_port(80)]), TAKEN, None, holder(a_port(80, ip="10.0.0.2"))),
    case("a certain address conflicts with any", NodePorts, a_pod(ports=[a_port(80, ip="10.0.0.1")]), TAKEN, None, holder(a_port(80))),
    case("two colons are an address like others", NodePorts, a_pod(ports=[a_port(80, ip="::")]), PASS, None, holder(a_port(80, ip="10.0.0.2"))),
    case(
        "a sidecar's port counts",
        NodePorts,
        a_pod(ports=[a_port(80)]),
        TAKEN,
        None,
        a_pod("holder", on="n1", init=[a_container("s", ports=[a_port(80)], always=True)]),
    ),
    case(
        "an ordinary init container's port does not",
        NodePorts,
        a_pod(ports=[a_port(80)]),
        PASS,
        None,
        a_pod("holder", on="n1", init=[a_container("i", ports=[a_port(80)])]),
    ),
    # NodeResourcesFit
    case("a pod that fits", NodeResourcesFit, a_pod(cpu="1"), PASS),
    case("all that is left", NodeResourcesFit, a_pod(cpu="1"), PASS, a_node("n1", cpu="2"), a_pod("x", on="n1", cpu="1")),
    case("a milli too much", NodeResourcesFit, a_pod(cpu="1001m"), unschedulable("Insufficient cpu"), a_node("n1", cpu="2"), a_pod("x", on="n1", cpu="1")),
    case("more than the node has in all", NodeResourcesFit, a_pod(cpu="3"), unresolvable("Insufficient cpu"), a_node("n1", cpu="2")),
    case(
        "all failures are listed in order",
        NodeResourcesFit,
        a_pod(requests={"example.com/gpu": 1, "ephemeral-storage": "1", "memory": "1Gi", "cpu": "1"}),
        unresolvable("Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage", "Insufficient example.com/gpu"),
        a_node("n1", exactly={"pods": 1, "cpu": "1", "memory": "1Gi"}),
        a_pod("x", on="n1", cpu="1", memory="1Gi"),
    ),
    case("a pod that asks for nothing still counts", NodeResourcesFit, a_pod(), unschedulable("Too many pods"), a_node("n1", pods=1), a_pod("x", on="n1")),
    case("a node that allows no pods rejects", NodeResourcesFit, a_pod(), unschedulable("Too many pods"), a_node("n1", exactly={})),
    case("a scalar of zero is not missed", NodeResourcesFit, a_pod(requests={"example.com/gpu": 0}), PASS),
    case(
        "an ignored resource is not missed",
        NodeResourcesFit,
        a_pod(requests={"example.com/gpu": 1}),
        PASS,
        args=NodeResourcesFitArgs(ignored_resources=("example.com/gpu",)),
    ),
    case(
        "nor one of an ignored group",
        NodeResourcesFit,
        a_pod(requests={"example.com/gpu": 1, "other.org/x": 1}),
        unresolvable("Insufficient other.org/x"),
        args=NodeResourcesFitArgs(ignored_resource_groups=("example.com",)),
    ),
    case(
        "only extended resources can be ignored",
        NodeResourcesFit,
        a_pod(requests={"hugepages-2Mi": "2Mi"}),
        unresolvable("Insufficient hugepages-2Mi"),
        args=NodeResourcesFitArgs(ignored_resources=("hugepages-2Mi",)),
    ),
    case("pod-level requests stand in place of the containers'", NodeResourcesFit, a_pod(pod_level={"cpu": "5"}, cpu="1"), unresolvable("Insufficient cpu")),
    case(
        "a name that is not counted is not asked for", NodeResourcesFit, a_pod(requests={"storage": "1Ti", "weird": 5}), PASS
    ),
    # NodeDeclaredFeatures
    case(
        "host network without host users needs the feature",
        NodeDeclaredFeatures,
        a_pod(host_network=True, host_users=False),
        LACKING,
    ),
    case(
        "a node that declares it will do",
        NodeDeclaredFeatures,
        a_pod(host_network=True, host_users=False),
        PASS,
        a_node("n1", features=["Mystery", "UserNamespacesHostNetworkSupport"]),
    ),
    case(
        "every feature is needed",
        NodeDeclaredFeatures,
        a_pod(
            host_network=True,
            host_users=False,
            init=[a_container("i", restart_policy_rules=(ContainerRestartRule(action="RestartAllContainers"),))],
        ),
        LACKING,
        a_node("n1", features=["UserNamespacesHostNetworkSupport"]),
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.plugin.__name__}: {case.name}")
def test_filter(case: Case) -> None:
    bench = Bench([case.node], case.there)
    assert bench.outcomes(bench.build(case.plugin, case.args), case.pod) == {"n1": case.want}


SKIPS = [
    (NodeAffinity, "no affinity and no selector", a_pod(), None),
    (NodeAffinity, "preferred affinity only", a_pod(affinity=node_affinity(preferred=[(1, ssd)])), None),
    (NodePorts, "no host ports", a_pod(ports=[a_port(0)]), None),
    (NodePorts, "ports of an ordinary init container", a_pod(init=[a_container(ports=[a_port(80)])]), None),
    (NodeDeclaredFeatures, "nothing needed", a_pod(host_network=True), None),
    (NodeDeclaredFeatures, "another action", a_pod(containers=[a_container(restart_policy_rules=(ContainerRestartRule(action="Restart"),))]), None),
]  # fmt: skip


@pytest.mark.parametrize(("plugin", "name", "pod", "args"), SKIPS)
def test_pre_filter_skips(plugin: type, name: str, pod: Pod, args: Any) -> None:
    bench = Bench([a_node("n1")])
    assert is_skip(bench.outcomes(bench.build(plugin, args), pod)), name


def test_fit_never_skips() -> None:
    bench = Bench([a_node("n1")])
    assert bench.outcomes(bench.build(NodeResourcesFit), a_pod()) == {"n1": PASS}


NAMED = [
    ("one name", [field_term("n1")], {"n1"}),
    ("terms add up", [field_term("n1"), field_term("n2")], {"n1", "n2"}),
    ("all values of In count", [field_term("n1", "n2")], {"n1", "n2"}),
    (
        "several In of a term narrow it",
        [
            term(
                fields=[
                    requirement("metadata.name", "In", "n1", "n2"),
                    requirement("metadata.name", "In", "n2", "n3"),
                ]
            )
        ],
        {"n2"},
    ),
    ("a term without names allows all", [field_term("n1"), ssd], None),
    ("NotIn names no node", [term(fields=[requirement("metadata.name", "NotIn", "n1")])], None),
    ("labels do not matter here", [term(requirement("disk", "Exists"), fields=[requirement("metadata.name", "In", "n1")])], {"n1"}),
    ("zero terms", [], None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "terms", "want"), NAMED)
def test_node_affinity_restricts_the_nodes_to_those_named(name: str, terms: list[Any], want: set[str] | None) -> None:
    bench = Bench([a_node("n1")])
    assert bench.build(NodeAffinity).pre_filter(CycleState(), info(required(*terms)), bench.nodes) == want, name


def test_names_that_exclude_each_other_are_a_conflict() -> None:
    both = term(fields=[requirement("metadata.name", "In", "n1"), requirement("metadata.name", "In", "n2")])
    bench = Bench([a_node("n1")])
    answer = bench.build(NodeAffinity).pre_filter(CycleState(), info(required(both)), bench.nodes)
    assert answer == Status.unresolvable("pod affinity terms conflict")


def test_node_affinity_filters_without_pre_filter() -> None:
    bench = Bench([labelled(disk="ssd")])
    plugin = bench.build(NodeAffinity)
    (node,) = bench.nodes
    assert plugin.question(CycleState(), info(node_selector={"disk": "hdd"}), "filter").verdict(node) != 0
    assert plugin.question(CycleState(), info(node_selector={"disk": "ssd"}), "filter").verdict(node) == 0


@pytest.mark.parametrize("plugin", [NodeResourcesFit, NodeDeclaredFeatures])
def test_a_filter_without_its_state_is_an_error(plugin: type) -> None:
    bench = Bench([a_node("n1")])
    (node,) = bench.nodes
    pod = info(host_network=True, host_users=False, cpu="1")
    with pytest.raises(KeyError, match="not found"):
        bench.build(plugin).question(CycleState(), pod, "filter").verdict(node)


@pytest.mark.parametrize(
    "added",
    [
        node_affinity(required=[broken]),
        node_affinity(required=[ssd, term(fields=[NodeSelectorRequirement(key="metadata.name", operator="Exists")])]),
        node_affinity(preferred=[(1, broken)]),
    ],
)
def test_added_affinity_that_cannot_be_parsed_is_refused(added: Any) -> None:
    with pytest.raises(SelectorError, match=r"addedAffinity\.(required|preferred)DuringScheduling"):
        Bench().build(NodeAffinity, NodeAffinityArgs(added_affinity=added))


@pytest.mark.parametrize(("operator", "bound", "passes"), [("Gt", "1", True), ("Gt", "2", False), ("Lt", "3", True), ("Lt", "007", False)])  # fmt: skip
def test_with_the_gate_tolerations_compare_numbers(operator: str, bound: str, passes: bool) -> None:
    gates = FeatureGates.of({"TaintTolerationComparisonOperators": True})
    bench = Bench([a_node("n1", taints=[a_taint("k=2:NoSchedule")])], gates=gates)
    pod = a_pod(tolerations=[a_toleration(f"k={bound}:NoSchedule", operator)])
    assert bench.outcomes(bench.build(TaintToleration), pod) == {"n1": PASS if passes else TAINTED}


def test_a_pod_with_more_resources_than_a_verdict_has_bits_is_filtered_all_the_same() -> None:
    names = [f"example.com/r{index:02}" for index in range(40)]
    bench = Bench(
        [
            a_node("rich", allocatable=dict.fromkeys(names, 2)),
            a_node("poor", allocatable=dict.fromkeys(names[1:], 2)),
            a_node("full", allocatable=dict.fromkeys(names, 2)),
        ],
        [a_pod("x", on="full", requests={names[3]: 2, names[39]: 1})],
    )
    assert bench.outcomes(bench.build(NodeResourcesFit), a_pod(requests=dict.fromkeys(names, 1))) == {
        "rich": PASS,
        "poor": unresolvable(f"Insufficient {names[0]}"),
        "full": unschedulable(f"Insufficient {names[3]}"),
    }


@pytest.mark.parametrize("at_once", [1, 100, 1 << 20])
def test_many_resources_have_the_reasons_that_each_node_gives(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_resources, "_MOST_AT_ONCE", at_once)
    rng = random.Random(7)
    names = [f"example.com/r{index:02}" for index in range(45)]
    nodes = [
        a_node(
            f"n{number}",
            cpu=rng.choice(["1", "4"]),
            pods=rng.choice([1, 9]),
            allocatable={name: 2 for name in names[:40] if rng.random() < 0.95},
        )
        for number in range(60)
    ]
    pods = {
        node.name: [a_pod(f"x-{node.name}", on=node.name, requests={rng.choice(names[:40]): 2})]
        for node in nodes
        if rng.random() < 0.5
    }
    bench = Bench(nodes, [pod for some in pods.values() for pod in some])
    for asked in (names[:35], names[:40], names):
        new = a_pod(requests={"cpu": "2", **dict.fromkeys(asked, 1)})
        found = bench.outcomes(bench.build(NodeResourcesFit), new)
        assert found == {node.name: fit(new, node, pods.get(node.name, [])) for node in nodes}


@pytest.mark.parametrize(
    ("gates", "want"),
    [
        ((), None),
        (("a",), Status.unresolvable("waiting for scheduling gates: [a]")),
        (("b", "a"), Status.unresolvable("waiting for scheduling gates: [b a]")),
    ],
)
def test_a_gated_pod_waits_for_its_gates_in_their_order(gates: tuple[str, ...], want: Status | None) -> None:
    assert Bench().build(SchedulingGates).plugin.pre_enqueue(info(gates=gates)) == want


def test_node_ports_cannot_filter_without_state() -> None:
    bench = Bench([a_node("n")])
    plugin, pod = bench.build(NodePorts), PodInfo(a_pod(ports=[a_port(80)]))
    with pytest.raises(KeyError, match="not found"):
        plugin.question(CycleState(), pod, "filter").verdicts(bench.nodes.rows)
    with pytest.raises(KeyError, match="not found"):
        plugin.question(CycleState(), pod, "filter").verdict(next(iter(bench.nodes)))

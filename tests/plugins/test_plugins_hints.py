"""Events that lift each plugin's rejections, and what its hint says of an event."""

from __future__ import annotations

from typing import Any

import pytest
from node_bench import Bench

from builders import (
    a_container,
    a_node,
    a_pod,
    a_port,
    a_taint,
    a_toleration,
    info,
    node_affinity,
    requirement,
    term,
)
from kubesched.api.resource import DeviceClass, DeviceClassSpec
from kubesched.api.types import Node, ObjectMeta, Pod
from kubesched.scheduler.config import FeatureGates
from kubesched.scheduler.config.args import NodeAffinityArgs, NodeResourcesFitArgs
from kubesched.scheduler.framework.enqueue import registrations
from kubesched.scheduler.framework.events import QueueingHint
from kubesched.scheduler.plugins.node_affinity import NodeAffinity
from kubesched.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from kubesched.scheduler.plugins.node_name import NodeName
from kubesched.scheduler.plugins.node_ports import NodePorts
from kubesched.scheduler.plugins.node_resources_fit import NodeResourcesFit
from kubesched.scheduler.plugins.node_unschedulable import NodeUnschedulable
from kubesched.scheduler.plugins.scheduling_gates import SchedulingGates
from kubesched.scheduler.plugins.taint_toleration import TaintToleration

QUEUE, SKIP = QueueingHint.QUEUE, QueueingHint.SKIP

#: Plugin to what it registers; "=" marks an event without a hint function.
REGISTERED: dict[type, list[str]] = {
    SchedulingGates: ["Pod/UpdatePodSchedulingGatesEliminated"],
    NodeUnschedulable: ["Node/Add|UpdateNodeTaint", "Pod/UpdatePodToleration"],
    NodeName: ["Node/Add=", "Node/UpdateNodeTaint="],
    TaintToleration: ["Node/Add|UpdateNodeTaint", "Pod/UpdatePodToleration"],
    NodeAffinity: ["Node/Add|UpdateNodeLabel", "Node/UpdateNodeTaint="],
    NodePorts: ["Pod/Delete", "Node/Add=", "Node/UpdateNodeTaint="],
    NodeResourcesFit: [
        "Pod/Delete|UpdatePodScaleDown",
        "Node/Add|UpdateNodeAllocatable",
        "resource.k8s.io/DeviceClass/Add|"
        "UpdateNodeAllocatable|UpdateNodeAnnotation|UpdateNodeCondition|UpdateNodeDeclaredFeature|UpdateNodeLabel|"
        "UpdateNodeTaint|UpdatePodGeneratedResourceClaim|UpdatePodLabel|UpdatePodScaleDown|"
        "UpdatePodSchedulingGatesEliminated|UpdatePodToleration",
        "Node/UpdateNodeTaint=",
    ],
    NodeDeclaredFeatures: [
        "Node/Add|UpdateNodeDeclaredFeature",
        "Pod/UpdateNodeAllocatable|UpdateNodeAnnotation|UpdateNodeCondition|UpdateNodeDeclaredFeature|UpdateNodeLabel|"
        "UpdateNodeTaint|UpdatePodGeneratedResourceClaim|UpdatePodLabel|UpdatePodScaleDown|"
        "UpdatePodSchedulingGatesEliminated|UpdatePodToleration",
        "Node/UpdateNodeTaint=",
    ],
}


@pytest.mark.parametrize("plugin", REGISTERED, ids=lambda plugin: plugin.__name__)
def test_events_registered(plugin: type) -> None:
    found = registrations(Bench().build(plugin).plugin)
    assert [f"{item.event.describe()}{'=' if item.hint is None else ''}" for item in found] == REGISTERED[plugin]


def test_device_classes_matter_only_with_their_gate() -> None:
    bench = Bench(gates=FeatureGates.of({"DRAExtendedResource": False}))
    resources = {item.event.resource for item in registrations(bench.build(NodeResourcesFit).plugin)}
    assert resources == {"Pod", "Node"}


def hint(plugin: Any, pod: Pod, old: Any, new: Any, resource: str) -> QueueingHint:
    """The answer of the plugin's registration for a resource."""
    (item,) = [item for item in registrations(plugin) if item.event.resource == resource and item.hint is not None]
    assert item.hint is not None
    return item.hint(info(pod), old, new)


me = a_pod("me")
open_, cordoned = a_node("n"), a_node("n", unschedulable=True)
tainted = a_node("n", taints=[a_taint("k=v:NoSchedule")])
soft = a_node("n", taints=[a_taint("k=v:PreferNoSchedule")])
ssd, hdd = a_node("n", labels={"disk": "ssd"}), a_node("n", labels={"disk": "hdd"})
wants_ssd = a_pod("me", node_selector={"disk": "ssd"})
broken = a_pod("me", affinity=node_affinity(required=[term(requirement("disk", "Gt", "big"))]))
tolerant = a_pod("me", tolerations=[a_toleration("")])
wants_port = a_pod("me", ports=[a_port(80)])
wants_ip = a_pod("me", ports=[a_port(80, ip="10.0.0.1")])
featured = a_node("n", features=["UserNamespacesHostNetworkSupport"])
other = a_pod("other")
big = a_pod("me", cpu="2", memory="1Gi")
ADDED = NodeAffinityArgs(added_affinity=node_affinity(required=[term(requirement("disk", "In", "ssd"))]))


def device_class(extended: str | None = None, name: str = "gpu") -> DeviceClass:
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(extended_resource_name=extended))


def holding(name: str = "other", *, on: str = "", nominated: str = "", ip: str = "", port: int = 80) -> Pod:
    return a_pod(name, on=on, nominated=nominated, ports=[a_port(port, ip=ip)])


Row = tuple[type, str, Pod, str, Any, Any, QueueingHint]
HINTS: list[Row] = [
    (SchedulingGates, "its own gates went", me, "Pod", me, me, QUEUE),
    (SchedulingGates, "another's gates went", me, "Pod", other, other, SKIP),
    # NodeUnschedulable
    (NodeUnschedulable, "an open node came", me, "Node", None, open_, QUEUE),
    (NodeUnschedulable, "a cordoned node came", me, "Node", None, cordoned, SKIP),
    (NodeUnschedulable, "a node was uncordoned", me, "Node", cordoned, open_, QUEUE),
    (NodeUnschedulable, "a node was open before", me, "Node", open_, open_, SKIP),
    (NodeUnschedulable, "a node stays cordoned, tolerated or not", tolerant, "Node", cordoned, cordoned, SKIP),
    (NodeUnschedulable, "the pod now tolerates it", me, "Pod", me, tolerant, QUEUE),
    (NodeUnschedulable, "the pod tolerates something else", me, "Pod", me, a_pod("me", tolerations=[a_toleration("x")]), SKIP),
    (NodeUnschedulable, "another pod tolerates it", other, "Pod", me, tolerant, SKIP),
    # TaintToleration
    (TaintToleration, "a node without taints came", me, "Node", None, open_, QUEUE),
    (TaintToleration, "a tainted node came", me, "Node", None, tainted, SKIP),
    (TaintToleration, "a node with a soft taint came", me, "Node", None, soft, QUEUE),
    (TaintToleration, "a tainted node came that is tolerated", tolerant, "Node", None, tainted, QUEUE),
    (TaintToleration, "a taint went", me, "Node", tainted, open_, QUEUE),
    (TaintToleration, "a taint became soft", me, "Node", tainted, soft, QUEUE),
    (TaintToleration, "a taint came", me, "Node", open_, tainted, SKIP),
    (TaintToleration, "no taint before and after", me, "Node", open_, soft, SKIP),
    (TaintToleration, "the pod's tolerations changed", me, "Pod", me, tolerant, QUEUE),
    (TaintToleration, "another pod's tolerations changed", me, "Pod", other, other, SKIP),
    # NodeAffinity
    (NodeAffinity, "a node that matches came", wants_ssd, "Node", None, ssd, QUEUE),
    (NodeAffinity, "a node that does not match came", wants_ssd, "Node", None, hdd, SKIP),
    (NodeAffinity, "a node matches now", wants_ssd, "Node", hdd, ssd, QUEUE),
    (NodeAffinity, "a node matched before", wants_ssd, "Node", ssd, ssd, SKIP),
    (NodeAffinity, "a node matches no more", wants_ssd, "Node", ssd, hdd, SKIP),
    (NodeAffinity, "a term that cannot be parsed is an error, and so Queue", broken, "Node", None, ssd, QUEUE),
    # NodePorts
    (NodePorts, "the port was freed", wants_port, "Pod", holding(on="n"), None, QUEUE),
    (NodePorts, "it was only nominated", wants_port, "Pod", holding(nominated="n"), None, QUEUE),
    (NodePorts, "the deleted pod was nowhere", wants_port, "Pod", holding(), None, SKIP),
    (NodePorts, "the deleted pod had no ports", wants_port, "Pod", a_pod("x", on="n"), None, SKIP),
    (NodePorts, "another port was freed", wants_port, "Pod", holding(on="n", port=81), None, SKIP),
    (NodePorts, "the port of another address was freed", wants_ip, "Pod", holding(on="n", ip="10.0.0.2"), None, SKIP),
    (NodePorts, "the port of every address was freed", wants_ip, "Pod", holding(on="n"), None, QUEUE),
    # NodeResourcesFit: pods
    (NodeResourcesFit, "a pod left a node", big, "Pod", a_pod("x", on="n"), None, QUEUE),
    (NodeResourcesFit, "a nominated pod went", big, "Pod", a_pod("x", nominated="n"), None, QUEUE),
    (NodeResourcesFit, "a pod went that was nowhere", big, "Pod", a_pod("x"), None, SKIP),
    (NodeResourcesFit, "the pod itself asks for less", big, "Pod", big, a_pod("me", cpu="1"), QUEUE),
    (NodeResourcesFit, "a waiting pod asks for less", big, "Pod", a_pod("x", cpu="2"), a_pod("x", cpu="1"), SKIP),
    (NodeResourcesFit, "a running pod shrank", big, "Pod", a_pod("x", on="n", cpu="2"), a_pod("x", on="n", cpu="1"), QUEUE),
    (NodeResourcesFit, "a running pod shrank elsewhere", a_pod("me", cpu="1"), "Pod", a_pod("x", on="n", memory="2"), a_pod("x", on="n", memory="1"), SKIP),
    (NodeResourcesFit, "a running pod grew", big, "Pod", a_pod("x", on="n", cpu="1"), a_pod("x", on="n", cpu="2"), SKIP),
    # NodeResourcesFit: nodes
    (NodeResourcesFit, "a large enough node came", big, "Node", None, a_node("n", cpu="2"), QUEUE),
    (NodeResourcesFit, "too small a node came", big, "Node", None, a_node("n", cpu="1"), SKIP),
    (NodeResourcesFit, "a node that allows no pods was added", big, "Node", None, a_node("n", pods=0), SKIP),
    (NodeResourcesFit, "a node grew what is asked for", big, "Node", a_node("n", cpu="1"), a_node("n", cpu="2"), QUEUE),
    (NodeResourcesFit, "a node grew, but not enough", big, "Node", a_node("n", cpu="500m"), a_node("n", cpu="1"), SKIP),
    (NodeResourcesFit, "a node grew something else", a_pod("me", cpu="1"), "Node", a_node("n", memory="1Gi"), a_node("n", memory="2Gi"), SKIP),
    (NodeResourcesFit, "a node shrank", big, "Node", a_node("n", cpu="4"), a_node("n", cpu="3"), SKIP),
    (NodeResourcesFit, "a node allows more pods", big, "Node", a_node("n", pods=1), a_node("n", pods=2), QUEUE),
    (NodeResourcesFit, "a pod without requests is requeued for more allowed pods", me, "Node", a_node("n", pods=1), a_node("n", pods=2), QUEUE),
    (NodeResourcesFit, "and of nothing else", me, "Node", a_node("n", cpu="1"), a_node("n", cpu="2"), SKIP),
    # NodeResourcesFit: device classes
    (NodeResourcesFit, "a class the pod names came", a_pod("me", requests={"deviceclass.resource.kubernetes.io/gpu": 0}), "resource.k8s.io/DeviceClass", None, device_class(), QUEUE),
    (NodeResourcesFit, "a class for a resource asked for came", a_pod("me", requests={"x.io/gpu": 1}), "resource.k8s.io/DeviceClass", None, device_class("x.io/gpu"), QUEUE),
    (NodeResourcesFit, "a class for another resource came", a_pod("me", requests={"x.io/gpu": 1}), "resource.k8s.io/DeviceClass", None, device_class("x.io/fpga"), SKIP),
    (NodeResourcesFit, "a class now represents a requested resource", a_pod("me", requests={"x.io/gpu": 1}), "resource.k8s.io/DeviceClass", device_class(), device_class("x.io/gpu"), QUEUE),
    (NodeResourcesFit, "a class represents the same resource as before", a_pod("me", requests={"x.io/gpu": 1}), "resource.k8s.io/DeviceClass", device_class("x.io/gpu"), device_class("x.io/gpu"), SKIP),
    (NodeResourcesFit, "a class named directly does not come by an update", a_pod("me", requests={"deviceclass.resource.kubernetes.io/gpu": 1}), "resource.k8s.io/DeviceClass", device_class(), device_class("x.io/y"), SKIP),
    # NodeDeclaredFeatures
    (NodeDeclaredFeatures, "a node came", me, "Node", None, featured, QUEUE),
    (NodeDeclaredFeatures, "its features changed", me, "Node", open_, featured, QUEUE),
    (NodeDeclaredFeatures, "its features did not", me, "Node", featured, featured, SKIP),
    (NodeDeclaredFeatures, "the pod needs something else now", me, "Pod", a_pod("me", host_network=True, host_users=False), me, QUEUE),
    (NodeDeclaredFeatures, "the pod needs the same", me, "Pod", me, me, SKIP),
    (NodeDeclaredFeatures, "another pod needs something else", me, "Pod", a_pod("x", host_network=True, host_users=False), a_pod("x"), SKIP),
]  # fmt: skip


@pytest.mark.parametrize("row", HINTS, ids=lambda row: f"{row[0].__name__}: {row[1]}")
def test_hint(row: Row) -> None:
    plugin, _, pod, resource, old, new, want = row
    assert hint(Bench().build(plugin).plugin, pod, old, new, resource) is want


QUIRKS: list[tuple[str, Any, Any, Pod, Node | None, Node, QueueingHint]] = [
    ("ignored resources are not ignored by the hint (Q2)", NodeResourcesFit, NodeResourcesFitArgs(ignored_resources=("x.io/gpu",)), a_pod("me", requests={"x.io/gpu": 1}), None, open_, SKIP),
    ("added affinity is asked first", NodeAffinity, ADDED, me, None, hdd, SKIP),
    ("a node that matches added affinity came", NodeAffinity, ADDED, me, None, ssd, QUEUE),
    ("a node that now matches added affinity alone stays unheard (Q3)", NodeAffinity, ADDED, me, hdd, ssd, SKIP),
]  # fmt: skip


@pytest.mark.parametrize(("name", "plugin", "args", "pod", "old", "new", "want"), QUIRKS)
def test_hint_with_arguments(
    name: str, plugin: type, args: Any, pod: Pod, old: Node | None, new: Node, want: QueueingHint
) -> None:
    assert hint(Bench().build(plugin, args).plugin, pod, old, new, "Node") is want, name


# -- signatures --------------------------------------------------------------------------------------------

A, B = a_toleration("a"), a_toleration("b")
SAME: list[tuple[type, str, Pod, Pod, bool]] = [
    (NodeName, "names and labels do not matter", a_pod("a", labels={"x": "y"}), a_pod("b"), True),
    (NodeName, "the node named does", a_pod(on="n1"), a_pod(on="n2"), False),
    (NodeUnschedulable, "other tolerations do not matter", a_pod(tolerations=[A]), a_pod(tolerations=[B]), True),
    (TaintToleration, "tolerations matter", a_pod(tolerations=[A]), a_pod(), False),
    (NodeAffinity, "an absent selector is not an empty one", a_pod(), a_pod(node_selector={}), False),
    (NodeAffinity, "the order of a selector does not matter", a_pod(node_selector={"a": "1", "b": "2"}), a_pod(node_selector={"b": "2", "a": "1"}), True),
    (NodePorts, "the address matters", a_pod(ports=[a_port(80)]), a_pod(ports=[a_port(80, ip="10.0.0.1")]), False),
    (NodePorts, "TCP is the default", a_pod(ports=[a_port(80)]), a_pod(ports=[a_port(80, "TCP", "0.0.0.0")]), True),
    (NodeResourcesFit, "how an amount is written does not matter", a_pod(cpu="1"), a_pod(cpu="1000m"), True),
    (NodeResourcesFit, "where it is asked for does not either", a_pod(cpu="1", memory="2Mi"), a_pod(containers=[a_container("a", {"cpu": "500m", "memory": "1Mi"}), a_container("b", {"cpu": "500m", "memory": "1Mi"})]), True),
    (NodeResourcesFit, "defaults for scoring do", a_pod(cpu="1"), a_pod(containers=[a_container("a", {"cpu": "1"}), a_container("b")]), False),
    (NodeResourcesFit, "a scalar of zero equals none", a_pod(requests={"x.io/gpu": 1}), a_pod(), False),
    (NodeDeclaredFeatures, "only needed features matter", a_pod(host_network=True), a_pod(), True),
    (NodeDeclaredFeatures, "and they do", a_pod(host_network=True, host_users=False), a_pod(), False),
]  # fmt: skip


@pytest.mark.parametrize(("plugin", "name", "one", "another", "same"), SAME)
def test_signature(plugin: type, name: str, one: Pod, another: Pod, same: bool) -> None:
    built = Bench().build(plugin)
    assert (built.key(info(one)) == built.key(info(another))) is same, name

"""Clusters as plain objects, audits of them, and an independent evaluation of every filter by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import strategies as st

from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.cluster.files import object_manifests
from kubesched.explain.audit import Audit, Finding, Limits
from kubesched.lab.simulate.run.standing import audit_standing
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates, KubeSchedulerConfiguration, default_config
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.plugins import in_tree_registry
from search_kit import SIGNING, House, brute_force

#: Filters that the generated pods give something to do.
FILTERS = (
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
)
PLUGINS = (*SIGNING, "PodTopologySpread", "InterPodAffinity")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOSTNAME = "kubernetes.io/hostname"

Object = dict[str, Any]


def node(name: str, *, cpu: str = "4", taints: Iterable[str] = (), cordoned: bool = False, **labels: str) -> Object:
    """A node; a taint is ``key:Effect``."""
    spec: Object = {"unschedulable": cordoned} if cordoned else {}
    spec["taints"] = [dict(zip(("key", "effect"), one.split(":"), strict=True)) for one in taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {HOSTNAME: name, **labels}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "20"}},
    }


def pod(
    name: str,
    on: str = "",
    *,
    cpu: str = "1",
    labels: Mapping[str, str] | None = None,
    owner: str = "",
    status: Object | None = None,
    metadata: Object | None = None,
    **spec: Any,
) -> Object:
    """A pod; one with a node runs. ``owner`` is the name of its ReplicaSet."""
    meta: Object = {"name": name, "namespace": "default", "uid": name, "labels": dict(labels or {}), **(metadata or {})}
    if owner:
        meta["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}
        ]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    placed = {"nodeName": on} if on else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"schedulerName": "default-scheduler", "containers": [container], **placed, **spec},
        "status": status if status is not None else {"phase": "Running" if on else "Pending"},
    }


def audited(
    objects: Iterable[Object],
    *,
    config: KubeSchedulerConfiguration | None = None,
    registry: Registry | None = None,
    gates: FeatureGates = DEFAULT_GATES,
    **limits: Any,
) -> Audit:
    """The audit of these objects, wide unless told otherwise."""
    manifests = object_manifests({"apiVersion": "v1", "kind": "List", "items": list(objects)}, "objects")
    audit, _ = audit_standing(
        manifests,
        registry=registry if registry is not None else in_tree_registry(),
        config=config if config is not None else default_config(gates=gates),
        gates=gates,
        limits=Limits(**{"is_wide": True, **limits}),
    )
    return audit


def of_rule(audit: Audit, rule: str) -> list[Finding]:
    return [one for one in audit.findings if one.rule == rule]


def names(audit: Audit, rule: str) -> set[str]:
    """Objects in the findings of a rule, without the namespace ``default``."""
    return {name.removeprefix("default/") for one in of_rule(audit, rule) for name in one.objects}


def rejections(audit: Audit) -> set[tuple[str, str, str]]:
    """Pod, plugin and reason of every pod that its node would reject."""
    return {
        (name, one.plugin, one.reason) for one in of_rule(audit, "pod-rejected-by-its-node") for name in one.objects
    }


def decoded(objects: Iterable[Object]) -> tuple[list[Node], list[Pod]]:
    every = list(objects)
    nodes = [from_builtins(one, Node) for one in every if one["kind"] == "Node"]
    return nodes, [from_builtins(one, Pod) for one in every if one["kind"] == "Pod"]


def rejected_independently(objects: Iterable[Object]) -> set[tuple[str, str, str]]:
    """Pod, plugin and reason by fresh clusters, one for each pod and plugin, in which the pod never was."""
    nodes, pods = decoded(objects)
    found = set()
    for one in pods:
        if not one.spec.node_name:
            continue
        for plugin in FILTERS:
            house = House(nodes, plugins=[plugin])
            house.add(*(other for other in pods if other is not one and other.spec.node_name))
            verdicts = brute_force(house, one.on_node(""))
            status = verdicts if isinstance(verdicts, Status) else verdicts[one.spec.node_name]
            if status is not None:
                found.add((one.key, plugin, "; ".join(status.reasons())))
    return found


ZONES, DISKS, APPS = ("a", "b"), ("ssd", "hdd"), ("web", "db")


def rule(draw: st.DrawFn) -> Object:
    """A topology, and a selector of pods."""
    key = draw(st.sampled_from(("zone", HOSTNAME)))
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(APPS))}}}


@st.composite
def nodes(draw: st.DrawFn) -> list[Object]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        labels = {}
        if draw(st.booleans()):
            labels["zone"] = draw(st.sampled_from(ZONES))
        if draw(st.booleans()):
            labels["disk"] = draw(st.sampled_from(DISKS))
        taints = draw(st.lists(st.sampled_from(["spot:NoSchedule", "gpu:NoExecute"]), max_size=1))
        cordoned = draw(st.integers(0, 5)) == 0
        cpu = draw(st.sampled_from(["1", "2", "4"]))
        found.append(node(f"n{number}", cpu=cpu, taints=taints, cordoned=cordoned, **labels))
    return found


@st.composite
def pods(draw: st.DrawFn, name: str, on: str = "") -> Object:
    """A pod with demands of many kinds."""
    spec: Object = {}
    if draw(st.booleans()):
        spec["nodeSelector"] = {"disk": draw(st.sampled_from(DISKS))}
    affinity: Object = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if draw(st.integers(0, 3)) == 0:
            affinity[kind] = {REQUIRED: [rule(draw)]}
    spec["affinity"] = affinity
    if draw(st.integers(0, 2)) == 0:
        spread = {**rule(draw), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [spread]
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": "spot", "operator": "Exists"}]
    made = pod(
        name,
        on,
        cpu=draw(st.sampled_from(["500m", "1", "3", "9"])),
        labels={"app": draw(st.sampled_from(APPS))},
        owner=draw(st.sampled_from(("", "one", "two"))),
        **spec,
    )
    if draw(st.integers(0, 3)) == 0:
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return made


@st.composite
def clusters(draw: st.DrawFn, *, waiting: int = 0) -> list[Object]:
    """Nodes with pods that may not fit them, and up to ``waiting`` pods without a node."""
    listed = draw(nodes())
    there = [
        draw(pods(f"p{number}", draw(st.sampled_from(listed))["metadata"]["name"]))
        for number in range(draw(st.integers(0, 5)))
    ]
    return [*listed, *there, *(draw(pods(f"w{number}")) for number in range(draw(st.integers(0, waiting))))]

"""Random clusters with all plugins: volumes, devices, spreading, affinity, ports, taints, amounts; and their explanations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from explain_kit import a_claim, a_class, a_house, a_slice, uses
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import a_node, a_taint
from kubesched.api.decode import from_builtins
from kubesched.api.resource import ResourceClaim
from kubesched.api.storage import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from kubesched.api.types import Node, Pod
from kubesched.explain.obstacles import made
from kubesched.explain.pending import PendingExplanation, explain_pod
from kubesched.scheduler.framework.demand import Change
from kubesched.scheduler.framework.failures import PluginFailedError
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import PodInfo
from search_kit import House, brute_force

#: Fewer examples than in other tests, which are cheaper; a sweep has all of its own.
FEWER = settings(max_examples=24 if settings().max_examples < 100 else settings().max_examples)
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES, DISKS, APPS = ("a", "b"), ("ssd", "hdd"), ("web", "db")
NUMA, DRIVER = "gpu.example.com/numa", "disk.example.com"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class World:
    """Nodes, the pods on them, objects that plugins look up, and a pending pod."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    objects: tuple[Any, ...]
    new: Pod

    def house(self) -> House:
        return a_house(self.nodes, self.pods, self.objects)

    def fitting(self) -> set[str]:
        """Names of the nodes that fit, asked of a fresh cluster node by node."""
        with suppress(PluginFailedError):
            found = brute_force(self.house(), self.new)
            if not isinstance(found, Status):
                return {name for name, status in found.items() if status is None}
        return set()

    def after(self, house: House, changes: Sequence[Change]) -> World:
        """The world after changes of the pending pod and its claims."""
        with made(PodInfo(self.new), changes) as pod:
            claims = {one.key: one for one in house.framework.plugins["DynamicResources"]._manager.claims.values()}
        objects = tuple(claims[one.key] if isinstance(one, ResourceClaim) else one for one in self.objects)
        return replace_world(self, new=pod.pod, objects=objects)

    def without(self, keys: Collection[str]) -> World:
        """The world without some pods. Claims that only they used have no devices any more."""
        left = {one.key for one in self.pods} - set(keys)

        def released(one: Any) -> Any:
            users = one.status.reserved_for if isinstance(one, ResourceClaim) else ()
            if not users or any(f"{one.metadata.namespace}/{user.name}" in left for user in users):
                return one
            return replace(one, status=replace(one.status, allocation=None, reserved_for=()))

        pods = tuple(one for one in self.pods if one.key in left)
        return replace_world(self, pods=pods, objects=tuple(map(released, self.objects)))

    def claims_held(self) -> int:
        """Number of claims with devices."""
        return sum(isinstance(one, ResourceClaim) and one.status.allocation is not None for one in self.objects)


def replace_world(world: World, **members: Any) -> World:
    return World(**{"nodes": world.nodes, "pods": world.pods, "objects": world.objects, "new": world.new, **members})


def explained(world: World) -> tuple[House, PendingExplanation] | None:
    """The explanation; None when the pod fits, or cannot be explained because a plugin fails for it."""
    house = world.house()
    try:
        found = explain_pod(house.framework, house.search, PodInfo(world.new))
    except PluginFailedError:
        return None
    return None if world.fitting() else (house, found)


def drops(house: House, pod: Pod) -> Iterator[Change]:
    """Every change that drops a demand of the pod, whether it stands in the way or not."""
    for entry in house.framework.filters:
        if hasattr(entry.plugin, "demands"):
            for demand in entry.plugin.demands(PodInfo(pod), house.cache.table):
                if demand.without is not None:
                    yield demand.without


# -- strategies --------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> World:
    nodes = tuple(draw(node(number)) for number in range(draw(st.integers(1, 4))))
    objects: list[Any] = [a_class(), *storage_objects(draw, nodes)]
    free = {one.name: slice_of(draw, one.name, objects) for one in nodes}
    pods = [
        draw(pod(f"p{number}", draw(st.sampled_from(nodes)).name, free, objects))
        for number in range(draw(st.integers(0, 5)))
    ]
    return World(nodes, tuple(pods), tuple(objects), draw(pod("new", "", free, objects)))


@st.composite
def node(draw: st.DrawFn, number: int) -> Node:
    labels = {HOST: f"n{number}"}
    if draw(st.booleans()):
        labels[ZONE] = draw(st.sampled_from(ZONES))
    if draw(st.booleans()):
        labels["disk"] = draw(st.sampled_from(DISKS))
    taints = draw(st.lists(st.sampled_from(["spot=true:NoSchedule", "gpu=x:NoSchedule"]), max_size=1))
    return a_node(
        f"n{number}",
        cpu=draw(st.sampled_from(["1", "2", "4"])),
        pods=draw(st.sampled_from([1, 3, 110, 110])),
        labels=labels,
        taints=map(a_taint, taints),
        unschedulable=draw(st.integers(0, 7)) == 0,
    )


def slice_of(draw: st.DrawFn, name: str, objects: list[Any]) -> list[str]:
    """Put a node's slice among the objects, or none. The names of its devices."""
    count = draw(st.sampled_from([0, 2, 3, 0]))
    devices = []
    for _ in range(count):
        device: dict[str, Any] = {"attributes": {NUMA: {"int": draw(st.integers(0, 1))}}}
        if draw(st.integers(0, 4)) == 0:
            device["taints"] = [{"key": "broken", "value": "fan", "effect": "NoSchedule"}]
        devices.append(device)
    if count:
        objects.append(a_slice(name, devices))
    return [f"gpu-{number}" for number in range(count)]


def storage_objects(draw: st.DrawFn, nodes: Iterable[Node]) -> Iterator[Any]:
    """Volumes in zones with their claims, some of them for one pod only; and nodes with a limit of volumes."""
    yield from_builtins(
        {"metadata": {"name": "late"}, "provisioner": "none", "volumeBindingMode": "WaitForFirstConsumer"}, StorageClass
    )
    for number, zone in enumerate(ZONES):
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
        yield from_builtins(
            {
                "metadata": {"name": f"pv{number}", "resourceVersion": "1", "labels": {ZONE: zone}},
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "csi": {"driver": DRIVER, "volumeHandle": f"v{number}"},
                    "claimRef": {"namespace": "ns", "name": f"pvc{number}", "uid": f"pvc{number}"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}} if draw(st.booleans()) else None,
                },
            },
            PersistentVolume,
        )
        mode = draw(st.sampled_from(["ReadWriteOncePod", "ReadWriteMany"]))
        yield from_builtins(
            {
                "metadata": {
                    "name": f"pvc{number}", "namespace": "ns", "uid": f"pvc{number}", "resourceVersion": "1",
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                },
                "spec": {"accessModes": [mode], "volumeName": f"pv{number}", "resources": {"requests": {"storage": "1Gi"}}},
                "status": {"phase": "Bound"},
            },
            PersistentVolumeClaim,
        )  # fmt: skip
    for one in nodes:
        if draw(st.booleans()):
            driver = {"name": DRIVER, "nodeID": one.name, "allocatable": {"count": 1}}
            yield from_builtins({"metadata": {"name": one.name}, "spec": {"drivers": [driver]}}, CSINode)


def rule(draw: st.DrawFn) -> dict[str, Any]:
    key = draw(st.sampled_from((ZONE, HOST)))
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": draw(st.sampled_from(APPS))}}}


@st.composite
def pod(draw: st.DrawFn, name: str, node: str, free: dict[str, list[str]], objects: list[Any]) -> Pod:
    """A pod on a node; without one it is pending, and asks for more. Its claims of devices are put among the objects."""
    is_new = not node
    requests = {"cpu": draw(st.sampled_from(["500m", "1", "3", "9"] if is_new else ["250m", "1"]))}
    ports = [{"containerPort": 80, "hostPort": 80}] if draw(st.integers(0, 3)) == 0 else []
    spec: dict[str, Any] = {
        "nodeName": node,
        "priority": draw(st.integers(0, 1)),
        "containers": [{"name": "c", "image": "i", "resources": {"requests": requests}, "ports": ports}],
        "tolerations": [] if is_new else [{"operator": "Exists"}],
    }
    affinity: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        affinity["podAntiAffinity"] = {REQUIRED: [rule(draw)]}
    if is_new and draw(st.integers(0, 2)) == 0:
        affinity["podAffinity"] = {REQUIRED: [rule(draw) for _ in range(draw(st.integers(1, 2)))]}
    if is_new and draw(st.integers(0, 2)) == 0:
        spec["nodeSelector"] = {"disk": draw(st.sampled_from(DISKS))}
    if is_new and draw(st.integers(0, 2)) == 0:
        spread = {**rule(draw), "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [spread]
    if draw(st.integers(0, 3)) == 0:
        claim = f"pvc{draw(st.integers(0, 1))}"
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    if draw(st.booleans()) and (is_new or free[node]):
        objects.append(device_claim(draw, name, node, free))
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    data = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": draw(st.sampled_from(APPS))}},
        "spec": {**spec, "affinity": affinity},
    }
    return from_builtins(data, Pod)


def device_claim(draw: st.DrawFn, name: str, node: str, free: dict[str, list[str]]) -> ResourceClaim:
    """The claim of a pod: with a device of its node, or pending with a constraint and a selector."""
    if node:
        return a_claim(name, held=[free[node].pop()], node=node, users=[name])
    return wanted_devices(draw, name)


def wanted_devices(draw: st.DrawFn, name: str) -> ResourceClaim:
    """A claim without devices: with a constraint, a selector, or a choice of subrequests."""
    constraints = [{draw(st.sampled_from(["matchAttribute", "distinctAttribute"])): NUMA}]
    selectors = [{"cel": {"expression": 'device.attributes["gpu.example.com"].numa == 1'}}]
    requests = None
    if draw(st.integers(0, 3)) == 0:
        subs = [
            {
                "name": f"s{place}",
                "deviceClassName": "gpu",
                "allocationMode": "ExactCount",
                "count": draw(st.integers(1, 3)),
                "selectors": selectors if draw(st.booleans()) else [],
            }
            for place in range(draw(st.integers(1, 2)))
        ]
        requests = [{"name": "gpu", "firstAvailable": subs}]
    return a_claim(
        name,
        draw(st.integers(1, 3)),
        constraints=constraints if draw(st.booleans()) else (),
        selectors=selectors if draw(st.integers(0, 2)) == 0 else [],
        requests=requests,
    )


@st.composite
def device_worlds(draw: st.DrawFn) -> World:
    """Nodes whose devices are in use, some by several pods, and a pod that wants some."""
    nodes = tuple(a_node(f"n{number}") for number in range(draw(st.integers(1, 3))))
    objects: list[Any] = [a_class()]
    pods: list[Pod] = []
    for one in nodes:
        for device in slice_of(draw, one.name, objects):
            users = [f"{one.name}-{device}-{number}" for number in range(draw(st.sampled_from([0, 1, 1, 1, 1, 2])))]
            if users:
                objects.append(a_claim(users[0], held=[device], node=one.name, users=users))
            pods += [
                uses(users[0], name=name, uid=name, on=one.name, cpu=draw(st.sampled_from(["250m", "1"])))
                for name in users
            ]
    objects.append(wanted_devices(draw, "new"))
    return World(nodes, tuple(pods), tuple(objects), uses("new", name="new", uid="new", cpu="250m"))

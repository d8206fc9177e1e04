"""Claims, volumes and classes in wire form, and a cluster with VolumeBinding over them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from limits_kit import JSON, Cluster, a_csi_driver, meta
from msgspec.structs import replace

from kubesched.api.kinds import Kind
from kubesched.api.storage import PersistentVolume, PersistentVolumeClaim
from kubesched.api.types import Node, Pod
from kubesched.api.wire import ApiError
from kubesched.scheduler.config import DEFAULT_GATES, FeatureGates
from kubesched.scheduler.config.args import UtilizationShapePoint, VolumeBindingArgs
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.volumes.volume_state import VolumeState

DONE = {"pv.kubernetes.io/bind-completed": "yes"}
SELECTED = "volume.kubernetes.io/selected-node"
MATCHING = ("NodeUnschedulable", "NodeResourcesFit", "VolumeBinding")


def claim(
    name: str,
    size: str = "1Gi",
    *,
    storage: str | None = "local",
    volume: str = "",
    done: bool | None = None,
    node: str | None = None,
    namespace: str = "ns",
    modes: Sequence[str] = ("ReadWriteOnce",),
    version: str = "1",
    phase: str = "",
    **more: Any,
) -> JSON:
    """``done`` (by default: when there is a volume): the binding is complete; ``node``: selected; ``more``: of the spec."""
    annotations = DONE if (bool(volume) if done is None else done) else {}
    if node is not None:
        annotations = {**annotations, SELECTED: node}
    spec: JSON = {
        "volumeName": volume,
        "accessModes": list(modes),
        "resources": {"requests": {"storage": size}},
        **more,
    }
    if storage is not None:
        spec["storageClassName"] = storage
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta(name, namespace, resourceVersion=version, annotations=annotations),
        "spec": spec,
        "status": {"phase": phase},
    }


def on(key: str, *values: str, operator: str = "In") -> JSON:
    """Node affinity of a volume: one label."""
    return {
        "required": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}]
        }
    }


def volume(
    name: str,
    size: str = "1Gi",
    *,
    storage: str = "local",
    affinity: JSON | None = None,
    claim: str = "",
    uid: str | None = None,
    namespace: str = "ns",
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "Available",
    version: str = "1",
    labels: dict[str, str] | None = None,
    deleting: bool = False,
    **more: Any,
) -> JSON:
    """``claim``: the name in its claimRef, ``uid`` its UID there (by default the claim's); ``more``: of the spec."""
    spec: JSON = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": storage, **more}
    if affinity is not None:
        spec["nodeAffinity"] = affinity
    if claim:
        spec["claimRef"] = {"namespace": namespace, "name": claim, "uid": claim if uid is None else uid}
    metadata = meta(name, resourceVersion=version, labels=labels or {})
    if deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }


def storage_class(
    name: str = "local",
    provisioner: str = "kubernetes.io/no-provisioner",
    *,
    mode: str | None = "WaitForFirstConsumer",
    topologies: Sequence[dict[str, Sequence[str]]] = (),
) -> JSON:
    terms = [
        {"matchLabelExpressions": [{"key": key, "values": list(values)} for key, values in term.items()]}
        for term in topologies
    ]
    found = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": meta(name),
        "provisioner": provisioner,
        "allowedTopologies": terms,
    }
    return found if mode is None else {**found, "volumeBindingMode": mode}


def capacity(
    name: str, storage: str = "fast", free: str | None = None, largest: str | None = None, labels: JSON | None = None
) -> JSON:
    """``labels``: of the nodes that have the space; {} for all, None for no selector at all."""
    amounts = {"capacity": free, "maximumVolumeSize": largest}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": meta(name, "ns"),
        "storageClassName": storage,
        **({} if labels is None else {"nodeTopology": {"matchLabels": labels} if labels else {}}),
        **{field: amount for field, amount in amounts.items() if amount is not None},
    }


def driver(name: str = "csi", *, capacity: bool | None = True) -> JSON:
    return a_csi_driver(name, storageCapacity=capacity)


class Client:
    """Writes as an API server would, one version higher each; what it is to refuse is named beforehand.

    Nothing is shown to informers before :meth:`show`.
    """

    def __init__(self) -> None:
        self.cluster: Binding
        self.refuse: dict[str, Exception] = {}
        #: Errors of writes that are carried out, by name of the object: their answers are lost.
        self.lost: dict[str, Exception] = {}
        #: Seconds from a write to its answer.
        self.seconds = 0.0
        self.written: list[Any] = []

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        written: PersistentVolume = await self._write("persistentvolumes", volume)
        return written

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        written: PersistentVolumeClaim = await self._write("persistentvolumeclaims", claim)
        return written

    async def _write(self, plural: str, obj: Any) -> Any:
        await asyncio.sleep(0)
        name = obj.metadata.name
        if name in self.refuse:
            raise self.refuse[name]
        current = self.cluster.objects.informed(plural).get(obj.key)
        if current is None or current.metadata.resource_version != obj.metadata.resource_version:
            raise ApiError(409, "Conflict", f"{name} has been modified")
        written = newer(obj)
        self.written.append((plural, written))
        if self.seconds:
            await asyncio.sleep(self.seconds)
        if name in self.lost:
            raise self.lost.pop(name)
        return written

    async def get_object(self, kind: Kind, namespace: str, name: str) -> Any:
        await asyncio.sleep(0)
        for plural, obj in reversed(self.written):
            if (plural, obj.metadata.namespace, obj.metadata.name) == (kind.plural, namespace, name):
                return obj
        return self.cluster.objects.informed(kind.plural)[f"{namespace}/{name}" if namespace else name]

    def show(self) -> None:
        """Let the informers see what was written."""
        for plural, obj in self.written:
            self.cluster.objects.put(plural, obj.key, obj)
        self.written.clear()


def newer(obj: Any, **changes: Any) -> Any:
    """The next version of an object."""
    version = str(int(obj.metadata.resource_version) + 1)
    return replace(obj, metadata=replace(obj.metadata, resource_version=version), **changes)


class Binding(Cluster):
    """A cluster with VolumeBinding, and pods that go through its points."""

    def __init__(
        self,
        nodes: Sequence[Node] = (),
        objects: Sequence[JSON] = (),
        *,
        gates: FeatureGates = DEFAULT_GATES,
        args: Any = None,
        plugins: Sequence[str] = MATCHING,
    ) -> None:
        self.client = Client()
        super().__init__(
            nodes, (), objects, plugins=plugins, gates=gates, args={"VolumeBinding": args}, client=self.client
        )
        self.client.cluster = self

    @property
    def binding(self) -> Any:
        return self.plugin("VolumeBinding")

    @property
    def state(self) -> VolumeState:
        found: VolumeState = self.binding.plugin.state
        return found

    def verdicts(self, pod: Pod) -> Any:
        return self.outcomes("VolumeBinding", pod)

    def chosen(self, pod: Pod, node: str) -> tuple[dict[str, str], list[str]]:
        """Return what the pod would get on a node: claim to volume, and the claims to be provisioned."""
        state, found = self.filtered(pod)
        row = self.cache.table.row_of(node)
        assert row is not None
        volumes = self.binding.plugin.volumes_on(state, found, self.cache.table, row)
        static = {one.metadata.name: bound.name for one, bound in volumes.static}
        return static, [one.metadata.name for one in volumes.dynamic]

    def filtered(self, pod: Pod) -> tuple[CycleState, PodInfo]:
        """The pod after PreFilter."""
        state, found = CycleState(), PodInfo(pod)
        assert self.binding.pre_filter(state, found, self.cache.snapshot().nodes()) is None
        return state, found

    def reserved(self, pod: Pod, node: str) -> tuple[CycleState, PodInfo]:
        """The pod after Reserve on a node."""
        state, found = self.filtered(pod)
        assumed = found.on_node(node)
        assert self.binding.plugin.reserve(state, assumed, node) is None
        return state, assumed

    def problems(self) -> list[str]:
        return list(self.state.problems())

    async def pre_bind(self, state: CycleState, pod: PodInfo, node: str) -> Status | None:
        found: Status | None = await self.binding.plugin.pre_bind(state, pod, node)
        return found


def scoring(*line: tuple[int, int]) -> VolumeBindingArgs:
    """Arguments with a shape, given in points of 100."""
    return VolumeBindingArgs(shape=tuple(UtilizationShapePoint(utilization=x, score=y // 10) for x, y in line))

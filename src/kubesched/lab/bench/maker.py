"""Maker of the objects of operations: nodes, namespaces and pods, from templates read once. Caller: :mod:`.execute`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from kubesched.api.kinds import CSI_NODES, NAMESPACES, NODES
from kubesched.api.wire import ApiError, Transport

from ..simulate.embedded import Embedded
from .storage import create_bound_claim, csi_node, pod_with_claim
from .templates import Template
from .workloads import CreateNodes, CreatePods, Workload

__all__ = ["Maker", "PodMaker"]

_NODE: Final = """
{apiVersion: v1, kind: Node, metadata: {generateName: node-}, spec: {}, status: {phase: Running,
  capacity: {pods: "110", cpu: "4", memory: 32Gi}, conditions: [{status: "True", type: Ready}]}}
"""
_POD: Final = """
{apiVersion: v1, kind: Pod, metadata: {generateName: pod-}, spec: {containers: [{name: pause,
  image: registry.k8s.io/pause, ports: [{containerPort: 80}], resources: {
  requests: {cpu: 100m, memory: 500Mi}, limits: {cpu: 100m, memory: 500Mi}}}]}}
"""


class Maker:
    """Maker of nodes, namespaces and templates for the operations of a workload."""

    def __init__(self, workload: Workload, embedded: Embedded) -> None:
        self._workload = workload
        self._embedded = embedded
        self._templates: dict[Path, Template] = {}
        self._nodes = 0

    def template(self, path: str, built_in: str) -> Template:
        """Return the template at a path relative to the workload file; the built-in one for an empty path."""
        if not path:
            return Template(built_in, "built-in")
        full = self._workload.folder / path
        if full not in self._templates:
            self._templates[full] = Template.read(full)
        return self._templates[full]

    def pod_template(self, op: CreatePods) -> Template:
        return self.template(op.pod_template_path or self._workload.default_pod_template_path, _POD)

    def nodes(self, op: CreateNodes) -> str:
        """Create nodes with counted names. Returns the name of the last.

        (Upstream's names are random; numbers make runs comparable.)
        """
        name = ""
        template = self.template(op.node_template_path, _NODE)
        label, unique = op.label_node_prepare_strategy, op.unique_node_label_strategy
        features = self._workload.fake_features
        for index in range(op.count):
            made = template.make(index, op.count)
            metadata = dict(made.get("metadata") or {})
            name = metadata.get("name") or f"{metadata.get('generateName', 'node-')}{self._nodes:06d}"
            self._nodes += 1
            metadata["name"] = name
            metadata["labels"] = {**(metadata.get("labels") or {}), "kubernetes.io/hostname": name}
            if label is not None:
                metadata["labels"][label.label_key] = label.label_values[index % len(label.label_values)]
            if unique is not None:
                metadata["labels"][unique.label_key] = name
            status = dict(made.get("status") or {})
            status.setdefault("allocatable", dict(status.get("capacity") or {}))
            if features:
                status["declaredFeatures"] = list(features)
            self._embedded.store.create(NODES, "", {**made, "metadata": metadata, "status": status})
            if op.node_allocatable_strategy is not None:
                self._embedded.store.create(CSI_NODES, "", csi_node(name, op.node_allocatable_strategy))
        return name

    def namespace(self, name: str, template: dict[str, Any] | None = None) -> None:
        """Create a namespace unless it exists."""
        metadata = {**((template or {}).get("metadata") or {}), "name": name}
        metadata.pop("generateName", None)
        try:
            self._embedded.store.create(NAMESPACES, "", {**(template or {}), "metadata": metadata})
        except ApiError as error:
            if error.code != 409:
                raise


class PodMaker:
    """Maker of an operation's pods. With templates for claim and volume, each pod gets a bound pair of its own."""

    def __init__(self, pods: Template, claims: Template | None, volumes: Template | None) -> None:
        self._pods = pods
        self._claims = claims
        self._volumes = volumes

    async def make(self, client: Transport, namespace: str, index: int, count: int) -> dict[str, Any]:
        pod = self._pods.make(index, count)
        if self._claims is None or self._volumes is None:
            return pod
        made = (self._claims.make(index, count), self._volumes.make(index, count))
        await create_bound_claim(client, namespace, index, *made)
        return pod_with_claim(pod, index)

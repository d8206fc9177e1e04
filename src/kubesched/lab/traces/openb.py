"""Openb trace: nodes and pods of a production cluster with shared GPUs, as two tables in CSV.

The trace was published with "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent" (Weng et al., USENIX ATC 2023) in Alibaba's clusterdata repository (``cluster-trace-gpu-v2023``). CPU is in
thousandths of a core, memory in MiB, and ``gpu_milli`` in thousandths of each of ``num_gpu`` GPUs.

Pods and nodes as Kubernetes objects follow the conventions of open-simulator's GPU sharing: a node's number of GPUs is
an extended resource and its model a label; a pod's request for GPUs is in annotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubesched.api.types import (
    Affinity,
    Container,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceRequirements,
)

from .table import Cells, TraceError, read_table

__all__ = ["GPU_COUNT", "GPU_MILLI", "GPU_MODEL", "OpenbNode", "OpenbPod", "TraceError", "read_nodes", "read_pods"]

#: Annotation: thousandths of each GPU that a pod requests.
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
#: Number of GPUs: annotation of a pod (requested), extended resource of a node (allocatable).
GPU_COUNT: Final = "alibabacloud.com/gpu-count"
#: Label: the model of a node's GPUs.
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"


@dataclass(frozen=True, slots=True)
class OpenbNode:
    """Node of the trace."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str

    def as_node(self) -> Node:
        labels = {"kubernetes.io/hostname": self.name}
        if self.model:
            labels[GPU_MODEL] = self.model
        amounts: dict[str, str | int | float] = {
            "cpu": f"{self.cpu_milli}m",
            "memory": f"{self.memory_mib}Mi",
            "pods": "1000",
        }
        if self.gpus:
            amounts[GPU_COUNT] = str(self.gpus)
        return Node(
            metadata=ObjectMeta(name=self.name, uid=self.name, labels=labels),
            status=NodeStatus(allocatable=amounts),
        )


@dataclass(frozen=True, slots=True)
class OpenbPod:
    """Pod of the trace. ``gpu_milli`` is requested of each of ``gpus`` GPUs; ``models`` allows only these, if any.

    ``created`` and ``deleted`` are seconds on the clock of the trace, None where the table has none.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()
    created: float | None = None
    deleted: float | None = None

    @property
    def total_gpu_milli(self) -> int:
        return self.gpus * self.gpu_milli

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape by which pods are equal: (milli-CPU, thousandths of each GPU, number of GPUs)."""
        return self.cpu_milli, self.gpu_milli, self.gpus

    def as_pod(self, name: str = "", namespace: str = "default") -> Pod:
        """Return the pod as an object, under another name if one is given."""
        name = name or self.name
        annotations = {GPU_MILLI: str(self.gpu_milli), GPU_COUNT: str(self.gpus)} if self.gpus else {}
        requests = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        return Pod(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=name, annotations=annotations),
            spec=PodSpec(
                scheduler_name="default-scheduler",
                containers=(Container(name="main", resources=ResourceRequirements(requests=dict(requests))),),
                affinity=_on_models(self.models) if self.models else None,
            ),
        )


def _on_models(models: tuple[str, ...]) -> Affinity:
    term = NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=GPU_MODEL, operator="In", values=models),))
    selector = NodeSelector(node_selector_terms=(term,))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def read_nodes(path: str | Path) -> list[OpenbNode]:
    """Return the nodes of a table such as ``openb_node_list_all_node.csv``.

    Raises:
        TraceError: when the file cannot be read, or with every value that cannot be used.
    """

    def row(cell: Cells) -> OpenbNode:
        gpus, model = cell.number("gpu"), "".join(cell.label("model"))
        if model and not gpus:
            cell.problem("gpu", "0", f"a number of {model} GPUs, as the model is given")
        return OpenbNode(cell.name("sn"), cell.number("cpu_milli"), cell.number("memory_mib"), gpus, model)

    return read_table(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), row)


def read_pods(path: str | Path) -> list[OpenbPod]:
    """Return the pods of a table such as ``openb_pod_list_default.csv``, in the file's order.

    Raises:
        TraceError: when the file cannot be read, or with every value that cannot be used.
    """

    def row(cell: Cells) -> OpenbPod:
        gpus, milli = cell.number("num_gpu"), cell.number("gpu_milli")
        if gpus == 0 and milli:
            cell.problem("gpu_milli", str(milli), "0, as num_gpu is 0")
        elif gpus == 1 and not 0 < milli <= 1000:
            cell.problem("gpu_milli", str(milli), "1 to 1000 thousandths of the GPU")
        elif gpus > 1 and milli != 1000:
            cell.problem("gpu_milli", str(milli), f"1000: {gpus} GPUs are requested whole")
        models = cell.label("gpu_spec", several=True)
        cpu, memory = cell.number("cpu_milli"), cell.number("memory_mib")
        created, deleted = cell.time("creation_time"), cell.time("deletion_time")
        if created is not None and deleted is not None and deleted < created:
            cell.problem("deletion_time", cell.text("deletion_time"), "a time that is not before creation_time")
        return OpenbPod(cell.name("name"), cpu, memory, gpus, milli, models, created, deleted)

    return read_table(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"), row)

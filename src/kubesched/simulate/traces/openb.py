"""The openb trace: nodes and pods of a production cluster with shared GPUs, as two tables in CSV.

The trace was published with "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
Descent" (Weng et al., USENIX ATC 2023) in Alibaba's clusterdata repository (``cluster-trace-gpu-v2023``). CPU is in
thousandths of a core, memory in MiB, and ``gpu_milli`` in thousandths of each of ``num_gpu`` GPUs.

As Kubernetes objects, pods and nodes carry what open-simulator's GPU sharing established: a node's number of GPUs is an
extended resource and its model a label; what a pod requests of GPUs is in annotations.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

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

__all__ = ["GPU_COUNT", "GPU_MILLI", "GPU_MODEL", "OpenbNode", "OpenbPod", "TraceError", "read_nodes", "read_pods"]

#: Thousandths of each GPU that a pod requests (annotation).
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
#: How many GPUs: requested by a pod (annotation), and allocatable on a node (extended resource).
GPU_COUNT: Final = "alibabacloud.com/gpu-count"
#: The model of a node's GPUs (label).
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"

_MOST_PROBLEMS: Final = 20

_Row = TypeVar("_Row")


class TraceError(ValueError):
    """A table that cannot be used; ``problems`` are single lines that name file, line and column."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        shown = problems[:_MOST_PROBLEMS]
        if len(problems) > len(shown):
            shown.append(f"and {len(problems) - len(shown)} more")
        super().__init__("\n".join(shown))


@dataclass(frozen=True, slots=True)
class OpenbNode:
    """A node of the trace."""

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
    """A pod of the trace. ``gpu_milli`` is requested of each of ``gpus`` GPUs; ``models`` allows only these, if any."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...] = ()

    @property
    def total_gpu_milli(self) -> int:
        return self.gpus * self.gpu_milli

    @property
    def shape(self) -> tuple[int, int, int]:
        """(milli-CPU, thousandths of each GPU, number of GPUs): what pods are alike by."""
        return self.cpu_milli, self.gpu_milli, self.gpus

    def as_pod(self, name: str = "", namespace: str = "default") -> Pod:
        """The pod as an object, under another name if one is given."""
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
    """The nodes of a table such as ``openb_node_list_all_node.csv``.

    Raises:
        TraceError: when the file cannot be read, or with every value that cannot be used.
    """

    def row(cell: _Cells) -> OpenbNode:
        gpus, model = cell.number("gpu"), cell.text("model")
        if model and not gpus:
            cell.problem("gpu", "0", f"a number of {model} GPUs, as the model is given")
        return OpenbNode(cell.name("sn"), cell.number("cpu_milli"), cell.number("memory_mib"), gpus, model)

    return _read(Path(path), ("sn", "cpu_milli", "memory_mib", "gpu", "model"), row)


def read_pods(path: str | Path) -> list[OpenbPod]:
    """The pods of a table such as ``openb_pod_list_default.csv``, in the file's order.

    Raises:
        TraceError: when the file cannot be read, or with every value that cannot be used.
    """

    def row(cell: _Cells) -> OpenbPod:
        gpus, milli = cell.number("num_gpu"), cell.number("gpu_milli")
        if gpus == 0 and milli:
            cell.problem("gpu_milli", str(milli), "0, as num_gpu is 0")
        elif gpus == 1 and not 0 < milli <= 1000:
            cell.problem("gpu_milli", str(milli), "1 to 1000 thousandths of the GPU")
        elif gpus > 1 and milli != 1000:
            cell.problem("gpu_milli", str(milli), f"1000: {gpus} GPUs are requested whole")
        models = tuple(filter(None, cell.text("gpu_spec").split("|")))
        cpu, memory = cell.number("cpu_milli"), cell.number("memory_mib")
        return OpenbPod(cell.name("name"), cpu, memory, gpus, milli, models)

    return _read(Path(path), ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"), row)


class _Cells:
    """One line of a table; problems are collected."""

    def __init__(self, where: str, values: Mapping[str, str | None], names: set[str], problems: list[str]) -> None:
        self._where = where
        self._values = values
        self._names = names
        self._problems = problems

    def problem(self, column: str, value: str, right: str) -> None:
        self._problems.append(f"{self._where}: column {column}: {value!r}; expected {right}")

    def text(self, column: str) -> str:
        return (self._values[column] or "").strip()

    def name(self, column: str) -> str:
        """A name that no earlier line has."""
        text = self.text(column)
        if not text:
            self.problem(column, text, "a name")
        elif text in self._names:
            self.problem(column, text, "a name that no earlier line has")
        self._names.add(text)
        return text

    def number(self, column: str) -> int:
        """A whole number of 0 or more; -1 when it is none, which is reported."""
        text = self.text(column)
        if not (text.isascii() and text.isdecimal()):
            self.problem(column, text, "a whole number of 0 or more")
            return -1
        return int(text)


def _read(path: Path, columns: tuple[str, ...], make: Callable[[_Cells], _Row]) -> list[_Row]:
    """All rows of a table.

    Raises:
        TraceError: with every problem of the file.
    """
    problems: list[str] = []
    names: set[str] = set()
    rows: list[_Row] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for where, values in _lines(path, file, columns):
                if None in values or None in values.values():
                    problems.append(f"{where}: has {'more' if None in values else 'fewer'} values than the header")
                    continue
                rows.append(make(_Cells(where, values, names, problems)))
    except OSError as error:
        raise TraceError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError([f"{path}: is no table in CSV: {error}"]) from error
    if problems:
        raise TraceError(problems)
    if not rows:
        raise TraceError([f"{path}: holds no line below the header"])
    return rows


def _lines(path: Path, file: Any, columns: tuple[str, ...]) -> Iterator[tuple[str, Mapping[str, str | None]]]:
    reader = csv.DictReader(file)
    header = [name.strip() for name in reader.fieldnames or ()]
    missing = [name for name in columns if name not in header]
    if missing:
        found = ", ".join(header) or "nothing"
        raise TraceError([f"{path}:1: the header lacks {', '.join(missing)}; it has {found}"])
    reader.fieldnames = header
    for values in reader:
        yield f"{path}:{reader.line_num}", values

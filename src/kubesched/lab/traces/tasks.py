"""Tasks of batch traces of any format: arrival, duration, requests.

    reader ──▶ Trace ──inflated──▶ Trace ──▶ table for ``kubesched simulate --trace``, or pods as plain objects

Callers: the readers, ``kubesched trace``, and programs.
"""

from __future__ import annotations

import csv
import io
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kubesched.cluster.kubelets import DURATION

from .openb import GPU_COUNT, GPU_MILLI
from .table import ARRIVAL

__all__ = ["COLUMNS", "GPU", "Trace", "TraceTask", "inflated", "table_text"]

#: Extended resource of whole GPUs.
GPU: Final = "nvidia.com/gpu"
#: Columns of the table that :func:`table_text` writes.
COLUMNS: Final = ("arrival", "name", "count", "duration", "exit", "cpu", "memory", GPU)

_EXIT: Final = "kubesched.io/exit"
_GROUP: Final = "pod-group.scheduling.sigs.k8s.io/name"
_GROUP_LEAST: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")
#: Most characters of a task's name: with a suffix it is also a label value, of at most 63 characters.
_LONGEST_NAME: Final = 44


@dataclass(frozen=True, slots=True)
class TraceTask:
    """Task of ``instances`` equal pods. Times are seconds; ``arrival`` is counted from the first task of the trace.

    ``duration`` is None when the end is not known. ``gpu_milli`` thousandths are requested of each of ``gpus`` GPUs.
    """

    name: str
    arrival: float
    duration: float | None
    instances: int = 1
    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    gpu_milli: int = 1000
    gpu_model: str = ""
    failed: bool = False

    def as_pods(self, *, shared_gpus: bool = False, gang: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the pods as plain objects, with arrival and duration as annotations.

        GPUs are the resource ``nvidia.com/gpu``, and a part of one counts as a whole. With ``shared_gpus``, the request
        is in annotations, for the example policies for shared GPUs. With ``gang``, labels say that all pods of the task
        are to run together, for the example policy for coscheduling.
        """
        requests = {"cpu": f"{self.cpu_milli}m", "memory": f"{self.memory_mib}Mi"}
        annotations = {ARRIVAL: f"{_number(self.arrival)}s"}
        if self.duration is not None:
            annotations[DURATION] = f"{_number(self.duration)}s"
        if self.failed:
            annotations[_EXIT] = "Failed"
        if self.gpus and shared_gpus:
            annotations |= {GPU_MILLI: str(self.gpu_milli), GPU_COUNT: str(self.gpus)}
        elif self.gpus:
            requests[GPU] = str(self.gpus)
        resources: dict[str, Any] = {"requests": {name: text for name, text in requests.items() if text[0] != "0"}}
        if GPU in requests:
            resources["limits"] = {GPU: requests[GPU]}
        labels = {_GROUP: self.name, _GROUP_LEAST: str(self.instances)} if gang and self.instances > 1 else {}
        for number in range(self.instances):
            name = self.name if self.instances == 1 else f"{self.name}-{number}"
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "trace", "resources": resources}],
                },
            }


@dataclass(frozen=True)
class Trace:
    """Tasks by arrival, and numbers of records that were left out, by reason."""

    tasks: tuple[TraceTask, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, tasks: Sequence[TraceTask], left_out: Counter[str]) -> Trace:
        """Make a trace. Arrivals are counted from the first one; names are made valid for Kubernetes and unique."""
        start = min((task.arrival for task in tasks), default=0.0)
        used: Counter[str] = Counter()
        named = []
        for task in sorted(tasks, key=lambda task: task.arrival):
            name = _NOT_IN_NAMES.sub("-", task.name.lower()).strip("-")[:_LONGEST_NAME].rstrip("-") or "task"
            first = name
            while used[name]:
                used[first] += 1
                name = f"{first}-again-{used[first]}"
            used[name] += 1
            named.append(replace(task, name=name, arrival=task.arrival - start))
        return cls(tuple(named), dict(left_out))

    @property
    def pods(self) -> int:
        return sum(task.instances for task in self.tasks)


def inflated(trace: Trace, factor: float, seed: int) -> Trace:
    """Return ``factor`` times as many tasks as the trace has: further tasks are drawn at random, or surplus tasks
    dropped.

    A further task is a copy of one drawn task, and has the arrival of another drawn task. So the load keeps its course
    over time. Equal seeds give equal tasks.

    Raises:
        ValueError: when the factor is not positive, or leaves nothing.
    """
    wanted = round(factor * len(trace.tasks)) if math.isfinite(factor) else 0
    if factor <= 0 or not wanted:
        raise ValueError(
            f"factor {factor:g} of {len(trace.tasks)} tasks; expected a number above 0 that leaves at least one"
        )
    rng = random.Random(seed)
    tasks = list(trace.tasks)
    if wanted < len(tasks):
        kept = sorted(rng.sample(range(len(tasks)), wanted))
        return Trace(tuple(tasks[index] for index in kept), trace.left_out)
    for number in range(wanted - len(tasks)):
        drawn, when = rng.choice(trace.tasks), rng.choice(trace.tasks).arrival
        tasks.append(replace(drawn, name=f"{drawn.name}-copy-{number}", arrival=when))
    tasks.sort(key=lambda task: task.arrival)
    return Trace(tuple(tasks), trace.left_out)


def table_text(trace: Trace) -> str:
    """Return the table for ``kubesched simulate --trace``. A part of a GPU counts as a whole GPU."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for task in trace.tasks:
        writer.writerow(
            (
                _number(task.arrival),
                task.name,
                task.instances,
                "" if task.duration is None else _number(task.duration),
                "Failed" if task.failed else "",
                f"{task.cpu_milli}m",
                f"{task.memory_mib}Mi",
                task.gpus,
            )
        )
    return text.getvalue()


def _number(seconds: float) -> str:
    """Return seconds as text, without insignificant digits."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")

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
from typing import Any, Final, Literal, TypeAlias

from kubesched.api.kinds import POD_GROUPS
from kubesched.cluster.kubelets import DURATION

from .openb import GPU_COUNT, GPU_MILLI
from .table import ARRIVAL

__all__ = ["COLUMNS", "GANG_FORMS", "GPU", "GangForm", "Trace", "TraceTask", "inflated", "table_text"]

#: Extended resource of whole GPUs.
GPU: Final = "nvidia.com/gpu"
#: Columns of the table that :func:`table_text` writes.
COLUMNS: Final = ("arrival", "name", "count", "duration", "exit", "cpu", "memory", GPU)
#: Forms in which the pods of a job are a gang: members of a PodGroup object, or labels of the example policy for
#: coscheduling. Empty: they are no gang.
GangForm: TypeAlias = Literal["", "PodGroup", "labels"]
GANG_FORMS: Final = ("PodGroup", "labels")

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

    ``job`` is the job that the task is a part of, by the name of its first task, and ``members`` is the number of pods
    of all its tasks. If they are empty, the task is a job of its own.
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
    job: str = ""
    members: int = 0

    @property
    def gang(self) -> str:
        """Name of the gang that the pods of the job are; empty for a job of one pod."""
        return (self.job or self.name) if (self.members or self.instances) > 1 else ""

    def as_objects(self, *, shared_gpus: bool = False, gang: GangForm = "") -> Iterator[dict[str, Any]]:
        """Yield what :meth:`as_pods` yields. With ``gang="PodGroup"`` the first task of a job yields its group first."""
        if gang == "PodGroup" and self.gang == self.name:
            yield {
                "apiVersion": POD_GROUPS.api_version,
                "kind": POD_GROUPS.kind,
                "metadata": {"name": self.gang, "annotations": {ARRIVAL: f"{_number(self.arrival)}s"}},
                "spec": {"schedulingPolicy": {"gang": {"minCount": self.members or self.instances}}},
            }
        yield from self.as_pods(shared_gpus=shared_gpus, gang=gang)

    def as_pods(self, *, shared_gpus: bool = False, gang: GangForm = "") -> Iterator[dict[str, Any]]:
        """Yield the pods as plain objects, with arrival and duration as annotations.

        GPUs are the resource ``nvidia.com/gpu``, and a part of one counts as a whole. With ``shared_gpus``, the request
        is in annotations, for the example policies for shared GPUs. ``gang`` says that all pods of the job are to run
        together: as members of its PodGroup, or by labels, which the example policy for coscheduling reads.
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
        labels: dict[str, str] = {}
        member: dict[str, Any] = {}
        if self.gang and gang == "labels":
            labels = {_GROUP: self.gang, _GROUP_LEAST: str(self.members or self.instances)}
        elif self.gang and gang:
            member = {"schedulingGroup": {"podGroupName": self.gang}}
        for number in range(self.instances):
            name = self.name if self.instances == 1 else f"{self.name}-{number}"
            yield {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "labels": dict(labels), "annotations": dict(annotations)},
                "spec": {
                    "restartPolicy": "Never",
                    **member,
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
        """Make a trace. Arrivals are counted from the first one; names are made valid for Kubernetes and unique.

        Tasks of which ``job`` is equal and not empty are one job.
        """
        start = min((task.arrival for task in tasks), default=0.0)
        used: Counter[str] = Counter()
        named = []
        jobs: dict[str, list[TraceTask]] = {}
        for task in sorted(tasks, key=lambda task: task.arrival):
            name = _NOT_IN_NAMES.sub("-", task.name.lower()).strip("-")[:_LONGEST_NAME].rstrip("-") or "task"
            first = name
            while used[name]:
                used[first] += 1
                name = f"{first}-again-{used[first]}"
            used[name] += 1
            named.append(replace(task, name=name, arrival=task.arrival - start))
            jobs.setdefault(task.job, []).append(named[-1])

        def of_job(task: TraceTask) -> TraceTask:
            parts = jobs[task.job] if task.job else []
            if len(parts) < 2:
                return replace(task, job="")
            return replace(task, job=parts[0].name, members=sum(part.instances for part in parts))

        return cls(tuple(map(of_job, named)), dict(left_out))

    @property
    def pods(self) -> int:
        return sum(task.instances for task in self.tasks)


def inflated(trace: Trace, factor: float, seed: int) -> Trace:
    """Return ``factor`` times as many jobs as the trace has: further jobs are drawn at random, or surplus jobs dropped.

    A further job is a copy of one drawn job, and has the arrival of another drawn job. So the load keeps its course
    over time. Equal seeds give equal jobs. Most jobs are one task.

    Raises:
        ValueError: when the factor is not positive, or leaves nothing.
    """
    by_name: dict[str, list[TraceTask]] = {}
    for task in trace.tasks:
        by_name.setdefault(task.job or task.name, []).append(task)
    jobs = list(by_name.values())
    wanted = round(factor * len(jobs)) if math.isfinite(factor) else 0
    if factor <= 0 or not wanted:
        raise ValueError(f"factor {factor:g} of {len(jobs)} jobs; expected a number above 0 that leaves at least one")
    rng = random.Random(seed)
    if wanted < len(jobs):
        chosen = [jobs[index] for index in sorted(rng.sample(range(len(jobs)), wanted))]
    else:
        copies = ((rng.choice(jobs), rng.choice(jobs)[0].arrival, number) for number in range(wanted - len(jobs)))
        chosen = [*jobs, *(_copy(drawn, when, f"-copy-{number}") for drawn, when, number in copies)]
    tasks = sorted((task for job in chosen for task in job), key=lambda task: task.arrival)
    return Trace(tuple(tasks), trace.left_out)


def _copy(job: Sequence[TraceTask], arrival: float, suffix: str) -> list[TraceTask]:
    """Return the tasks of a job under other names, the first of them at another time."""
    later = arrival - job[0].arrival
    return [
        replace(task, name=task.name + suffix, job=task.job and task.job + suffix, arrival=task.arrival + later)
        for task in job
    ]


def table_text(trace: Trace, *, gang: bool = False) -> str:
    """Return the table for ``kubesched simulate --trace``. A part of a GPU counts as a whole GPU.

    With ``gang`` a further column says of which gang the pods are members.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, "gang") if gang else COLUMNS)
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
                *((task.gang,) if gang else ()),
            )
        )
    return text.getvalue()


def _number(seconds: float) -> str:
    """Return seconds as text, without insignificant digits."""
    return f"{seconds:.6f}".rstrip("0").rstrip(".")

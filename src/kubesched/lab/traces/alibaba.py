"""Batch tables of Alibaba's cluster traces of 2018 and 2020, and the openb pods of 2023 as tasks.

Formats: ``alibaba/clusterdata``, ``cluster-trace-v2018/schema.md`` (Batch Task) and
``cluster-trace-gpu-v2020/README.md`` (pai_task_table). Neither table has a header. Both have no time of submission: a
task arrives when it started.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from .openb import read_pods
from .table import Cells, read_table
from .tasks import Trace, TraceTask

__all__ = ["read_alibaba_2018", "read_alibaba_2020", "read_alibaba_2023"]

_TASKS_2018: Final = (
    "task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
)  # fmt: skip
_TASKS_2020: Final = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip

_NOT_STARTED: Final = "never started"
_FAILED: Final = "Failed"


def read_alibaba_2018(path: str | Path, *, memory_mib: int = 98_304, limit: int | None = None) -> Trace:
    """Read ``batch_task.csv`` of cluster-trace-v2018. ``limit`` reads the first lines only.

    CPU is in hundredths of a core. Memory is normalised to 0 to 100; ``memory_mib`` is the amount for 100, an
    assumption. Dependencies, which the names of tasks encode, are not followed: tasks arrive when they started.

    Raises:
        TraceError: with every value that cannot be used, by file, line and column.
    """
    left_out: Counter[str] = Counter()

    def row(cell: Cells) -> TraceTask | None:
        task, (_, memory) = _task(cell, ("plan_cpu", "plan_mem"), "instance_num", left_out)
        return task and replace(task, memory_mib=math.ceil(memory / 100 * memory_mib))

    return Trace.of(read_table(path, _TASKS_2018, row, header=False, limit=limit), left_out)


def read_alibaba_2020(path: str | Path, *, limit: int | None = None) -> Trace:
    """Read ``pai_task_table.csv`` of cluster-trace-gpu-v2020. ``limit`` reads the first lines only.

    CPU and GPUs are in percent, memory in GB. Up to 100 percent is a part of one GPU. More is a number of whole GPUs,
    rounded up. The tasks of a job, such as its parameter servers and its workers, are one gang.

    Raises:
        TraceError: with every value that cannot be used, by file, line and column.
    """
    left_out: Counter[str] = Counter()

    def row(cell: Cells) -> TraceTask | None:
        task, (_, memory, gpu) = _task(cell, ("plan_cpu", "plan_mem", "plan_gpu"), "inst_num", left_out)
        return task and replace(
            task,
            memory_mib=math.ceil(memory * 1024),
            gpus=math.ceil(gpu / 100),
            gpu_milli=max(1, round(10 * gpu)) if 0 < gpu < 100 else 1000,
            gpu_model=cell.text("gpu_type"),
            job=cell.text("job_name"),
        )

    return Trace.of(read_table(path, _TASKS_2020, row, header=False, limit=limit), left_out)


def read_alibaba_2023(path: str | Path) -> Trace:
    """Read an openb pod list of cluster-trace-gpu-v2023, with the times of creation and deletion.

    Raises:
        TraceError: with every value that cannot be used, by file, line and column.
    """
    left_out: Counter[str] = Counter()
    tasks = []
    for pod in read_pods(path):
        if pod.created is None:
            left_out["no time of creation"] += 1
            continue
        tasks.append(
            TraceTask(
                name=pod.name,
                arrival=pod.created,
                duration=None if pod.deleted is None else pod.deleted - pod.created,
                cpu_milli=pod.cpu_milli,
                memory_mib=pod.memory_mib,
                gpus=pod.gpus,
                gpu_milli=pod.gpu_milli if pod.gpus else 1000,
                gpu_model="|".join(pod.models),
            )
        )
    return Trace.of(tasks, left_out)


def _task(
    cell: Cells, amounts: Sequence[str], instances: str, left_out: Counter[str]
) -> tuple[TraceTask | None, list[float]]:
    """Return the common part of a line of the batch tables, and its amounts; the first is CPU in percent of a core.

    The task is None if it did not start or has no instances; such lines are counted.
    """
    start, duration = _times(cell)
    values = [cell.amount(name, blank=0.0) for name in amounts]
    count = _instances(cell, instances)
    if start is None or not count:
        left_out[_NOT_STARTED if count else "no instances"] += 1
        return None, values
    task = TraceTask(
        name=f"{cell.text('job_name')}-{cell.text('task_name')}",
        arrival=start,
        duration=duration,
        instances=count,
        cpu_milli=round(10 * values[0]),
        failed=cell.text("status") == _FAILED,
    )
    return task, values


def _times(cell: Cells) -> tuple[float | None, float | None]:
    """Return start and duration; None where they are not known. An end that is 0 or missing is not known."""
    start, end = cell.time("start_time"), cell.time("end_time")
    if start is None or not end:
        return start, None
    if end < start:
        cell.problem(
            "end_time", cell.text("end_time"), f"a time that is not before start_time, {cell.text('start_time')}"
        )
        return start, None
    return start, end - start


def _instances(cell: Cells, column: str) -> int:
    """Return a whole number, which the table of 2020 writes as 1.0; 0 where there is none."""
    value = cell.amount(column, blank=0.0)
    if value != int(value):
        cell.problem(column, cell.text(column), "a whole number")
    return int(value)

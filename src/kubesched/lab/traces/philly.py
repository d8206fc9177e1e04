"""Job lists of Microsoft's Philly trace: ``cluster_job_log``, JSON, plain or gzipped.

Format: the README of ``msr-fiddle/philly-traces``. A job has attempts; each names machines, and the GPUs that it used
there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from .table import UNREADABLE, TraceError, cannot_be_read, not_text, open_text
from .tasks import Trace, TraceTask

__all__ = ["read_philly"]

_FORMAT: Final = "%Y-%m-%d %H:%M:%S"
_STATUSES: Final = ("Pass", "Killed", "Failed")


def read_philly(path: str | Path, *, cpu_milli_per_gpu: int = 0, memory_mib_per_gpu: int = 0) -> Trace:
    """Read a job list. A job becomes one task for each number of GPUs that it had on a machine, so a task's pods are equal.

    The task arrives when the job was submitted and runs as long as all attempts together. CPU and memory are not in the
    trace; amounts per GPU may be given. Jobs that were never started, and those whose times are unknown, are left out.

    Raises:
        TraceError: with every value that cannot be used, by file, job and field.
    """
    path = Path(path)
    jobs = _jobs(path)
    problems: list[str] = []
    left_out: Counter[str] = Counter()
    tasks: list[TraceTask] = []
    begin = datetime.max
    found = []
    for index, given in enumerate(jobs):
        job = _Job(f"{path}: [{index}]", given, problems)
        submitted, parts, seconds = job.submitted(), job.machines(), job.seconds()
        if job.bad:
            continue
        if submitted is None or parts is None or seconds is None:
            left_out["never started" if parts is None else "unknown times"] += 1
            continue
        begin = min(begin, submitted)
        found.append((job, submitted, parts, seconds))
    if problems:
        raise TraceError(problems)
    for job, submitted, parts, seconds in found:
        for number, (gpus, machines) in enumerate(sorted(Counter(parts).items(), reverse=True)):
            tasks.append(
                TraceTask(
                    name=job.name if not number else f"{job.name}-part-{number + 1}",
                    arrival=(submitted - begin).total_seconds(),
                    duration=seconds,
                    instances=machines,
                    cpu_milli=gpus * cpu_milli_per_gpu,
                    memory_mib=gpus * memory_mib_per_gpu,
                    gpus=gpus,
                    failed=job.failed,
                    job=job.name,
                )
            )
    return Trace.of(tasks, left_out)


def _jobs(path: Path) -> list[Any]:
    text = ""
    try:
        with open_text(path) as file:
            text = file.read()
        jobs = msgspec.json.decode(text, type=list[Any])
    except UNREADABLE as error:
        raise cannot_be_read(path, error) from error
    except UnicodeDecodeError as error:
        raise not_text(path, error) from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TraceError([f"{path}{_place(text)}: is no list of jobs in JSON: {error}"]) from error
    if not jobs:
        raise TraceError([f"{path}: holds no job"])
    return jobs


def _place(text: str) -> str:
    """Return line and column at which a text stops being JSON.

    Empty for valid JSON, for a text that was not read, and for one nested too deep to tell.
    """
    try:
        json.loads(text or "[]")
    except json.JSONDecodeError as error:
        return f":{error.lineno}:{error.colno}"
    except RecursionError:
        return ""
    return ""


class _Job:
    """Job of the list; problems are collected."""

    def __init__(self, where: str, given: Any, problems: list[str]) -> None:
        self._problems = problems
        self.bad = False
        self._where = where
        self._given: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        self.name = str(self._given.get("jobid", ""))
        if not isinstance(given, Mapping):
            self._problem("", given, "a job with jobid, submitted_time and attempts")
        elif not self.name:
            self._problem("jobid", self._given.get("jobid"), "the id of the job")
        status = self._given.get("status", "Pass")
        if status not in _STATUSES:
            self._problem("status", status, f"one of {', '.join(_STATUSES)}")
        self.failed = status == "Failed"
        self._attempts: list[Mapping[str, Any]] = []
        attempts = self._given.get("attempts") or []
        if not isinstance(attempts, list) or not all(isinstance(one, Mapping) for one in attempts):
            self._problem("attempts", attempts, "a list of attempts")
        else:
            self._attempts = attempts

    def _problem(self, field: str, value: Any, right: str) -> None:
        self.bad = True
        shown = repr(value) if len(repr(value)) < 80 else f"a {type(value).__name__}"
        self._problems.append(f"{self._where}{f'.{field}' if field else ''}: {shown}; expected {right}")

    def _time(self, field: str, text: Any) -> datetime | None:
        if text is None or text == "None":
            return None
        try:
            return datetime.strptime(text, _FORMAT)
        except (TypeError, ValueError):
            self._problem(field, text, "a time such as 2017-10-07 01:12:09")
            return None

    def submitted(self) -> datetime | None:
        return self._time("submitted_time", self._given.get("submitted_time"))

    def machines(self) -> list[int] | None:
        """Return the GPUs on each machine, of the first attempt that used some; None when none did."""
        for number, attempt in enumerate(self._attempts):
            detail = attempt.get("detail") or []
            try:
                counts = [len(machine["gpus"]) for machine in detail]
            except (TypeError, KeyError):
                self._problem(f"attempts[{number}].detail", detail, "machines, each with a list gpus")
                return None
            if any(counts):
                return [count for count in counts if count]
        return None

    def seconds(self) -> float | None:
        """Return the total duration of the attempts in seconds; None when it is not known."""
        total = 0.0
        for number, attempt in enumerate(self._attempts):
            start = self._time(f"attempts[{number}].start_time", attempt.get("start_time"))
            end = self._time(f"attempts[{number}].end_time", attempt.get("end_time"))
            if start is None or end is None:
                return None
            if end < start:
                self._problem(
                    f"attempts[{number}].end_time", attempt.get("end_time"), "a time that is not before start_time"
                )
            total += (end - start).total_seconds()
        return total

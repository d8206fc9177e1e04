"""Benchmark: workloads in scheduler_perf's format, run in real time through the whole path of one process.

:mod:`.workloads` reads a file, :mod:`.execute` carries out its operations, :mod:`.measure` holds the timers and
:mod:`.decisions` measures decisions alone. Caller: ``kubesched bench``.
"""

from .decisions import measure_decisions
from .execute import run_workload
from .measure import Decisions, Run, Section
from .workloads import Param, Workload, WorkloadError, load_workloads

__all__ = [
    "Decisions",
    "Param",
    "Run",
    "Section",
    "Workload",
    "WorkloadError",
    "load_workloads",
    "measure_decisions",
    "run_workload",
]

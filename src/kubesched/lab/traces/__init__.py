"""Readers of published cluster traces, and workloads made from them."""

from .alibaba import read_alibaba_2018, read_alibaba_2020, read_alibaba_2023
from .google import read_google_2019
from .openb import GPU_COUNT, GPU_MILLI, GPU_MODEL, OpenbNode, OpenbPod, TraceError, read_nodes, read_pods
from .philly import read_philly
from .tasks import GangForm, Trace, TraceTask, inflated, table_text
from .workload import typical_pods, with_load

__all__ = [
    "GPU_COUNT",
    "GPU_MILLI",
    "GPU_MODEL",
    "GangForm",
    "OpenbNode",
    "OpenbPod",
    "Trace",
    "TraceError",
    "TraceTask",
    "inflated",
    "read_alibaba_2018",
    "read_alibaba_2020",
    "read_alibaba_2023",
    "read_google_2019",
    "read_nodes",
    "read_philly",
    "read_pods",
    "table_text",
    "typical_pods",
    "with_load",
]

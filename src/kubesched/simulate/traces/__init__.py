"""Readers of published cluster traces, and workloads made from them."""

from .openb import GPU_COUNT, GPU_MILLI, GPU_MODEL, OpenbNode, OpenbPod, TraceError, read_nodes, read_pods
from .workload import typical_pods, with_load

__all__ = [
    "GPU_COUNT",
    "GPU_MILLI",
    "GPU_MODEL",
    "OpenbNode",
    "OpenbPod",
    "TraceError",
    "read_nodes",
    "read_pods",
    "typical_pods",
    "with_load",
]

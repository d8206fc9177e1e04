"""Nodes and the pods on them, as the scheduler and its plugins read them: a row per node, a column per property."""

from .node_table import NodeTable
from .nodeinfo import NodeInfo
from .podinfo import PodInfo
from .snapshot import NodeList, Snapshot

__all__ = ["NodeInfo", "NodeList", "NodeTable", "PodInfo", "Snapshot"]

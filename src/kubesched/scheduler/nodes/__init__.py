"""Nodes, and the pods on them, as plugins and the scheduler read them: one column a property, one row a node."""

from .node_table import NodeTable
from .nodeinfo import NodeInfo
from .podinfo import PodInfo
from .snapshot import NodeList, Snapshot

__all__ = ["NodeInfo", "NodeList", "NodeTable", "PodInfo", "Snapshot"]

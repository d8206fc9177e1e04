"""Cluster state: the node table and its columns, pods on nodes and assumed pods, snapshots, the checker."""

from .cache import Cache, CacheError
from .node_table import NodeTable
from .snapshot import NodeList, Snapshot

__all__ = ["Cache", "CacheError", "NodeList", "NodeTable", "Snapshot"]

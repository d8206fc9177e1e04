"""Hollow nodes: Node objects, heartbeats, and pods that run by stage rules."""

from .hollow import FAILED, HollowKubelets
from .nodes import make_nodes, node_template
from .stages import StageError, load_stages

__all__ = ["FAILED", "HollowKubelets", "StageError", "load_stages", "make_nodes", "node_template"]

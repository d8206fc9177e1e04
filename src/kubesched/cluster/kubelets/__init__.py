"""Hollow nodes: Node objects, heartbeats, and pods that run by stage rules."""

from .hollow import FAILED, HollowKubelets
from .nodes import make_nodes, node_template
from .stages import Stage, StageError, choose, default_stages, job_end, load_stages, rules_of

__all__ = ["FAILED", "HollowKubelets", "Stage", "StageError", "choose", "load_stages", "make_nodes", "node_template"]
__all__ += ["default_stages", "job_end", "rules_of"]

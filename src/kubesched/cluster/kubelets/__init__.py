"""Hollow nodes: Node objects, heartbeats, and pods that run by stage rules."""

from .entries import Entry
from .hollow import DURATION, FAILED, HollowKubelets
from .nodes import make_nodes, node_template
from .preparing import claim_names
from .stages import Stage, StageError, choose, default_stages, job_end, load_stages, rules_of

__all__ = [
    "DURATION",
    "FAILED",
    "Entry",
    "HollowKubelets",
    "Stage",
    "StageError",
    "choose",
    "claim_names",
    "default_stages",
    "job_end",
    "load_stages",
    "make_nodes",
    "node_template",
    "rules_of",
]

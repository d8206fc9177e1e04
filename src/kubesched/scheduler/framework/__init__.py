"""Framework: the interface for authors of plugins, and the runtime that calls plugins.

The names below are the public interface for plugins; :class:`Contract` documents every extension point.
"""

from kubesched.base.times import Clock

from ..nodes.nodeinfo import NodeInfo
from ..nodes.nominating import NominatingInfo, NominatingMode
from ..nodes.podinfo import PodInfo
from .asking import question_key
from .cycle_state import CycleState
from .events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from .interface import Contract, Handle, Plugin, PostFilterResult, PreBindPreFlight
from .placements import GroupContract, GroupToPlace, TriedPlacement
from .question import NOT_SCORED, Normalize, Question, Reads
from .queued import QueuedPodInfo
from .registry import PluginError, Registry
from .status import Code, Status

__all__ = [
    "NOT_SCORED",
    "ActionType",
    "Clock",
    "ClusterEvent",
    "ClusterEventWithHint",
    "Code",
    "Contract",
    "CycleState",
    "EventResource",
    "GroupContract",
    "GroupToPlace",
    "Handle",
    "NodeInfo",
    "NominatingInfo",
    "NominatingMode",
    "Normalize",
    "Plugin",
    "PluginError",
    "PodInfo",
    "PostFilterResult",
    "PreBindPreFlight",
    "Question",
    "QueuedPodInfo",
    "QueueingHint",
    "Reads",
    "Registry",
    "Status",
    "TriedPlacement",
    "question_key",
]

"""What an attempt does with a pod's nominated node (upstream ``framework.NominatingInfo``).

Source: spec "Scheduling queue" section 12, spec "Scheduling framework" section 4.9. PostFilter plugins make
it, the failure handler hands it to the queue's nominator.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from .podinfo import PodInfo

__all__ = ["NominatingInfo", "NominatingMode", "nominations_that_count"]


class NominatingMode(enum.IntEnum):
    """``NOOP``: leave the nomination as ``status.nominatedNodeName`` says. ``OVERRIDE``: set it."""

    NOOP = 0
    OVERRIDE = 1


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """A mode and, for ``OVERRIDE``, the node; an empty name clears the nomination. None means ``NOOP``."""

    mode: NominatingMode = NominatingMode.NOOP
    nominated_node_name: str = ""

    @classmethod
    def override(cls, node_name: str) -> NominatingInfo:
        """Nominate ``node_name``, whatever the pod's status says."""
        return cls(NominatingMode.OVERRIDE, node_name)

    @classmethod
    def clear(cls) -> NominatingInfo:
        """Take the nomination away."""
        return cls(NominatingMode.OVERRIDE, "")


def nominations_that_count(nominated: Iterable[PodInfo], pod: PodInfo) -> list[PodInfo]:
    """Those of the pods nominated to a node whose resources ``pod`` must not use: others, of equal or higher priority."""
    priority, uid = pod.priority, pod.uid
    return [other for other in nominated if other.priority >= priority and other.uid != uid]

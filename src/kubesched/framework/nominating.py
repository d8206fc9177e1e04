"""What an attempt does with a pod's nominated node (upstream ``framework.NominatingInfo``).

Source: spec "Scheduling queue" section 12, spec "Scheduling framework" section 4.9. PostFilter plugins make
it, the failure handler hands it to the queue's nominator.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = ["NominatingInfo", "NominatingMode"]


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

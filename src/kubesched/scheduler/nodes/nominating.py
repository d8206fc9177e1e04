"""What an attempt does with a pod's nominated node (upstream ``framework.NominatingInfo``).

Source: rules/queue §12, rules/framework §4.9. PostFilter plugins make
it, the failure handler hands it to the queue's nominator.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from kubesched.base.change_log import ChangeLog

from .podinfo import PodInfo

__all__ = ["NoNominations", "NominatingInfo", "NominatingMode", "Nominations", "nominations_that_count"]


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


class Nominations(Protocol):
    """What may be read of the queue's nominator.

    Attributes:
        changed: the nodes whose nominations changed.
    """

    @property
    def changed(self) -> ChangeLog[str]: ...

    def nominated_nodes(self) -> Iterable[str]:
        """The nodes with nominations."""
        ...

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]: ...

    def node_of(self, uid: str) -> str | None:
        """The node a pod is nominated to, None without a nomination."""
        ...


class NoNominations:
    """Where there is no queue, nothing is nominated."""

    changed: ChangeLog[str] = ChangeLog(0)

    def nominated_nodes(self) -> Iterable[str]:
        return ()

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return []

    def node_of(self, uid: str) -> str | None:
        return None


def nominations_that_count(nominated: Iterable[PodInfo], pod: PodInfo) -> list[PodInfo]:
    """Those of the pods nominated to a node whose resources ``pod`` must not use: others, of equal or higher priority."""
    priority, uid = pod.priority, pod.uid
    return [other for other in nominated if other.priority >= priority and other.uid != uid]

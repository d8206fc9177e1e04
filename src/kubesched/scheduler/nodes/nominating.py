"""Nominating info: the change of a pod's nominated node by an attempt (upstream ``framework.NominatingInfo``).

PostFilter plugins make it; the failure handler passes it to the queue's nominator.

Source: rules/queue §12, rules/framework §4.9.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from kubesched.api.types import Pod
from kubesched.base.change_log import ChangeLog

from .podinfo import PodInfo

__all__ = ["NoNominations", "NominatingInfo", "NominatingMode", "Nominations", "nominated_to", "nominations_that_count"]


class NominatingMode(enum.IntEnum):
    """Mode of a change: ``NOOP`` leaves the nomination as ``status.nominatedNodeName`` says, ``OVERRIDE`` sets it."""

    NOOP = 0
    OVERRIDE = 1


@dataclass(frozen=True, slots=True)
class NominatingInfo:
    """Change of a nomination: a mode and, for ``OVERRIDE``, the node; an empty name clears the nomination.

    Where a NominatingInfo may be None, None means ``NOOP``.
    """

    mode: NominatingMode = NominatingMode.NOOP
    nominated_node_name: str = ""

    @classmethod
    def override(cls, node_name: str) -> NominatingInfo:
        """Return the change that nominates ``node_name``, even if the pod's status names another node."""
        return cls(NominatingMode.OVERRIDE, node_name)

    @classmethod
    def clear(cls) -> NominatingInfo:
        """Return the change that clears the nomination."""
        return cls(NominatingMode.OVERRIDE, "")


class Nominations(Protocol):
    """Nominations of pods to nodes, as the queue's nominator shows them.

    Attributes:
        changed: log of the nodes whose nominations changed.
    """

    @property
    def changed(self) -> ChangeLog[str]: ...

    def nominated_nodes(self) -> Iterable[str]:
        """Return the names of the nodes with nominations."""
        ...

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]: ...

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node that a pod is nominated to; None without a nomination."""
        ...


class NoNominations:
    """Nominations where there is no queue: always empty."""

    changed: ChangeLog[str] = ChangeLog(0)

    def nominated_nodes(self) -> Iterable[str]:
        return ()

    def nominated_pods_for_node(self, node_name: str) -> list[PodInfo]:
        return []

    def node_of(self, uid: str) -> str | None:
        return None


def nominations_that_count(nominated: Iterable[PodInfo], pod: PodInfo) -> list[PodInfo]:
    """Return the nominated pods whose resources ``pod`` must not use: other pods, of equal or higher priority."""
    priority, uid = pod.priority, pod.uid
    return [other for other in nominated if other.priority >= priority and other.uid != uid]


def nominated_to(pod: Pod, node_name: str) -> Pod:
    """Return a pod with this node in its status. A nomination may be in memory only."""
    if pod.status.nominated_node_name == node_name:
        return pod
    status = msgspec.structs.replace(pod.status, nominated_node_name=node_name)
    return msgspec.structs.replace(pod, status=status)

"""Preemptions that cannot help, remembered while nothing changes.

A batch of pods alike that all wait for the same resources is tried again and again. The search gives each of them the same
statuses, the very object, while no verdict has changed. If no node has changed either, preemption finds the same as for the
one before; so it does while there is no pod of lower priority anywhere, whatever changes. Used by
:mod:`..default_preemption`, for what depends on nothing but nodes, nominations, statuses and priority.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from kubesched.framework.interface import Handle, NodeToStatus
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

__all__ = ["InVain", "Known"]

#: So many kinds of pods are remembered.
_MOST: Final = 64


class Known(NamedTuple):
    """What was found for a kind of pods.

    ``statuses`` is kept so that no other object gets its identity. ``changes`` and ``nominations`` are the positions in
    the node table's journal and of the nominations, at which this was found. ``none_lower``: there was no pod of lower priority.
    """

    statuses: NodeToStatus
    changes: int
    nominations: int
    none_lower: bool
    status: Status


class InVain:
    """What was found, by statuses and priority."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._kept: OrderedDict[tuple[int, int], Known] = OrderedDict()

    def get(self, pod: PodInfo, statuses: NodeToStatus) -> Known | None:
        """What is still true for a pod that may preempt; a pod with a nomination of its own is a case of its own."""
        known = self._kept.get((id(statuses), pod.priority))
        if known is None:
            return None
        if known.none_lower:
            if self._handle.snapshot.table.placed.has_below(pod.priority):
                return None
        elif (known.changes, known.nominations) != self._positions():
            return None
        return None if self._handle.nominations.node_of(pod.uid) is not None else known

    def put(self, pod: PodInfo, statuses: NodeToStatus, status: Status) -> None:
        """Remember that no victims help the pod, in the words of ``status``."""
        if self._handle.nominations.node_of(pod.uid) is not None:
            return
        key = id(statuses), pod.priority
        none_lower = not self._handle.snapshot.table.placed.has_below(pod.priority)
        self._kept[key] = Known(statuses, *self._positions(), none_lower, status)
        self._kept.move_to_end(key)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)

    def _positions(self) -> tuple[int, int]:
        return self._handle.snapshot.table.journal.position, self._handle.nominations.changed.position

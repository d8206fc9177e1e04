"""Removal of pods from their nodes for the length of a trial that uses everything which is remembered.

Unlike a what-if of the snapshot, these changes are in the node table's journal. So searches with layers see them, and
see that they were undone. Used where a whole group is tried without its victims.
"""

from __future__ import annotations

from .node_table import NodeTable
from .podinfo import PodInfo

__all__ = ["Removal"]


class Removal:
    """Pods taken off their nodes, all of which come back with :meth:`undo`."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._gone: dict[str, PodInfo] = {}

    def take(self, pod: PodInfo) -> None:
        """Take a pod off its node.

        Raises:
            KeyError: when it is not there.
        """
        info = self._table.get(pod.spec.node_name)
        if info is None:
            raise KeyError(pod.spec.node_name)
        self._gone[pod.uid] = self._table.remove_pod(info.row, pod.uid)

    def put(self, pod: PodInfo) -> None:
        """Put a pod back that was taken."""
        row = self._table.row_of(pod.spec.node_name)
        assert row is not None
        self._table.add_pod(row, self._gone.pop(pod.uid))

    def undo(self) -> None:
        """Put all pods back that are still gone. On their nodes they are the last ones then."""
        for pod in list(self._gone.values()):
            self.put(pod)

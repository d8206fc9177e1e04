"""Snapshot: the cluster as one scheduling cycle sees it, with what-if changes.

A cycle is synchronous and nothing else runs meanwhile, so a snapshot is the node table itself, not a copy. What-if
changes are made in place, and undone at the end of the ``with`` block. They are not in the change journal, so kept
answers about the real cluster stay valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from kubesched.api.types import Node

from .columns import RowArray
from .node_table import NodeTable
from .nodeinfo import NodeInfo
from .nominated_rows import NominatedRows
from .nominating import Nominations
from .podinfo import PodInfo

__all__ = ["NodeList", "Snapshot", "WhatIf"]


class NodeList(Sequence[NodeInfo]):
    """Sequence of the NodeInfo of some rows; column code reads ``rows``, intp[n] or int32[n]."""

    __slots__ = ("_table", "rows")

    def __init__(self, table: NodeTable, rows: RowArray) -> None:
        self._table = table
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> NodeInfo:  # type: ignore[override]  # slices are not needed
        return self._table.info(int(self.rows[index]))

    def __iter__(self) -> Iterator[NodeInfo]:
        info = self._table.info
        return (info(row) for row in self.rows.tolist())

    def names(self) -> list[str]:
        return [node.name for node in self]


class Snapshot:
    """Snapshot of all nodes in list order.

    What-if changes: :meth:`what_if`, :meth:`without`, :meth:`with_pods`, :meth:`with_node`.
    """

    def __init__(self, table: NodeTable) -> None:
        self.table = table
        self._nominated: NominatedRows | None = None

    def nominated_rows(self, nominations: Nominations) -> NominatedRows:
        """Return the nominated pods by row; all readers share one object."""
        if self._nominated is None or self._nominated.nominations is not nominations:
            self._nominated = NominatedRows(self.table, nominations)
        return self._nominated

    def nodes(self) -> NodeList:
        """Return all nodes, round robin over zones."""
        return NodeList(self.table, self.table.order())

    def get(self, name: str) -> NodeInfo:
        """Return one node.

        Raises:
            KeyError: ``nodeinfo not found for node name "…"``.
        """
        row = self.table.row_of(name)
        if row is None:
            raise KeyError(f'nodeinfo not found for node name "{name}"')
        return self.table.info(row)

    def is_pvc_used(self, key: str) -> bool:
        """Return True if a pod on a node uses the claim ``namespace/name``."""
        return key in self.table.pvc_counts

    @contextmanager
    def what_if(self, node: NodeInfo) -> Iterator[WhatIf]:
        """Allow changes of a node's pods within the block; they are undone at its end."""
        trial = WhatIf(self.table, node)
        try:
            yield trial
        finally:
            trial.undo()

    @contextmanager
    def with_node(self, node: Node) -> Iterator[NodeInfo]:
        """Show the cluster within the block with one more node, whose name no node has.

        The node comes and goes as a real one: it is in the journal, and answers about all nodes are computed again.
        """
        row = self.table.set_node(node)
        try:
            yield self.table.info(row)
        finally:
            self.table.remove_node(node.name)

    @contextmanager
    def without(self, victims: Iterable[tuple[NodeInfo, PodInfo]]) -> Iterator[None]:
        """Show the cluster within the block as if these pods were not on these nodes.

        Raises:
            KeyError: when a pod is not on its given node; nothing is changed then.
        """
        with ExitStack() as stack:
            trials: dict[int, WhatIf] = {}
            for node, pod in victims:
                if node.row not in trials:
                    trials[node.row] = stack.enter_context(self.what_if(node))
                trials[node.row].remove(pod)
            yield

    @contextmanager
    def with_pods(self, node: NodeInfo, pods: Iterable[PodInfo]) -> Iterator[None]:
        """Show the cluster within the block as if these pods were on ``node``, too."""
        with self.what_if(node) as trial:
            for pod in pods:
                trial.add(pod)
            yield


class WhatIf:
    """What-if changes of one node's pods, which will be undone. They may be nested."""

    __slots__ = ("_by_ip", "_done", "_node", "_pods", "_table")

    def __init__(self, table: NodeTable, node: NodeInfo) -> None:
        self._table = table
        self._node = node
        # Undoing each change does not restore the order of the pods, nor ports that several pods hold: keep both.
        self._pods = dict(node.pods)
        self._by_ip = {ip: set(used) for ip, used in node.used_ports.by_ip.items()}
        #: Changes in order: (pod, True if it was added, False if it was removed).
        self._done: list[tuple[PodInfo, bool]] = []
        table.trials[node.row] = table.trials.get(node.row, 0) + 1

    def add(self, pod: PodInfo) -> None:
        self._table.add_pod(self._node.row, pod, journal=False)
        self._done.append((pod, True))

    def remove(self, pod: PodInfo) -> None:
        """Remove a pod.

        Raises:
            KeyError: when the pod is not on the node.
        """
        removed = self._table.remove_pod(self._node.row, pod.uid, journal=False)
        self._done.append((removed, False))

    def undo(self) -> None:
        """Undo all changes."""
        node, table = self._node, self._table
        for pod, added in reversed(self._done):
            if added:
                table.remove_pod(node.row, pod.uid, journal=False)
            else:
                table.add_pod(node.row, pod, journal=False)
        node.pods = self._pods
        if node.used_ports.by_ip != self._by_ip:
            table.set_ports(node.row, self._by_ip)
        left = table.trials[node.row] - 1
        if left:
            table.trials[node.row] = left
        else:
            del table.trials[node.row]

"""CSINode objects by node: which in-tree plugins are migrated to CSI there. Shared by the storage plugins.

A change goes into the node table's journal, so that layers evaluate the node again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kubesched.api.kinds import CSI_NODES
from kubesched.api.storage import MIGRATED_PLUGINS, CSINode
from kubesched.api.tombstone import final_state

from ...framework.interface import Handle
from ...nodes import NodeTable
from ...nodes.columns import BoolArray, RowArray

__all__ = ["CSINodes", "migrated_plugins"]


def migrated_plugins(node: CSINode | None) -> str:
    """In-tree plugins that a CSINode names as migrated. The CSINode lists them in one text, separated by commas."""
    return "" if node is None else node.metadata.annotations.get(MIGRATED_PLUGINS, "")


class CSINodes:
    """CSINodes by name, and columns over them; it is a handler of their informer."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._nodes: dict[str, CSINode] = {}
        #: Names of the nodes where an in-tree plugin is migrated, by plugin.
        self._migrated: dict[str, set[str]] = {}
        #: Number that grows with every change of ``_migrated``.
        self._version = 0
        #: (versions, column) by plugin, for one table.
        self._columns: dict[str, tuple[tuple[int, int, int], BoolArray]] = {}
        self._listeners: list[Callable[[], None]] = []
        handle.watch(CSI_NODES.plural, self)

    @classmethod
    def of(cls, handle: Handle) -> CSINodes:
        """Return the instance that all storage plugins share."""
        shared: CSINodes = handle.shared("CSINodes", lambda: cls(handle))
        return shared

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when any CSINode changes."""
        self._listeners.append(listener)

    def get(self, name: str) -> CSINode | None:
        """Return the CSINode of a node, or None."""
        return self._nodes.get(name)

    def is_migrated(self, name: str, plugin: str) -> bool:
        """True if the CSINode of a node names the in-tree plugin as migrated."""
        return name in self._migrated.get(plugin, ())

    def migrated_rows(self, nodes: NodeTable, plugin: str, rows: RowArray) -> BoolArray:
        """Return the answers of :meth:`is_migrated` for many nodes; bool[len(rows)]."""
        names = self._migrated.get(plugin)
        if not names:
            return np.zeros(len(rows), np.bool_)
        versions = (self._version, nodes.membership_version, nodes.capacity)
        kept = self._columns.get(plugin)
        if kept is None or kept[0] != versions:
            column = np.zeros(nodes.capacity, np.bool_)
            column[[row for name in names if (row := nodes.row_of(name)) is not None]] = True
            kept = self._columns[plugin] = (versions, column)
        found: BoolArray = kept[1][rows]
        return found

    # -- the informer's side ---------------------------------------------------------------------------

    def on_add(self, obj: CSINode, is_initial: bool) -> None:
        self._set(obj.name, obj)

    def on_update(self, old: CSINode, new: CSINode) -> None:
        self._set(new.name, new)

    def on_delete(self, obj: Any) -> None:
        self._set(final_state(obj).name, None)

    def _set(self, name: str, node: CSINode | None) -> None:
        before = self._nodes.pop(name, None)
        if node is not None:
            self._nodes[name] = node
        old, new = migrated_plugins(before), migrated_plugins(node)
        if old != new:
            self._version += 1
            for plugin in old.split(","):
                self._migrated.get(plugin, set()).discard(name)
            for plugin in new.split(",") if new else ():
                self._migrated.setdefault(plugin, set()).add(name)
        if before != node:
            self._handle.node_changed(name)
            for listener in self._listeners:
                listener()

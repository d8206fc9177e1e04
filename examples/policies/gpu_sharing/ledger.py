"""Ledger of GPUs: which pod uses which of them, and how much of each is free, as columns by row of the node table."""

import numpy as np

from .request import GPU_COUNT, WHOLE


class Ledger:
    """One for all profiles. ``held`` is by pod UID: (node name, thousandths of each GPU, GPU numbers)."""

    def __init__(self):
        self.held = {}
        self._used = np.zeros((0, 0), np.int64)  # [rows, GPUs]
        self._version = -1

    def free(self, nodes, rows):
        """int64[len(rows), GPUs]: free thousandths of each GPU; 0 where a node has no such GPU."""
        index = nodes.column(GPU_COUNT)
        if index is None:
            return np.zeros((len(rows), 1), np.int64)
        counts = nodes.allocatable[index, rows]
        most = int(counts.max(initial=0))
        self._follow(nodes, most)
        used = self._used[rows]
        exists = np.arange(used.shape[1]) < counts[:, None]
        return np.where(exists, WHOLE - used, 0)

    def hold(self, nodes, uid, node_name, milli, devices):
        """A pod uses these GPUs from now on."""
        self.release(nodes, uid)
        row = nodes.row_of(node_name)
        self._follow(nodes, max(devices) + 1)
        self.held[uid] = (node_name, milli, tuple(devices))
        if row is not None:
            self._used[row, list(devices)] += milli

    def release(self, nodes, uid):
        """A pod uses nothing any more. The name of the node it was on; None when it used nothing."""
        held = self.held.pop(uid, None)
        if held is None:
            return None
        node_name, milli, devices = held
        row = nodes.row_of(node_name)
        if row is not None and self._version == nodes.membership_version:
            self._used[row, list(devices)] -= milli
        return node_name

    def _follow(self, nodes, gpus):
        """Rows belong to other nodes when nodes come or go: compute the columns from ``held`` again."""
        capacity, width = self._used.shape
        if self._version == nodes.membership_version and gpus <= width and capacity == nodes.capacity:
            return
        self._version = nodes.membership_version
        self._used = np.zeros((nodes.capacity, max(width, gpus, 1)), np.int64)
        for node_name, milli, devices in self.held.values():
            row = nodes.row_of(node_name)
            if row is not None:
                self._used[row, list(devices)] += milli

"""Node table: one row per node, one column per property.

A row exists twice. A :class:`~kubesched.scheduler.nodes.nodeinfo.NodeInfo` holds it in plain Python integers, and is
authoritative. NumPy columns mirror it, and column plugins read them. Both are written together, only in this module,
and every write goes into the change journal. Row numbers are stable; a removed node frees its row.

Callers: :mod:`..cache.cache` (writes), column plugins and the decision core (read).
Shapes: ``capacity`` is the number of allocated rows, ``R`` at least the number of resources that nodes have had so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from weakref import WeakSet

import numpy as np

from kubesched.api.declared_features import feature_mask
from kubesched.api.quantity import INT64_MAX
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources
from kubesched.api.selectors import NodeSelectorMatcher, RequiredNodeAffinity, TermMatcher
from kubesched.api.types import Node
from kubesched.base.change_log import ChangeLog

from .columns import BoolArray, IntArray, LabelColumns, RowArray, TaintSets
from .disks import Disk
from .domain_counts import DomainCounts
from .images import ImageTable
from .node_tree import NodeTree
from .nodeinfo import NodeInfo
from .placed_pods import PlacedPods
from .podinfo import PodInfo
from .term_index import TermIndex

__all__ = ["CPU_ROW", "EPHEMERAL_ROW", "MEMORY_ROW", "NODE_CHANGED", "PODS_CHANGED", "PODS_ROW", "NodeTable"]

#: Indexes of the fixed resources; scalar resources follow in the order in which nodes first have them.
CPU_ROW: Final = 0
MEMORY_ROW: Final = 1
EPHEMERAL_ROW: Final = 2
PODS_ROW: Final = 3

#: Kind of a journal entry: the pods of the node changed.
PODS_CHANGED: Final = 0
#: Kind of a journal entry: the node object, or other data about the node, changed; or the node came or went.
NODE_CHANGED: Final = 1

#: Rows at the start.
_FIRST_CAPACITY: Final = 64
#: Entries that the journal keeps, at least.
_KEPT_CHANGES: Final = 1 << 16


def _int64(value: int) -> int:
    """Limit a number to int64, the type of the columns: sums of absurd quantities may be greater."""
    return value if -INT64_MAX <= value <= INT64_MAX else (INT64_MAX if value > 0 else -INT64_MAX)


def _grown(matrix: IntArray, used: int, shape: tuple[int, int]) -> IntArray:
    """Return a copy of a matrix with a greater shape. Only the first ``used`` lines are copied; the rest is 0.

    Zeros take no memory until they are written.
    """
    grown = np.zeros(shape, np.int64)
    grown[:used, : matrix.shape[1]] = matrix[:used]
    return grown


class NodeTable:
    """Table of all nodes, as rows and columns.

    Attributes (read-only outside this module):
        allocatable, requested: int64[R, capacity]; milli-CPU, bytes or counts by resource index. The number of pods is
            resource ``PODS_ROW``. Lines beyond ``resource_index`` are spare, and 0.
        nonzero: int64[2, capacity]; milli-CPU and bytes requested, with the defaults for scoring.
        alive: bool[capacity]; True if the row has a node object.
        unschedulable: bool[capacity].
        features: int64[capacity]; bit set of declared features, as in ``api.declared_features``.
        infos: row to NodeInfo; None for a free row.
        journal: every write to a row, as ``row * 2 + kind``; the kind is ``PODS_CHANGED`` or ``NODE_CHANGED``.
    """

    def __init__(self) -> None:
        capacity = _FIRST_CAPACITY
        self.capacity = capacity
        self.resource_index: dict[str, int] = {CPU: 0, MEMORY: 1, EPHEMERAL_STORAGE: 2, PODS: 3}
        #: Row to the indexes of the scalar resources that its node has.
        self._scalars: dict[int, tuple[int, ...]] = {}
        self.allocatable = np.zeros((4, capacity), np.int64)
        self.requested = np.zeros((4, capacity), np.int64)
        self.nonzero = np.zeros((2, capacity), np.int64)
        self.alive = np.zeros(capacity, np.bool_)
        self.unschedulable = np.zeros(capacity, np.bool_)
        self.features = np.zeros(capacity, np.int64)
        self.infos: list[NodeInfo | None] = [None] * capacity
        self.labels = LabelColumns(capacity, self._scan_labels)
        self.taints = TaintSets(capacity)
        self.images = ImageTable()
        self._asked_again = 0
        self.tree = NodeTree()
        self.journal: ChangeLog[int] = ChangeLog(_KEPT_CHANGES)
        #: Grows when a node is added, removed or changes its zone.
        self.membership_version = 0
        #: Grow when any node's labels or taints change, and when a node is added or removed.
        self.labels_version = 0
        self.taints_version = 0
        #: Counts per domain that are in use anywhere; the checker compares them.
        self.readers: WeakSet[DomainCounts] = WeakSet()
        #: Number of pods that each rule between pods matches.
        self.terms = TermIndex(self)
        #: (protocol, port) to the rows that use it, to find host-port conflicts.
        self.port_rows: dict[tuple[str, int], set[int]] = {}
        #: Disk named without a claim to the rows whose pods use it, to find disk conflicts.
        self.disk_rows: dict[Disk, set[int]] = {}
        #: Row to the number of open what-if blocks that change its pods.
        self.trials: dict[int, int] = {}
        #: ``namespace/claim`` to the number of volumes in the cluster that use it.
        self.pvc_counts: dict[str, int] = {}
        #: Columns of the pods on nodes.
        self.placed = PlacedPods()
        self._row_of: dict[str, int] = {}
        self._free: list[int] = list(range(capacity - 1, -1, -1))
        self._order: RowArray | None = None

    # -- reading ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of nodes, without imaginary and ghost nodes."""
        return len(self.tree)

    def row_of(self, name: str) -> int | None:
        """Return the row of a node that has an object, or None."""
        row = self._row_of.get(name)
        return row if row is not None and self.alive[row] else None

    def get(self, name: str) -> NodeInfo | None:
        """Return the NodeInfo of a name, also of an imaginary or ghost node; None if the name has no row."""
        row = self._row_of.get(name)
        return None if row is None else self.infos[row]

    def info(self, row: int) -> NodeInfo:
        info = self.infos[row]
        assert info is not None
        return info

    def all_infos(self) -> Iterator[NodeInfo]:
        """Return the NodeInfo of every row in use, also of imaginary and ghost nodes."""
        return (info for info in self.infos if info is not None)

    def order(self) -> RowArray:
        """Return the rows of all nodes in list order (round robin over zones), intp[n].

        The order is computed again when a node came or went.
        """
        if self._order is None:
            rows = self._row_of
            names = self.tree.order()
            self._order = np.fromiter((rows[name] for name in names), np.intp, len(names))
        return self._order

    def column(self, resource: str) -> int | None:
        """Return a resource's index in ``allocatable`` and ``requested``; None if no node ever had the resource."""
        return self.resource_index.get(resource)

    def matches_term(self, term: TermMatcher, rows: RowArray) -> BoolArray:
        """Return bool[len(rows)]: True for rows that match a node selector term."""
        result = self.labels.matches(term.labels, rows)
        for requirement in term.fields:
            if requirement.key == "metadata.name":
                names = {row for value in requirement.values if (row := self._row_of.get(value)) is not None}
                hit = np.isin(rows, list(names))
                result &= hit if requirement.operator == "In" else ~hit
            elif requirement.operator == "In":
                result &= "" in requirement.values
            else:
                result &= "" not in requirement.values
        return result

    def matches_selector(self, selector: NodeSelectorMatcher, rows: RowArray) -> BoolArray:
        """Return bool[len(rows)]: True for rows that match any term of a node selector."""
        result = np.zeros(len(rows), np.bool_)
        for term in selector.terms:
            result |= self.matches_term(term, rows)
        return result

    def matches_affinity(self, affinity: RequiredNodeAffinity, rows: RowArray) -> BoolArray:
        """Return bool[len(rows)]: True for rows that match a pod's nodeSelector and required node affinity."""
        result = self.labels.matches(affinity.node_selector.requirements, rows)
        if affinity.affinity is not None:
            result &= self.matches_selector(affinity.affinity, rows)
        return result

    # -- nodes -----------------------------------------------------------------------------------------

    def ensure_row(self, name: str) -> int:
        """Return the row of a name. A new name gets a row without a node object: an imaginary node."""
        row = self._row_of.get(name)
        if row is None:
            if not self._free:
                self._grow()
            row = self._free.pop()
            self._row_of[name] = row
            self.infos[row] = NodeInfo(name, row)
        return row

    def set_node(self, node: Node) -> int:
        """Add a node or replace its object, and keep the pods that were recorded for it. Return the row.

        Raises:
            QuantityError: when an allocatable amount is not a quantity; nothing is changed then.
        """
        Resources.from_list(node.status.allocatable)  # refuse before anything is touched
        row = self.ensure_row(node.name)
        info = self.info(row)
        old = info.node
        info.set_node(node)
        self.images.replace(row, old, node)
        if self.tree.add(node.name, node.metadata.labels) or old is None:
            if old is None:
                # Upstream recomputes its list only when nodes come or go, not when a zone label changes.
                self._order = None
                self.images.version += 1
            self.membership_version += 1
        self.alive[row] = True
        self.unschedulable[row] = node.spec.unschedulable
        self.features[row] = feature_mask(node.status.declared_features)
        self._mirror_allocatable(row, info.allocatable)
        if old is None or old.spec.taints != node.spec.taints:
            self.taints.set(row, node.spec.taints)
            self.taints_version += 1
        if old is None or old.metadata.labels != node.metadata.labels:
            self.labels.set_row(row, node.metadata.labels)
            self.labels_version += 1
        self.journal.append(row * 2 + NODE_CHANGED)
        return row

    def node_changed(self, name: str) -> None:
        """Write to the journal that data about a node changed outside the Node object. An unknown node is ignored."""
        row = self.row_of(name)
        if row is not None:
            self.journal.append(row * 2 + NODE_CHANGED)

    @property
    def questions_version(self) -> int:
        """Version of the data that questions ``by_spec`` depend on besides the pod.

        It grows when an image name comes or goes, and with :meth:`ask_again`.
        """
        return self.images.names_version + self._asked_again

    def ask_again(self) -> None:
        """Have the plugins asked again for all pods."""
        self._asked_again += 1

    def remove_node(self, name: str) -> bool:
        """Remove a node; False if there is none. A node that still has pods becomes a ghost, invisible to plugins."""
        row = self._row_of.get(name)
        if row is None or not self.alive[row]:
            return False
        info = self.info(row)
        self.images.replace(row, info.node, None)
        self.images.version += 1
        self.tree.remove(name)
        self._order = None
        self.membership_version += 1
        info.remove_node()
        self.alive[row] = False
        self.labels.set_row(row, {})
        self.taints.set(row, ())
        self.labels_version += 1
        self.taints_version += 1
        self.journal.append(row * 2 + NODE_CHANGED)
        self._release_if_empty(row)
        return True

    def _release_if_empty(self, row: int) -> None:
        info = self.info(row)
        if info.node is None and not info.pods:
            self.infos[row] = None
            del self._row_of[info.name]
            for matrix in (self.allocatable, self.requested, self.nonzero):
                matrix[:, row] = 0
            self.unschedulable[row] = False
            self.features[row] = 0
            self._free.append(row)

    # -- pods ------------------------------------------------------------------------------------------

    def add_pod(self, row: int, pod: PodInfo, *, journal: bool = True) -> None:
        """Add a pod to a row. If ``journal`` is False (in a what-if), neither the journal nor ``placed`` is written."""
        info = self.info(row)
        info.add_pod(pod)
        kind = self.terms.add(row, pod).kind
        self._mirror_requested(info, pod)
        for _, protocol, port in pod.ports:
            self._index_port(info, (protocol, port))
        if pod.storage:
            for key in pod.pvcs:
                self.pvc_counts[key] = self.pvc_counts.get(key, 0) + 1
            for disk, _ in pod.disks:
                self.disk_rows.setdefault(disk, set()).add(row)
        if journal:
            self.placed.add(row, pod, kind)
            self.journal.append(row * 2 + PODS_CHANGED)

    def remove_pod(self, row: int, uid: str, *, journal: bool = True) -> PodInfo:
        """Remove a pod from a row. A row without pods and without a node object is freed.

        For ``journal`` see :meth:`add_pod`; in a what-if no row is freed.

        Raises:
            KeyError: when the pod is not on that row.
        """
        info = self.info(row)
        pod = info.remove_pod(uid)
        self.terms.remove(row, pod)
        self._mirror_requested(info, pod)
        for _, protocol, port in pod.ports:
            self._index_port(info, (protocol, port))
        if pod.storage:
            for key in pod.pvcs:
                left = self.pvc_counts.get(key, 0) - 1
                if left > 0:
                    self.pvc_counts[key] = left
                else:
                    self.pvc_counts.pop(key, None)
            for disk, _ in pod.disks:
                if (disk, False) not in info.disk_counts and (disk, True) not in info.disk_counts:
                    self._unindex_disk(row, disk)
        if journal:
            self.placed.remove(row, uid)
            self.journal.append(row * 2 + PODS_CHANGED)
            self._release_if_empty(row)
        return pod

    def replace_pod(self, row: int, uid: str, pod: PodInfo) -> None:
        """Replace a pod's object by a newer version that counts equally. There is no journal entry."""
        self.info(row).pods[uid] = pod
        self.placed.replace(row, pod)

    def set_ports(self, row: int, by_ip: dict[str, set[tuple[str, int]]]) -> None:
        """Restore a row's host ports after a what-if."""
        info = self.info(row)
        touched = {key for used in (*info.used_ports.by_ip.values(), *by_ip.values()) for key in used}
        info.used_ports.by_ip = by_ip
        for key in touched:
            self._index_port(info, key)

    def _index_port(self, info: NodeInfo, key: tuple[str, int]) -> None:
        """Update ``port_rows`` from the row's port table, for one (protocol, port)."""
        if any(key in used for used in info.used_ports.by_ip.values()):
            self.port_rows.setdefault(key, set()).add(info.row)
        else:
            rows = self.port_rows.get(key)
            if rows is not None:
                rows.discard(info.row)
                if not rows:
                    del self.port_rows[key]

    def _unindex_disk(self, row: int, disk: Disk) -> None:
        rows = self.disk_rows.get(disk)
        if rows is not None:
            rows.discard(row)
            if not rows:
                del self.disk_rows[disk]

    # -- mirrors ---------------------------------------------------------------------------------------

    def _mirror_requested(self, info: NodeInfo, pod: PodInfo) -> None:
        row, requested, nonzero, total = info.row, self.requested, self.nonzero, info.requested
        requested[PODS_ROW, row] = len(info.pods)
        try:
            requested[CPU_ROW, row], requested[MEMORY_ROW, row] = total.milli_cpu, total.memory
            nonzero[0, row], nonzero[1, row] = info.nonzero_cpu, info.nonzero_memory
        except OverflowError:  # a number beyond 64 bits
            requested[CPU_ROW, row], requested[MEMORY_ROW, row] = _int64(total.milli_cpu), _int64(total.memory)
            nonzero[0, row], nonzero[1, row] = _int64(info.nonzero_cpu), _int64(info.nonzero_memory)
        if pod.requests.ephemeral_storage:
            requested[EPHEMERAL_ROW, row] = _int64(total.ephemeral_storage)
        if pod.requests.scalars:
            for name in pod.requests.scalars:
                index = self.resource_index.get(name)
                if index is not None:  # Resources that no node has get no column: a pod may name thousands of them.
                    self.requested[index, row] = _int64(total.scalars[name])

    def _mirror_allocatable(self, row: int, amounts: Resources) -> None:
        self._add_resources([name for name in amounts.scalars if name not in self.resource_index])
        scalars = {self.resource_index[name]: amount for name, amount in amounts.scalars.items()}
        allocatable = self.allocatable
        for index in self._scalars.pop(row, ()):
            allocatable[index, row] = 0
        allocatable[CPU_ROW, row] = amounts.milli_cpu
        allocatable[MEMORY_ROW, row] = amounts.memory
        allocatable[EPHEMERAL_ROW, row] = amounts.ephemeral_storage
        allocatable[PODS_ROW, row] = amounts.allowed_pods
        for index, amount in scalars.items():
            allocatable[index, row] = amount
        if scalars:
            self._scalars[row] = tuple(scalars)

    def _add_resources(self, new: Sequence[str]) -> None:
        """Add columns for resources that no node had before, with the amounts that pods have requested already."""
        if not new:
            return
        used = len(self.resource_index)
        self.resource_index.update(zip(new, range(used, used + len(new)), strict=True))
        if len(self.resource_index) > len(self.allocatable):
            # Double the size: every node may have its own resource, and each growth copies both matrices.
            shape = 2 * len(self.resource_index), self.capacity
            self.allocatable, self.requested = (
                _grown(self.allocatable, used, shape),
                _grown(self.requested, used, shape),
            )
        names = set(new)
        for info in self.all_infos():
            for name in names & info.requested.scalars.keys() if info.requested.scalars else ():
                self.requested[self.resource_index[name], info.row] = _int64(info.requested.scalars[name])

    def _grow(self) -> None:
        old, new = self.capacity, self.capacity * 2
        self.capacity = new
        used, shape = len(self.resource_index), (len(self.allocatable), new)
        self.allocatable = _grown(self.allocatable, used, shape)
        self.requested = _grown(self.requested, used, shape)
        self.nonzero = _grown(self.nonzero, 2, (2, new))
        self.alive = np.concatenate((self.alive, np.zeros(old, np.bool_)))
        self.unschedulable = np.concatenate((self.unschedulable, np.zeros(old, np.bool_)))
        self.features = np.concatenate((self.features, np.zeros(old, np.int64)))
        self.infos.extend([None] * old)
        self.labels.grow(new)
        self.taints.grow(new)
        self._free.extend(range(new - 1, old - 1, -1))

    def _scan_labels(self) -> Iterator[tuple[int, dict[str, str]]]:
        return (
            (info.row, info.node.metadata.labels) for info in self.infos if info is not None and info.node is not None
        )

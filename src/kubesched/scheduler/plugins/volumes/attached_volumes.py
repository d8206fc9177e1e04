"""Volumes on nodes as columns: how many a driver has attached to each node, and how many it may have.

The node table's journal keeps the columns current as pods come and go. Watches of the objects that counting looks up
(claims, volumes, classes, CSINodes and VolumeAttachments) mark the nodes that a change concerns. A marked node is
counted again, and the journal makes the decision core evaluate it again. Nodes without limits are not counted at all.

Shared by all profiles (:meth:`AttachedVolumes.of`). Source: rules/volumes §5.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import numpy as np

from kubesched.api.kinds import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUME_ATTACHMENTS, VOLUMES, Kind
from kubesched.api.storage import CSINode, VolumeAttachment
from kubesched.base.change_log import Follower

from ...framework.interface import Handle
from ...nodes.columns import BoolArray, IntArray
from ...nodes.nodeinfo import NodeInfo
from ...nodes.podinfo import PodInfo
from ..assume_cache import OnChange
from .claims import Storage
from .countable import Countable, CountableVolumes, CountingError, ObjectKey

__all__ = ["NO_LIMIT", "AttachedVolumes", "limits_of"]

#: Value in a column of limits: the driver has none on this node.
NO_LIMIT: Final = 1 << 62


def limits_of(node: CSINode | None) -> dict[str, int]:
    """Number of volumes that each driver may attach to a node, by driver; 0 is a limit, too."""
    if node is None:
        return {}
    return {
        driver.name: driver.allocatable.count
        for driver in node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


class _Pod:
    """Volumes counted for one pod, and the objects looked up for them."""

    __slots__ = ("looked_up", "pod", "volumes")

    def __init__(self, pod: PodInfo) -> None:
        self.pod = pod
        self.volumes: tuple[Countable, ...] = ()
        self.looked_up: list[ObjectKey] = []

    def is_of(self, pod: PodInfo | None) -> bool:
        """True if another version of the pod has the same volumes."""
        mine = self.pod
        return mine is pod or (pod is not None and mine.storage == pod.storage and mine.key == pod.key)


class _Row:
    """Volumes counted on one node."""

    __slots__ = ("attached", "counts", "drivers", "errors", "looked_up", "name", "pods", "users")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Drivers of the node's CSINode, None without one.
        self.drivers: frozenset[str] | None = None
        self.pods: dict[str, _Pod] = {}
        #: Number of the node's pods that use a volume, by volume.
        self.users: Counter[Countable] = Counter()
        self.errors: dict[str, CountingError] = {}
        #: Volumes held by VolumeAttachments, and the objects that were looked up for them.
        self.attached: frozenset[Countable] = frozenset()
        self.looked_up: tuple[ObjectKey, ...] = ()
        #: Number of volumes by driver, as in the columns.
        self.counts: dict[str, int] = {}


class AttachedVolumes:
    """Counts and limits by row of the node table.

    Attributes (valid after :meth:`refresh`):
        has_node: bool[capacity]; True if the node has a CSINode.
        has_limits: bool[capacity]; True if the CSINode limits some driver.
        rows_of: by volume, the rows of nodes with limits whose pods use the volume.
        errors: by row, the reason why the volumes of its pods cannot be counted.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._table = handle.snapshot.table
        self._storage = Storage(handle)
        self.volumes = CountableVolumes(self._storage)
        self.has_node: BoolArray = np.zeros(0, np.bool_)
        self.has_limits: BoolArray = np.zeros(0, np.bool_)
        self.rows_of: dict[Countable, set[int]] = {}
        self.errors: dict[int, CountingError] = {}
        self._counts: dict[str, IntArray] = {}
        self._limits: dict[str, IntArray] = {}
        self._rows: dict[int, _Row] = {}
        #: Rows whose counts depend on an object, by object. Each row has the number of its pods and attachments that
        #: depend on it.
        self._readers: dict[ObjectKey, Counter[int]] = {}
        #: (attacher, PersistentVolume name) by node name and VolumeAttachment name; and the node name of each.
        self._attachments: dict[str, dict[str, tuple[str, str]]] = {}
        self._attached_to: dict[str, str] = {}
        #: Nodes to count from the beginning.
        self._stale: set[str] = set()
        self._journal = Follower(self._table.journal)
        for kind in (CLAIMS, VOLUMES, STORAGE_CLASSES):
            handle.watch(kind.plural, OnChange(self._reads_changed(kind)))
        handle.watch(CSI_NODES.plural, OnChange(self._csi_node_changed))
        handle.watch(VOLUME_ATTACHMENTS.plural, OnChange(self._attachment_changed))

    @classmethod
    def of(cls, handle: Handle) -> AttachedVolumes:
        """Return the instance that all profiles of this scheduler share."""
        shared: AttachedVolumes = handle.shared("attached volumes", lambda: cls(handle))
        return shared

    # -- reading ---------------------------------------------------------------------------------------

    def count(self, driver: str) -> IntArray:
        """Number of the driver's volumes, used by pods or attached, on each node with limits; int64[capacity]."""
        return self._column(self._counts, driver, 0)

    def limit(self, driver: str) -> IntArray:
        """Most volumes of the driver on each node, or NO_LIMIT; int64[capacity]."""
        return self._column(self._limits, driver, NO_LIMIT)

    def has_driver(self, row: int, driver: str) -> bool:
        """True if the CSINode of a row lists the driver."""
        node = self._rows.get(row)
        return node is not None and node.drivers is not None and driver in node.drivers

    def attachments(self, node_name: str) -> frozenset[Countable]:
        """Return the volumes that VolumeAttachments hold on a node, by drivers that have a name."""
        return self._held(node_name)[0]

    def _column(self, columns: dict[str, IntArray], driver: str, empty: int) -> IntArray:
        column = columns.get(driver)
        if column is None or len(column) < self._table.capacity:
            grown = np.full(self._table.capacity, empty, np.int64)
            if column is not None:
                grown[: len(column)] = column
            column = columns[driver] = grown
        return column

    # -- catching up -----------------------------------------------------------------------------------

    def _reads_changed(self, kind: Kind) -> Callable[[Any, Any], None]:
        def changed(old: Any, new: Any) -> None:
            meta = (new if new is not None else old).metadata
            key = (kind.plural, f"{meta.namespace}/{meta.name}" if kind.namespaced else meta.name)
            for row in self._readers.get(key, ()):
                self._count_again(self._rows[row].name)

        return changed

    def _csi_node_changed(self, old: CSINode | None, new: CSINode | None) -> None:
        self._count_again((new if new is not None else old).metadata.name)  # type: ignore[union-attr]  # one is there

    def _attachment_changed(self, old: VolumeAttachment | None, new: VolumeAttachment | None) -> None:
        name = (new if new is not None else old).metadata.name  # type: ignore[union-attr]  # one is there
        before = self._attached_to.pop(name, None)
        if before is not None:
            here = self._attachments[before]
            del here[name]
            if not here:
                del self._attachments[before]
            self._count_again(before)
        if new is not None and new.spec.attacher and new.spec.source.persistent_volume_name:
            node_name = self._attached_to[name] = new.spec.node_name
            held = (new.spec.attacher, new.spec.source.persistent_volume_name)
            self._attachments.setdefault(node_name, {})[name] = held
            self._count_again(node_name)

    def _count_again(self, node_name: str) -> None:
        if node_name not in self._stale:
            self._stale.add(node_name)
            self._handle.node_changed(node_name)

    def refresh(self) -> None:
        """Catch up with the journal; to be called before anything is read."""
        table = self._table
        if not self._journal.is_behind:
            return
        if len(self.has_node) < table.capacity:
            self.has_node = _grown(self.has_node, table.capacity)
            self.has_limits = _grown(self.has_limits, table.capacity)
        entries = self._journal.read()
        if entries is None or len(entries) > table.capacity:
            rows = set(self._rows)
            rows.update(info.row for info in table.all_infos())
        else:
            rows = {entry >> 1 for entry in entries}
        for row in rows:
            self._refresh_row(row)

    def _refresh_row(self, row: int) -> None:
        info, known = self._table.infos[row], self._rows.get(row)
        if info is None or info.node is None:
            if known is not None:
                self._drop(row, known)
            return
        if known is None or known.name != info.name or info.name in self._stale:
            if known is not None:
                self._drop(row, known)
            self._stale.discard(info.name)
            known = self._rows[row] = _Row(info.name)
            self._read_csi_node(row, known)
        if self.has_limits[row]:
            self._count_pods(row, known, info)
            self._write_counts(row, known)

    def _read_csi_node(self, row: int, known: _Row) -> None:
        node: CSINode | None = self._storage.find(CSI_NODES, known.name)
        limits = limits_of(node)
        self.has_node[row] = node is not None
        self.has_limits[row] = bool(limits)
        if node is not None:
            known.drivers = frozenset(driver.name for driver in node.spec.drivers)
        for driver, limit in limits.items():
            self.limit(driver)[row] = limit
        if limits:
            known.attached, known.looked_up = self._held(known.name)
            for key in known.looked_up:
                self._readers.setdefault(key, Counter())[row] += 1

    def _held(self, node_name: str) -> tuple[frozenset[Countable], tuple[ObjectKey, ...]]:
        """Return the volumes that VolumeAttachments hold on a node, and the objects that were looked up."""
        held: set[Countable] = set()
        looked_up: list[ObjectKey] = []
        for attacher, name in self._attachments.get(node_name, {}).values():
            looked_up.append((VOLUMES.plural, name))
            volume = self.volumes.attached(name, attacher)
            if volume is not None:
                held.add(volume)
        return frozenset(held), tuple(looked_up)

    def _count_pods(self, row: int, known: _Row, info: NodeInfo) -> None:
        """Count the pods that came, and stop counting those that left."""
        pods = info.pods
        for uid in [uid for uid, counted in known.pods.items() if not counted.is_of(pods.get(uid))]:
            self._forget(row, known, uid)
        for uid, pod in pods.items():
            if pod.storage and uid not in known.pods:
                self._count(row, known, uid, pod)

    def _count(self, row: int, known: _Row, uid: str, pod: PodInfo) -> None:
        counted = known.pods[uid] = _Pod(pod)
        try:
            volumes = self.volumes.of_existing(pod, migrated=True, looked_up=counted.looked_up.append)
        except CountingError as error:
            known.errors[uid] = error
            self.errors[row] = error
            volumes = {}
        counted.volumes = tuple(volumes)
        for key in counted.looked_up:
            self._readers.setdefault(key, Counter())[row] += 1
        for volume in counted.volumes:
            known.users[volume] += 1
            if known.users[volume] == 1:
                self.rows_of.setdefault(volume, set()).add(row)

    def _forget(self, row: int, known: _Row, uid: str) -> None:
        counted = known.pods.pop(uid)
        for key in counted.looked_up:
            self._no_longer_reads(row, key)
        for volume in counted.volumes:
            known.users[volume] -= 1
            if not known.users[volume]:
                del known.users[volume]
                rows = self.rows_of[volume]
                rows.discard(row)
                if not rows:
                    del self.rows_of[volume]
        if known.errors.pop(uid, None) is not None:
            if known.errors:
                self.errors[row] = next(iter(known.errors.values()))
            else:
                del self.errors[row]

    def _no_longer_reads(self, row: int, key: ObjectKey) -> None:
        readers = self._readers[key]
        readers[row] -= 1
        if not readers[row]:
            del readers[row]
            if not readers:
                del self._readers[key]

    def _write_counts(self, row: int, known: _Row) -> None:
        counts: dict[str, int] = {}
        for volume in known.users:
            counts[volume[0]] = counts.get(volume[0], 0) + 1
        for volume in known.attached:
            if volume not in known.users:
                counts[volume[0]] = counts.get(volume[0], 0) + 1
        if counts != known.counts:
            for driver in known.counts.keys() - counts.keys():
                self.count(driver)[row] = 0
            for driver, number in counts.items():
                self.count(driver)[row] = number
            known.counts = counts

    def _drop(self, row: int, known: _Row) -> None:
        """Forget everything about a row."""
        for uid in list(known.pods):
            self._forget(row, known, uid)
        for key in known.looked_up:
            self._no_longer_reads(row, key)
        for driver in known.counts:
            self.count(driver)[row] = 0
        for column in self._limits.values():
            if row < len(column):
                column[row] = NO_LIMIT
        self.has_node[row] = self.has_limits[row] = False
        del self._rows[row]

    # -- checking --------------------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """Yield differences between the columns and a full recount, for the cache comparer."""
        self.refresh()
        informed = self._storage.objects(VOLUME_ATTACHMENTS).values()
        for info in self._table.all_infos():
            if info.node is None:
                continue
            node: CSINode | None = self._storage.find(CSI_NODES, info.name)
            limits, volumes = limits_of(node), set[Countable]()
            for pod in info.pods.values() if limits else ():
                with suppress(CountingError):  # such a pod is in ``errors``
                    volumes.update(self.volumes.of_existing(pod, migrated=True))
            for attachment in informed if limits else ():
                name = attachment.spec.source.persistent_volume_name
                if attachment.spec.node_name == info.name and attachment.spec.attacher and name:
                    held = self.volumes.attached(name, attachment.spec.attacher)
                    volumes.update(() if held is None else (held,))
            counts = Counter(volume[0] for volume in volumes)
            for driver in {*counts, *limits, *self._counts, *self._limits}:
                found = int(self.count(driver)[info.row]), int(self.limit(driver)[info.row])
                expected = counts[driver], limits.get(driver, NO_LIMIT)
                if found != expected:
                    yield f"node {info.name}: {driver} has (volumes, limit) {found} in the columns, {expected} recounted"


def _grown(column: BoolArray, capacity: int) -> BoolArray:
    grown = np.zeros(capacity, np.bool_)
    grown[: len(column)] = column
    return grown

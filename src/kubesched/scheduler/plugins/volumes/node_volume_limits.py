"""NodeVolumeLimits: the number of a CSI driver's volumes that a node can attach is limited (PreFilter, Filter).

The volumes on nodes are counted in :mod:`.attached_volumes`; here a pod's volumes are compared with them.
Source: rules/volumes §5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.api.kinds import CLAIMS, CSI_DRIVERS, CSI_NODES, STORAGE_CLASSES, VOLUME_ATTACHMENTS, VOLUMES
from kubesched.api.storage import CSIDriver, CSINode, PersistentVolumeClaim, VolumeAttachment
from kubesched.api.types import Pod

from ...framework.demand import Demand
from ...framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ...framework.interface import Handle, Plugin
from ...framework.question import Question, RowArray, VerdictArray
from ...framework.status import Status
from ...nodes.nodeinfo import NodeInfo
from ...nodes.podinfo import PodInfo
from .attached_volumes import AttachedVolumes, limits_of
from .claims import Storage, claims_that_help, uses_claim
from .countable import ClaimNotFoundError, Countable, CountingError, is_countable
from .csi_translation import translation_of
from .volume_demands import counted_volumes

if TYPE_CHECKING:
    from ...nodes import NodeList, NodeTable

__all__ = ["NodeVolumeLimits"]

_EXCEEDED: Final = 1
#: Verdicts of a pod that fits no node (``lacking``), on nodes with a CSINode and without.
_LACKING: Final = (2, 3)
#: First of the verdicts for a missing driver. The verdict is this number + 2 * the driver's index in ``installed``, and
#: 1 more if the node has no CSINode.
_NOT_INSTALLED: Final = 4


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Volumes that a pod adds to a node.

    Attributes:
        counts: (driver, number of volumes) for each driver.
        volumes: each volume with its driver; empty when no pod on any node uses one of them.
        installed: drivers that the node must have.
        lacking: reason why the pod fits no node; "" when it may.
        error: reason why the volumes cannot be counted.
    """

    counts: tuple[tuple[str, int], ...] = ()
    volumes: tuple[tuple[Countable, str], ...] = ()
    installed: tuple[str, ...] = ()
    lacking: str = ""
    error: CountingError | None = None


_NOTHING: Final = _Wanted()


class _NewVolumes(Question):
    """Question about the volumes that a pod adds to a node, against the limits there.

    Pods that add equal numbers of new volumes have equal keys. A pod whose volumes are in use adds fewer volumes on the
    nodes where they are. It has the common key only as long as that changes no verdict.
    """

    by_spec = True  # a question that depends on present claims or nodes sets False
    stands_alone = frozenset({"filter"})

    def __init__(self, plugin: NodeVolumeLimits, nodes: NodeTable, with_csi: _Wanted, without: _Wanted) -> None:
        """``with_csi`` is for nodes with a CSINode, where in-tree volumes are migrated; ``without`` for the others."""
        self.by_spec = False
        self._attached, self._limits_on, self._nodes = plugin.attached, plugin.limits_on, nodes
        self._with_csi, self._without = with_csi, without
        if not any(side.lacking or side.error is not None or side.volumes for side in (with_csi, without)):
            self.key = (with_csi.counts, with_csi.installed, without.installed)

    def pre_filter(self, nodes: NodeList) -> None:
        return None

    def verdicts(self, rows: RowArray) -> VerdictArray:
        attached, nodes = self._attached, self._nodes
        attached.refresh()
        verdicts = np.zeros(len(rows), np.uint64)
        has_node = attached.has_node[rows]
        for side, (wanted, here) in enumerate(((self._with_csi, has_node), (self._without, ~has_node))):
            if wanted == _NOTHING or not here.any():
                continue
            if wanted.error is not None:
                raise wanted.error
            if wanted.lacking:
                verdicts[here] = _LACKING[side]
                continue
            for place, driver in enumerate(wanted.installed):
                for at in np.flatnonzero(here & (verdicts == 0)).tolist():
                    if not attached.has_driver(int(rows[at]), driver):
                        verdicts[at] = _NOT_INSTALLED + 2 * place + side
        wanted = self._with_csi
        left = (verdicts == 0) & attached.has_limits[rows]
        if wanted.counts and left.any():
            self._raise_if_uncountable(rows[left])
            verdicts[left & self._exceeded(wanted, rows)] = _EXCEEDED
        for row in nodes.trials:
            places = np.flatnonzero(rows == row)
            if len(places):
                verdicts[places] = self.verdict(nodes.info(row))
        return verdicts

    def _raise_if_uncountable(self, rows: RowArray) -> None:
        errors = self._attached.errors
        if errors:
            for row in rows.tolist():
                if row in errors:
                    raise errors[row]

    def _exceeded(self, wanted: _Wanted, rows: RowArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Mark rows where some driver would exceed its limit of volumes; bool[len(rows)]."""
        attached = self._attached
        exceeded = np.zeros(len(rows), np.bool_)
        for driver, number in wanted.counts:
            total = attached.count(driver)[rows] + number
            limit = attached.limit(driver)[rows]
            if wanted.volumes:
                again = np.zeros(self._nodes.capacity, np.int64)
                for volume, its_driver in wanted.volumes:
                    if its_driver == driver and volume in attached.rows_of:
                        again[list(attached.rows_of[volume])] += 1
                total -= again[rows]
                # A driver that gets no new volume on a node is not compared with its limit there.
                exceeded |= (total > limit) & (again[rows] < number)
            else:
                exceeded |= total > limit
        return exceeded

    def verdict(self, node: NodeInfo) -> int:
        attached = self._attached
        attached.refresh()
        row = node.row
        has_node = bool(attached.has_node[row])
        wanted, side = (self._with_csi, 0) if has_node else (self._without, 1)
        if wanted.error is not None:
            raise wanted.error
        if wanted.lacking:
            return _LACKING[side]
        for place, driver in enumerate(wanted.installed):
            if not attached.has_driver(row, driver):
                return _NOT_INSTALLED + 2 * place + side
        if not wanted.counts or not attached.has_limits[row]:
            return 0
        if row in self._nodes.trials:
            return self._exceeded_by_pods(wanted, node)
        if row in attached.errors:
            raise attached.errors[row]
        for driver, number in wanted.counts:
            total = int(attached.count(driver)[row])
            new = number
            for volume, its_driver in wanted.volumes:
                if its_driver == driver and row in attached.rows_of.get(volume, ()):
                    new -= 1
            if new and total + new > int(attached.limit(driver)[row]):
                return _EXCEEDED
        return 0

    def _exceeded_by_pods(self, wanted: _Wanted, node: NodeInfo) -> int:
        """Judge a node in a what-if. Its pods are not the real ones, so their volumes are counted one by one."""
        attached = self._attached
        in_use: dict[Countable, str] = {}
        for other in node.pods.values():
            if other.storage:
                in_use |= attached.volumes.of_existing(other, migrated=True)
        counts = Counter(in_use.values())
        counts.update(volume[0] for volume in attached.attachments(node.name) if volume not in in_use)
        new = Counter(dict(wanted.counts))
        new.subtract(driver for volume, driver in wanted.volumes if volume in in_use)
        limits = self._limits_on(node.name)
        exceeded = any(
            number and driver in limits and counts[driver] + number > limits[driver] for driver, number in new.items()
        )
        return _EXCEEDED if exceeded else 0

    def amounts(self) -> Sequence[tuple[int, int]] | None:
        """Return an empty list if no node has a limit, because pods that leave change no verdict then; otherwise
        None.
        """
        self._attached.refresh()
        for side in (self._with_csi, self._without):
            if side.lacking or side.error is not None or side.installed:
                return None
        return None if self._attached.has_limits.any() else ()

    def why(self, verdict: int) -> Status:
        if verdict == _EXCEEDED:
            return Status.unschedulable(NodeVolumeLimits.REASON)
        if verdict in _LACKING:
            wanted = self._with_csi if verdict == _LACKING[0] else self._without
            return Status.unresolvable(wanted.lacking)
        place, side = divmod(verdict - _NOT_INSTALLED, 2)
        driver = (self._without if side else self._with_csi).installed[place]
        return Status.unschedulable(f"{driver} CSI driver is not installed on the node")


class NodeVolumeLimits(Plugin):
    """Limits of attached volumes. Its question is :class:`_NewVolumes`."""

    name = "NodeVolumeLimits"
    asks = _NewVolumes
    informs: ClassVar[tuple[str, ...]] = tuple(
        kind.plural for kind in (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, VOLUME_ATTACHMENTS)
    )
    REASON: Final = "node(s) exceed max volume count"

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._storage = Storage(handle)
        self.attached = AttachedVolumes.of(handle)
        self._drivers_required = handle.gate("VolumeLimitScaling")

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        if not (pod.storage and any(map(is_countable, pod.storage))):
            return None
        self.attached.refresh()
        with_csi = self._wanted(pod, migrated=True)
        if with_csi.volumes and self._is_like_new(with_csi):
            with_csi = replace(with_csi, volumes=())  # pods with other volumes share remembered verdicts then
        without = _NOTHING  # without a CSINode there are no limits
        if with_csi.error is not None or with_csi.lacking or self._drivers_required:
            without = replace(self._wanted(pod, migrated=False), volumes=())
        return _NewVolumes(self, nodes, with_csi, without)

    def limits_on(self, node_name: str) -> dict[str, int]:
        return limits_of(self._storage.find(CSI_NODES, node_name))

    def _is_like_new(self, wanted: _Wanted) -> bool:
        """True if a pod gets the verdicts of a pod with only new volumes, because the nodes of its volumes are far from
        their limits.
        """
        if not self.attached.has_limits.any():
            return True
        if any(True for _ in self.handle.nominations.nominated_nodes()):
            return False
        attached = self.attached
        for driver, number in wanted.counts:
            count, limit = attached.count(driver), attached.limit(driver)
            for volume, its_driver in wanted.volumes:
                for row in attached.rows_of.get(volume, ()) if its_driver == driver else ():
                    if int(count[row]) + number > int(limit[row]):
                        return False
        return True

    def _wanted(self, pod: PodInfo, *, migrated: bool) -> _Wanted:
        try:
            volumes = self.attached.volumes.of_new(pod, migrated=migrated)
        except ClaimNotFoundError as error:
            return _Wanted(lacking=str(error))
        except CountingError as error:
            return _Wanted(error=error)
        if not volumes:
            return _NOTHING
        counts = Counter(volumes.values())
        drivers = tuple(sorted(counts))
        in_use, nominations = self.attached.rows_of, self.handle.nominations
        # A nominated pod may use such a volume on the node it is coming to.
        named = any(volume in in_use for volume in volumes) or any(True for _ in nominations.nominated_nodes())
        return _Wanted(
            counts=tuple((driver, counts[driver]) for driver in drivers),
            volumes=tuple(volumes.items()) if named else (),
            installed=tuple(filter(self._must_be_installed, drivers)) if self._drivers_required else (),
        )

    def _must_be_installed(self, driver: str) -> bool:
        found: CSIDriver | None = self._storage.find(CSI_DRIVERS, driver)
        return found is not None and found.spec.prevent_pod_scheduling_if_missing is True

    # -- events ----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return counted_volumes(pod, self.attached, nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.CSI_NODE, ActionType.ADD)),
            ClusterEventWithHint(ClusterEvent(EventResource.CSI_NODE, ActionType.UPDATE), self._after_csi_node),
            ClusterEventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE), self._after_pod),
            ClusterEventWithHint(
                ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD), self._after_claim, claims_that_help
            ),
            ClusterEventWithHint(
                ClusterEvent(EventResource.VOLUME_ATTACHMENT, ActionType.DELETE), self._after_attachment
            ),
        ]

    def _after_csi_node(self, pod: PodInfo, old: CSINode, new: CSINode) -> QueueingHint:
        before = limits_of(old)
        grown = any(limit > before.get(driver, 0) for driver, limit in limits_of(new).items())
        return QueueingHint.QUEUE if grown else QueueingHint.SKIP

    def _after_pod(self, pod: PodInfo, old: Pod, new: Pod | None) -> QueueingHint:
        if not old.spec.node_name and not old.status.nominated_node_name:
            return QueueingHint.SKIP
        return QueueingHint.QUEUE if any(map(is_countable, old.spec.volumes)) else QueueingHint.SKIP

    def _after_claim(self, pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> QueueingHint:
        return QueueingHint.QUEUE if uses_claim(pod, new) else QueueingHint.SKIP

    def _after_attachment(self, pod: PodInfo, old: VolumeAttachment, new: VolumeAttachment | None) -> QueueingHint:
        """Queue for claims and for the attacher's volumes, not for ephemeral ones, as upstream.

        A volume without a CSI form raises, which counts as Queue.
        """
        for volume in pod.storage:
            if volume.persistent_volume_claim is not None:
                return QueueingHint.QUEUE
            translation = translation_of(volume)
            if translation is not None:
                translation.handle(volume)
                if translation.driver == old.spec.attacher:
                    return QueueingHint.QUEUE
        return QueueingHint.SKIP

"""Queueing hints of VolumeBinding: which events may make a rejected pod schedulable. Source: rules/volumes §2.13."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubesched.api.storage import CSIDriver, CSINode, CSIStorageCapacity, PersistentVolumeClaim, StorageClass

from ...framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ...nodes.podinfo import PodInfo
from .capacity import limit_of
from .claims import claims_that_help, uses_claim
from .csi_nodes import migrated_plugins

__all__ = ["EVENTS"]


def _hint(queue: bool) -> QueueingHint:
    return QueueingHint.QUEUE if queue else QueueingHint.SKIP


def _after_class(pod: PodInfo, old: StorageClass | None, new: StorageClass) -> QueueingHint:
    return _hint(old is None or old.allowed_topologies != new.allowed_topologies)


def _after_claim(pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> QueueingHint:
    return _hint(uses_claim(pod, new))


def _after_csi_node(pod: PodInfo, old: CSINode | None, new: CSINode) -> QueueingHint:
    return _hint(old is None or migrated_plugins(old) != migrated_plugins(new))


def _after_driver(pod: PodInfo, old: CSIDriver, new: CSIDriver) -> QueueingHint:
    """Compare a driver that a volume in the pod itself names. Other volumes do not count, as upstream."""
    inline = any(volume.csi is not None and volume.csi.driver == new.name for volume in pod.storage)
    return _hint(inline and old.spec.storage_capacity is True and new.spec.storage_capacity is not True)


def _after_capacity(pod: PodInfo, old: CSIStorageCapacity | None, new: CSIStorageCapacity) -> QueueingHint:
    if old is None:
        return QueueingHint.QUEUE
    before, after = limit_of(old), limit_of(new)
    return _hint(after is not None and (before is None or after > before))


def _drivers_that_help(pod: PodInfo) -> ActionType:
    return ActionType.ALL if any(volume.csi is not None for volume in pod.storage) else ActionType.NONE


_ADD_OR_UPDATE: Final = ActionType.ADD | ActionType.UPDATE

EVENTS: Final[Sequence[ClusterEventWithHint]] = (
    ClusterEventWithHint(ClusterEvent(EventResource.STORAGE_CLASS, _ADD_OR_UPDATE), _after_class),
    ClusterEventWithHint(
        ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, _ADD_OR_UPDATE), _after_claim, claims_that_help
    ),
    ClusterEventWithHint(ClusterEvent(EventResource.PERSISTENT_VOLUME, _ADD_OR_UPDATE)),
    ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_LABEL)),
    ClusterEventWithHint(ClusterEvent(EventResource.CSI_NODE, _ADD_OR_UPDATE), _after_csi_node),
    ClusterEventWithHint(ClusterEvent(EventResource.CSI_DRIVER, ActionType.UPDATE), _after_driver, _drivers_that_help),
    ClusterEventWithHint(ClusterEvent(EventResource.CSI_STORAGE_CAPACITY, _ADD_OR_UPDATE), _after_capacity),
)

"""EBSLimits, GCEPDLimits, AzureDiskLimits, CinderLimits: limits of the in-tree disks of a cloud on a node (Filter).

Removed in Kubernetes 1.32. They do nothing on nodes where the disks are CSI volumes, because NodeVolumeLimits counts
the disks there. Pods without such disks cost nothing. For a pod with such disks, the pods on the nodes are counted each
time. Source: rules/volumes §6.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from kubesched.api.kinds import CLAIMS, CSI_NODES, STORAGE_CLASSES, VOLUMES
from kubesched.api.storage import (
    MIGRATED_PLUGINS,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    StorageClass,
    class_of,
)
from kubesched.api.types import Volume
from kubesched.scheduler.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource
from kubesched.scheduler.framework.interface import Handle, Plugin
from kubesched.scheduler.framework.question import Question, RowArray, VerdictArray
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.volumes.claims import NotFoundError, Storage, claim_uses
from kubesched.scheduler.plugins.volumes.countable import ClaimNotFoundError, CountingError

if TYPE_CHECKING:
    from kubesched.scheduler.nodes import NodeTable

__all__ = ["AzureDiskLimits", "CinderLimits", "CloudVolumeLimits", "EBSLimits", "GCEPDLimits"]

_log = logging.getLogger("kubesched.scheduler.plugins")

#: Environment variable that replaces the default limit of every plugin here.
_VARIABLE: Final = "KUBE_MAX_PD_VOLS"
_INSTANCE_TYPES: Final = ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type")
_NITRO: Final = re.compile(r"^[cmr]5.*|t3|z1d")
_NITRO_LIMIT: Final = 25
_REASON: Final = "node(s) exceed max volume count"
_EXCEEDED: Final = 1
_LACKING: Final = 2
#: Disk: (its ID, False), or (the key of a claim that has no volume yet, True).
_Disk = tuple[str, bool]


def _limit_from_environment() -> int | None:
    """Limit that an administrator set for all clouds; None if there is no usable limit."""
    text = os.environ.get(_VARIABLE, "")
    if not text:
        return None
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    _log.error("%s=%r is ignored: it has to be a number greater than 0", _VARIABLE, text)
    return None


class _Disks(Question):
    """Question about the disks that a pod adds to a node. Answers are not remembered."""

    def __init__(
        self, plugin: CloudVolumeLimits, nodes: NodeTable, wanted: set[_Disk] | ClaimNotFoundError | CountingError
    ) -> None:
        """``wanted`` is an error if the pod fits no node, or if its disks cannot be counted."""
        self._plugin, self._nodes, self._wanted = plugin, nodes, wanted

    def verdicts(self, rows: RowArray) -> VerdictArray:
        info = self._nodes.info
        return np.array([self.verdict(info(row)) for row in rows.tolist()], np.uint64)

    def verdict(self, node: NodeInfo) -> int:
        wanted = self._wanted
        if isinstance(wanted, CountingError):
            raise wanted
        if isinstance(wanted, ClaimNotFoundError):
            return _LACKING
        return _EXCEEDED if self._plugin.exceeds(wanted, node) else 0

    def why(self, verdict: int) -> Status:
        return Status.unresolvable(str(self._wanted)) if verdict == _LACKING else Status.unschedulable(_REASON)


class CloudVolumeLimits(Plugin):
    """Base of the four plugins. Its question is :class:`_Disks`."""

    asks = _Disks
    informs: ClassVar[tuple[str, ...]] = tuple(kind.plural for kind in (CLAIMS, VOLUMES, STORAGE_CLASSES, CSI_NODES))
    #: Name of the in-tree plugin, resource with a node's limit, and limit of nodes that lack this resource.
    in_tree: ClassVar[str]
    resource: ClassVar[str]
    default: ClassVar[int]

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._storage = Storage(handle)
        self._limit = _limit_from_environment()

    def disk_id(self, owner: Volume | PersistentVolumeSpec) -> str | None:
        """Return the ID of the disk in a pod's volume or a PersistentVolume; None for another kind of volume."""
        raise AssertionError("each cloud has its own")

    def default_limit(self, node: NodeInfo) -> int:
        """Limit of a node where neither the node nor the administrator set one."""
        return self.default

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        try:
            wanted = self._disks(pod, is_new=True)
        except (ClaimNotFoundError, CountingError) as error:
            return _Disks(self, nodes, error)
        return _Disks(self, nodes, wanted) if wanted else None

    # -- counting --------------------------------------------------------------------------------------

    def _disks(self, pod: PodInfo, *, is_new: bool) -> set[_Disk]:
        """Return the disks of a pod.

        Raises:
            ClaimNotFoundError: when a claim of a pod to place does not exist.
            CountingError: when a volume names no claim.
        """
        found = {(name, False) for volume in pod.storage if (name := self.disk_id(volume)) is not None}
        for use in claim_uses(pod):
            if not use.claim:
                raise CountingError("PersistentVolumeClaim had no name")
            claim: PersistentVolumeClaim | None = self._storage.find(CLAIMS, use.claim, pod.namespace)
            if claim is None:
                if is_new:
                    text = f"looking up PVC {pod.namespace}/{use.claim}: {NotFoundError(CLAIMS, use.claim)}"
                    raise ClaimNotFoundError(text)
                continue
            disk = self._disk_of(claim)
            if disk is not None:
                found.add(disk)
        return found

    def _disk_of(self, claim: PersistentVolumeClaim) -> _Disk | None:
        """Return the disk of a claim, or None. A claim without a volume counts if its class makes such disks."""
        volume: PersistentVolume | None = None
        if claim.spec.volume_name:
            volume = self._storage.find(VOLUMES, claim.spec.volume_name)
        if volume is not None:
            name = self.disk_id(volume.spec)
            return None if name is None else (name, False)
        found: StorageClass | None = self._storage.find(STORAGE_CLASSES, class_of(claim))
        return (claim.key, True) if found is not None and found.provisioner == self.in_tree else None

    def _is_migrated(self, node_name: str) -> bool:
        node: CSINode | None = self._storage.find(CSI_NODES, node_name)
        return node is not None and self.in_tree in node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")

    def exceeds(self, wanted: set[_Disk], node: NodeInfo) -> bool:
        """True if the node would exceed its limit of disks.

        Raises:
            CountingError: when the disks of the node's pods cannot be counted.
        """
        if self._is_migrated(node.name):
            return False
        there: set[_Disk] = set()
        for other in node.pods.values():
            if other.storage:
                there |= self._disks(other, is_new=False)
        limit = node.allocatable.scalars.get(self.resource)
        if limit is None:
            limit = self._limit if self._limit is not None else self.default_limit(node)
        return len(there | wanted) > limit

    # -- queue -----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        node = ActionType.ADD | ActionType.UPDATE_NODE_ALLOCATABLE
        changed = ActionType.ADD | ActionType.UPDATE
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, node)),
            ClusterEventWithHint(ClusterEvent(EventResource.CSI_NODE, changed)),
            ClusterEventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE)),
            ClusterEventWithHint(ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD)),
        ]


class EBSLimits(CloudVolumeLimits):
    name = "EBSLimits"
    in_tree = "kubernetes.io/aws-ebs"
    resource = "attachable-volumes-aws-ebs"
    default = 39

    def disk_id(self, owner: Volume | PersistentVolumeSpec) -> str | None:
        source = owner.aws_elastic_block_store
        return None if source is None else source.volume_id

    def default_limit(self, node: NodeInfo) -> int:
        nitro = any(_NITRO.search(node.labels.get(key, "")) for key in _INSTANCE_TYPES)
        return _NITRO_LIMIT if nitro else self.default


class GCEPDLimits(CloudVolumeLimits):
    name = "GCEPDLimits"
    in_tree = "kubernetes.io/gce-pd"
    resource = "attachable-volumes-gce-pd"
    default = 16

    def disk_id(self, owner: Volume | PersistentVolumeSpec) -> str | None:
        source = owner.gce_persistent_disk
        return None if source is None else source.pd_name


class AzureDiskLimits(CloudVolumeLimits):
    name = "AzureDiskLimits"
    in_tree = "kubernetes.io/azure-disk"
    resource = "attachable-volumes-azure-disk"
    default = 16

    def disk_id(self, owner: Volume | PersistentVolumeSpec) -> str | None:
        source = owner.azure_disk
        return None if source is None else source.disk_name


class CinderLimits(CloudVolumeLimits):
    name = "CinderLimits"
    in_tree = "kubernetes.io/cinder"
    resource = "attachable-volumes-cinder"
    default = 256

    def disk_id(self, owner: Volume | PersistentVolumeSpec) -> str | None:
        source = owner.cinder
        return None if source is None else source.volume_id

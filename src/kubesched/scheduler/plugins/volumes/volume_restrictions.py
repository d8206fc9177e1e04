"""VolumeRestrictions: disks and claims that pods cannot share (PreFilter with AddPod and RemovePod, Filter).

Disks that pods name without a claim conflict on a node. A claim with access mode ReadWriteOncePod serves one pod in the
whole cluster. Source: rules/volumes §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.api.kinds import CLAIMS
from kubesched.api.storage import PersistentVolumeClaim
from kubesched.api.types import Pod, Volume

from ...framework.asking import is_prepared
from ...framework.demand import Demand
from ...framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from ...framework.interface import Handle, Plugin
from ...framework.question import Question, Reads, RowArray, VerdictArray
from ...framework.status import Status
from ...nodes.disks import conflicts, disk_uses
from ...nodes.nodeinfo import NodeInfo
from ...nodes.podinfo import PodInfo
from .claims import NotFoundError, Storage, claims_that_help, uses_claim
from .volume_demands import unshared_volumes

if TYPE_CHECKING:
    from ...nodes import NodeList, NodeTable

__all__ = ["VolumeRestrictions"]

_ONE_POD: Final = "ReadWriteOncePod"
_DISK: Final = 1
_CLAIM: Final = 2


def _claim_names(volumes: Sequence[Volume]) -> list[str]:
    return [
        volume.persistent_volume_claim.claim_name for volume in volumes if volume.persistent_volume_claim is not None
    ]


class _Unshared(Question):
    """Question about a pod's disks and claims that other pods may have in use.

    Pods with no conflict anywhere have equal keys. Nodes with a disk of the pod are found in an index. Claims that only
    one pod may use are counted if they are in use.
    """

    reads = Reads.PODS
    by_spec = True  # a question that depends on present users of disks and claims sets False
    stands_alone = frozenset({"filter"})

    def __init__(self, pod: PodInfo, nodes: NodeTable, claims: frozenset[str] | Status, in_use: int) -> None:
        """``claims`` are the names of the claims that only one pod may use; if a claim is missing, the rejection."""
        self.by_spec = False
        self._disks, self._nodes = pod.disks, nodes
        self._claims, self._in_use = claims, in_use
        self._is_prepared = False
        self.key = None if pod.disks or in_use or isinstance(claims, Status) else ()

    def pre_filter(self, nodes: NodeList) -> Status | None:
        if isinstance(self._claims, Status):
            return self._claims
        self._is_prepared = True
        return None if self._disks or self._in_use else Status.skip()

    def assuming(self, node: NodeInfo, added: Sequence[PodInfo], removed: Sequence[PodInfo]) -> Question:
        change = self._uses(added) - self._uses(removed)
        if not change:
            return self
        found = copy(self)
        found._in_use += change
        return found

    def _uses(self, pods: Sequence[PodInfo]) -> int:
        """Count the uses of the claims by these pods. Their namespace is not compared, as upstream."""
        claims = self._claims
        if isinstance(claims, Status):
            return 0
        return sum(name in claims for pod in pods if pod.pvcs for name in _claim_names(pod.storage))

    def _is_used(self) -> bool:
        """True if a claim is in use.

        Raises:
            RuntimeError: when the profile has the plugin at Filter only.
        """
        if not self._is_prepared:
            raise RuntimeError('cannot read "PreFilterVolumeRestrictions" from cycleState')
        return self._in_use > 0

    def verdicts(self, rows: RowArray) -> VerdictArray:
        nodes = self._nodes
        taken = np.zeros(nodes.capacity, np.uint64)
        for use in self._disks:
            for row in nodes.disk_rows.get(use[0], ()):
                if conflicts(use, nodes.info(row).disk_counts):
                    taken[row] = _DISK
        verdicts = taken[rows]
        if not verdicts.all() and self._is_used():
            verdicts[verdicts == 0] = _CLAIM
        return verdicts

    def verdict(self, node: NodeInfo) -> int:
        counts = node.disk_counts
        if counts and any(conflicts(use, counts) for use in self._disks):
            return _DISK
        return _CLAIM if self._is_used() else 0

    def why(self, verdict: int) -> Status:
        return Status.unschedulable(
            VolumeRestrictions.REASON_DISK if verdict == _DISK else VolumeRestrictions.REASON_CLAIM
        )


class VolumeRestrictions(Plugin):
    """Check of disks and claims that pods cannot share. Its question is :class:`_Unshared`."""

    name = "VolumeRestrictions"
    asks = _Unshared
    informs: ClassVar[tuple[str, ...]] = (CLAIMS.plural,)
    REASON_DISK: Final = "node(s) had no available disk"
    REASON_CLAIM: Final = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._storage = Storage(handle)

    def ask(self, pod: PodInfo, nodes: NodeTable) -> Question | None:
        if is_prepared(self) and not (pod.pvcs or pod.disks):
            return None
        found: set[str] = set()
        try:
            for name in _claim_names(pod.storage):
                claim: PersistentVolumeClaim = self._storage.get(CLAIMS, name, pod.namespace)
                if _ONE_POD in claim.spec.access_modes:
                    found.add(name)
        except NotFoundError as error:
            return _Unshared(pod, nodes, Status.unresolvable(str(error)), 0)
        snapshot = self.handle.snapshot
        in_use = sum(snapshot.is_pvc_used(f"{pod.namespace}/{name}") for name in found)
        return _Unshared(pod, nodes, frozenset(found), in_use)

    # -- events ----------------------------------------------------------------------------------------

    def demands(self, pod: PodInfo, nodes: NodeTable) -> Iterable[Demand]:
        return unshared_volumes(pod, self._storage, nodes)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE), self._after_pod),
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD)),
            ClusterEventWithHint(
                ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD),
                self._after_claim,
                partial(claims_that_help, ephemeral=False),
            ),
        ]

    def _after_pod(self, pod: PodInfo, old: Pod, new: Pod | None) -> QueueingHint:
        """Ignore pods of other namespaces, although disks conflict across namespaces (as upstream)."""
        if old.namespace != pod.namespace or not old.spec.volumes:
            return QueueingHint.SKIP
        freed = dict.fromkeys(disk_uses(old.spec.volumes))
        shared = set(_claim_names(old.spec.volumes)).intersection(_claim_names(pod.storage))
        if shared or any(conflicts(use, freed) for use in pod.disks):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _after_claim(self, pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> QueueingHint:
        return QueueingHint.QUEUE if uses_claim(pod, new, ephemeral=False) else QueueingHint.SKIP

"""VolumeRestrictions: disks and claims that pods cannot share (PreFilter with AddPod and RemovePod, Filter).

Disks that pods name themselves conflict on a node; a claim with access mode ReadWriteOncePod has one pod in the whole
cluster. Source: spec "Volume plugins" section 3.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from kubesched.api.kinds import CLAIMS
from kubesched.api.storage import PersistentVolumeClaim
from kubesched.api.types import Pod, Volume
from kubesched.framework.cycle_state import CycleState
from kubesched.framework.disks import conflicts, disk_uses
from kubesched.framework.events import ActionType, ClusterEvent, ClusterEventWithHint, EventResource, QueueingHint
from kubesched.framework.interface import Handle, Plugin, Reads, RowArray, VerdictArray
from kubesched.framework.nodeinfo import NodeInfo
from kubesched.framework.podinfo import PodInfo
from kubesched.framework.status import Status

from .. import names
from .claims import NotFoundError, Storage, uses_claim

if TYPE_CHECKING:
    from kubesched.cache import NodeList, NodeTable

__all__ = ["VolumeRestrictions"]

_ONE_POD: Final = "ReadWriteOncePod"
_DISK: Final = 1
_CLAIM: Final = 2
_STATE_KEY: Final = f"PreFilter{names.VOLUME_RESTRICTIONS}"


class _Exclusive:
    """The pod's claims that one pod may use, by name, and how often they are in use (spec section 3.3)."""

    __slots__ = ("claims", "in_use")

    def __init__(self, claims: frozenset[str], in_use: int) -> None:
        self.claims = claims
        self.in_use = in_use

    def clone(self) -> _Exclusive:
        return _Exclusive(self.claims, self.in_use)


def _claim_names(volumes: Sequence[Volume]) -> list[str]:
    return [
        volume.persistent_volume_claim.claim_name for volume in volumes if volume.persistent_volume_claim is not None
    ]


class VolumeRestrictions(Plugin):
    """Nodes with a disk of the pod are found in an index; the claims in use are counted by the cache."""

    name = names.VOLUME_RESTRICTIONS
    reads: ClassVar[Reads] = Reads.PODS
    informs: ClassVar[tuple[str, ...]] = (CLAIMS.plural,)
    REASON_DISK: Final = "node(s) had no available disk"
    REASON_CLAIM: Final = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"

    def __init__(self, args: None, handle: Handle) -> None:
        super().__init__(args, handle)
        self._storage = Storage(handle)

    def concerns(self, pod: PodInfo) -> bool:
        return bool(pod.pvcs or pod.disks)

    def sign(self, pod: PodInfo) -> Hashable | None:
        """Pods that nothing is in conflict with anywhere are alike; the others have no signature."""
        if pod.disks:
            return None
        found = self._exclusive(pod)
        return None if isinstance(found, Status) or found.in_use else ()

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeList) -> Status | None:
        found = self._exclusive(pod)
        if isinstance(found, Status):
            return found
        if not pod.disks and not found.in_use:
            return Status.skip()
        state.write(_STATE_KEY, found)
        return None

    def _exclusive(self, pod: PodInfo) -> _Exclusive | Status:
        found: set[str] = set()
        try:
            for name in _claim_names(pod.storage):
                claim: PersistentVolumeClaim = self._storage.get(CLAIMS, name, pod.namespace)
                if _ONE_POD in claim.spec.access_modes:
                    found.add(name)
        except NotFoundError as error:
            return Status.unresolvable(str(error))
        snapshot = self.handle.snapshot
        in_use = sum(snapshot.is_pvc_used(f"{pod.namespace}/{name}") for name in found)
        return _Exclusive(frozenset(found), in_use)

    # The other pod's namespace is not compared, as upstream.

    def add_pod(self, state: CycleState, pod: PodInfo, added: PodInfo, node: NodeInfo) -> Status | None:
        self._count(state, added, 1)
        return None

    def remove_pod(self, state: CycleState, pod: PodInfo, removed: PodInfo, node: NodeInfo) -> Status | None:
        self._count(state, removed, -1)
        return None

    def _count(self, state: CycleState, other: PodInfo, sign: int) -> None:
        exclusive = self._read(state)
        if other.pvcs:
            exclusive.in_use += sign * sum(name in exclusive.claims for name in _claim_names(other.storage))

    @staticmethod
    def _read(state: CycleState) -> _Exclusive:
        """What PreFilter wrote.

        Raises:
            RuntimeError: when the profile has the plugin at Filter only.
        """
        found: _Exclusive | None = state.get(_STATE_KEY)
        if found is None:
            raise RuntimeError(f'cannot read "{_STATE_KEY}" from cycleState')
        return found

    # -- filter ----------------------------------------------------------------------------------------

    def filter_rows(self, state: CycleState, pod: PodInfo, nodes: NodeTable, rows: RowArray) -> VerdictArray:
        taken = np.zeros(nodes.capacity, np.uint64)
        for use in pod.disks:
            for row in nodes.disk_rows.get(use[0], ()):
                if conflicts(use, nodes.info(row).disk_counts):
                    taken[row] = _DISK
        verdicts = taken[rows]
        if not verdicts.all() and self._read(state).in_use > 0:
            verdicts[verdicts == 0] = _CLAIM
        return verdicts

    def filter_row(self, state: CycleState, pod: PodInfo, nodes: NodeTable, node: NodeInfo) -> int:
        counts = node.disk_counts
        if counts and any(conflicts(use, counts) for use in pod.disks):
            return _DISK
        return _CLAIM if self._read(state).in_use > 0 else 0

    def verdict_status(self, state: CycleState, pod: PodInfo, verdict: int) -> Status:
        return Status.unschedulable(self.REASON_DISK if verdict == _DISK else self.REASON_CLAIM)

    # -- events ----------------------------------------------------------------------------------------

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return [
            ClusterEventWithHint(ClusterEvent(EventResource.POD, ActionType.DELETE), self._after_pod),
            ClusterEventWithHint(ClusterEvent(EventResource.NODE, ActionType.ADD)),
            ClusterEventWithHint(
                ClusterEvent(EventResource.PERSISTENT_VOLUME_CLAIM, ActionType.ADD), self._after_claim
            ),
        ]

    def _after_pod(self, pod: PodInfo, old: Pod, new: Pod | None) -> QueueingHint:
        """Pods of other namespaces are left out, although disks conflict across namespaces (as upstream)."""
        if old.namespace != pod.namespace or not old.spec.volumes:
            return QueueingHint.SKIP
        freed = dict.fromkeys(disk_uses(old.spec.volumes))
        shared = set(_claim_names(old.spec.volumes)).intersection(_claim_names(pod.storage))
        if shared or any(conflicts(use, freed) for use in pod.disks):
            return QueueingHint.QUEUE
        return QueueingHint.SKIP

    def _after_claim(self, pod: PodInfo, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim) -> QueueingHint:
        return QueueingHint.QUEUE if uses_claim(pod, new, ephemeral=False) else QueueingHint.SKIP

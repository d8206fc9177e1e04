"""Binder of reserved storage: the API writes of PreBind, and the wait until the claims are bound.

The informers' events about the claims and volumes, about nodes and about the pod wake the wait.
Source: rules/volumes §2.12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubesched.api.kinds import CLAIMS, NODES, VOLUMES, Kind
from kubesched.api.storage import SELECTED_NODE, PersistentVolume, PersistentVolumeClaim
from kubesched.api.types import Node
from kubesched.api.wire import version_number

from ...framework.interface import Handle
from ...framework.uncertain import NO_CLEAR_ANSWER, is_open, read_again
from .node_affinity import reaches
from .reservations import Reservation
from .volume_cache import Changes, VolumeCache, is_fully_bound

__all__ = ["BindError", "VolumeBinder"]

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)


class BindError(Exception):
    """The claims of a pod were not bound; the text is upstream's."""


class VolumeBinder:
    """Binder of reservations: writes them, then waits for the claims to be bound. ``timeout`` is in seconds."""

    def __init__(self, cache: VolumeCache, handle: Handle, timeout: float) -> None:
        self._cache = cache
        self._handle = handle
        self._timeout = timeout

    async def bind(self, reservation: Reservation) -> None:
        """Write the reserved volumes and claims, and wait until every claim is bound.

        Raises:
            BindError: when a write or the binding fails, or takes too long.
        """
        with self._handle.pods_in_pre_bind.writing(reservation.pod.uid):
            await self._write(reservation)
        if self._timeout <= 0:
            raise BindError("context deadline exceeded")
        changes = self._cache.changes(_keys(reservation))
        entry = self._handle.pods_in_pre_bind.get(reservation.pod.uid)
        if entry is not None:
            entry.wake_on_end(changes.wake)
        try:
            async with asyncio.timeout(self._timeout):
                while not self._is_done(reservation, changes):
                    if self._handle.pods_in_pre_bind.stopping:
                        raise BindError("context canceled")
                    await changes.next()
        except TimeoutError:
            raise BindError("context deadline exceeded") from None
        finally:
            changes.close()

    async def _write(self, reservation: Reservation) -> None:
        """Write volumes first, then claims. After a failure the objects not written are no longer assumed.

        A preemptor does not interrupt that: the next attempt could choose another node before the watch shows what was
        written, and a pod with volumes on two nodes fits nowhere.
        """
        bindings, provisions, cache = reservation.bindings, reservation.provisions, self._cache
        client = self._handle.client
        written = 0
        try:
            for place, (claim, volume) in enumerate(bindings):
                bindings[place] = claim, await self._written(VOLUMES, volume, client.bind_volume, _has_claim_of)
                cache.volumes.written(volume)
                written += 1
            for place, claim in enumerate(provisions):
                provisions[place] = await self._written(CLAIMS, claim, client.select_node, _has_node_of)
                cache.claims.written(claim)
                written += 1
        except Exception as error:
            for _, volume in bindings[written:]:
                cache.volumes.restore(volume.key, volume.metadata.resource_version)
            for claim in provisions[max(0, written - len(bindings)) :]:
                cache.claims.restore(claim.key, claim.metadata.resource_version)
            raise BindError(str(error)) from error

    async def _written(
        self, kind: Kind, obj: T, write: Callable[[T], Awaitable[T]], is_like: Callable[[T, T], bool]
    ) -> T:
        """Write an object, and return it as written. If the answer is lost, the object itself says if it was written."""
        try:
            return await write(obj)
        except NO_CLEAR_ANSWER as error:
            stored: T | None = await read_again(self._handle, kind, obj.metadata) if is_open(error) else None
            if stored is None or not is_like(stored, obj):
                raise
            return stored

    # -- the wait --------------------------------------------------------------------------------------

    def _is_done(self, reservation: Reservation, changes: Changes) -> bool:
        """True if all claims are bound, False when there is something to wait for.

        Raises:
            BindError: when the claims can no longer be bound.
        """
        pod, node_name = reservation.pod, reservation.node_name
        node: Node | None = self._handle.informed(NODES.plural).get(node_name)
        if node is None:
            raise BindError(f'failed to get node "{node_name}": node "{node_name}" not found')
        if self._handle.live_pod(pod.pod) is None:
            raise BindError(f'pod does not exist any more: pod "{pod.name}" not found')
        return all(self._is_bound(claim, volume, node) for claim, volume in reservation.bindings) and all(
            self._is_provisioned(claim, node, changes) for claim in reservation.provisions
        )

    def _is_bound(self, claim: PersistentVolumeClaim, written: PersistentVolume, node: Node) -> bool:
        volume = self._cache.volumes.find_api(written.key)
        if volume is None:
            raise BindError(f'failed to check binding: {VOLUMES.plural} "{written.name}" not found')
        current = self._cache.claims.find_api(claim.key)
        if current is None:
            raise BindError(f'failed to check binding: {CLAIMS.plural} "{claim.key}" not found')
        if _is_older(volume, written):
            return False
        self._check_reach(volume, node)
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            raise BindError(f'ClaimRef got reset for pv "{volume.name}"')
        bound_to = current.spec.volume_name
        if bound_to and bound_to != volume.name:
            # Upstream goes on, and binds the pod to a node that may not reach the claim's volume.
            raise BindError(f'pvc "{current.key}" was bound to pv "{bound_to}" meanwhile, not to "{volume.name}"')
        return is_fully_bound(current)

    def _is_provisioned(self, written: PersistentVolumeClaim, node: Node, changes: Changes) -> bool:
        claim = self._cache.claims.find_api(written.key)
        if claim is None:
            raise BindError(f'failed to check provisioning pvc: {CLAIMS.plural} "{written.key}" not found')
        if _is_older(claim, written):
            return False
        name, annotations = claim.metadata.name, claim.metadata.annotations
        if not annotations:
            raise BindError(f'selectedNode annotation reset for PVC "{name}"')
        if annotations.get(SELECTED_NODE) != node.name:
            raise BindError(f'provisioning failed for PVC "{name}"')
        if claim.spec.volume_name:
            volume = self._cache.volumes.find_api(claim.spec.volume_name)
            if volume is None:
                changes.of(claim.spec.volume_name)
                return False
            self._check_reach(volume, node)
        return is_fully_bound(claim)

    def _check_reach(self, volume: PersistentVolume, node: Node) -> None:
        reach, problem = self._cache.reach_on(self._cache.facts_of(volume), node.name)
        if problem:
            raise BindError(f"failed to translate pv to csi: could not translate pv: {problem}")
        if not reaches(reach, node.labels):
            raise BindError(
                f'pv "{volume.name}" node affinity doesn\'t match node "{node.name}": no matching NodeSelectorTerms'
            )


def _is_older(
    shown: PersistentVolume | PersistentVolumeClaim, written: PersistentVolume | PersistentVolumeClaim
) -> bool:
    """True if the informer has not yet shown the written version. Versions are numbers that grow."""
    return version_number(shown.metadata.resource_version) < version_number(written.metadata.resource_version)


def _has_claim_of(stored: PersistentVolume, written: PersistentVolume) -> bool:
    """Return True if a volume is reserved for the claim that was to be written."""
    has, wanted = stored.spec.claim_ref, written.spec.claim_ref
    return has is not None and wanted is not None and has.uid == wanted.uid


def _has_node_of(stored: PersistentVolumeClaim, written: PersistentVolumeClaim) -> bool:
    """Return True if a claim is to be provisioned for the node that was to be written."""
    return stored.metadata.annotations.get(SELECTED_NODE) == written.metadata.annotations.get(SELECTED_NODE)


def _keys(reservation: Reservation) -> list[str]:
    """Keys of the objects that wake a wait: the claims, and the volumes that are known."""
    found = [volume.key for _, volume in reservation.bindings]
    found += [claim.key for claim, _ in reservation.bindings]
    return found + [claim.key for claim in reservation.provisions]

"""Writer of claims to the API server: allocations, reservations, the special claim, the pod's status.

A write names the version from which it was computed. If the object is newer, the write fails with a conflict and is
computed again from the newer object. The answer to a write is assumed.

Source: rules/devices §5.4, §5.7, §5.8 and §11.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubesched.api.decode import to_builtins
from kubesched.api.kinds import PODS, kind_by_plural
from kubesched.api.resource import CLAIM_FINALIZER, AllocationResult, ResourceClaim
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError, tolerate
from kubesched.base.times import timestamp

from ...framework.interface import Handle
from ...framework.uncertain import NO_CLEAR_ANSWER, read_again
from ..assume_cache import AssumeError
from .claim_state import ClaimState, PodClaim
from .extended_resources import is_in_memory
from .manager import DeviceManager

__all__ = ["ClaimWriter", "WriteError"]

_log = logging.getLogger("kubesched.scheduler.plugins")

_CLAIMS = kind_by_plural("resource.k8s.io", "resourceclaims")
assert _CLAIMS is not None
CLAIMS: Final = _CLAIMS

#: Most tries of a write that meets conflicts, and the pause between them in seconds, with its jitter as a share.
_TRIES: Final = 5
_PAUSE: Final = 0.01
_JITTER: Final = 0.1
#: Time in seconds within which the informer has to show a claim that was created.
_SEEN_WITHIN: Final = 120.0


class WriteError(Exception):
    """A claim cannot be written; the text is upstream's."""


class ClaimWriter:
    """Writer of claims for one profile."""

    def __init__(self, handle: Handle, manager: DeviceManager, *, binding_conditions: bool) -> None:
        self._handle = handle
        self._manager = manager
        self._binding_conditions = binding_conditions

    @property
    def _client(self) -> Any:
        return self._handle.client

    # -- PreBind ---------------------------------------------------------------------------------------

    async def bind(self, attempt: ClaimState, each: PodClaim) -> None:
        """Store the allocation that Reserve decided, and reserve the claim for the pod.

        A preemptor does not interrupt that: the server may carry out a request under way in spite of it, and the devices
        must stay in use then.

        Raises:
            WriteError, ApiError, OSError, DecodeError: when that is not possible.
        """
        if each.is_special and each.pending is None and not each.claim.spec.devices.requests:
            return  # a device plugin serves the resources
        with self._handle.pods_in_pre_bind.writing(attempt.pod.uid):
            await self._store(attempt.pod, each)
        if each.is_special:
            await self._write_mappings(attempt, each.claim)

    async def _store(self, pod: Pod, each: PodClaim) -> None:
        """Store the allocation and the reservation. An allocation that is not stored stays in flight until Unreserve."""
        written, is_stored = None, False
        try:
            if each.is_special and is_in_memory(each.claim):
                each.claim = written = await self._create(each.claim)
                each.created = True
            await self._retried(lambda claim: self._reserve(claim, pod, each), each)
            written, is_stored = each.claim, True
        except (WriteError, *NO_CLEAR_ANSWER):
            written = await self._stored_in_spite(each, pod) or written
            raise
        finally:
            assumed = written is not None and await self._assume(written, wait=each.created)
            is_held = assumed and written is not None and written.status.allocation is not None
            if each.pending is not None and (is_stored or is_held):
                each.signalled = False
                self._manager.in_flight.maybe_remove(each.initial_uid, force=assumed)

    async def _stored_in_spite(self, each: PodClaim, pod: Pod) -> ResourceClaim | None:
        """Return the claim as the server stored it although the write failed, or None if it stored nothing.

        The answer to a write may be lost. Until the informer shows the allocation, its devices must stay in use. So the
        claim is read until the API server answers, for a minute at most. The caller has to give back the reservation.
        """
        meta = each.claim.metadata
        if is_in_memory(each.claim):
            return None
        found: ResourceClaim | None = await read_again(self._handle, CLAIMS, meta)
        stored = found if found is not None else each.claim
        if stored.status.allocation is None:
            return None
        if each.pending is None and not each.is_reserved(stored, pod):
            return None
        each.claim = stored
        return stored

    async def _retried(self, write: Callable[[ResourceClaim], Any], each: PodClaim) -> None:
        """Write a claim. After a conflict write again, from its latest version."""
        meta = each.claim.metadata
        for attempt in range(1, _TRIES + 1):
            try:
                each.claim = await write(each.claim)
                return
            except ApiError as error:
                if error.code != 409 or attempt == _TRIES:
                    raise
            await asyncio.sleep(_PAUSE * (1 + _JITTER * self._handle.random.random()))
            each.claim = await self._client.get_object(CLAIMS, meta.namespace, meta.name)
            if each.claim.metadata.uid != meta.uid:
                raise WriteError(f"claim {each.claim.key} got deleted in the meantime")

    async def _reserve(self, claim: ResourceClaim, pod: Pod, each: PodClaim) -> ResourceClaim:
        meta = claim.metadata
        if meta.deletion_timestamp is not None:
            raise WriteError(f"claim {claim.key} got deleted in the meantime")
        self.check_decided(claim, each)
        status: dict[str, Any] = {}
        allocation = claim.status.allocation
        if each.pending is not None:
            if allocation is not None and not (each.sharing and _is_same(allocation, each.pending)):
                raise WriteError(f"claim {claim.key} got allocated elsewhere in the meantime")
            if CLAIM_FINALIZER not in meta.finalizers:
                finalizers = {"finalizers": [*meta.finalizers, CLAIM_FINALIZER]}
                claim = await self._patched(claim, finalizers, None, f"add finalizer to claim {claim.key}")
            if allocation is None:
                allocation = each.pending
        if self._binding_conditions:
            if allocation is None:
                raise WriteError(f"claim {claim.key} got deallocated elsewhere in the meantime")
            if allocation.allocation_timestamp is None:
                now = timestamp(self._handle.clock.now())
                allocation = msgspec.structs.replace(allocation, allocation_timestamp=now)
        if allocation is not claim.status.allocation:
            status["allocation"] = to_builtins(allocation)
        if not each.is_reserved(claim, pod):
            status["reservedFor"] = to_builtins([*claim.status.reserved_for, each.consumer(pod)])
        if not status:
            return claim  # another member of the group has written all of it
        what = "allocation and reservation" if each.pending is not None else "reservation"
        return await self._patched(claim, {}, status, f"add {what} to claim {claim.key}")

    def check_decided(self, claim: ResourceClaim, each: PodClaim) -> None:
        """Check that the claim still has the devices for which the node was chosen. Other devices may be on another
        node.

        Upstream does not check this: it reserves the claim, and the pod cannot start.

        Raises:
            WriteError: when the claim has other devices.
        """
        now, decided = claim.status.allocation, each.decided
        if now is not None and decided is not None and now.devices.results != decided.devices.results:
            raise WriteError(f"claim {claim.key} got allocated elsewhere in the meantime")

    async def _patched(
        self, claim: ResourceClaim, metadata: Mapping[str, Any], status: Mapping[str, Any] | None, doing: str
    ) -> ResourceClaim:
        """Change metadata or status of exactly this version of a claim.

        Raises:
            ApiError: for a conflict.
            WriteError: for any other failure, with the words of ``doing``.
        """
        meta = claim.metadata
        patch: dict[str, Any] = {"metadata": {"resourceVersion": meta.resource_version, "uid": meta.uid, **metadata}}
        if status is not None:
            patch["status"] = status
        subresource = "" if status is None else "status"
        try:
            new: ResourceClaim = await self._client.patch_object(
                CLAIMS, meta.namespace, meta.name, patch, subresource=subresource
            )
        except ApiError as error:
            if error.code == 409:
                raise
            raise WriteError(f"{doing}: {error}") from error
        return new

    async def _create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create the claim that was made up for extended resources. The server gives it a name."""
        meta = claim.metadata
        body = {
            "apiVersion": CLAIMS.api_version,
            "kind": CLAIMS.kind,
            "metadata": {
                "generateName": meta.generate_name,
                "namespace": meta.namespace,
                "annotations": meta.annotations,
                "ownerReferences": to_builtins(meta.owner_references),
                "finalizers": [CLAIM_FINALIZER],
            },
            "spec": to_builtins(claim.spec),
        }
        creates = self._handle.framework.metrics.resourceclaim_creates_total
        try:
            created: ResourceClaim = await self._client.create_object(CLAIMS, meta.namespace, body)
        except (ApiError, OSError) as error:
            creates.inc("failure")
            raise WriteError(f"create claim for extended resources {claim.key}: {error}") from error
        creates.inc("success")
        return created

    async def _assume(self, claim: ResourceClaim, *, wait: bool) -> bool:
        """Let a claim count as written; with ``wait``, wait first for the informer to show it. True on success."""
        try:
            if wait:
                await self._manager.shown(claim.key, _SEEN_WITHIN)
            self._manager.claims.assume(claim)
        except (AssumeError, TimeoutError) as error:
            _log.info("claim %s was written and is not assumed: %s", claim.key, error)
            return False
        return True

    async def _write_mappings(self, attempt: ClaimState, claim: ResourceClaim) -> None:
        pod = attempt.pod
        if not attempt.mappings:
            raise WriteError(f"nil or empty request mappings, no update of pod {pod.key} ExtendedResourceClaimStatus")
        status = {"resourceClaimName": claim.metadata.name, "requestMappings": list(to_builtins(attempt.mappings))}
        patch = {"metadata": {"uid": pod.uid}, "status": {"extendedResourceClaimStatus": status}}
        try:
            await self._client.patch_object(PODS, pod.namespace, pod.name, patch, subresource="status")
        except ApiError as error:
            raise WriteError(f"update pod {pod.key} ExtendedResourceClaimStatus: {error}") from error

    # -- undoing ---------------------------------------------------------------------------------------

    async def unreserve(self, each: PodClaim, uid: str) -> None:
        """End the reservation of a claim for the object with this UID. A failure is logged. The allocation stays."""
        claim = each.claim
        patch = {
            "metadata": {"uid": claim.metadata.uid},
            "status": {"reservedFor": [{"$patch": "delete", "uid": uid}]},
        }
        try:
            new = await self._client.patch_object(
                CLAIMS, claim.metadata.namespace, claim.metadata.name, patch, subresource="status", merge=False
            )
            self._manager.claims.assume(new)
        except (*NO_CLEAR_ANSWER, AssumeError) as error:
            _log.error("cannot end the reservation of claim %s for %s: %s", claim.key, uid, error)

    async def deallocate(self, claim: ResourceClaim) -> None:
        """Free the devices of a claim that no other pod has reserved.

        Raises:
            ApiError, OSError, WriteError: when that is not possible.
        """
        status = {"allocation": None, "reservedFor": None, "devices": None}
        new = await self._patched(claim, {}, status, f"deallocate claim {claim.key}")
        try:
            self._manager.claims.assume(new)
        except AssumeError as error:
            _log.info("claim %s was deallocated and is not assumed: %s", claim.key, error)

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete the claim that was made for extended resources, its finalizer first.

        Raises:
            ApiError, OSError, WriteError: when that is not possible.
        """
        each = PodClaim(claim)

        async def without_finalizer(current: ResourceClaim) -> ResourceClaim:
            left = [name for name in current.metadata.finalizers if name != CLAIM_FINALIZER]
            if len(left) == len(current.metadata.finalizers):
                return current
            return await self._patched(current, {"finalizers": left}, None, f"remove finalizer of claim {claim.key}")

        with tolerate(404):
            await self._retried(without_finalizer, each)
            meta = each.claim.metadata
            await self._client.delete_object(CLAIMS, meta.namespace, meta.name, claim.metadata.uid)


def _is_same(written: AllocationResult, pending: AllocationResult) -> bool:
    """Return True if the devices that were written are those that are to be written."""
    return written.devices.results == pending.devices.results

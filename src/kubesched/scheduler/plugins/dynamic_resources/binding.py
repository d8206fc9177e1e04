"""Binding of claims at the end of an attempt.

PreBind writes claims and waits for their devices. Unreserve gives claims back. PostFilter deallocates one.

Source: rules/devices §5.4, §5.7, §5.8 and §10.2.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kubesched.api.resource import DeviceRequestAllocationResult, ResourceClaim
from kubesched.api.types import Pod

from ...framework.cycle_state import Change
from ...framework.events import ActionType, ClusterEvent, EventResource
from ...framework.interface import Handle, PostFilterResult
from ...framework.status import Status
from ...framework.uncertain import NO_CLEAR_ANSWER
from ..assume_cache import AssumeError
from .claim_state import ClaimState, PodClaim
from .claims import is_reserved_for, with_status
from .conditions import BindingFailedError, is_ready, is_timed_out, with_conditions
from .extended_resources import is_in_memory
from .manager import DeviceManager
from .writer import ClaimWriter, WriteError

__all__ = ["DEALLOCATED", "DELETED", "UNRESERVED", "Binding"]

_log = logging.getLogger("kubesched.scheduler.plugins")

#: Longest time in seconds between two checks of binding conditions. A change of a claim causes a check, too.
_INTERVAL: Final = 5.0
_CHANGED: Final = ClusterEvent(EventResource.RESOURCE_CLAIM, ActionType.UPDATE)
DEALLOCATED: Final = Status.unschedulable("deallocation of ResourceClaim completed")
DELETED: Final = Status.unschedulable("deletion of ResourceClaim completed")
UNRESERVED: Final = Status.unresolvable("ResourceClaim unreserved for PodGroup")
_FAILURES: Final = (WriteError, *NO_CLEAR_ANSWER)


class Binding:
    """Writer of one profile's claims, which also waits for their devices."""

    def __init__(self, handle: Handle, manager: DeviceManager, timeout: float) -> None:
        """``timeout`` is the time in seconds that devices may take to be made ready."""
        self._handle = handle
        self._manager = manager
        self._timeout = timeout
        self._conditions = manager.features.device_binding_and_status
        self._writer = ClaimWriter(handle, manager, binding_conditions=self._conditions)

    # -- PreBind ---------------------------------------------------------------------------------------

    async def bind(self, attempt: ClaimState, pod: Pod, node_name: str) -> Status | None:
        """Write what Reserve decided, and wait until the devices are ready. None on success."""
        entry = self._handle.pods_in_pre_bind.get(pod.uid)
        if entry is not None:
            entry.wake_on_end(lambda: self._manager.wake(each.claim.key for each in attempt.claims))
        await self._manager.released(pod.uid)
        try:
            for each in attempt.claims:
                if each.pending is None and not each.is_special:
                    each.claim = self._manager.claims.get(each.claim.key)
                    self._writer.check_decided(each.claim, each)
                if each.pending is not None or not each.is_reserved(each.claim, pod):
                    await self._writer.bind(attempt, each)
        except (*_FAILURES, AssumeError) as error:
            return Status.from_error(error)
        if self._conditions and any(with_conditions(each.claim) for each in attempt.claims):
            return await self._until_ready(attempt, pod, node_name)
        return None

    async def _until_ready(self, attempt: ClaimState, pod: Pod, node_name: str) -> Status | None:
        note = f"waiting for binding conditions for device on node {node_name}"
        self._handle.recorder.record(pod, "Normal", "BindingConditionsPending", "Scheduling", note)
        awaited = [result for each in attempt.claims for result in with_conditions(each.claim)]
        start = self._handle.clock.now()
        deadline = start + self._timeout
        while True:
            try:
                ready = [self._is_ready(each) for each in attempt.claims if with_conditions(each.claim)]
            except _TimedOutError as error:
                return self._waited(awaited, start, "timeout", error)
            except BindingFailedError as error:
                return self._waited(awaited, start, "failure", error)
            except AssumeError as error:
                return self._waited(awaited, start, "error", error)
            if all(ready):
                return self._waited(awaited, start, "success", None)
            if self._handle.pods_in_pre_bind.stopping:
                return self._waited(awaited, start, "error", BindingFailedError("context canceled"))
            left = deadline - self._handle.clock.now()
            if left <= 0:
                expired = _TimedOutError("device binding timeout: context deadline exceeded")
                return self._waited(awaited, start, "timeout", expired)
            await self._manager.changed([each.claim.key for each in attempt.claims], min(_INTERVAL, left))

    def _is_ready(self, each: PodClaim) -> bool:
        """True if the present version of a claim is ready.

        Raises:
            BindingFailedError, _TimedOutError: when its devices will not be ready.
            AssumeError: when the claim is gone.
        """
        claim = each.claim = self._manager.claims.get(each.claim.key)
        if is_ready(claim):
            return True
        if is_timed_out(claim, self._timeout, self._handle.clock.now()):
            raise _TimedOutError(f"device binding timeout: claim={claim.metadata.name}")
        return False

    def _waited(
        self, awaited: list[DeviceRequestAllocationResult], start: float, outcome: str, error: Exception | None
    ) -> Status | None:
        metrics, profile = self._handle.framework.metrics, self._handle.profile_name
        seconds = self._handle.clock.now() - start
        for result in awaited:
            metrics.dra_bindingconditions_wait_duration_seconds.observe(seconds, profile, result.driver, outcome)
            metrics.dra_bindingconditions_allocations_total.inc(profile, result.driver, outcome)
        return None if error is None else Status.from_error(error)

    # -- Unreserve -------------------------------------------------------------------------------------

    def undo(self, attempt: ClaimState, *, is_trial: bool = False) -> tuple[Change, ...]:
        """Give back the allocations and reservations that the attempt holds. Return the changes that free devices.

        Allocations that were written stay, and reservations for pod groups. ``is_trial``: nothing was written.
        """
        manager, pod = self._manager, attempt.pod
        reserved: list[PodClaim] = []
        freed: list[Change] = []
        for each in attempt.claims:
            if each.signalled:
                each.signalled, each.pending = False, None
                pending = manager.in_flight.claim(each.initial_uid)
                if pending is not None and manager.in_flight.maybe_remove(each.initial_uid):
                    manager.claims.restore(each.claim.key)
                    freed.append((_CHANGED, pending, with_status(pending, allocation=None)))
            if each.is_special or each.group is not None:
                continue
            if each.is_allocated and is_reserved_for(each.claim, pod):
                reserved.append(each)
        if is_trial:
            return tuple(freed)
        special = attempt.special
        created = special.claim if special is not None and special.created else None
        if reserved or created is not None:
            done = manager.begin_release(pod.uid)
            self._handle.spawn(self._undo(pod, reserved, created, done), f"unreserve {pod.key}")
        return tuple(freed)

    async def _undo(
        self, pod: Pod, reserved: list[PodClaim], created: ResourceClaim | None, done: asyncio.Future[None]
    ) -> None:
        try:
            for each in reserved:
                await self._writer.unreserve(each, pod.uid)
            if created is not None:
                await self._writer.delete(created)
        except _FAILURES as error:
            _log.error("cannot delete the claim for extended resources of pod %s: %s", pod.key, error)
        finally:
            self._manager.end_release(pod.uid, done)

    # -- PostFilter ------------------------------------------------------------------------------------

    async def deallocate(self, claim: ResourceClaim) -> tuple[PostFilterResult | None, Status | None]:
        """Free the devices of a claim, so that another node may be chosen."""
        try:
            await self._writer.deallocate(claim)
        except _FAILURES as error:
            _log.error("claim %s cannot be deallocated: %s", claim.key, error)
            return None, Status.from_error(error)
        return None, DEALLOCATED

    async def delete_leftover(self, claim: ResourceClaim, pod: Pod) -> tuple[PostFilterResult | None, Status | None]:
        """Delete the claim that an earlier attempt made for extended resources. The pod is tried again afterwards."""
        assert not is_in_memory(claim)
        self._manager.after_deletion(claim.key, lambda: self._handle.activate({pod.key: pod}))
        try:
            await self._writer.delete(claim)
        except _FAILURES as error:
            self._manager.after_deletion(claim.key, None)
            _log.error("claim %s cannot be deleted: %s", claim.key, error)
            return None, Status.from_error(error)
        return None, DELETED

    async def release_group(self, each: PodClaim) -> tuple[PostFilterResult | None, Status | None]:
        """End the reservation of a claim for a pod group, so that the next attempt may deallocate it."""
        await self._writer.unreserve(each, each.group.metadata.uid)
        return None, UNRESERVED


class _TimedOutError(Exception):
    """Devices were not made ready in time."""

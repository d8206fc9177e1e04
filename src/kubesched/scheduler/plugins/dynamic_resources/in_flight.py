"""Allocations that were decided and are not written yet, by claim.

From Reserve until PreBind has written a claim, its allocation counts here, by the claim's UID. Pods that share a claim
may share the allocation. The allocation leaves when it was written, or when the last of these pods gives it up.

Source: rules/devices §4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kubesched.api.resource import AllocationResult, ResourceClaim

__all__ = ["InFlight"]


class _Pending:
    __slots__ = ("claim", "group", "sharers")

    def __init__(self, claim: ResourceClaim, group: str) -> None:
        self.claim = claim
        self.group = group
        self.sharers = 1


class InFlight:
    """Claims with ``status.allocation`` set, by UID, and the number of pods about to use each.

    ``on_change`` is called with the UID of a claim whose allocation becomes pending, or is no longer pending.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._pending: dict[str, _Pending] = {}
        self._on_change: Final = on_change

    def signal(self, uid: str, claim: ResourceClaim, group: str = "") -> None:
        """Note that a pod is about to use this allocation. If the claim has a pending allocation already, that one
        stays.

        ``group`` is the key of the pod group whose other members may use the allocation, too; "" for none.
        """
        pending = self._pending.get(uid)
        if pending is None:
            self._pending[uid] = _Pending(claim, group)
            self._on_change(uid)
        else:
            pending.sharers += 1

    def maybe_remove(self, uid: str, *, force: bool = False) -> bool:
        """Note that one pod fewer is about to use the allocation; with ``force``, that no pod is. True if it is gone
        now.
        """
        pending = self._pending.get(uid)
        if pending is None:
            return False
        if not force and pending.sharers > 1:
            pending.sharers -= 1
            return False
        del self._pending[uid]
        self._on_change(uid)
        return True

    def claim(self, uid: str) -> ResourceClaim | None:
        """Return a claim with its pending allocation, or None."""
        pending = self._pending.get(uid)
        return None if pending is None else pending.claim

    def allocation(self, uid: str) -> AllocationResult | None:
        """Return the pending allocation of a claim, or None."""
        claim = self.claim(uid)
        return None if claim is None else claim.status.allocation

    def shared_with(self, uid: str, group: str) -> ResourceClaim | None:
        """Return a claim with its pending allocation if members of the group may use it; None if they may not."""
        pending = self._pending.get(uid)
        return pending.claim if pending is not None and group and pending.group == group else None

    def __contains__(self, uid: str) -> bool:
        return uid in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def claims(self) -> Iterator[ResourceClaim]:
        return (pending.claim for pending in self._pending.values())

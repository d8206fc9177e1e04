"""Allocations that were decided and are not written yet.

From Reserve until PreBind has written a claim its allocation counts here, by the claim's UID. Pods that share a claim
may share the allocation; it ends with the last of them, or when it was written.

Source: rules/devices §4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kubesched.api.resource import AllocationResult, ResourceClaim

__all__ = ["InFlight"]


class _Pending:
    __slots__ = ("claim", "sharers")

    def __init__(self, claim: ResourceClaim) -> None:
        self.claim = claim
        self.sharers = 1


class InFlight:
    """UID to the claim with ``status.allocation`` set, and how many pods are about to use it.

    ``on_change`` is called with a UID whenever its allocation began or ceased to be pending.
    """

    def __init__(self, on_change: Callable[[str], None]) -> None:
        self._pending: dict[str, _Pending] = {}
        self._on_change: Final = on_change

    def signal(self, uid: str, claim: ResourceClaim) -> None:
        """A pod is about to use this allocation; a first one stays."""
        pending = self._pending.get(uid)
        if pending is None:
            self._pending[uid] = _Pending(claim)
            self._on_change(uid)
        else:
            pending.sharers += 1

    def maybe_remove(self, uid: str, *, force: bool = False) -> bool:
        """One pod less is about to use it; ``force``: none is any more. True when it is gone now."""
        pending = self._pending.get(uid)
        if pending is None:
            return False
        if not force and pending.sharers > 1:
            pending.sharers -= 1
            return False
        del self._pending[uid]
        self._on_change(uid)
        return True

    def allocation(self, uid: str) -> AllocationResult | None:
        """The pending allocation of a claim, or None."""
        pending = self._pending.get(uid)
        return None if pending is None else pending.claim.status.allocation

    def __contains__(self, uid: str) -> bool:
        return uid in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def claims(self) -> Iterator[ResourceClaim]:
        return (pending.claim for pending in self._pending.values())

"""Index of devices in use, per pool (rules/devices §4.3).

Claims are fed in one by one with their allocations; the allocator reads the index. A claim is known by its UID and
counts once, although its allocation is reported twice: while it is in flight, and later by the API server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from kubesched.api.quantity import parse_quantity
from kubesched.api.resource import AllocationResult, DeviceRequestAllocationResult
from kubesched.base.change_log import ChangeLog

from .features import Features

__all__ = ["AllocatedDevices", "DeviceID", "PoolID", "PoolUse"]

_KEPT_CHANGES: Final = 1 << 14


class PoolID(NamedTuple):
    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class DeviceID(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True)
class PoolUse:
    """Devices of one pool that are in use, by device name. Immutable; equal uses compare equal.

    ``exclusive``: devices allocated as a whole. ``shared``: devices with at least one share. ``consumed``: amounts of
    capacity (nano-units) that shares hold, by device and capacity name. A device is absent from ``consumed`` if its
    shares name no amounts, or if all amounts became 0 when a share was given back.
    """

    exclusive: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    consumed: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))


UNUSED: Final = PoolUse()


class _Pool:
    """Mutable counts of one pool. Several claims may hold the same device if the objects say so."""

    __slots__ = ("consumed", "exclusive", "shared", "use")

    def __init__(self) -> None:
        self.exclusive: dict[str, int] = {}
        self.shared: dict[str, int] = {}
        self.consumed: dict[str, dict[str, int]] = {}
        self.use: PoolUse | None = None

    def apply(self, result: DeviceRequestAllocationResult, sign: int, *, sharing: bool) -> bool:
        """Count a result. True if the use of the pool changed."""
        device = result.device
        counts = self.shared if sharing and result.share_id is not None else self.exclusive
        number = counts.get(device, 0) + sign
        if number:
            counts[device] = number
        else:
            counts.pop(device, None)
        if counts is self.exclusive and number != (sign > 0):
            return False  # another claim holds the device, too
        self.use = None
        if counts is self.shared and result.consumed_capacity:
            totals = self.consumed.setdefault(device, {})
            for name, amount in result.consumed_capacity.items():
                totals[name] = totals.get(name, 0) + sign * parse_quantity(amount).nanos
            if sign < 0 and not any(totals.values()):
                del self.consumed[device]
        return True

    def current(self) -> PoolUse:
        if self.use is None:
            consumed = {device: MappingProxyType(dict(totals)) for device, totals in self.consumed.items()}
            self.use = PoolUse(frozenset(self.exclusive), frozenset(self.shared), MappingProxyType(consumed))
        return self.use


class AllocatedDevices:
    """Devices that are allocated to claims.

    A claim with ``adminAccess`` does not occupy its devices, so another claim can have them, too. ``changed`` logs the
    pools whose use changed.
    """

    def __init__(self, features: Features, claims: Iterable[tuple[str, AllocationResult]] = ()) -> None:
        self._sharing = features.consumable_capacity
        self._pools: dict[PoolID, _Pool] = {}
        self._claims: dict[str, tuple[DeviceRequestAllocationResult, ...]] = {}
        self.changed: ChangeLog[PoolID] = ChangeLog(_KEPT_CHANGES)
        #: Number that grows with every effective change.
        self.revision = 0
        for uid, allocation in claims:
            self.set_claim(uid, allocation)

    def set_claim(self, uid: str, allocation: AllocationResult | None) -> bool:
        """Record the allocation of a claim in place of an earlier one. None means that the claim has no allocation.

        True if anything changed.
        """
        before = self._claims.get(uid, ())
        after = () if allocation is None else tuple(r for r in allocation.devices.results if not r.admin_access)
        if before == after:
            return False
        for results, sign in ((before, -1), (after, 1)):
            for result in results:
                pool_id = PoolID(result.driver, result.pool)
                pool = self._pools.get(pool_id)
                if pool is None:
                    pool = self._pools[pool_id] = _Pool()
                if pool.apply(result, sign, sharing=self._sharing):
                    self.changed.append(pool_id)
        if after:
            self._claims[uid] = after
        else:
            del self._claims[uid]
        self.revision += 1
        return True

    def use_of(self, pool: PoolID) -> PoolUse:
        """Return the present use of a pool."""
        known = self._pools.get(pool)
        return UNUSED if known is None else known.current()

    def pools(self) -> Iterable[PoolID]:
        """Return the pools from which something was ever allocated."""
        return self._pools.keys()

    def claims(self) -> Mapping[str, tuple[DeviceRequestAllocationResult, ...]]:
        """Return the allocation results that count, by claim UID, for checks. The caller must not change them."""
        return MappingProxyType(self._claims)

"""Check of allocations by brute force: for tests, and for operators on demand.

:func:`check_allocations` reads the objects of a cluster alone, :func:`compare_allocated` compares the scheduler's
index with them. Callers: the debugger's comparer and the embedded cluster's checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kubesched.api.quantity import parse_quantity
from kubesched.api.resource import Counter, Device, ResourceClaim, ResourceSlice

from .allocated import AllocatedDevices, DeviceID, PoolID

__all__ = ["check_allocations", "compare_allocated"]

_NANO: Final = 10**9


def check_allocations(claims: Iterable[ResourceClaim], slices: Iterable[ResourceSlice]) -> list[str]:
    """Describe each device that is allocated twice, and each overdrawn counter and capacity, in one line.

    A device that the newest generation of its pool does not publish is only checked for double allocation.
    """
    problems: list[str] = []
    exclusive: dict[DeviceID, list[str]] = {}
    shares: dict[DeviceID, list[tuple[str, dict[str, int]]]] = {}
    for claim in claims:
        if claim.status.allocation is None:
            if claim.status.reserved_for:
                problems.append(f"claim {claim.key} is reserved, but not allocated")
            continue
        for result in claim.status.allocation.devices.results:
            device = DeviceID(result.driver, result.pool, result.device)
            if result.admin_access:
                continue
            if result.share_id is None:
                exclusive.setdefault(device, []).append(claim.key)
            else:
                consumed = {
                    name: parse_quantity(amount).nanos for name, amount in (result.consumed_capacity or {}).items()
                }
                shares.setdefault(device, []).append((claim.key, consumed))
    for device, holders in sorted(exclusive.items()):
        others = [key for key, _ in shares.get(device, ())]
        if len(holders) > 1 or others:
            problems.append(
                f"device {device} is allocated {len(holders) + len(others)} times: {_names(holders + others)}"
            )
    for pool, (devices, counters) in sorted(_published(slices).items()):
        problems += _overdrawn_counters(pool, devices, counters, exclusive.keys() | shares.keys())
        for name, published in sorted(devices.items()):
            problems += _overdrawn_capacity(DeviceID(*pool, name), published, shares)
    return problems


def compare_allocated(
    allocated: AllocatedDevices, in_flight: Collection[str], claims: Iterable[ResourceClaim]
) -> list[str]:
    """Describe, in one line each, allocations that the index lacks and allocations that it holds although no claim has
    them.

    ``in_flight`` are the UIDs of claims whose allocation is being written.
    """
    problems = []
    held = allocated.claims()
    known = set(in_flight)
    for claim in claims:
        uid = claim.metadata.uid
        if claim.status.allocation is None or uid in known:
            continue
        known.add(uid)
        found = held.get(uid, ())
        if found != tuple(one for one in claim.status.allocation.devices.results if not one.admin_access):
            what = "other devices for" if found else "no devices for"
            problems.append(f"the index of allocated devices has {what} claim {claim.key}")
    problems += [
        f"the index of allocated devices has devices for claim {uid}, which is not allocated"
        for uid in held.keys() - known
    ]
    return sorted(problems)


_Published = tuple[dict[str, Device], dict[str, dict[str, Counter]]]


def _published(slices: Iterable[ResourceSlice]) -> dict[PoolID, _Published]:
    """Devices and counter sets of each pool's newest generation, by pool."""
    pools: dict[PoolID, list[ResourceSlice]] = {}
    for one in slices:
        pools.setdefault(PoolID(one.spec.driver, one.spec.pool.name), []).append(one)
    result = {}
    for pool, members in pools.items():
        newest = max(one.spec.pool.generation for one in members)
        current = [one.spec for one in members if one.spec.pool.generation == newest]
        devices = {device.name: device for spec in current for device in spec.devices}
        counters = {one.name: one.counters for spec in current for one in spec.shared_counters}
        result[pool] = (devices, counters)
    return result


def _overdrawn_counters(
    pool: PoolID, devices: dict[str, Device], sets: dict[str, dict[str, Counter]], used: Collection[DeviceID]
) -> list[str]:
    totals: dict[tuple[str, str], int] = {}
    for name, device in devices.items():
        if device.consumes_counters and DeviceID(*pool, name) in used:
            for consumed in device.consumes_counters:
                for counter, amount in consumed.counters.items():
                    key = (consumed.counter_set, counter)
                    totals[key] = totals.get(key, 0) + parse_quantity(amount.value).nanos
    problems = []
    for (counter_set, counter), total in sorted(totals.items()):
        there = sets.get(counter_set, {}).get(counter)
        if there is None:
            continue  # the pool is being updated
        limit = parse_quantity(there.value).nanos
        if total > limit:
            text = f"counter {counter_set}/{counter} of pool {pool} is overdrawn"
            problems.append(f"{text}: {_amount(total)} of {_amount(limit)}")
    return problems


def _overdrawn_capacity(
    device: DeviceID, published: Device, shares: dict[DeviceID, list[tuple[str, dict[str, int]]]]
) -> list[str]:
    problems = []
    for name, capacity in published.capacity.items():
        total = sum(consumed.get(name, 0) for _, consumed in shares.get(device, ()))
        limit = parse_quantity(capacity.value).nanos
        if total > limit:
            holders = _names([key for key, _ in shares[device]])
            text = f"capacity {name} of device {device} is overdrawn"
            problems.append(f"{text}: {_amount(total)} of {_amount(limit)}, by {holders}")
    return problems


def _amount(nanos: int) -> str:
    return f"{nanos / _NANO:g}"


def _names(keys: list[str]) -> str:
    return ", ".join(sorted(keys))

"""The checker of allocations finds what it is for, and nothing else."""

from __future__ import annotations

from typing import Any

from kubesched.api.decode import from_builtins
from kubesched.api.resource import ResourceClaim, ResourceSlice
from kubesched.scheduler.config import DEFAULT_GATES
from kubesched.scheduler.dra.allocated import AllocatedDevices
from kubesched.scheduler.dra.check import check_allocations, compare_allocated
from kubesched.scheduler.dra.features import Features

DRIVER = "d.example.com"


def _claim(name: str, *devices: str, reserved: bool = False, **result: Any) -> ResourceClaim:
    status: dict[str, Any] = {}
    if devices:
        results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": one, **result} for one in devices]
        status["allocation"] = {"devices": {"results": results}}
    if reserved:
        status["reservedFor"] = [{"resource": "pods", "name": "p", "uid": "u"}]
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    return from_builtins({"metadata": metadata, "status": status}, ResourceClaim)


def _slice(generation: int = 1, name: str = "s", **spec: Any) -> ResourceSlice:
    pool = {"name": "n", "generation": generation, "resourceSliceCount": 1}
    return from_builtins({"metadata": {"name": name}, "spec": {"driver": DRIVER, "pool": pool, **spec}}, ResourceSlice)


def test_what_is_in_order_is_not_reported() -> None:
    shared: dict[str, Any] = {"shareID": "s1", "consumedCapacity": {"memory": "40Gi"}}
    claims = [
        _claim("a", "gpu-0", "gpu-1", reserved=True),
        _claim("b", "gpu-0", adminAccess=True),
        _claim("c", "gpu-2", **shared),
        _claim("d", "gpu-2", **{**shared, "shareID": "s2"}),
        _claim("e"),
    ]
    devices = [{"name": "gpu-2", "capacity": {"memory": {"value": "80Gi"}}}]
    assert check_allocations(claims, [_slice(devices=devices)]) == []


def test_a_device_with_two_holders_is_reported() -> None:
    problems = check_allocations([_claim("a", "gpu-0"), _claim("b", "gpu-0")], [])
    assert problems == ["device d.example.com/n/gpu-0 is allocated 2 times: default/a, default/b"]
    problems = check_allocations([_claim("a", "gpu-0"), _claim("b", "gpu-0", shareID="s1")], [])
    assert problems == ["device d.example.com/n/gpu-0 is allocated 2 times: default/a, default/b"]


def test_overdrawn_counters_are_reported_for_the_newest_generation() -> None:
    consumes = [{"counterSet": "c", "counters": {"slices": {"value": "4"}}}]
    devices = [{"name": name, "consumesCounters": consumes} for name in ("a", "b")]
    counters = [{"name": "c", "counters": {"slices": {"value": "7"}}}]
    slices = [_slice(sharedCounters=counters), _slice(devices=devices, name="t")]
    both = [_claim("x", "a"), _claim("y", "b")]
    assert check_allocations(both[:1], slices) == []
    assert check_allocations(both, slices) == ["counter c/slices of pool d.example.com/n is overdrawn: 8 of 7"]
    assert check_allocations(both, [*slices, _slice(2, name="v")]) == []


def test_overdrawn_capacity_is_reported() -> None:
    claims = [_claim(name, "a", shareID=name, consumedCapacity={"memory": "3"}) for name in ("x", "y")]
    devices = [{"name": "a", "capacity": {"memory": {"value": "5"}}}]
    (problem,) = check_allocations(claims, [_slice(devices=devices)])
    assert problem == "capacity memory of device d.example.com/n/a is overdrawn: 6 of 5, by default/x, default/y"


def test_a_reservation_without_an_allocation_is_reported() -> None:
    assert check_allocations([_claim("a", reserved=True)], []) == ["claim default/a is reserved, but not allocated"]


def test_the_index_is_compared_with_the_claims() -> None:
    first, second, admin = _claim("a", "gpu-0"), _claim("b", "gpu-1"), _claim("c", "gpu-0", adminAccess=True)
    allocated = AllocatedDevices(Features.of(DEFAULT_GATES))
    for claim in (first, second):
        allocated.set_claim(claim.metadata.uid, claim.status.allocation)
    assert compare_allocated(allocated, (), [first, second, admin, _claim("d")]) == []
    assert compare_allocated(allocated, (), [first]) == [
        "the index of allocated devices has devices for claim uid-b, which is not allocated"
    ]
    assert compare_allocated(allocated, ["uid-b"], [first]) == []
    assert compare_allocated(allocated, (), [first, _claim("b", "gpu-2"), _claim("d", "gpu-3")]) == [
        "the index of allocated devices has no devices for claim default/d",
        "the index of allocated devices has other devices for claim default/b",
    ]

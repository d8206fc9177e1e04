"""Among pools that nodes have in common, passing by those that cannot help changes nothing of what is chosen."""

from __future__ import annotations

import random
from typing import Any

import pytest
from allocator_kit import DRIVER, JSON, World, a_claim, a_device, a_request, a_slice, devices_of
from hypothesis import given, settings
from hypothesis import strategies as st

from kubesched.api.resource import ResourceClaim, ResourceSlice
from kubesched.scheduler.dra.failures import AllocationError
from kubesched.scheduler.dra.remembered import Remembered


class ThoroughWorld(World):
    """Looks at every pool in every search."""

    def allocate(self, *claims: ResourceClaim, on: int = 0) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Remembered, "places", lambda *_: None)
            return super().allocate(*claims, on=on)


def pool_of(number: int, devices: list[JSON], counters: JSON | None, *, own: bool = False) -> list[ResourceSlice]:
    count = 1 if counters is None else 2
    where: JSON = {"node": "n1"} if own else {"allNodes": True}
    slices = [a_slice(f"d{number}", devices, pool=f"p{number}", count=count, **where)]
    if counters is not None:
        slices.append(a_slice(f"c{number}", pool=f"p{number}", count=count, counters=counters, **where))
    return slices


def random_slices(rng: random.Random) -> list[ResourceSlice]:
    slices: list[ResourceSlice] = []
    for number in range(rng.randint(2, 6)):
        counters = {"x": rng.randint(1, 5), "y": rng.randint(1, 3)} if rng.random() < 0.7 else None
        devices = []
        for index in range(rng.randint(1, 4)):
            uses = {"x": rng.randint(0, 2), "y": rng.randint(0, 2)} if counters and rng.random() < 0.8 else None
            fields: JSON = {"numa": rng.choice([number, number, 0, 1])} if rng.random() < 0.9 else {}
            if rng.random() < 0.3:
                fields["allowMultipleAllocations"] = True
            if rng.random() < 0.7:
                fields["size"] = rng.choice(["small", "large"])
            taints = ["broken"] if rng.random() < 0.1 else []
            devices.append(a_device(f"d{index}", {"m": "3"}, uses=uses, taints=taints, **fields))
        slices += pool_of(number, devices, counters, own=rng.random() < 0.25)
    return slices


def random_claim(rng: random.Random, name: str) -> ResourceClaim:
    requests = []
    for number in range(rng.randint(1, 3)):
        fields: JSON = {"amounts": {"m": str(rng.randint(1, 2))}} if rng.random() < 0.4 else {}
        if rng.random() < 0.4:
            has = f'"size" in device.attributes["{DRIVER}"] && ' if rng.random() < 0.8 else ""
            fields["select"] = f'{has}device.attributes["{DRIVER}"].size == "small"'
        if rng.random() < 0.1:
            fields["adminAccess"] = True
        count = "All" if rng.random() < 0.05 else rng.randint(1, 3)
        requests.append(a_request(f"r{number}", count, **fields))
    constraints: list[JSON] = []
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        kind = rng.choice(["match", "match", "match", "match", "distinct"])
        constraint: JSON = {f"{kind}Attribute": f"{DRIVER}/{rng.choice(['numa', 'numa', 'size'])}"}
        if rng.random() < 0.3:
            constraint["requests"] = [rng.choice(requests)["name"]]
        constraints.append(constraint)
    return a_claim(*requests, name=name, constraints=constraints)


def chosen(world: World, claims: list[ResourceClaim]) -> Any:
    try:
        results = world.allocate(*claims)
    except AllocationError as error:
        return str(error)
    if results is None:
        return None
    return [[(item.pool, item.device, item.request) for item in result.devices.results] for result in results]


@settings(max_examples=max(8, settings().max_examples // 8))
@given(seed=st.integers(0, 1_000_000), strict=st.booleans())
def test_the_same_devices_are_chosen_as_by_looking_everywhere(seed: int, strict: bool) -> None:
    rng = random.Random(seed)
    slices = random_slices(rng)
    world, thorough = World(slices, strict_counters=strict), ThoroughWorld(slices, strict_counters=strict)
    contents = [random_claim(rng, f"c{number}") for number in range(3)]
    held: list[str] = []
    for step in range(12):
        claims = rng.choices(contents, k=rng.choice([1, 1, 2]))
        expected = chosen(thorough, claims)
        assert chosen(world, claims) == expected
        if isinstance(expected, list):
            results = world.allocate(*claims)
            assert results is not None
            for number, result in enumerate(results):
                held.append(f"{step}-{number}")
                for each in (world, thorough):
                    each.allocated.set_claim(held[-1], result)
        if held and rng.random() < 0.5:
            uid = held.pop(rng.randrange(len(held)))
            for each in (world, thorough):
                each.allocated.set_claim(uid, None)


def slice_pools(number: int) -> list[ResourceSlice]:
    """Two devices that fit together, and one that shares its counter with the first."""
    uses = [{"x": 1}, {"y": 1}, {"x": 1}]
    devices = [a_device(f"d{index}", uses=use, slice=number) for index, use in enumerate(uses)]
    return pool_of(number, devices, {"x": 1, "y": 1})


PAIR = a_claim(a_request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/slice"}])


def test_pools_with_another_value_are_not_built_for_the_second_device() -> None:
    world = World([entry for number in range(50) for entry in slice_pools(number)])
    seen = _supplies_of(world)
    results = world.allocate(PAIR)
    assert results is not None
    assert devices_of(results[0]) == ["req=d0", "req=d1"]
    assert seen == {"p0"}


def test_a_pool_that_is_used_up_is_looked_at_once_until_it_changes() -> None:
    world = World([entry for number in range(9) for entry in slice_pools(number)])
    for number in range(8):
        results = world.allocate(PAIR)
        assert results is not None
        world.allocated.set_claim(f"uid-{number}", results[0])
    seen = _supplies_of(world)
    assert world.allocate(PAIR) is not None
    assert seen == {"p7", "p8"}
    world.allocated.set_claim("uid-3", None)
    seen.clear()
    results = world.allocate(PAIR)
    assert results is not None
    assert results[0].devices.results[0].pool == "p3"
    assert seen == {"p3"}


def _supplies_of(world: World) -> set[str]:
    """The pools whose state a search for the pair evaluates from now on."""
    remembered = world.allocator.demand([PAIR]).remembered
    seen: set[str] = set()
    supply = remembered.supply

    def noted(pool: Any) -> Any:
        seen.add(pool.id.pool)
        return supply(pool)

    remembered.supply = noted  # type: ignore[method-assign]
    return seen

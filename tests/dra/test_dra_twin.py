"""The allocator finds what a naive one finds, and what it remembers is what a new one would compute."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from allocator_kit import JSON, World, a_class, a_device, a_node, a_request, a_slice, any_of, devices_of
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_allocator import first_solution

from kubesched.api.decode import from_builtins
from kubesched.api.resource import ResourceClaim, ResourceSlice
from kubesched.scheduler.dra.failures import AllocationError, InvalidPoolsError
from kubesched.scheduler.dra.interface import Verdict

SIZES = ("small", "large")


@st.composite
def a_random_device(draw: st.DrawFn, name: str, *, counters: bool) -> JSON:
    attributes: dict[str, Any] = {"size": draw(st.sampled_from(SIZES))}
    if draw(st.integers(0, 3)):
        attributes["numa"] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        attributes["allowMultipleAllocations"] = draw(st.booleans())
    uses = {"x": draw(st.integers(0, 3)), "y": draw(st.integers(0, 2))} if counters and draw(st.booleans()) else None
    taints = ["broken"] if draw(st.integers(0, 9)) == 0 else []
    return a_device(name, {"m": str(draw(st.integers(1, 4)))}, uses=uses, taints=taints, **attributes)


@st.composite
def a_random_request(draw: st.DrawFn, name: str, *, single: bool, sub: bool = False) -> JSON:
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields["select"] = f'device.attributes["gpu.example.com"].size == "{draw(st.sampled_from(SIZES))}"'
    if not sub and draw(st.integers(0, 4)) == 0:
        fields["adminAccess"] = True
    if draw(st.integers(0, 2)) == 0:
        fields["amounts"] = {"m": str(draw(st.integers(1, 3)))}
    return a_request(name, 1 if single else draw(st.integers(1, 2)), **fields)


@st.composite
def a_random_claim(draw: st.DrawFn) -> JSON:
    constraints: list[JSON] = []
    kind = draw(st.sampled_from(["none", "none", "match", "distinct"]))
    # Upstream compares two devices of one request only with the latest: one each, for distinct values.
    single = kind == "distinct"
    requests: list[JSON] = []
    for number in range(draw(st.integers(1, 2))):
        if draw(st.integers(0, 2)):
            requests.append(draw(a_random_request(f"r{number}", single=single)))
        else:
            subs = [draw(a_random_request(f"s{index}", single=single, sub=True)) for index in range(2)]
            requests.append(any_of(f"r{number}", *subs))
    if kind != "none":
        constraint: JSON = {f"{kind}Attribute": "gpu.example.com/numa"}
        if draw(st.booleans()):
            constraint["requests"] = ["r0"]
        constraints.append(constraint)
    return {"requests": requests, "constraints": constraints}


def claim_of(data: JSON, name: str) -> ResourceClaim:
    body = {"metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"}, "spec": {"devices": data}}
    return from_builtins(body, ResourceClaim)


@settings(max_examples=max(300, settings().max_examples))
@given(data=st.data())
def test_the_first_solution_in_upstreams_order_is_found(data: st.DataObject) -> None:
    counters = (
        {"x": data.draw(st.integers(1, 6)), "y": data.draw(st.integers(0, 4))} if data.draw(st.booleans()) else {}
    )
    devices = [
        data.draw(a_random_device(f"d{n}", counters=bool(counters))) for n in range(data.draw(st.integers(1, 4)))
    ]
    claims = [data.draw(a_random_claim()) for _ in range(data.draw(st.integers(1, 2)))]
    exclusive = [n for n, device in enumerate(devices) if not device.get("allowMultipleAllocations")]
    used = [n for n in exclusive if data.draw(st.integers(0, 4)) == 0]
    slices = [a_slice("d", devices, count=2 if counters else 1)]
    if counters:
        slices.append(a_slice("c", count=2, counters=counters))
    world = World(slices, strict_counters=True)
    for position in used:
        world.allocated.set_claim(f"used-{position}", allocation_of(devices[position]["name"]))
    found = world.allocate(*(claim_of(claim, f"c{number}") for number, claim in enumerate(claims)))
    want = first_solution(devices, counters, claims, used)
    assert (None if found is None else [devices_of(result) for result in found]) == want


def allocation_of(device: str) -> Any:
    world = World([a_slice("only", [a_device(device)])])
    (result,) = world.allocate(claim_of({"requests": [a_request()]}, "x")) or ()
    return result


# -- what is remembered ------------------------------------------------------------------------------------

NODES = ("n0", "n1", "n2")
EAST: JSON = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}]}


def a_random_slice(rng: random.Random) -> ResourceSlice:
    """Slices of few names and pools, so that they replace, complete and contradict each other."""
    kind = rng.choice(["node", "node", "node", "counters", "selector", "all"])
    node = rng.choice(NODES)
    generation = rng.choice([1, 1, 1, 2])
    names = [f"d{index}" for index in range(3)]
    uses = rng.choice([None, {"x": 1}])
    share: dict[str, Any] = {"allowMultipleAllocations": True} if rng.random() < 0.3 else {}
    devices = [
        a_device(name, {"m": "3"}, uses=uses, size=rng.choice(SIZES), serial=rng.randrange(99), **share)
        for name in rng.sample(names, 2)
    ]
    count = 2 if uses else 1
    match kind:
        case "node":
            return a_slice(f"s-{node}", devices, node=node, generation=generation, count=count)
        case "counters":
            return a_slice(f"c-{node}", node=node, count=2, generation=generation, counters={"x": rng.choice([1, 2])})
        case "selector":
            return a_slice("east", devices, pool="east", count=count, nodeSelector=EAST)
    return a_slice("all", devices, pool=rng.choice(["all", "n0"]), count=count, allNodes=True)


def outcome_of(world: World, claim: ResourceClaim, on: int) -> tuple[Verdict, Any]:
    try:
        results = world.allocate(claim, on=on)
    except InvalidPoolsError:
        return Verdict.INVALID_POOLS, None
    except AllocationError as error:
        return Verdict.ERROR, str(error)
    if results is None:
        return Verdict.CANNOT_ALLOCATE, None
    # IDs of shares are random.
    shown = [msgspec.structs.replace(item, share_id=None) for item in results[0].devices.results]
    return Verdict.FITS, (shown, results[0].node_selector)


def check_nothing_is_overdrawn(world: World) -> None:
    """By the allocations alone: no device twice, no capacity above its value, counters within theirs."""
    exclusive: set[tuple[str, str]] = set()
    shares: dict[tuple[str, str], int] = {}
    for results in world.allocated.claims().values():
        for item in results:
            key = (item.pool, item.device)
            if item.share_id is None:
                assert key not in exclusive, f"{key} is allocated twice"
                exclusive.add(key)
            else:
                shares[key] = shares.get(key, 0) + int((item.consumed_capacity or {})["m"])
    assert all(amount <= 3 for amount in shares.values())


@given(seed=st.integers(0, 10_000), small=st.booleans())
def test_what_is_remembered_is_what_a_new_allocator_computes(seed: int, small: bool) -> None:
    """Also when tables and journals are so ``small`` that they begin again all the time."""
    with pytest.MonkeyPatch.context() as patch:
        if small:
            for module in ("models", "remembered", "selectors", "wanted"):
                patch.setattr(f"kubesched.scheduler.dra.{module}.MOST_REMEMBERED", 2)
            for module in ("allocated", "allocator", "inventory"):
                patch.setattr(f"kubesched.scheduler.dra.{module}._KEPT_CHANGES", 1)
            patch.setattr("kubesched.scheduler.dra.allocator._MOST_DEMANDS", 2)
        check_what_is_remembered(seed)


def check_what_is_remembered(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [a_node(name) for name in NODES]
    world = World([], [a_class()], nodes)
    requests = [
        a_request(),
        a_request(count=2, amounts={"m": "2"}),
        a_request(count="All", adminAccess=True),
        a_request(select='device.attributes["gpu.example.com"].size == "small"'),
        a_request(select='device.attributes["gpu.example.com"].exists(k, k == "serial")'),
    ]
    claims = [claim_of({"requests": [request]}, f"probe-{number}") for number, request in enumerate(requests)]
    taken: dict[str, Any] = {}
    for step in range(25):
        match rng.randrange(6):
            case 0 | 1:
                world.inventory.put(a_random_slice(rng))
            case 2:
                world.inventory.remove(rng.choice(["s-n0", "s-n1", "c-n0", "c-n1", "east", "all"]))
            case 3 if taken:
                uid = rng.choice(sorted(taken))
                del taken[uid]
                world.allocated.set_claim(uid, None)
            case 4:
                row = rng.randrange(len(nodes))
                nodes[row] = world.nodes[row] = a_node(NODES[row], zone=rng.choice(["east", "west"]))
                world.allocator.set_node(row, nodes[row])
            case _:
                claim, row = rng.choice(claims[:2]), rng.randrange(len(nodes))
                verdict, _ = outcome_of(world, claim, row)
                if verdict is Verdict.FITS:
                    uid = f"taken-{step}"
                    (taken[uid],) = world.allocate(claim, on=row) or ()
                    world.allocated.set_claim(uid, taken[uid])
        fresh = World(world.inventory.slices(), [a_class()], nodes)
        for uid, allocation in taken.items():
            fresh.allocated.set_claim(uid, allocation)
        for claim in rng.sample(claims, 2):
            want = [outcome_of(fresh, claim, row) for row in range(len(nodes))]
            assert world.verdicts(claim) == [verdict for verdict, _ in want]
            assert [outcome_of(world, claim, row) for row in range(len(nodes))] == want


@given(seed=st.integers(0, 10_000))
def test_devices_capacity_and_counters_are_never_overdrawn(seed: int) -> None:
    rng = random.Random(seed)
    exclusive = [a_device(f"e{index}", {"m": "3"}, uses={"x": 1}) for index in range(4)]
    shared = [a_device(f"s{index}", {"m": "3"}, uses={"x": 1}, allowMultipleAllocations=True) for index in range(2)]
    slices = [a_slice("c", count=2, counters={"x": 3}), a_slice("d", [*exclusive, *shared], count=2)]
    world = World(slices)
    held: dict[str, list[str]] = {}
    for step in range(30):
        if held and rng.random() < 0.4:
            uid = rng.choice(sorted(held))
            del held[uid]
            world.allocated.set_claim(uid, None)
        request = a_request(count=rng.choice([1, 2]), amounts={"m": str(rng.choice([1, 2]))})
        results = world.allocate(claim_of({"requests": [request]}, "c"))
        if results is not None:
            uid = f"u{step}"
            held[uid] = [item.device for item in results[0].devices.results]
            world.allocated.set_claim(uid, results[0])
        check_nothing_is_overdrawn(world)
        assert len({device for devices in held.values() for device in devices}) <= 3, "each device uses one of three"


@given(seed=st.integers(0, 10_000))
def test_open_pools_are_searched_from_the_first_that_has_something_left(seed: int) -> None:
    """Many open pools that fill up and are released: every result is the one of a new allocator."""
    rng = random.Random(seed)
    slices = [
        a_slice(
            f"s{number}",
            [
                a_device("a", {"m": "3"}, size=rng.choice(SIZES), allowMultipleAllocations=True),
                a_device("b", {"m": "3"}, size="large"),
            ],
            pool=f"p{number}",
            allNodes=True,
        )
        for number in range(6)
    ]
    world = World(slices)
    claims = [
        claim_of({"requests": [a_request(amounts={"m": "2"})]}, "one"),
        claim_of({"requests": [a_request("x"), a_request("y", amounts={"m": "1"})]}, "two"),
        claim_of({"requests": [a_request(select='device.attributes["gpu.example.com"].size == "small"')]}, "small"),
    ]
    taken: dict[str, Any] = {}
    for step in range(20):
        if taken and rng.random() < 0.35:
            uid = rng.choice(sorted(taken))
            del taken[uid]
            world.allocated.set_claim(uid, None)
        claim = rng.choice(claims)
        verdict, result = outcome_of(world, claim, 0)
        fresh = World(slices)
        for uid, allocation in taken.items():
            fresh.allocated.set_claim(uid, allocation)
        assert (verdict, result) == outcome_of(fresh, claim, 0)
        if verdict is Verdict.FITS:
            (taken[f"t{step}"],) = world.allocate(claim) or ()
            world.allocated.set_claim(f"t{step}", taken[f"t{step}"])

"""Devices that claims get (rules/devices §8)."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from allocator_kit import (
    DRIVER,
    JSON,
    World,
    a_claim,
    a_class,
    a_device,
    a_node,
    a_request,
    a_slice,
    any_of,
    devices_of,
)

from kubesched.api.cel.device_expressions import compile_device_expression
from kubesched.api.decode import to_builtins
from kubesched.api.resource import MAX_RESULTS, ResourceClaim
from kubesched.scheduler.dra.allocator import Allocator
from kubesched.scheduler.dra.device_search import DeviceSearch
from kubesched.scheduler.dra.failures import AllocationError, AllocationTimeoutError, InvalidPoolsError
from kubesched.scheduler.dra.features import DEFAULT_FEATURES, Features
from kubesched.scheduler.dra.interface import Verdict

EVEN = 'device.attributes["gpu.example.com"].index % 2 == 0'
SMALL = 'device.attributes["gpu.example.com"].size == "small"'
LARGE = 'device.attributes["gpu.example.com"].size == "large"'
MATCH_NUMA: JSON = {"matchAttribute": "gpu.example.com/numa"}


def gpus(count: int, **fields: Any) -> list[JSON]:
    return [a_device(f"gpu-{index}", index=index, **fields) for index in range(count)]


def sizes() -> list[JSON]:
    return [a_device("small-0", size="small"), a_device("large-0", size="large"), a_device("small-1", size="small")]


# -- order and backtracking --------------------------------------------------------------------------------


def test_devices_are_chosen_in_the_order_of_driver_pool_slice_and_list() -> None:
    world = World([
        a_slice("b", ["b-0"], pool="p", count=2),
        a_slice("a", ["a-0", "a-1"], pool="p", count=2),
        a_slice("z", ["z-0"], driver="a.example.com", pool="z"),
        a_slice("y", ["y-0"], pool="o"),
    ])  # fmt: skip
    assert world.chosen(a_claim(a_request(count=5))) == ["req=z-0", "req=y-0", "req=a-0", "req=a-1", "req=b-0"]


def test_pools_with_binding_conditions_are_tried_last() -> None:
    bound = a_device("bound", bindingConditions=["ready"])
    world = World([a_slice("a", [bound], pool="a"), a_slice("b", ["plain"], pool="b")])
    assert world.chosen(a_claim(a_request(count=2))) == ["req=plain", "req=bound"]


def test_a_request_that_took_the_wrong_device_gives_it_back() -> None:
    world = World([a_slice("s", sizes())])
    claim = a_claim(a_request("any"), a_request("small", 2, select=SMALL))
    assert world.chosen(claim) == ["any=large-0", "small=small-0", "small=small-1"]


def test_claims_are_allocated_together() -> None:
    world = World([a_slice("s", sizes())])
    one, other = a_claim(a_request(), name="one"), a_claim(a_request(count=2, select=SMALL), name="other")
    results = world.allocate(one, other)
    assert results is not None
    assert [devices_of(result) for result in results] == [["req=large-0"], ["req=small-0", "req=small-1"]]
    assert world.allocate(one, a_claim(a_request(count=3), name="other")) is None


def test_each_request_starts_from_the_first_device() -> None:
    world = World([a_slice("s", sizes())])
    assert world.chosen(a_claim(a_request("l", select=LARGE), a_request("any"))) == ["l=large-0", "any=small-0"]


def test_devices_in_use_are_not_chosen_until_they_are_released() -> None:
    world = World([a_slice("s", gpus(2))])
    world.take(a_claim(a_request(), name="first"))
    assert world.chosen(a_claim(a_request())) == ["req=gpu-1"]
    assert world.chosen(a_claim(a_request(count=2))) is None
    world.allocated.set_claim("uid-first", None)
    assert world.chosen(a_claim(a_request(count=2))) == ["req=gpu-0", "req=gpu-1"]


def test_a_search_without_result_does_not_try_every_combination() -> None:
    world = World([a_slice("s", gpus(30))])
    demand = world.allocator.demand([a_claim(a_request(count=31))])
    world.allocator.allocate(demand, world.nodes[0])
    view = world.allocator._view(world.nodes[0])
    search = DeviceSearch(demand.remembered.wanted, view.pools, demand.remembered.supply, lambda: False)
    assert search.run() is None
    assert search.steps < 10


def test_a_search_that_takes_too_long_ends() -> None:
    numbers = [a_device(f"gpu-{index}", numa=index // 6) for index in range(24)]
    world = World([a_slice("s", numbers)])
    world.allocator._now = iter(
        range(0, 10_000, 11)
    ).__next__  # every reading of the clock is later by more than the timeout
    claim = a_claim(a_request(count=7), constraints=[MATCH_NUMA])
    with pytest.raises(AllocationTimeoutError, match=r"^node n1: timed out trying to allocate devices$"):
        world.allocate(claim)
    with pytest.raises(AllocationTimeoutError):
        world.verdicts(claim)


def test_a_selector_that_takes_too_long_ends_with_the_node_and_has_no_result() -> None:
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    slow = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, a + b + c > 0)))"
    world = World([a_slice("s", gpus(2))])
    claim = a_claim(a_request(select=slow))
    clock = world.allocator._now
    world.allocator._now = iter(range(0, 10_000, 11)).__next__
    with pytest.raises(AllocationTimeoutError, match=r"^node n1: timed out trying to allocate devices$"):
        world.verdicts(claim)
    with pytest.raises(AllocationTimeoutError):
        world.allocate(claim)
    world.allocator._now = clock
    assert world.chosen(claim) == ["req=gpu-0"]


def test_the_selectors_of_an_attempt_have_an_allowance_and_the_next_attempt_goes_on_from_there() -> None:
    """An expression that reads what every device has of its own is evaluated for each: the process does nothing else then."""
    ten, index = "[1,2,3,4,5,6,7,8,9,10]", 'device.attributes["gpu.example.com"].index'
    slow = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, a + b + c > 0))) && {index} == 29"
    world = World([a_slice("s", gpus(30))])
    claim = a_claim(a_request(select=slow))
    selector = world.allocator._selectors.selector(slow)
    evaluated: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubesched.scheduler.dra.selectors._ATTEMPT_COST", 100_000)
        for _ in range(20):
            try:
                chosen = world.chosen(claim)
                break
            except AllocationTimeoutError:
                evaluated.append(selector.evaluations)
    assert chosen == ["req=gpu-29"]
    assert len(evaluated) == 2
    assert evaluated == sorted(set(evaluated))  # each attempt came further
    assert selector.evaluations <= 30 + len(evaluated)


def test_the_devices_of_a_class_are_counted_on_all_nodes_with_one_allowance() -> None:
    """Each node had one of its own, so that scoring 5,000 nodes by devices could take 5,000 of them."""
    ten, index = "[1,2,3,4,5,6,7,8,9,10]", 'device.attributes["gpu.example.com"].index'
    slow = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, a + b + c > 0))) && {index} >= 0"
    nodes = [a_node(f"n{number}") for number in range(30)]
    slices = [  # all devices differ, so each is evaluated for itself
        a_slice(f"s{n}", [a_device(f"gpu-{n}", index=2 * n), a_device(f"gpu-{n}b", index=2 * n + 1)], node=f"n{n}")
        for n in range(30)
    ]
    world = World(slices, [a_class("gpu", slow)], nodes)
    counted: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kubesched.scheduler.dra.selectors._ATTEMPT_COST", 100_000)
        while sum(counted) < 30:
            found = world.allocator.devices_of_class("gpu", nodes[sum(counted) :])
            assert found == [(2, 0)] * len(found)
            counted.append(len(found))
    assert max(counted) < 10


def test_compiling_takes_of_the_allowance_of_an_attempt_and_the_next_attempt_goes_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A claim may have a megabyte of expressions: 15 s in which no lease is renewed."""
    compiled: list[str] = []

    def compile_noted(expression: str, *, lists: bool) -> Any:
        compiled.append(expression)
        return compile_device_expression(expression, lists=lists)

    monkeypatch.setattr("kubesched.scheduler.dra.expressions.compile_device_expression", compile_noted)
    monkeypatch.setattr("kubesched.scheduler.dra.selectors._ATTEMPT_COST", 15 * 1000)
    world = World([a_slice("s", gpus(1))])
    selectors = [{"cel": {"expression": f"true || {number:0189} > 0"}} for number in range(20)]
    claim = a_claim(a_request(selectors=selectors))
    each: list[int] = []
    for _ in range(20):
        before = len(compiled)
        try:
            chosen = world.chosen(claim)
            break
        except AllocationTimeoutError:
            each.append(len(compiled) - before)
    assert chosen == ["req=gpu-0"]
    assert each == [5, 5, 5, 5][: len(each)]
    assert len(each) >= 3
    assert len(compiled) == len(set(compiled)) == 20


# -- all devices, admin access ---------------------------------------------------------------------------


def test_a_request_for_all_gets_every_device_that_is_selected() -> None:
    world = World([a_slice("s", gpus(4)), a_slice("t", ["gpu-x"], pool="other")])
    assert world.chosen(a_claim(a_request(count="All"), name="all")) is not None
    everything = a_claim(a_request(count="All", select='!("index" in device.attributes["gpu.example.com"]) || ' + EVEN))
    assert world.chosen(everything) == ["req=gpu-0", "req=gpu-2", "req=gpu-x"]


@pytest.mark.parametrize("obstacle", ["in use", "tainted", "none selected"])
def test_a_request_for_all_fails_when_one_device_cannot_be_had(obstacle: str) -> None:
    devices = gpus(2)
    if obstacle == "tainted":
        devices.append(a_device("bad", index=8, taints=["broken"]))
    world = World([a_slice("s", devices)])
    if obstacle == "in use":
        world.take(a_claim(a_request(), name="user"))
    select = "false" if obstacle == "none selected" else EVEN
    assert world.chosen(a_claim(a_request(count="All", select=select))) is None
    assert world.verdicts(a_claim(a_request(count="All", select=select))) == [Verdict.CANNOT_ALLOCATE]


def test_admin_access_shares_devices_between_claims_but_not_within_one() -> None:
    world = World([a_slice("s", gpus(2))])
    world.take(a_claim(a_request(count=2), name="user"))
    admin = a_claim(a_request("a", adminAccess=True), a_request("b", adminAccess=True), name="admin")
    assert world.chosen(admin) == ["a=gpu-0", "b=gpu-1"]
    taken = world.take(admin)
    assert [item.admin_access for item in taken.devices.results] == [True, True]
    assert world.chosen(a_claim(a_request(count="All", adminAccess=True))) == ["req=gpu-0", "req=gpu-1"]
    assert world.chosen(a_claim(a_request(count=3, adminAccess=True))) is None
    world.allocated.set_claim("uid-user", None)
    assert world.chosen(a_claim(a_request(count=2))) == ["req=gpu-0", "req=gpu-1"]


# -- lists of requests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (a_request("sub-0", 4), "too many"),
        (a_request("sub-0", select='device.driver == "other"'), "no such device"),
        (a_request("sub-0", "All", select="false"), "none of all"),
        (a_request("sub-0", select=LARGE), "tainted"),
    ],
)
def test_the_first_request_of_a_list_that_can_be_served_is_taken(first: JSON, why: str) -> None:
    devices = [a_device("small-0", size="small"), a_device("large-0", size="large", taints=["broken"])]
    world = World([a_slice("s", devices)])
    claim = a_claim(any_of("req", first, a_request("sub-1", select=SMALL), a_request("sub-2", 1)))
    assert world.chosen(claim) == ["req/sub-1=small-0"], why


def test_nodes_are_scored_by_the_places_in_lists() -> None:
    nodes = [a_node(f"n{number}") for number in range(3)]
    large = a_slice("a", [a_device("l", size="large"), a_device("s", size="small")], node="n0")
    small = a_slice("b", [a_device("s", size="small"), a_device("t", size="small")], node="n1")
    world = World([large, small], nodes=nodes)
    claim = a_claim(any_of("req", a_request("l", select=LARGE), a_request("s", select=SMALL)), a_request("other"))
    demand = world.allocator.demand([claim])
    assert world.allocator.preferences(demand, np.arange(3)).tolist() == [8, 7, 0]
    world.take(a_claim(a_request(select=LARGE), name="holder"))
    assert world.allocator.preferences(demand, np.arange(3)).tolist() == [0, 7, 0]


def test_a_later_request_makes_a_list_choose_again() -> None:
    world = World([a_slice("s", sizes())])
    claim = a_claim(any_of("req", a_request("two", 2), a_request("one")), a_request("last", 2))
    assert world.chosen(claim) == ["req/one=small-0", "last=large-0", "last=small-1"]


def test_lists_that_would_exceed_the_limit_are_narrowed_quickly() -> None:
    world = World([a_slice("s", gpus(64))])
    claim = a_claim(
        any_of("a", a_request("large", 32), a_request("small", 16)),
        any_of("b", a_request("large", 32), a_request("small", 16)),
    )
    chosen = world.chosen(claim)
    assert chosen is not None
    assert len(chosen) == MAX_RESULTS
    assert {text.partition("=")[0] for text in chosen} == {"a/small", "b/small"}
    demand = world.allocator.demand([claim])
    view = world.allocator._view(world.nodes[0])
    search = DeviceSearch(demand.remembered.wanted, view.pools, demand.remembered.supply, lambda: False)
    search.run()
    assert search.steps <= 80


def test_a_claim_gets_32_devices_and_no_more() -> None:
    world = World([a_slice("s", gpus(40))])
    assert len(world.chosen(a_claim(a_request(count=32))) or ()) == 32
    with pytest.raises(AllocationError) as caught:
        world.allocate(a_claim(a_request(count=33)))
    assert str(caught.value) == "claim ns/claim: number of requested devices 33 exceeds the claim limit of 32"
    assert world.chosen(a_claim(a_request(count=20), name="a"), a_claim(a_request(count=20), name="b")) is not None


# -- constraints -------------------------------------------------------------------------------------------


def test_devices_match_in_an_attribute() -> None:
    devices = [a_device("a", numa=0), a_device("b", numa=1), a_device("none"), a_device("c", numa=1)]
    world = World([a_slice("s", devices)])
    assert world.chosen(a_claim(a_request(count=2), constraints=[MATCH_NUMA])) == ["req=b", "req=c"]
    assert world.chosen(a_claim(a_request(count=3), constraints=[MATCH_NUMA])) is None
    # a constraint concerns the requests that it names
    claim = a_claim(a_request("x", 2), a_request("y"), constraints=[{**MATCH_NUMA, "requests": ["x"]}])
    assert world.chosen(claim) == ["x=b", "x=c", "y=a"]


def test_values_of_different_types_do_not_match() -> None:
    devices = [a_device("a", numa=1), a_device("b", numa="1"), a_device("c", numa={"version": "1.0.0"})]
    world = World([a_slice("s", devices)])
    assert world.chosen(a_claim(a_request(count=2), constraints=[MATCH_NUMA])) is None


def test_the_domain_of_an_attribute_may_be_written_or_not() -> None:
    devices = [a_device("a", numa=1), a_device("b", attributes={"gpu.example.com/numa": 3}), a_device("c", numa=3)]
    world = World([a_slice("s", devices)])
    assert world.chosen(a_claim(a_request(count=2), constraints=[MATCH_NUMA])) == ["req=b", "req=c"]


def test_devices_are_distinct_in_an_attribute() -> None:
    devices = [a_device("a", numa=0), a_device("b", numa=0), a_device("c", numa=1)]
    world = World([a_slice("s", devices)])
    claim = a_claim(a_request("x"), a_request("y"), constraints=[{"distinctAttribute": "gpu.example.com/numa"}])
    assert world.chosen(claim) == ["x=a", "y=c"]


@pytest.mark.parametrize("kind", ["matchAttribute", "distinctAttribute"])
def test_a_list_is_an_attribute_of_the_first_device_and_compares_with_nothing(kind: str) -> None:
    """Without the gate DRAListTypeAttributes; a device without the attribute does not satisfy a constraint at all."""
    devices = [a_device("a"), a_device("b", numa={"ints": [1]}), a_device("c", numa={"ints": [2]})]
    world = World([a_slice("s", devices)])
    constraints = [{kind: "gpu.example.com/numa"}]
    assert world.chosen(a_claim(a_request(), constraints=constraints)) == ["req=b"]
    assert world.chosen(a_claim(a_request("x"), a_request("y"), constraints=constraints)) is None


def test_a_constraint_on_one_subrequest_counts_when_it_is_chosen() -> None:
    devices = [a_device("a", numa=0), a_device("b", numa=1), a_device("c", numa=1)]
    world = World([a_slice("s", devices)])
    claim = a_claim(
        any_of("x", a_request("p"), a_request("q")),
        a_request("y", 2),
        constraints=[{**MATCH_NUMA, "requests": ["x/p", "y"]}],
    )
    assert world.chosen(claim) == ["x/q=a", "y=b", "y=c"]


def test_a_request_for_all_that_breaks_a_constraint_is_an_error() -> None:
    world = World([a_slice("s", [a_device("a", numa=0), a_device("b", numa=1)])])
    with pytest.raises(AllocationError) as caught:
        world.allocate(a_claim(a_request(count="All"), constraints=[MATCH_NUMA]))
    assert str(caught.value) == (
        "claim ns/claim, request req: cannot add device gpu.example.com/n1/b because a claim constraint would not be satisfied"
    )


# -- taints ------------------------------------------------------------------------------------------------

TOLERATIONS: list[tuple[str, list[JSON], bool]] = [
    ("k", [], False),
    ("k:NoExecute", [], False),
    ("k:None", [], True),
    ("k:Unheard", [], True),
    ("k", [{"operator": "Exists"}], True),
    ("k", [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], True),
    ("k", [{"key": "k", "operator": "Exists", "effect": "NoExecute"}], False),
    ("k", [{"key": "k", "operator": "Equal", "value": ""}], True),
    ("k", [{"key": "k", "value": "other"}], False),
    ("k", [{"key": "other", "operator": "Exists"}], False),
    ("k", [{"key": "k", "operator": "In"}], False),
]


@pytest.mark.parametrize(("taint", "tolerations", "fits"), TOLERATIONS)
def test_taints_keep_devices_from_requests_that_do_not_tolerate_them(
    taint: str, tolerations: list[JSON], fits: bool
) -> None:
    world = World([a_slice("s", [a_device("a", taints=[taint])])])
    claim = a_claim(a_request(tolerations=tolerations))
    assert (world.chosen(claim) is not None) is fits
    off = World(
        [a_slice("s", [a_device("a", taints=[taint])])],
        features=dataclasses.replace(DEFAULT_FEATURES, device_taints=False),
    )
    assert off.chosen(claim) is not None


# -- pools -------------------------------------------------------------------------------------------------


def test_an_older_generation_is_ignored() -> None:
    world = World([a_slice("old", ["x"]), a_slice("new", ["y"], generation=2)])
    assert world.chosen(a_claim(a_request())) == ["req=y"]
    # also when the newer one is for other nodes, if the old one is not complete by itself
    world = World(
        [a_slice("old", ["x"], pool="p", count=2), a_slice("new", ["y"], node="n2", pool="p", generation=2, count=2)]
    )
    assert world.chosen(a_claim(a_request())) is None
    assert world.chosen(a_claim(a_request(count="All"))) is None  # no error: the pool is obsolete, not incomplete


def test_an_incomplete_pool_offers_nothing() -> None:
    world = World([a_slice("s", ["x"], count=2), a_slice("t", ["y"], pool="other")])
    assert world.chosen(a_claim(a_request())) == ["req=y"]
    assert world.chosen(a_claim(a_request(count=2))) is None
    with pytest.raises(AllocationError) as caught:
        world.allocate(a_claim(a_request(count="All")))
    assert str(caught.value) == (
        "claim ns/claim, request req: asks for all devices, but resource pool gpu.example.com/n1 is currently being updated"
    )
    world.inventory.put(a_slice("s2", ["z"], count=2))
    assert world.chosen(a_claim(a_request(count="All"))) == ["req=x", "req=z", "req=y"]
    world.inventory.put(a_slice("s3", ["z3"], count=2))  # one too many
    assert world.chosen(a_claim(a_request(count=2))) is None


INVALID: list[tuple[str, list[JSON], JSON | None]] = [
    ("a device twice", [a_device("x"), a_device("x")], None),
    ("no such counter set", [a_device("x", uses={"memory": 1})], None),
    ("no such counter", [a_device("x", uses={"memory": 1})], {"slots": 1}),
]


@pytest.mark.parametrize(("why", "devices", "counters"), INVALID)
def test_slices_that_contradict_each_other_make_a_pool_invalid(
    why: str, devices: list[JSON], counters: JSON | None
) -> None:
    slices = [a_slice("s", devices, count=1 if counters is None else 2)]
    if counters is not None:
        slices.append(a_slice("c", count=2, counters=counters))
    world = World(slices)
    with pytest.raises(InvalidPoolsError, match=r"^invalid resource pools were encountered$"):
        world.allocate(a_claim(a_request()))
    assert world.verdicts(a_claim(a_request())) == [Verdict.INVALID_POOLS], why
    with pytest.raises(AllocationError, match=r"resource pool gpu.example.com/n1 is currently invalid$"):
        world.allocate(a_claim(a_request(count="All")))
    # another pool that serves the claim is enough
    world.inventory.put(a_slice("good", ["y"], pool="other"))
    assert world.chosen(a_claim(a_request())) == ["req=y"]


def test_an_invalid_pool_with_counters_is_seen_by_every_node() -> None:
    slices = [
        a_slice("c", node="n2", count=2, counters={"m": 1}),
        a_slice("d", [a_device("x", uses={"other": 1})], node="n2", count=2),
    ]
    world = World(slices, nodes=[a_node("n1"), a_node("n2")])
    assert world.verdicts(a_claim(a_request())) == [Verdict.INVALID_POOLS, Verdict.INVALID_POOLS]
    world.inventory.put(a_slice("d", [a_device("x", uses={"m": 1})], node="n2", count=2))
    assert world.verdicts(a_claim(a_request())) == [Verdict.CANNOT_ALLOCATE, Verdict.FITS]
    world.inventory.remove("d")
    assert world.verdicts(a_claim(a_request(count="All"))) == [Verdict.ERROR, Verdict.ERROR]


# -- nodes -------------------------------------------------------------------------------------------------

EAST: JSON = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["east"]}]}]}
FAST: JSON = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "net", "operator": "Exists"}]}]}


def terms_of(world: World, *claims: Any) -> Any:
    results = world.allocate(*claims)
    assert results is not None
    selector = results[0].node_selector
    if selector is None:
        return None
    (term,) = selector.node_selector_terms
    return [(item.key, item.operator, *item.values) for item in (*term.match_fields, *term.match_expressions)]


def test_the_node_selector_says_where_all_devices_are_available() -> None:
    east, fast = a_slice("e", ["e"], pool="e", nodeSelector=EAST), a_slice("f", ["f"], pool="f", nodeSelector=FAST)
    node = a_node("n1", zone="east", net="x")
    here = [("metadata.name", "In", "n1")]
    claim = a_claim(a_request(count=2))
    assert terms_of(World([east, fast], nodes=[node]), claim) == [("zone", "In", "east"), ("net", "Exists")]
    assert terms_of(World([east, a_slice("g", ["g"], pool="g", nodeSelector=EAST)], nodes=[node]), claim) == [
        ("zone", "In", "east")
    ]
    assert terms_of(World([a_slice("a", ["a", "b"], pool="a", allNodes=True)]), claim) is None
    assert terms_of(World([east, a_slice("l", ["l"])], nodes=[node]), claim) == here
    bound = a_slice("b", [a_device("b", bindsToNode=True)], pool="b", nodeSelector=FAST)
    assert terms_of(World([east, bound], nodes=[node]), claim) == here


def test_a_slice_with_several_terms_cannot_be_used() -> None:
    terms = {"nodeSelectorTerms": [*EAST["nodeSelectorTerms"], *FAST["nodeSelectorTerms"]]}
    world = World([a_slice("s", ["x"], nodeSelector=terms)], nodes=[a_node("n1", zone="east")])
    with pytest.raises(AllocationError) as caught:
        world.allocate(a_claim(a_request()))
    assert (
        str(caught.value) == "create NodeSelector for claim claim: unsupported ResourceSlice.NodeSelector with 2 terms"
    )
    assert world.verdicts(a_claim(a_request())) == [Verdict.ERROR]


def test_devices_may_select_nodes_themselves() -> None:
    devices = [
        a_device("here", nodeName="n1"), a_device("there", nodeName="n2"), a_device("east", nodeSelector=EAST), a_device("all", allNodes=True),
    ]  # fmt: skip
    nodes = [a_node("n1"), a_node("n2", zone="east")]
    world = World([a_slice("s", devices, perDeviceNodeSelection=True)], nodes=nodes)
    claim = a_claim(a_request(count="All"))
    assert world.chosen(claim) == ["req=here", "req=all"]
    assert world.chosen(claim, on=1) == ["req=there", "req=east", "req=all"]


def test_labels_of_a_node_decide_anew_when_they_change() -> None:
    world = World([a_slice("s", ["x"], nodeSelector=EAST)], nodes=[a_node("n1")])
    claim = a_claim(a_request())
    assert world.verdicts(claim) == [Verdict.CANNOT_ALLOCATE]
    world.nodes[0] = a_node("n1", zone="east")
    world.allocator.set_node(0, world.nodes[0])
    assert world.verdicts(claim) == [Verdict.FITS]
    world.allocator.set_node(0, None)
    assert world.verdicts(claim) == [Verdict.CANNOT_ALLOCATE]


# -- shared counters ---------------------------------------------------------------------------------------


def partitions(*uses: int) -> list[JSON]:
    return [a_device(f"p-{index}", uses={"memory": f"{amount}Gi"}) for index, amount in enumerate(uses)]


def test_partitions_share_the_counters_of_their_pool() -> None:
    counters = a_slice("c", count=2, counters={"memory": "40Gi"})
    world = World([counters, a_slice("d", partitions(40, 20, 20), count=2)])
    assert world.chosen(a_claim(a_request(count=2))) == ["req=p-1", "req=p-2"]
    world.take(a_claim(a_request(), name="whole"))
    assert world.chosen(a_claim(a_request())) is None
    world.allocated.set_claim("uid-whole", None)
    assert world.chosen(a_claim(a_request())) == ["req=p-0"]
    off = dataclasses.replace(DEFAULT_FEATURES, partitionable_devices=False)
    assert World([counters, a_slice("d", partitions(40), count=2)], features=off).chosen(a_claim(a_request())) is None


def test_a_device_on_another_node_consumes_the_counters_of_their_pool() -> None:
    slices = [
        a_slice("c", pool="p", node="n1", count=3, counters={"memory": "40Gi"}),
        a_slice("d", partitions(30), pool="p", count=3),
        a_slice("e", [a_device("q-0", uses={"memory": "20Gi"})], pool="p", node="n2", count=3),
    ]
    world = World(slices, nodes=[a_node("n1"), a_node("n2")])
    assert world.verdicts(a_claim(a_request())) == [Verdict.FITS, Verdict.FITS]
    world.take(a_claim(a_request(), name="taken"), on=1)
    assert world.verdicts(a_claim(a_request())) == [Verdict.CANNOT_ALLOCATE, Verdict.CANNOT_ALLOCATE]


def test_a_device_tried_in_vain_keeps_its_part_of_the_counters_as_upstream() -> None:
    devices = [a_device("tainted", uses={"memory": 30}, taints=["broken"]), a_device("good", uses={"memory": 20})]
    slices = [a_slice("c", count=2, counters={"memory": 40}), a_slice("d", devices, count=2)]
    assert World(slices).chosen(a_claim(a_request())) is None
    assert World(slices, strict_counters=True).chosen(a_claim(a_request())) == ["req=good"]


def test_a_device_keeps_its_counters_though_a_request_finds_too_few_devices() -> None:
    """The first alternative wants two of them; what the only one takes is not there for the second alternative."""
    devices = [a_device("big", uses={"memory": 30}, taints=["broken"]), a_device("small", uses={"memory": 20})]
    slices = [a_slice("c", count=2, counters={"memory": 40}), a_slice("d", devices, count=2)]
    select = 'device.attributes["gpu.example.com"].size == "{}"'
    for device, size in zip(devices, ("big", "small"), strict=True):
        device["attributes"] = {"size": {"string": size}}
    slices[1] = a_slice("d", devices, count=2)
    claim = a_claim(
        any_of("req", a_request("two", 2, select=select.format("big")), a_request("one", select=select.format("small")))
    )
    assert World(slices).chosen(claim) is None
    assert World(slices, strict_counters=True).chosen(claim) == ["req/one=small"]


def test_of_all_devices_one_that_a_constraint_rejects_is_an_error_though_its_capacity_is_used_up() -> None:
    world = World([a_slice("s", [shared("a", index=1), shared("b", index=2)])])
    claim = a_claim(
        a_request("first"), a_request("rest", "All"), constraints=[{"distinctAttribute": "gpu.example.com/index"}]
    )
    with pytest.raises(AllocationError, match=r"request rest: cannot add device .*/a because a claim constraint"):
        world.allocate(claim)


def test_a_pool_is_tried_last_for_the_conditions_of_a_device_for_another_node() -> None:
    slow = a_device("slow", nodeName="n2", bindingConditions=["ready"])
    slices = [
        a_slice("a", [a_device("quick", allNodes=True), slow], pool="a", perDeviceNodeSelection=True),
        a_slice("b", ["local"], pool="b"),
    ]
    assert World(slices).chosen(a_claim(a_request())) == ["req=local"]
    plain = a_slice("a", [a_device("quick", allNodes=True)], pool="a", perDeviceNodeSelection=True)
    assert World([plain, slices[1]]).chosen(a_claim(a_request())) == ["req=quick"]


# -- consumable capacity -----------------------------------------------------------------------------------


def shared(name: str = "nic", value: str = "10Gi", policy: JSON | None = None, **fields: Any) -> JSON:
    entry = {"value": value, **({"requestPolicy": policy} if policy else {})}
    return a_device(name, {"bandwidth": entry}, allowMultipleAllocations=True, **fields)


def consumed(world: World, **request: Any) -> Any:
    results = world.allocate(a_claim(a_request(**request)))
    if results is None:
        return None
    (item,) = results[0].devices.results
    assert (item.share_id is not None) == (item.consumed_capacity is not None)
    return item.consumed_capacity["bandwidth"] if item.consumed_capacity else None


RANGE: JSON = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}}
VALUES: JSON = {"default": "2Gi", "validValues": ["2Gi", "4Gi"]}
AMOUNTS: list[tuple[JSON | None, str | None, str | None]] = [
    (None, None, "10Gi"),
    (None, "3Gi", "3Gi"),
    (None, "3072Mi", "3Gi"),
    (None, "11Gi", None),
    ({"default": "5Gi"}, None, "5Gi"),
    (RANGE, None, "1Gi"),
    (RANGE, "100Mi", "1Gi"),
    (RANGE, "1500Mi", "2Gi"),
    (RANGE, "2Gi", "2Gi"),
    (RANGE, "9Gi", None),
    (VALUES, None, "2Gi"),
    (VALUES, "1Gi", "2Gi"),
    (VALUES, "3Gi", "4Gi"),
    (VALUES, "5Gi", None),
    ({"default": "3", "validRange": {"min": "2", "step": "2"}}, None, "3"),
]


@pytest.mark.parametrize(("policy", "requested", "want"), AMOUNTS)
def test_policies_decide_what_a_share_consumes(policy: JSON | None, requested: str | None, want: str | None) -> None:
    world = World([a_slice("s", [shared(policy=policy)])])
    amounts = {} if requested is None else {"bandwidth": requested}
    assert consumed(world, amounts=amounts) == want


def test_shares_fill_a_device_and_no_more() -> None:
    world = World([a_slice("s", [shared("a"), shared("b", "4Gi")])])
    request = a_request(amounts={"bandwidth": "4Gi"})
    ids = {world.take(a_claim(request, name=f"c{number}")).devices.results[0].share_id for number in range(3)}
    assert len(ids) == 3
    assert world.chosen(a_claim(request)) is None
    world.allocated.set_claim("uid-c0", None)
    assert world.chosen(a_claim(request)) == ["req=a"]
    # two shares in one claim
    empty = World([a_slice("s", [shared("a")])])
    two = a_claim(a_request("x", amounts={"bandwidth": "4Gi"}), a_request("y", amounts={"bandwidth": "4Gi"}))
    assert empty.chosen(two) == ["x=a", "y=a"]
    assert empty.chosen(a_claim(*(a_request(f"r{n}", amounts={"bandwidth": "4Gi"}) for n in range(3)))) is None


def test_a_share_without_capacity_is_charged_its_counters_again_in_every_attempt() -> None:
    device = a_device("a", uses={"memory": 4}, allowMultipleAllocations=True)
    slices = [a_slice("c", count=2, counters={"memory": 7}), a_slice("d", [device], count=2)]
    world = World(slices)
    assert world.chosen(a_claim(a_request("x"), a_request("y"))) == ["x=a", "y=a"]  # once in an attempt
    world.take(a_claim(a_request(), name="first"))
    assert world.chosen(a_claim(a_request())) is None


@pytest.mark.parametrize("amount", ["0", "1"])
def test_a_share_of_any_amount_has_taken_the_counters_for_later_attempts(amount: str) -> None:
    slices = [a_slice("c", count=2, counters={"memory": 7}), a_slice("d", [shared("a", uses={"memory": 4})], count=2)]
    world = World(slices)
    world.take(a_claim(a_request(amounts={"bandwidth": amount}), name="first"))
    assert world.chosen(a_claim(a_request(amounts={"bandwidth": amount}))) == ["req=a"]


def test_one_request_never_gets_two_shares_of_a_device() -> None:
    world = World([a_slice("s", [shared("a")])])
    assert world.chosen(a_claim(a_request(count=2, amounts={"bandwidth": "1Gi"}))) is None


def test_a_share_that_is_undone_gives_everything_back() -> None:
    devices = [shared("a", size="x", uses={"memory": 30}), shared("b", size="y", uses={"memory": 10})]
    slices = [a_slice("c", count=2, counters={"memory": 30}), a_slice("d", devices, count=2)]
    world = World(slices, strict_counters=True)
    claim = a_claim(
        a_request("any", amounts={"bandwidth": "6Gi"}),
        a_request("y", amounts={"bandwidth": "4Gi"}, select='device.attributes["gpu.example.com"].size == "y"'),
    )
    # "a" takes all counters, so "any" has to be "b"; afterwards the counters of "a" count again
    assert world.chosen(claim) == ["any=b", "y=b"]
    again = a_claim(*claim_requests(claim), a_request("rest", amounts={"bandwidth": "1Gi"}))
    assert world.chosen(again) is None


def claim_requests(claim: ResourceClaim) -> list[JSON]:
    return [to_builtins(request) for request in claim.spec.devices.requests]


def test_a_request_for_a_capacity_that_a_device_lacks_passes_it_by() -> None:
    world = World([a_slice("s", [a_device("plain"), a_device("big", {"bandwidth": "10Gi"})])])
    results = world.allocate(a_claim(a_request(amounts={"bandwidth": "1Gi"})))
    assert results is not None
    (item,) = results[0].devices.results
    assert (item.device, item.share_id, item.consumed_capacity) == ("big", None, None)


def test_a_device_with_shares_that_is_exclusive_now_is_refused() -> None:
    world = World([a_slice("s", [shared("a")])])
    world.take(a_claim(a_request(amounts={"bandwidth": "1Gi"}), name="sharer"))
    world.inventory.put(a_slice("s", [a_device("a", {"bandwidth": "10Gi"})]))
    assert world.chosen(a_claim(a_request())) is None
    world.allocated.set_claim("uid-sharer", None)
    assert world.chosen(a_claim(a_request())) == ["req=a"]


def test_the_first_share_consumes_the_counters() -> None:
    devices = [shared("a", uses={"memory": 30}), shared("b", uses={"memory": 30})]
    world = World([a_slice("c", count=2, counters={"memory": 40}), a_slice("d", devices, count=2)])
    claim = a_claim(*(a_request(f"r{n}", amounts={"bandwidth": "1Gi"}) for n in range(3)))
    assert world.chosen(claim) == ["r0=a", "r1=a", "r2=a"]
    world.take(a_claim(a_request(amounts={"bandwidth": "9Gi"}), name="first"))
    assert world.chosen(a_claim(a_request(amounts={"bandwidth": "1Gi"}))) == ["req=a"]
    assert world.chosen(a_claim(a_request(amounts={"bandwidth": "2Gi"}))) is None


# -- results -----------------------------------------------------------------------------------------------


def test_a_result_repeats_tolerations_and_binding_conditions() -> None:
    device = a_device("a", bindingConditions=["ready"])
    world = World([a_slice("s", [device])])
    tolerations = [{"key": "k", "operator": "Exists"}]
    (result,) = world.allocate(a_claim(a_request(tolerations=tolerations))) or ()
    (item,) = result.devices.results
    assert (item.request, item.driver, item.pool, item.device) == ("req", DRIVER, "n1", "a")
    assert [toleration.key for toleration in item.tolerations] == ["k"]
    assert item.binding_conditions == ("ready",)
    off = Features(device_binding_and_status=False)
    assert World([a_slice("s", [device])], features=off).chosen(a_claim(a_request())) is None


def opaque(text: str, *requests: str) -> JSON:
    return {"opaque": {"driver": DRIVER, "parameters": text}, **({"requests": list(requests)} if requests else {})}


def test_configuration_comes_from_classes_and_then_from_the_claim() -> None:
    classes = [a_class("gpu", config=[opaque("of gpu")]), a_class("nic", config=[opaque("of nic")])]
    world = World([a_slice("s", gpus(5))], classes)
    claim = a_claim(
        a_request("a"), a_request("b", cls="nic"), any_of("c", a_request("p", 9), a_request("q")),
        config=[opaque("all"), opaque("two", "a", "c/q"), opaque("lost", "c/p")],
    )  # fmt: skip
    (result,) = world.allocate(claim) or ()
    assert [(item.source, item.requests, item.opaque and item.opaque.parameters) for item in result.devices.config] == [
        ("FromClass", ("a", "c/q"), "of gpu"),
        ("FromClass", ("b",), "of nic"),
        ("FromClaim", (), "all"),
        ("FromClaim", ("a", "c/q"), "two"),
        ("FromClaim", ("a", "c/q"), "two"),
    ]


# -- bad input ---------------------------------------------------------------------------------------------

OFF = Features(admin_access=False, prioritized_list=False, consumable_capacity=False)
ERRORS: list[tuple[Features, Any, str]] = [
    (OFF, a_claim(any_of("req", a_request("sub"))), "claim ns/claim, request req: has subrequests, but the DRAPrioritizedList feature is disabled"),
    (OFF, a_claim(a_request(adminAccess=False)), "claim ns/claim, request req: admin access is requested, but the feature is disabled"),
    (OFF, a_claim(a_request(amounts={"m": 1})), "claim ns/claim, request req: has capacity requests, but the DRAConsumableCapacity feature is disabled"),
    (DEFAULT_FEATURES, a_claim(a_request(cls="")), "claim ns/claim, request req: missing device class name (unsupported request type?)"),
    (DEFAULT_FEATURES, a_claim({"name": "req"}), "claim ns/claim, request req: missing device class name (unsupported request type?)"),
    (DEFAULT_FEATURES, a_claim(a_request(cls="nowhere")), 'claim ns/claim, request req: could not retrieve device class nowhere: deviceclass.resource.k8s.io "nowhere" not found'),
    (DEFAULT_FEATURES, a_claim(any_of("req", a_request("sub", cls="nowhere"))), 'claim ns/claim, request sub: could not retrieve device class nowhere: deviceclass.resource.k8s.io "nowhere" not found'),
    (DEFAULT_FEATURES, a_claim(a_request(allocationMode="Some")), "claim ns/claim, request req: unsupported count mode Some"),
    (DEFAULT_FEATURES, a_claim(a_request(selectors=[{}])), "claim ns/claim, request req, selector #0: CEL expression empty (unsupported selector type?)"),
    (DEFAULT_FEATURES, a_claim(a_request(), constraints=[{}]), "claim ns/claim, constraint #0: empty constraint (unsupported constraint type?)"),
    (DEFAULT_FEATURES, a_claim(a_request(select="device.driver ==")), "claim ns/claim: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:17: Syntax error"),
    (DEFAULT_FEATURES, a_claim(a_request(select="device.driver")), "claim ns/claim: selector #0: CEL compile error: must evaluate to bool or the unknown type, not string"),
    (DEFAULT_FEATURES, a_claim(a_request(select="device.nothere == 1")), "claim ns/claim: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:7: undefined field 'nothere'\n | device.nothere == 1\n | ......^"),
    (DEFAULT_FEATURES, a_claim(a_request(select='device.attributes["x"].y')), "claim ns/claim: selector #0: CEL runtime error: no such key: y"),
    (DEFAULT_FEATURES, a_claim(a_request(select='device.attributes["gpu.example.com"].index')), "claim ns/claim: selector #0: CEL runtime error: CEL result of type int could not be converted to bool: unsupported type conversion from 'int' to bool"),
    (DEFAULT_FEATURES, a_claim(a_request(select="lists.range(9999).all(i, lists.range(9999).all(j, true))")), "claim ns/claim: selector #0: CEL runtime error: operation cancelled: actual cost limit exceeded"),
    (DEFAULT_FEATURES, a_claim(a_request(cls="broken")), "class broken: selector #1: CEL runtime error: no such key: nothere"),
]  # fmt: skip


@pytest.mark.parametrize(("features", "claim", "text"), ERRORS, ids=[text[:60] for _, _, text in ERRORS])
def test_bad_input_is_reported_with_upstreams_text(features: Features, claim: Any, text: str) -> None:
    classes = [a_class(), a_class("broken", "true", 'device.attributes["gpu.example.com"].nothere == 1')]
    world = World([a_slice("s", gpus(1))], classes, features=features)
    with pytest.raises(AllocationError) as caught:
        world.allocate(claim)
    assert str(caught.value).startswith(text)
    assert world.verdicts(claim) == [Verdict.ERROR]


def test_an_attribute_that_cannot_be_read_is_an_error_for_every_selector() -> None:
    for value, text in (
        ({}, "attribute bad: unsupported attribute value"),
        ({"ints": [1]}, "attribute bad: unsupported attribute value"),
        ({"version": "1"}, "attribute bad: parse semantic version: No Major.Minor.Patch elements found"),
    ):
        world = World([a_slice("s", [a_device("x", bad=value)])])
        with pytest.raises(AllocationError) as caught:
            world.allocate(a_claim(a_request(select="true")))
        assert str(caught.value) == f"claim ns/claim: selector #0: CEL runtime error: {text}"
        assert world.chosen(a_claim(a_request())) == ["req=x"]


def test_an_error_matters_only_where_the_search_comes_to_it() -> None:
    devices = [a_device("good", index=0), a_device("bad")]
    world = World([a_slice("s", devices)], nodes=[a_node("n1"), a_node("n2")])
    assert world.chosen(a_claim(a_request(select=EVEN))) == ["req=good"]
    with pytest.raises(AllocationError, match=r"no such key: index"):
        world.allocate(a_claim(a_request(count=2, select=EVEN)))
    # a device that the claim has already is not evaluated for another of its requests
    claim = a_claim(a_request("both", 2), a_request("admin", adminAccess=True, select=EVEN))
    assert world.chosen(claim) is None
    # nor is one that is in use
    world.take(a_claim(a_request(select='!("index" in device.attributes["gpu.example.com"])'), name="holder"))
    assert world.chosen(a_claim(a_request(count=2, select=EVEN))) is None


# -- what is shared ----------------------------------------------------------------------------------------


def test_equal_nodes_share_one_search_and_equal_devices_one_evaluation() -> None:
    nodes = [a_node(f"n{index}") for index in range(20)]
    slices = [
        a_slice(f"s{index}", [a_device(f"gpu-{n}", index=n, serial=f"{index}/{n}") for n in range(4)], node=f"n{index}")
        for index in range(20)
    ]
    world = World(slices, nodes=nodes)
    claim = a_claim(a_request(count=2, select=EVEN))
    assert world.verdicts(claim) == [Verdict.FITS] * 20
    assert world.allocator.searches == 1
    assert world.allocator._selectors.selector(EVEN).evaluations == 4
    world.take(claim, on=7)
    assert world.verdicts(claim)[7] is Verdict.CANNOT_ALLOCATE
    assert world.allocator.searches == 2
    other = a_claim(a_request(count=2, select=EVEN), name="other")
    assert world.verdicts(other) == world.verdicts(claim)
    assert world.allocator.searches == 2
    assert world.chosen(other, on=3) == ["req=gpu-0", "req=gpu-2"]


def test_a_changed_class_is_evaluated_again() -> None:
    world = World([a_slice("s", sizes())], [a_class("gpu", SMALL)])
    assert world.chosen(a_claim(a_request())) == ["req=small-0"]
    world.classes["gpu"] = a_class("gpu", LARGE)
    assert world.chosen(a_claim(a_request())) == ["req=large-0"]


def test_a_pool_that_nodes_have_in_common_is_searched_once_for_each_kind_of_node() -> None:
    nodes = [a_node(f"n{index}") for index in range(20)]
    fabric = a_slice("fabric", gpus(8), pool="fabric", allNodes=True)
    local = [a_slice(f"s{index}", ["x"], node=f"n{index}", driver="other.example.com") for index in range(10)]
    world = World([fabric, *local], [a_class("gpu", f'device.driver == "{DRIVER}"'), a_class("any")], nodes)
    claim = a_claim(a_request(count=2))
    assert world.verdicts(claim) == [Verdict.FITS] * 20
    assert world.allocator.searches == 2
    for number in range(3):
        world.take(a_claim(a_request(count=2), name=f"c{number}"), on=number)
        assert world.verdicts(claim) == [Verdict.FITS] * 20
    assert world.allocator.searches == 8
    world.take(a_claim(a_request(count=2), name="last"), on=19)
    assert world.verdicts(claim) == [Verdict.CANNOT_ALLOCATE] * 20
    # a claim that the pool does not serve is not searched again
    other = a_claim(a_request(cls="any", select='device.driver == "other.example.com"'))
    before = world.verdicts(other)
    assert before == [Verdict.FITS] * 10 + [Verdict.CANNOT_ALLOCATE] * 10
    searches = world.allocator.searches
    world.allocated.set_claim("uid-last", None)
    assert world.verdicts(other) == before
    assert world.allocator.searches == searches


def test_a_pool_may_have_slices_for_one_node_and_for_all() -> None:
    slices = [
        a_slice("all", ["a"], pool="p", count=2, allNodes=True),
        a_slice("one", ["b"], pool="p", count=2, node="n1"),
        a_slice("fabric", ["c"], pool="q", allNodes=True),
    ]
    world = World(slices, nodes=[a_node("n1"), a_node("n2")])
    everything = a_claim(a_request(count="All"))
    assert world.chosen(everything) == ["req=a", "req=b", "req=c"]
    assert world.chosen(everything, on=1) == ["req=a", "req=c"]
    world.take(a_claim(a_request(), name="user"), on=1)
    assert world.verdicts(a_claim(a_request(count=2))) == [Verdict.FITS, Verdict.CANNOT_ALLOCATE]


def test_two_allocators_may_share_what_they_read() -> None:
    world = World([a_slice("fabric", gpus(2), pool="fabric", allNodes=True)], nodes=[a_node("n1"), a_node("n2")])
    other = Allocator(world.inventory, world.allocated, world.classes.get, now=lambda: 0.0, rng=random.Random(2))
    for row, node in enumerate(world.nodes):
        other.set_node(row, node)
    claim = a_claim(a_request(count=2))
    allocation = world.take(a_claim(a_request(), name="user"))
    for step in range(6):
        fits = step % 2 == 0
        world.allocated.set_claim("uid-user", None if fits else allocation)
        want = [Verdict.FITS if fits else Verdict.CANNOT_ALLOCATE] * 2
        assert world.verdicts(claim) == want
        if step % 3 == 0:  # the other one sees several changes at once
            assert other.verdicts(other.demand([claim]), np.arange(2)).tolist() == want

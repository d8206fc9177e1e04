"""Truth of explanations: in random clusters everything that is said is carried out in a fresh cluster, node by node."""

from __future__ import annotations

from itertools import combinations

from hypothesis import event, given
from msgspec.structs import replace
from truth_clusters import FEWER, World, device_worlds, drops, explained, replace_world, worlds

from kubesched.api.resource import ResourceSlice
from kubesched.explain.new_nodes import copy_of
from kubesched.scheduler.nodes import PodInfo

#: Kinds of nodes that are tried.
KINDS = 4


@FEWER
@given(worlds())
def test_obstacles_are_where_the_filters_reject(world: World) -> None:
    told = explained(world)
    if told is None:
        return
    house, found = told
    names = house.names(found.obstacles.rows)
    stands = {name for one in found.obstacles.found for name, here in zip(names, one.stands, strict=True) if here}
    assert stands == set(names)
    assert all(one.text and one.stands.any() for one in found.obstacles.found)
    for one in found.obstacles.found:
        event(one.plugin)


@FEWER
@given(worlds())
def test_remedies_hold_and_no_smaller_set_of_changes_does(world: World) -> None:
    told = explained(world)
    if told is None:
        return
    house, found = told
    for remedy in found.remedies:
        assert set(house.names(remedy.rows)) == world.after(house, remedy.changes).fitting()
    every = list(drops(house, world.new))
    if not found.remedies:
        event("nothing helps")
        assert not world.after(house, every).fitting()
        return
    fewest = min(len(remedy.changes) for remedy in found.remedies)
    event(f"{fewest} changes")
    for fewer in combinations(every, fewest - 1):
        assert not world.after(house, fewer).fitting()


@FEWER
@given(worlds())
def test_amounts_are_the_least_that_help(world: World) -> None:
    told = explained(world)
    if told is None:
        return
    house, found = told
    asked = PodInfo(world.new).fit_requests.milli_cpu
    for remedy in found.remedies:
        after = world.after(house, remedy.changes)
        left = PodInfo(after.new).fit_requests.milli_cpu
        if 0 < left < asked:
            event("less cpu")
            spec = after.new.spec
            (container,) = spec.containers
            more = replace(container.resources, requests={**container.resources.requests, "cpu": f"{left + 1}m"})
            spec = replace(spec, containers=(replace(container, resources=more),))
            assert not replace_world(after, new=replace(after.new, spec=spec)).fitting()


@FEWER
@given(worlds())
def test_evictions_make_room_and_no_part_of_them_does(world: World) -> None:
    check_evictions(world)


@FEWER
@given(device_worlds())
def test_evictions_free_devices_and_no_part_of_them_does(world: World) -> None:
    check_evictions(world)


def check_evictions(world: World) -> None:
    told = explained(world)
    if told is None or told[1].evictions is None:
        return
    evictions = told[1].evictions
    gone = set(evictions.pods)
    event(f"{len(gone)} evictions from {len(set(evictions.nodes))} nodes{', with claims' if evictions.frees else ''}")
    assert len(evictions.frees) == world.claims_held() - world.without(gone).claims_held() or not evictions.frees
    where = {one.key: one.spec.node_name for one in world.pods}
    assert [where[key] for key in evictions.pods] == list(evictions.nodes)
    for size in range(len(gone) + 1):
        for some in combinations(sorted(gone), size):
            assert (evictions.node in world.without(some).fitting()) == (size == len(gone))


@FEWER
@given(worlds())
def test_one_more_node_helps_where_it_is_said_and_nowhere_else(world: World) -> None:
    told = explained(world)
    if told is None:
        return
    house, found = told
    said = {one.like for one in found.new_nodes}
    table = house.cache.table
    helps = set()
    for node in world.nodes:
        info = table.get(node.name)
        assert info is not None
        copy = copy_of(table, info)
        more = tuple(
            replace(
                one,
                metadata=replace(one.metadata, name=f"{one.metadata.name}-new"),
                spec=replace(one.spec, node_name=copy.name, pool=replace(one.spec.pool, name=copy.name)),
            )
            for one in world.objects
            if isinstance(one, ResourceSlice) and one.spec.node_name == node.name
        )
        larger = replace_world(world, nodes=(*world.nodes, copy), objects=(*world.objects, *more))
        if copy.name in larger.fitting():
            helps.add(node.name)
    event(f"{len(said)} kinds")
    assert said <= helps
    if len(world.nodes) <= KINDS:
        assert bool(said) == bool(helps)

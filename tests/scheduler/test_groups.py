"""Pod groups: members are bound together or not at all, and nothing is left of a trial that failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from group_kit import GANG, TOPOLOGY, WHOLE, Cluster

from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.plugins.gang_scheduling import GangScheduling

WAITING = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)


def play(scenario: Callable[[Cluster], Awaitable[None]], gates: tuple[str, ...] = GANG) -> None:
    async def main() -> None:
        async with Cluster(gates) as cluster:
            await scenario(cluster)
            assert cluster.problems() == []

    run_virtual(main())


# -- gangs -------------------------------------------------------------------------------------------------


def test_a_gang_that_fits_is_bound_as_a_whole_and_nobody_waits_at_permit() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "4")
        cluster.gang("g", 3)
        await asyncio.sleep(1)
        assert cluster.in_group("g") == ["g-0", "g-1", "g-2"]
        assert cluster.condition("g") == ("True", "Scheduled", "")
        assert len(cluster.scheduler.waiting_pods) == 0

    play(scenario)


def test_a_gang_that_is_short_of_room_binds_nobody_and_says_why() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.gang("g", 3)
        await asyncio.sleep(1)
        assert cluster.placed() == {}
        assert cluster.condition("g") == ("False", "Unschedulable", "pod group is unschedulable")
        texts = sorted(cluster.told(f"g-{number}") for number in range(3))
        assert texts[1:] == [WAITING, WAITING]
        assert texts[0].startswith("0/1 nodes are available: 1 Insufficient cpu.")

    play(scenario)


def test_a_gang_that_does_not_fit_costs_nothing_until_something_changes() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.gang("g", 3)
        await asyncio.sleep(1)
        before = len(cluster.cycles)
        await asyncio.sleep(200)
        assert len(cluster.cycles) == before
        cluster.node("n2", "1")
        await asyncio.sleep(15)
        assert len(cluster.in_group("g")) == 3

    play(scenario)


def test_members_of_a_gang_without_its_object_or_its_quorum_are_held_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "4")
        cluster.pod("g-0", "g")
        cluster.pod("g-1", "g")
        await asyncio.sleep(1)
        cluster.group("g", 3)
        await asyncio.sleep(1)
        assert cluster.cycles == []
        cluster.pod("g-2", "g")
        await asyncio.sleep(1)
        assert len(cluster.in_group("g")) == 3

    play(scenario)


def test_of_two_gangs_for_one_room_one_gets_all_of_it_and_the_other_nothing() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.node("n2", "2")
        for name in ("a", "b"):
            cluster.group(name, 3)
        for number in range(3):
            for name in ("a", "b"):
                cluster.pod(f"{name}-{number}", name)
        await asyncio.sleep(30)
        assert sorted(len(cluster.in_group(name)) for name in ("a", "b")) == [0, 3]

    play(scenario)


def test_a_member_beyond_the_quorum_that_does_not_fit_keeps_nobody_back() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "3")
        cluster.gang("g", 4, least=3)
        await asyncio.sleep(1)
        assert len(cluster.in_group("g")) == 3
        assert cluster.condition("g")[0] == "True"
        cluster.node("n2", "1")
        await asyncio.sleep(15)
        assert len(cluster.in_group("g")) == 4

    play(scenario)


def test_a_condition_that_is_true_stays_true_when_members_left_over_fail() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "3")
        cluster.gang("g", 4, least=3)
        await asyncio.sleep(1)
        cluster.pod("x", cpu="1")
        await asyncio.sleep(1)
        cluster.delete("x")
        await asyncio.sleep(15)
        assert cluster.condition("g") == ("True", "Scheduled", "")

    play(scenario)


def test_basic_groups_are_placed_as_far_as_there_is_room() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.group("b")
        for number in range(3):
            cluster.pod(f"b-{number}", "b")
        await asyncio.sleep(1)
        assert len(cluster.in_group("b")) == 2

    play(scenario)


def test_a_gang_bound_in_part_before_a_restart_is_completed_after_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "4")
        cluster.group("g", 3)
        cluster.pod("g-0", "g", node="n1")
        cluster.pod("g-1", "g")
        await cluster.restart()
        cluster.pod("g-2", "g")
        await asyncio.sleep(1)
        assert len(cluster.in_group("g")) == 3

    play(scenario)


def test_without_the_gate_members_are_plain_pods() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert cluster.scheduler.groups is None
        assert cluster.scheduler.cache.groups is None
        cluster.node("n1", "2")
        cluster.gang("g", 3)
        await asyncio.sleep(1)
        assert len(cluster.in_group("g")) == 2

    play(scenario, ())


def test_pods_without_a_group_are_not_taken_to_the_gate_of_gangs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    permit = GangScheduling.permit

    def noting(plugin: GangScheduling, state: Any, pod: Any, node_name: str) -> Any:
        asked.append(pod.name)
        return permit(plugin, state, pod, node_name)

    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "4")
        cluster.pod("single")
        cluster.gang("g", 2)
        await asyncio.sleep(1)
        assert set(cluster.placed()) == {"single", "g-0", "g-1"}
        assert set(asked) == {"g-0", "g-1"}

    monkeypatch.setattr(GangScheduling, "permit", noting)
    play(scenario)


# -- topology ----------------------------------------------------------------------------------------------

#: Racks with the number of their nodes of 2 CPUs, the group (members, CPUs each), and the rack that it gets.
RACKS = {
    "the rack that it fills most": ({"r1": 2, "r2": 3, "r3": 1}, (3, "1"), "r1"),
    "no rack, if none holds all": ({"r1": 2, "r2": 1, "r3": 1}, (3, "2"), ""),
    "the only rack that holds all": ({"r1": 1, "r2": 3, "r3": 1}, (5, "1"), "r2"),
}


@pytest.mark.parametrize("name", RACKS)
def test_a_gang_confined_to_a_rack_gets(name: str) -> None:
    racks, (members, cpu), expected = RACKS[name]

    async def scenario(cluster: Cluster) -> None:
        for rack, count in racks.items():
            for number in range(count):
                cluster.node(f"{rack}-{number}", "2", rack=rack)
        cluster.gang("g", members, cpu=cpu, key="rack")
        await asyncio.sleep(1)
        assert {node.partition("-")[0] for node in cluster.placed().values()} == ({expected} if expected else set())
        assert len(cluster.in_group("g")) == (members if expected else 0)

    play(scenario, TOPOLOGY)


def test_later_members_follow_the_first_into_their_rack_even_if_another_is_free() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("r1-0", "2", rack="r1")
        cluster.node("r2-0", "8", rack="r2")
        cluster.gang("g", 2, key="rack")
        await asyncio.sleep(1)
        cluster.pod("g-2", "g")
        await asyncio.sleep(1)
        assert set(cluster.placed().values()) == {"r1-0"}
        assert cluster.in_group("g") == ["g-0", "g-1"]

    play(scenario, TOPOLOGY)


# -- preemption --------------------------------------------------------------------------------------------


def test_nobody_is_evicted_for_a_gang_that_would_not_fit_even_then() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        for number in range(2):
            cluster.pod(f"low-{number}", node="n1")
        cluster.group("g", 3)
        for number in range(3):
            cluster.pod(f"g-{number}", "g", priority=100)
        await asyncio.sleep(60)
        assert sorted(cluster.placed()) == ["low-0", "low-1"]

    play(scenario)


@pytest.mark.parametrize("gates", [GANG, WHOLE], ids=["pod by pod", "as a whole"])
def test_a_gang_of_higher_priority_evicts_and_gets_its_nodes(gates: tuple[str, ...]) -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(3):
            cluster.node(f"n{number}", "1")
            cluster.pod(f"low-{number}", node=f"n{number}")
        cluster.group("g", 3, priority=100)
        for number in range(3):
            cluster.pod(f"g-{number}", "g", priority=100)
        await asyncio.sleep(60)
        assert len(cluster.in_group("g")) == 3
        assert len(cluster.placed()) == 3

    play(scenario, gates)


def test_a_group_does_not_evict_its_own_members() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.group("g", 2, priority=100)
        for number in range(3):
            cluster.pod(f"g-{number}", "g")
        await asyncio.sleep(120)
        assert len(cluster.in_group("g")) == 2
        assert len(cluster.pods()) == 3

    play(scenario, WHOLE)


def test_a_group_that_is_disrupted_as_a_whole_is_evicted_as_a_whole() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "3")
        cluster.group("low", 3, priority=10, disruptionMode="PodGroup")
        for number in range(3):
            cluster.pod(f"low-{number}", "low", node="n1")
        await asyncio.sleep(1)
        cluster.group("g", 1, priority=100)
        cluster.pod("g-0", "g", priority=100)
        await asyncio.sleep(30)
        assert sorted(cluster.placed()) == ["g-0"]

    play(scenario, WHOLE)

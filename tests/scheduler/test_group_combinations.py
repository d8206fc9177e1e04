"""Pod groups together with other parts of the scheduler: extenders, nominations, percentages, profiles, gates, backoff.

Source of the expectations: rules/groups §9, §10 and §17.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from group_kit import GANG, TOPOLOGY, Cluster

from kubesched.api.kinds import PODS
from kubesched.api.wire import MERGE_PATCH
from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.extenders.interface import ExtenderError, FilterAnswer, InProcessExtender
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

Scenario = Callable[[Cluster], Awaitable[None]]


def play(scenario: Scenario, gates: tuple[str, ...] = GANG, **options: Any) -> None:
    async def main() -> None:
        async with Cluster(gates, **options) as cluster:
            await scenario(cluster)
            assert cluster.problems() == []

    run_virtual(main())


# -- extenders ---------------------------------------------------------------------------------------------


class Filters(InProcessExtender):
    """Keeps the nodes that it likes, after a pause, for members of groups alone."""

    name = "likes"

    def __init__(self, likes: str, failing: str = "", pause: float = 0.0) -> None:
        self.likes, self.failing, self.pause = likes, failing, pause
        self.asked: list[str] = []

    def is_interested(self, pod: PodInfo) -> bool:
        return pod.spec.scheduling_group is not None

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer:
        self.asked.append(pod.name)
        await asyncio.sleep(self.pause)
        if pod.name == self.failing:
            raise ExtenderError("out of order")
        return FilterAnswer([node.name for node in nodes if node.name.startswith(self.likes)])


class Binds(InProcessExtender):
    """Binds some members of groups itself."""

    name = "binds"

    def __init__(self) -> None:
        self.cluster: Cluster
        self.bound: list[str] = []

    def is_interested(self, pod: PodInfo) -> bool:
        return pod.name.endswith(("-0", "-2"))

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        self.bound.append(pod.name)
        self.cluster.store.bind(pod.namespace, pod.name, pod.uid, node_name)


def test_an_extender_filters_for_each_member_and_the_gang_is_placed_as_a_whole_or_not_at_all() -> None:
    extender = Filters("b")

    async def scenario(cluster: Cluster) -> None:
        cluster.node("a1", "8")
        cluster.node("b1", "2")
        cluster.gang("g", 3)
        await asyncio.sleep(1)
        assert cluster.placed() == {}
        cluster.node("b2", "1")
        await asyncio.sleep(30)
        assert sorted(cluster.placed().values()) == ["b1", "b1", "b2"]
        assert sorted(set(extender.asked)) == ["g-0", "g-1", "g-2"]

    play(scenario, extenders=[extender])


def test_an_extender_that_fails_for_one_member_fails_all() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "8")
        cluster.gang("g", 3)
        await asyncio.sleep(1)
        assert cluster.placed() == {}
        assert cluster.condition("g")[:2] == ("False", "SchedulerError")
        assert "out of order" in cluster.condition("g")[2]
        assert all("out of order" in cluster.told(f"g-{number}") for number in range(3))

    play(scenario, extenders=[Filters("n", failing="g-1")])


def test_an_extender_that_binds_does_so_for_the_members_that_it_is_interested_in() -> None:
    extender = Binds()

    async def scenario(cluster: Cluster) -> None:
        extender.cluster = cluster
        cluster.node("n1", "8")
        cluster.gang("g", 3)
        await asyncio.sleep(1)
        assert sorted(extender.bound) == ["g-0", "g-2"]
        assert len(cluster.in_group("g")) == 3
        assert cluster.condition("g")[0] == "True"

    play(scenario, extenders=[extender])


def test_a_member_that_is_deleted_while_an_extender_is_awaited_breaks_its_gang_before_any_is_bound() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "8")
        cluster.gang("g", 3)
        await asyncio.sleep(3)  # the second member is being tried, and the first is assumed
        cluster.delete("g-0")
        await asyncio.sleep(20)
        assert cluster.placed() == {}
        cluster.pod("g-3", "g")
        await asyncio.sleep(30)
        assert cluster.in_group("g") == ["g-1", "g-2", "g-3"]

    play(scenario, extenders=[Filters("n", pause=2.0)])


# -- nominations -------------------------------------------------------------------------------------------


def test_a_member_tries_the_node_that_it_is_nominated_to_first() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(5):
            cluster.node(f"n{number}", "8")
        cluster.group("g", 2)
        cluster.pod("g-0", "g")
        cluster.store.patch(
            PODS,
            "default",
            "g-0",
            {"status": {"nominatedNodeName": "n3"}},
            patch_type=MERGE_PATCH,
            subresource="status",
        )
        await asyncio.sleep(1)
        cluster.pod("g-1", "g")
        await asyncio.sleep(1)
        assert cluster.placed()["g-0"] == "n3"
        assert len(cluster.in_group("g")) == 2

    play(scenario)


def test_a_gang_does_not_take_the_room_of_a_nominated_pod_and_a_trial_leaves_nominations_as_they_were() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "4")
        cluster.pod("low", cpu="2", node="n1", terminationGracePeriodSeconds=100)
        await asyncio.sleep(1)
        cluster.pod("first", cpu="3", priority=5)
        await asyncio.sleep(1)
        nominator, uid = cluster.scheduler.queue.nominator, cluster.store.get(PODS, "default", "first").typed.uid
        assert nominator.node_of(uid) == "n1"  # it waits for the room of the pod that it evicts
        cluster.gang("g", 2)
        await asyncio.sleep(5)
        assert cluster.placed() == {"low": "n1"}
        assert nominator.node_of(uid) == "n1"
        cluster.delete("low")
        await asyncio.sleep(30)
        assert cluster.placed() == {"first": "n1"}
        cluster.node("n2", "1")
        await asyncio.sleep(30)
        assert len(cluster.in_group("g")) == 2

    play(scenario)


# -- share of the nodes ------------------------------------------------------------------------------------


def test_a_share_of_the_nodes_is_enough_to_find_the_room_of_a_gang() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(140):
            cluster.node(f"n{number}", "1" if number < 130 else "2")
        cluster.gang("g", 10, cpu="2")
        await asyncio.sleep(1)
        assert len(cluster.in_group("g")) == 10

    play(scenario, percentageOfNodesToScore=5)


def test_the_nodes_that_are_counted_are_those_of_the_placement() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(120):
            cluster.node(f"n{number}", "1", rack=f"r{number % 40}")
        cluster.gang("g", 4, key="rack")
        await asyncio.sleep(1)
        assert cluster.placed() == {}
        assert any(cluster.told(f"g-{number}").startswith("0/3 nodes are available:") for number in range(4))
        assert cluster.condition("g")[2].startswith("0/40 placements are available")

    play(scenario, TOPOLOGY, percentageOfNodesToScore=5)


# -- profiles ----------------------------------------------------------------------------------------------

TWO = [{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}]


def test_a_group_is_scheduled_by_the_profile_that_its_members_name() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "8")
        cluster.group("g", 2)
        for number in range(2):
            cluster.pod(f"g-{number}", "g", schedulerName="second")
        await asyncio.sleep(1)
        assert len(cluster.in_group("g")) == 2

    play(scenario, profiles=TWO)


def test_a_group_whose_members_name_different_profiles_is_told_so_and_nobody_is_lost() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "8")
        cluster.group("g", 2)
        cluster.pod("g-0", "g")
        cluster.pod("g-1", "g", schedulerName="second")
        await asyncio.sleep(1)
        assert cluster.placed() == {}
        assert all("should have the same .spec.schedulerName" in cluster.told(f"g-{number}") for number in range(2))
        cluster.delete("g-1")
        cluster.pod("g-2", "g")
        await asyncio.sleep(30)
        assert cluster.in_group("g") == ["g-0", "g-2"]

    play(scenario, profiles=TWO)


def test_members_of_another_scheduler_count_once_they_have_a_node() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "8")
        cluster.group("g", 2)
        cluster.pod("g-0", "g")
        cluster.pod("g-1", "g", schedulerName="somebody")
        await asyncio.sleep(5)
        assert cluster.placed() == {}
        cluster.store.bind("default", "g-1", cluster.store.get(PODS, "default", "g-1").typed.uid, "n1")
        await asyncio.sleep(15)
        assert len(cluster.in_group("g")) == 2

    play(scenario)


# -- gates and backoff -------------------------------------------------------------------------------------

GATED: dict[str, Any] = {"schedulingGates": [{"name": "a/b"}]}


def test_a_gated_member_does_not_hold_up_a_gang_that_has_its_quorum_without_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "8")
        cluster.group("g", 2)
        for number in range(3):
            cluster.pod(f"g-{number}", "g", **(GATED if number == 1 else {}))
        await asyncio.sleep(1)
        assert cluster.in_group("g") == ["g-0", "g-2"]
        cluster.store.patch(PODS, "default", "g-1", {"spec": {"schedulingGates": None}}, patch_type=MERGE_PATCH)
        await asyncio.sleep(1)
        assert len(cluster.in_group("g")) == 3

    play(scenario)


def test_a_gang_that_needs_its_gated_member_waits_for_it_without_being_tried_again_and_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "8")
        cluster.group("g", 3)
        for number in range(3):
            cluster.pod(f"g-{number}", "g", **(GATED if number == 1 else {}))
        await asyncio.sleep(250)
        assert cluster.placed() == {}
        assert len(cluster.cycles) <= 6
        cluster.store.patch(PODS, "default", "g-1", {"spec": {"schedulingGates": None}}, patch_type=MERGE_PATCH)
        await asyncio.sleep(15)
        assert len(cluster.in_group("g")) == 3

    play(scenario)


def test_a_group_is_tried_again_after_its_backoff_and_not_before_even_if_nothing_else_is_to_do() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.gang("g", 3)
        await asyncio.sleep(0.5)
        assert len(cluster.cycles) == 3
        cluster.node("n2", "1")
        await asyncio.sleep(10)
        assert cluster.placed() == {}
        await asyncio.sleep(25)
        assert len(cluster.in_group("g")) == 3

    play(scenario, podInitialBackoffSeconds=20, podMaxBackoffSeconds=20)

"""Bindings of pod groups that are refused or cut short: the rest follows its siblings, and the condition tells the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from group_kit import GANG, WHOLE, Cluster

from kubesched.api.kinds import POD_GROUPS, PODS
from kubesched.api.wire import ApiError
from kubesched.cluster.store.faults import connection_lost, server_error
from kubesched.lab.simulate.run.virtual_time import run_virtual

#: What a binding may meet: the error, and if the server had done it before.
REFUSALS: dict[str, tuple[Callable[[], Exception], bool]] = {
    "conflict": (lambda: ApiError(409, "Conflict", "injected"), False),
    "not found": (lambda: ApiError(404, "NotFound", "injected"), False),
    "error of the server": (server_error, False),
    "time-out": (lambda: TimeoutError("injected"), False),
    "connection lost": (connection_lost, False),
    "answer lost": (connection_lost, True),
}


def play(scenario: Callable[[Cluster], Awaitable[None]], gates: tuple[str, ...] = GANG, seed: int = 0) -> None:
    async def main() -> None:
        async with Cluster(gates, seed) as cluster:
            await scenario(cluster)
            assert cluster.problems() == []
            assert len(cluster.scheduler.waiting_pods) == 0

    run_virtual(main())


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("member", range(3))
def test_a_member_that_could_not_be_bound_follows_its_siblings_and_nobody_takes_its_room(
    refusal: str, member: int
) -> None:
    error, is_done = REFUSALS[refusal]

    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "3")
        cluster.faults.fail(
            "bind", error=error, name=f"g-{member}", times=1, kind=PODS, when="after" if is_done else "before"
        )
        cluster.gang("g", 3)
        await asyncio.sleep(0.2)
        cluster.pod("rival")
        await asyncio.sleep(0.2)
        if not is_done:
            others = [f"g-{number}" for number in range(3) if number != member]
            assert cluster.in_group("g") == others
            status, reason, message = cluster.condition("g")
            assert (status, reason) == ("False", "SchedulerError")
            assert message.startswith(f"2 of 3 members have a node; binding g-{member} failed: ")
        await asyncio.sleep(5)
        assert cluster.in_group("g") == ["g-0", "g-1", "g-2"]
        assert cluster.condition("g") == ("True", "Scheduled", "")
        assert "rival" not in cluster.placed()

    play(scenario)


def test_members_that_could_not_be_bound_are_tried_again_together() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(4):
            cluster.node(f"n{number}", "1")
        cluster.faults.fail("bind", times=3)
        cluster.gang("g", 4)
        await asyncio.sleep(0.5)
        assert len(cluster.in_group("g")) == 1
        before = cluster.scheduler.metrics.podgroup_schedule_attempts_total
        counted = before.labels("scheduled", "default-scheduler").value
        await asyncio.sleep(5)
        assert len(cluster.in_group("g")) == 4
        assert before.labels("scheduled", "default-scheduler").value == counted + 1

    play(scenario)


def test_a_gang_whose_rest_finds_no_room_any_more_says_so() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.node("n2", "1")
        cluster.faults.fail("bind", name="g-0", times=1)
        cluster.gang("g", 3)
        await asyncio.sleep(0.2)
        hosts = list(cluster.placed().values())
        node = "n2" if "n2" not in hosts else "n1"
        cluster.pod("high", cpu="1", priority=100, node=node)
        await asyncio.sleep(30)
        assert len(cluster.in_group("g")) == 2
        assert cluster.condition("g")[:2] == ("False", "Unschedulable")
        cluster.delete("high")
        await asyncio.sleep(30)
        assert cluster.condition("g") == ("True", "Scheduled", "")

    play(scenario)


def test_the_condition_is_true_when_the_quorum_is_bound_and_not_before() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "4")
        cluster.faults.delay("bind", 5.0)
        cluster.gang("g", 3)
        await asyncio.sleep(3)
        assert cluster.condition("g") == ("", "", "")
        await asyncio.sleep(6)
        assert cluster.condition("g") == ("True", "Scheduled", "")

    play(scenario)


# -- another scheduler takes over --------------------------------------------------------------------------


@pytest.mark.parametrize("moment", range(14))
def test_a_gang_is_whole_after_its_scheduler_was_killed_at_any_moment(moment: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "2")
        cluster.node("n2", "1")
        cluster.pod("rival", priority=0, schedulingGates=[{"name": "a/b"}])
        cluster.faults.delay("*", 0.01)
        cluster.faults.delay("bind", 0.02, name="g-1")
        cluster.faults.delay("bind", 0.04, name="g-2", when="after")
        await asyncio.sleep(1)
        cluster.gang("g", 3)
        for _ in range(3):
            await asyncio.sleep(0)
        await asyncio.sleep(0.01 * moment)
        ungate = {"spec": {"schedulingGates": None}}
        cluster.store.patch(PODS, "default", "rival", ungate, patch_type="application/merge-patch+json")
        await cluster.kill()
        await asyncio.sleep(10)
        assert len(cluster.in_group("g")) in (0, 3)
        assert (cluster.condition("g")[0] == "True") == (len(cluster.in_group("g")) == 3)
        assert len(cluster.placed()) in (1, 3)

    play(scenario)


def test_the_next_scheduler_finishes_a_gang_that_was_left_in_part_before_it_does_anything_else() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.scheduler.stop()
        cluster.node("n1", "3")
        for number in range(3):
            cluster.pod(f"rival-{number}")
        cluster.gang("g", 3)
        for name in ("g-0", "g-1"):
            pod = cluster.store.get(PODS, "default", name).typed
            cluster.store.bind("default", name, pod.uid, "n1")
        await cluster.restart()
        await asyncio.sleep(5)
        assert len(cluster.in_group("g")) == 3
        assert cluster.condition("g") == ("True", "Scheduled", "")

    play(scenario)


def test_the_next_scheduler_writes_the_condition_that_the_last_one_did_not_come_to() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "3")
        cluster.faults.fail("patch", kind=POD_GROUPS)
        cluster.gang("g", 3)
        await asyncio.sleep(2)
        assert cluster.condition("g") == ("", "", "")
        await cluster.kill()
        await asyncio.sleep(1)
        assert cluster.condition("g") == ("True", "Scheduled", "")

    play(scenario)


# -- gates -------------------------------------------------------------------------------------------------


def test_a_member_whose_gates_are_gone_is_not_called_gated_while_its_gang_is_not_complete() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.node("n1", "3")
        cluster.group("g", 2)
        cluster.pod("g-0", "g", schedulingGates=[{"name": "a/b"}])
        await asyncio.sleep(1)
        assert "scheduling gates" in cluster.told("g-0")
        ungate = {"spec": {"schedulingGates": None}}
        cluster.store.patch(PODS, "default", "g-0", ungate, patch_type="application/merge-patch+json")
        await asyncio.sleep(1)
        assert cluster.told("g-0") == "no scheduling gates are left; the pod is held back by GangScheduling"
        await cluster.restart()
        cluster.pod("g-1", "g")
        await asyncio.sleep(1)
        assert cluster.in_group("g") == ["g-0", "g-1"]

    play(scenario)


def test_a_group_whose_evictions_are_refused_tries_again_once_a_second_and_not_without_end() -> None:
    async def scenario(cluster: Cluster) -> None:
        for number in range(2):
            cluster.node(f"n{number}", "4")
            cluster.pod(f"low-{number}", cpu="4", node=f"n{number}")
        await asyncio.sleep(1)
        cluster.faults.fail("delete", error=server_error)
        cluster.gang("g", 2, cpu="4", priority=10)
        await asyncio.sleep(20)
        assert cluster.in_group("g") == []
        assert 2 <= len(cluster.cycles) <= 40
        cluster.faults.clear()
        await asyncio.sleep(20)
        assert sorted(cluster.in_group("g")) == ["g-0", "g-1"]

    play(scenario, WHOLE)

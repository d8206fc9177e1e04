"""Pods that wait on Permit: every way out, and that nothing is left behind (rules/framework §6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import World, a_config, a_pod, play, world
from recording import Answers, holder

from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.framework.waiting import WaitingPod

METHODS = ("reserve", "unreserve", "permit", "pre_bind", "post_bind")


def waiting_pod(world: World) -> WaitingPod:
    (found,) = world.scheduler.waiting_pods
    return found


def allow(world: World) -> None:
    for plugin in waiting_pod(world).pending_plugins:
        waiting_pod(world).allow(plugin)


WAYS_OUT: list[tuple[str, Callable[[World], Any], str, str, str]] = [
    ("allowed", allow, "", "", ""),
    (
        "rejected by a plugin",
        lambda world: waiting_pod(world).reject("A", "no quorum"),
        "Unschedulable",
        "0/1 nodes are available: 1 no quorum.",
        "Unschedulable",
    ),
    (
        "preempted",
        lambda world: waiting_pod(world).preempt("A", "taken"),
        "SchedulerError",
        "waiting on permit for pod: taken",
        "Backoff",
    ),
    (
        "the time is up",
        lambda world: world.sleep(10),
        "Unschedulable",
        "0/1 nodes are available: 1 rejected due to timeout after waiting 10s at plugin A.",
        "Unschedulable",
    ),
]


@pytest.mark.parametrize(
    ("name", "leave", "reason", "message", "where"), WAYS_OUT, ids=lambda value: value if isinstance(value, str) else ""
)
def test_ways_out_of_waiting(name: str, leave: Callable[[World], Any], reason: str, message: str, where: str) -> None:
    diary = Answers(permit=(Status.wait("for friends"), 10.0), events_to_register=[])

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.sleep(1)
        assert world.where("p") == "InFlight"
        assert world.pod("p").status.nominated_node_name == "n1"
        result = leave(world)
        if result is not None and not isinstance(result, bool):
            await result
        await world.sleep(0.1)
        assert not len(world.scheduler.waiting_pods)
        if not message:
            assert world.node_of("p") == "n1"
            assert diary.diary == ["A.events_to_register", "A.reserve", "A.permit", "A.pre_bind", "A.post_bind"]
            assert world.metric("permit_wait_duration_seconds", "Success") == 1
            return
        assert diary.diary == ["A.events_to_register", "A.reserve", "A.permit", "A.unreserve"]
        assert (world.condition("p").reason, world.condition("p").message) == (reason, message)
        assert world.where("p") == where
        assert world.pod("p").status.nominated_node_name == ""
        diary.answers["permit"] = None
        world.scheduler.queue.activate({"default/p": world.pod("p")})
        await world.settle()
        assert world.node_of("p") == "n1"

    play(scenario, plugins=[holder(diary, "A", *METHODS, "events_to_register")])


def test_the_shortest_timeout_decides_and_all_must_allow() -> None:
    one, two = Answers(permit=(Status.wait(), 30.0)), Answers(permit=(Status.wait(), 20.0))

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.sleep(1)
        waiting = waiting_pod(world)
        assert waiting.pending_plugins == ["A", "B"]
        waiting.allow("A")
        waiting.allow("nobody")
        await world.sleep(18)
        assert waiting.pending_plugins == ["B"]
        two.answers["permit"] = one.answers["permit"] = None
        await world.sleep(2)
        assert world.notes("p") == ["0/1 nodes are available: 1 rejected due to timeout after waiting 20s at plugin B."]
        await world.settle()

    play(scenario, plugins=[holder(one, "A", "permit"), holder(two, "B", "permit")])


def test_a_rejection_discards_earlier_timeouts() -> None:
    one, two = Answers(permit=(Status.wait(), 30.0)), Answers(permit=Status.unschedulable("no"), events_to_register=[])

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.settle()
        assert world.condition("p").message == "0/1 nodes are available: 1 no."
        assert world.now() < 5

    play(scenario, plugins=[holder(one, "A", "permit"), holder(two, "B", "permit", "events_to_register")])


def test_nobody_waits_longer_than_a_quarter_of_an_hour() -> None:
    diary = Answers(permit=(Status.wait(), 1e9), events_to_register=[])

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.sleep(899)
        assert len(world.scheduler.waiting_pods) == 1
        await world.sleep(2)
        assert world.notes("p") == [
            "0/1 nodes are available: 1 rejected due to timeout after waiting 15m0s at plugin A."
        ]

    # Without the gate no nomination is published, whose end would have the second pod tried again as well.
    gates = FeatureGates.of({"NominatedNodeNameForExpectation": False})
    play(scenario, plugins=[holder(diary, "A", "permit", "events_to_register")], gates=gates)


def test_a_deleted_pod_stops_waiting_and_its_resources_are_free_at_once() -> None:
    diary = Answers()

    async def scenario(world: World) -> None:
        diary.answers["permit"] = lambda _, pod, __: (Status.wait(), 600.0) if pod.name == "first" else None
        world.nodes(1, "1")
        world.create(a_pod("first", "1"))
        await world.sleep(1)
        world.create(a_pod("second", "1"))
        await world.sleep(1)
        assert world.where("second") == "Unschedulable"
        world.delete("first")
        took = await world.until(lambda: world.node_of("second"), "the second pod")
        assert took < 2
        await world.settle()
        assert "A.unreserve" in diary.diary

    play(scenario, plugins=[holder(diary, "A", "permit", "reserve", "unreserve")])


def test_a_pod_deleted_during_a_relist_stops_waiting_too() -> None:
    """A tombstone must end the waiting as a plain deletion does; upstream lets the timer run out."""
    diary = Answers(permit=(Status.wait(), 600.0))

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "1"))
        await world.sleep(1)
        world.faults.disturb("lose", times=1)
        world.delete("p")
        await world.sleep(1)
        world.faults.clear()
        world.faults.expire_watches()
        await world.sleep(5)
        assert not len(world.scheduler.waiting_pods)
        await world.settle()

    play(scenario, plugins=[holder(diary, "A", "permit")])


def test_a_pod_created_again_under_its_name_is_not_confused_with_the_waiting_one() -> None:
    diary = Answers(permit=(Status.wait(), 600.0))

    async def scenario(world: World) -> None:
        world.nodes(1, "1")
        world.create(a_pod("p", "1"))
        await world.sleep(1)
        old = world.pod("p").uid
        diary.answers["permit"] = None
        world.delete("p")
        world.create(a_pod("p", "1"))
        await world.settle()
        assert world.node_of("p") == "n1"
        assert [entry[2] for entry in world.binds] == [world.pod("p").uid] != [old]
        assert world.notes("p") == []

    play(scenario, plugins=[holder(diary, "A", "permit")])


def test_a_failing_preflight_leaves_no_waiting_pod() -> None:
    diary = Answers(permit=(Status.wait(), 600.0), pre_bind_pre_flight=Status.from_error("boom"))

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(a_pod("p"))
        await world.sleep(0.5)
        assert not len(world.scheduler.waiting_pods)
        assert world.where("p") == "Backoff"
        diary.answers.clear()
        await world.settle()
        assert world.node_of("p") == "n1"

    play(scenario, plugins=[holder(diary, "A", "permit", "pre_bind", "pre_bind_pre_flight")])


def test_a_scheduler_that_stops_gives_waiting_pods_back_without_a_word() -> None:
    diary = Answers(permit=(Status.wait(), 600.0))

    async def main() -> None:
        async with world(plugins=[holder(diary, "A", "permit", "reserve", "unreserve")], settled=False) as found:
            found.nodes(1)
            found.create(*(a_pod(f"p{number}") for number in range(5)))
            await found.sleep(1)
            before = len(found.events())
            # More pods arrive while it stops: they are not scheduled any more.
            found.create(*(a_pod(f"late{number}") for number in range(5)))
            started = found.now()
            await found.embedded.stop()
            assert found.now() - started < 1
            assert len(found.events()) == before == 0
            assert diary.diary.count("A.unreserve") == diary.diary.count("A.reserve") == 5
            assert not found.binds
            assert not found.pod("p0").status.conditions

    run_virtual(main())


def test_queued_pods_are_left_alone_when_the_scheduler_stops() -> None:
    """A closed queue hands out what is left; the scheduler must not take it, least of all pods that back off."""

    async def main() -> None:
        async with world(config=a_config(), settled=False) as found:
            found.faults.delay("bind", 2.0)
            found.nodes(1)
            found.create(a_pod("bound"))
            await found.sleep(1)
            found.create(*(a_pod(f"p{number}") for number in range(40)))
            await found.embedded.stop()
            assert [entry[1] for entry in found.tries] == ["default/bound"]
            assert found.node_of("bound") == "n1"

    run_virtual(main())


def test_what_a_pod_rejected_at_permit_gives_back_goes_to_the_pod_that_waits_for_it() -> None:
    diary = Answers(permit=(Status.wait("for friends"), 60.0), events_to_register=[])

    async def scenario(world: World) -> None:
        world.nodes(1, cpu="1")
        world.create(a_pod("first", cpu="800m"))
        await world.until(lambda: list(world.scheduler.waiting_pods), "the first pod waits on Permit")
        world.create(a_pod("second", cpu="800m"))
        await world.until(lambda: world.events("second", "FailedScheduling"), "the second pod finds no room")
        await world.sleep(15)  # beyond any backoff
        assert world.where("second") == "Unschedulable"
        diary.answers["permit"] = None
        waiting_pod(world).reject("A", "no quorum")
        await world.until(lambda: world.node_of("second"), "the second pod takes the room", limit=5.0)
        assert world.where("first") == "Unschedulable"

    # Without the gate no nomination is published, whose end would have the second pod tried again as well.
    gates = FeatureGates.of({"NominatedNodeNameForExpectation": False})
    play(scenario, plugins=[holder(diary, "A", "permit", "events_to_register")], gates=gates)

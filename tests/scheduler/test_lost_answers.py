"""A binding whose answer is lost: the pod's room is kept until the API server says whether the pod is bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import PODS, Pod, World, a_pod, play, server_error

from kubesched.cluster.store.faults import connection_lost

Error = Callable[[], Exception]
_UNKNOWN: list[Error] = [server_error(), server_error(504, "Timeout"), connection_lost, lambda: TimeoutError("slow")]
_REFUSED: list[Error] = [server_error(403, "Forbidden"), server_error(429, "TooManyRequests"), ConnectionRefusedError]


def two_pods(world: World, error: Error, when: Any = "after", late: float = 30.0) -> None:
    """Create pods of which one has room. The answer to the first binding is lost, and the watch is late by seconds."""

    def lost() -> Exception:
        world.faults.stall(late, kind=PODS)
        return error()

    world.nodes(1, "1")
    world.faults.fail("bind", error=lost, when=when, times=1)
    world.create(a_pod("first", "800m"), a_pod("second", "800m"))


def counted_reads(world: World) -> list[Pod]:
    """Return a list to which each pod is added that the scheduler reads."""
    port, read = world.embedded.port, list[Pod]()
    real = port.read_pod

    async def read_pod(pod: Pod) -> Pod | None:
        read.append(pod)
        return await real(pod)

    port.read_pod = read_pod  # type: ignore[method-assign]  # the test's onlooker
    return read


def attempts(world: World, result: str) -> float:
    return world.metric("schedule_attempts_total", result, "default-scheduler")


@pytest.mark.parametrize("error", _UNKNOWN)
def test_a_pod_that_is_bound_in_spite_of_an_error_keeps_its_room(error: Error) -> None:
    async def scenario(world: World) -> None:
        read = counted_reads(world)
        two_pods(world, error)
        await world.settle()
        assert (world.node_of("first"), world.node_of("second")) == ("n1", "")
        assert [key for _, key, *_ in world.tries] == ["default/first"]
        assert not world.notes("first")
        assert len(world.events("first", "Scheduled")) == 1
        assert (attempts(world, "scheduled"), attempts(world, "error")) == (1, 0)
        assert [pod.name for pod in read] == ["first"]

    play(scenario)


def test_the_room_is_kept_while_the_pod_cannot_be_read() -> None:
    async def scenario(world: World) -> None:
        world.faults.fail("list", error=connection_lost, times=8)
        two_pods(world, server_error())
        await world.sleep(9)
        assert world.scheduler.cache.assumed
        await world.settle()
        assert (world.node_of("first"), world.node_of("second")) == ("n1", "")
        assert attempts(world, "error") == 0

    play(scenario)


def test_a_pod_that_cannot_be_read_for_a_minute_is_given_back() -> None:
    async def scenario(world: World) -> None:
        world.faults.fail("list", error=connection_lost)
        two_pods(world, server_error(), "before", late=0.0)
        await world.sleep(59)
        assert world.where("first") == ""
        assert not world.binds
        await world.sleep(3)
        assert world.notes("first")[0] == 'running Bind plugin "DefaultBinder": injected 500'
        assert len(world.binds) == 1

    play(scenario)


def test_a_scheduler_that_stops_does_not_wait_for_a_pod_that_it_cannot_read() -> None:
    async def scenario(world: World) -> None:
        world.faults.fail("list", error=connection_lost)
        two_pods(world, server_error())
        await world.sleep(5)
        start = world.now()
        await world.embedded.stop()
        assert world.now() - start < 3

    play(scenario, settled=False)


@pytest.mark.parametrize("error", _REFUSED)
def test_a_refused_binding_is_not_read(error: Error) -> None:
    async def scenario(world: World) -> None:
        read = counted_reads(world)
        two_pods(world, error, "before", late=0.0)
        await world.settle()
        assert len(world.notes("first")) >= 1
        assert len(world.binds) == 1
        assert not read

    play(scenario)


def test_a_pod_that_another_scheduler_has_bound_elsewhere_gives_its_room_back() -> None:
    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        real = world.store.bind

        def elsewhere(namespace: str, name: str, uid: str, node_name: str, **options: Any) -> Any:
            world.store.bind = real
            real(namespace, name, uid, "n1" if node_name == "n2" else "n2", **options)
            return real(namespace, name, uid, node_name, **options)

        world.store.bind = elsewhere  # the other scheduler
        world.faults.delay("bind", 0.1, times=1)
        world.create(a_pod("first", "800m"))
        await world.settle()
        world.create(a_pod("second", "800m"))
        await world.settle()
        assert {world.node_of("first"), world.node_of("second")} == {"n1", "n2"}

    play(scenario)

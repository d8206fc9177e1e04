"""The chosen node in ``status.nominatedNodeName`` while a binding takes long (gate NominatedNodeNameForExpectation).

Who reads it: a scheduler that starts in the middle. When it ends: with the binding, or when that fails
(rules/cycle §12).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness import World, a_config, a_node, a_pod, play, world
from recording import Answers, holder

from kubesched.client.port import ApiPort
from kubesched.cluster.store import InProcessClient
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler


@pytest.mark.parametrize(
    ("answer", "errors"),
    [(Status.unschedulable("not here"), []), (Status.from_error("broken"), ["broken"])],
    ids=["rejected", "error"],
)
def test_a_published_node_is_cleared_when_the_binding_fails(answer: Status, errors: list[str]) -> None:
    async def late(state: Any, pod: Any, node_name: str) -> Status:
        await asyncio.sleep(5)
        return answer

    diary = Answers(pre_bind=late)

    async def scenario(there: World) -> None:
        there.nodes(1)
        there.create(a_pod("p"))
        await there.sleep(3)
        assert there.pod("p").status.nominated_node_name == "n1"
        await there.sleep(2.5)
        assert there.pod("p").status.nominated_node_name == ""
        assert there.scheduler.queue.nominator.node_of(there.pod("p").uid) is None
        diary.answers["pre_bind"] = None
        there.create(a_node("n2"))  # an event that may help a pod that was rejected
        await there.settle()
        assert there.node_of("p")
        assert there.pod("p").status.nominated_node_name == ""

    play(scenario, plugins=[holder(diary, "Late", "pre_bind")], expect_errors=errors)


@pytest.mark.parametrize(
    ("ends_by", "is_stored"),
    [
        ("another", True),
        ("another", False),
        ("this one", True),
        ("this one", False),
        ("deletion", True),
        ("deletion", False),
        ("failure", True),
        ("failure", False),
        ("another node", True),
    ],
)
@pytest.mark.parametrize("slow", [False, True], ids=["", "slow PreBind"])
def test_room_of_a_nomination_is_offered_when_it_ends(ends_by: str, is_stored: bool, slow: bool) -> None:
    """The pod is bound to another node, by this scheduler or another one; or deleted; or another attempt finds no node,
    or nominates it to another one.

    The nomination may be in memory only.
    """

    async def late(state: Any, pod: Any, node_name: str) -> None:
        await asyncio.sleep(5)

    plugins = [holder(Answers(pre_bind=late), "Late", "pre_bind")] if slow else []
    taint = {"key": "only", "value": "expected", "effect": "NoSchedule"}

    async def scenario(there: World) -> None:
        there.create(a_node("n1"), a_node("n2", taints=[taint]))
        chooses: dict[str, Any] = {"nodeSelector": {"at": "last"}, "tolerations": [{"operator": "Exists"}]}
        there.create(a_pod("expected", "4", priority=10, **chooses))
        await there.settle()
        if is_stored:
            there.patch("expected", {"status": {"nominatedNodeName": "n1"}}, "status")
            await there.settle()
        else:
            there.scheduler.queue.nominator.add(there.pod("expected"), NominatingInfo.override("n1"))
        there.create(a_pod("waiting", "4", priority=1))
        await there.settle()
        assert "Insufficient cpu" in there.condition("waiting").message
        if ends_by == "another":
            there.store.bind("default", "expected", there.pod("expected").uid, "n2")
        elif ends_by == "this one":
            there.patch_node("n2", {"metadata": {"labels": {"at": "last"}}})
        elif ends_by == "another node":
            there.scheduler.queue.nominator.add(there.pod("expected"), NominatingInfo.override("n2"))
            there.patch_node("n2", {"metadata": {"labels": {"at": "last"}}})
        elif ends_by == "failure":
            there.create(a_node("n3", "1", taints=[taint], labels={"at": "last"}))  # is too small
        else:
            there.delete("expected")
        await there.until(lambda: there.node_of("waiting") == "n1", "binding", 30)
        assert not there.exists("expected") or there.node_of("expected") == ("" if ends_by == "failure" else "n2")

    play(scenario, believe_priority=True, plugins=plugins)


def test_nothing_is_published_without_the_gate() -> None:
    async def late(state: Any, pod: Any, node_name: str) -> None:
        await asyncio.sleep(5)

    async def scenario(there: World) -> None:
        there.nodes(1)
        there.create(a_pod("p"))
        await there.sleep(3)
        assert there.pod("p").status.nominated_node_name == ""
        await there.settle()
        assert there.node_of("p") == "n1"
        assert ("PATCH", "200") not in there.embedded.port.requests

    gates = FeatureGates.of({"NominatedNodeNameForExpectation": False})
    play(scenario, plugins=[holder(Answers(pre_bind=late), "Late", "pre_bind")], gates=gates)


@asynccontextmanager
async def scheduling(there: World, plugin: type) -> AsyncIterator[Scheduler]:
    """A scheduler of its own over the world's store."""
    clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(1)
    port = ApiPort(InProcessClient(there.store), clock=clock, rng=rng)
    registry = in_tree_registry()
    registry.register(plugin)
    scheduler = Scheduler(a_config(plugin.name), registry, port, clock=clock, rng=rng)  # type: ignore[attr-defined]  # plugins have names
    events = asyncio.create_task(port.events.run())
    await scheduler.start()
    running = asyncio.create_task(scheduler.run())
    yield scheduler
    await scheduler.stop()
    port.events.stop()
    await asyncio.gather(events, running)


def test_a_scheduler_that_starts_while_a_pod_waits_on_permit_tries_the_published_node_first() -> None:
    """Although another node is emptier; what the pod's plugins did on the published node is not in vain."""

    async def main() -> None:
        diary = Answers(permit=(Status.wait(), 60.0))
        plugin = holder(diary, "Slow", "permit")
        async with world(start=False, settled=False) as there:
            await there.embedded.start(scheduler=False)
            there.create(a_node("n1", "2"))
            async with scheduling(there, plugin):
                there.create(a_pod("p", "1"))
                await there.until(lambda: there.pod("p").status.nominated_node_name == "n1", "publication")
            assert there.node_of("p") == ""
            there.create(a_node("n2", "64"))
            diary.answers["permit"] = None
            async with scheduling(there, plugin) as second:
                await there.until(lambda: there.node_of("p"), "binding")
                await there.step()
                assert there.node_of("p") == "n1"
                assert not second.queue.nominator.nominated_nodes()
            assert diary.diary == ["Slow.permit", "Slow.permit"]

    run_virtual(main())

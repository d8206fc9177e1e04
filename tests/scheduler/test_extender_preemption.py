"""Extenders have a say in preemption, and other pods are scheduled while they are awaited. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from harness import World, a_node, a_pod, play

from kubesched.scheduler.config import default_config
from kubesched.scheduler.extenders.interface import ExtenderError, InProcessExtender
from kubesched.scheduler.framework.preemption import Victims
from kubesched.scheduler.nodes.podinfo import PodInfo

Answer = Callable[[Mapping[str, Victims]], Mapping[str, Victims]]


class Preempts(InProcessExtender):
    """Interested in pods labelled ``vip``; answers after two seconds."""

    def __init__(self, answer: Answer, *, ignorable: bool = False) -> None:
        self.answer, self.ignorable = answer, ignorable
        self.given: list[dict[str, list[str]]] = []

    def is_interested(self, pod: PodInfo) -> bool:
        return "vip" in pod.labels

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        self.given.append({name: [one.name for one in found.pods] for name, found in sorted(victims.items())})
        await asyncio.sleep(2)
        return self.answer(victims)


def full_nodes(world: World) -> None:
    """n1 and n2 are full of pods without priority; a pod with priority wants one of them."""
    world.create(*(a_node(name, "1", labels={"only": name}) for name in ("n1", "n2")))
    world.create(*(a_pod(f"on-n{number}", "1", nodeName=f"n{number}", priority=0) for number in (1, 2)))
    world.create(a_pod("vip", "1", labels={"vip": "yes"}, priority=100))


def preempting(extender: Preempts, scenario: Any, **options: Any) -> None:
    play(
        scenario,
        config=default_config(),
        extenders=[extender],
        kubelets=True,
        believe_priority=True,
        **options,
    )


def only(node: str) -> Answer:
    return lambda victims: {node: victims[node]}


def test_the_candidate_that_an_extender_leaves_is_chosen() -> None:
    extender = Preempts(only("n2"))

    async def scenario(world: World) -> None:
        full_nodes(world)
        await world.until(lambda: world.node_of("vip"), "the preemptor is bound")
        assert world.node_of("vip") == "n2"
        assert extender.given[0] == {"n1": ["on-n1"], "n2": ["on-n2"]}
        assert world.exists("on-n1")
        assert not world.exists("on-n2")

    preempting(extender, scenario)


def test_other_pods_are_scheduled_while_an_extender_considers_victims() -> None:
    extender = Preempts(only("n1"))

    async def scenario(world: World) -> None:
        full_nodes(world)
        await world.until(lambda: extender.given, "the call")
        start = world.now()
        world.create(a_node("n3", "1"))
        world.create(a_pod("small", "100m"))
        await world.until(lambda: world.node_of("small"), "another pod")
        assert world.now() - start < 2
        await world.until(lambda: world.node_of("vip"), "the preemptor is bound")

    preempting(extender, scenario)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda victims: {}, "no new claims to deallocate, preemption: no candidate node for preemption"),
        (lambda victims: {"n1": Victims(())}, 'preemption: expected at least one victim pod on node "n1"'),
        (None, "preemption: out of order"),
    ],
    ids=["vetoed", "no victims", "error"],
)
def test_nobody_is_evicted_when_an_extender_leaves_no_candidate(answer: Answer | None, message: str) -> None:
    def refuse(victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        raise ExtenderError("out of order")

    extender = Preempts(answer or refuse)

    async def scenario(world: World) -> None:
        full_nodes(world)
        await world.settle()
        assert world.condition("vip").message == f"0/2 nodes are available: 2 Insufficient cpu. {message}"
        assert world.exists("on-n1")
        assert world.exists("on-n2")

    preempting(extender, scenario)


def _of_other_nodes(victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
    return {"n1": victims["n2"], "n2": victims["n1"]}


@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
@pytest.mark.parametrize(
    ("priority", "answer", "message"),
    [
        (100, None, 'claims to preempt pod default/boss on node "n1", whose priority 100 is not lower than 100'),
        (0, _of_other_nodes, ' on node "n1", where it is not'),
    ],
    ids=["equal priority", "other nodes"],
)
def test_an_extender_cannot_have_other_pods_evicted_than_lower_ones_of_the_node(
    ignorable: bool, priority: int, answer: Answer | None, message: str
) -> None:
    async def scenario(world: World) -> None:
        def boss(victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
            (row,) = [info for info in world.scheduler.cache.pods.values() if info.name == "boss"]
            return {"n1": Victims((row,))}

        extender.answer = answer or boss
        world.create(*(a_node(name, "2", labels={"only": name}) for name in ("n1", "n2")))
        world.create(*(a_pod(f"on-n{number}", "1", nodeName=f"n{number}", priority=0) for number in (1, 2)))
        world.create(a_pod("boss", "1", nodeName="n1", priority=priority))
        world.create(a_pod("too", "1", nodeName="n2", priority=priority))
        world.create(a_pod("vip", "1", labels={"vip": "yes"}, priority=100))
        await world.settle()
        assert all(world.exists(name) for name in ("boss", "too", "on-n1", "on-n2"))
        expected = "no candidate node for preemption" if ignorable else message
        assert expected in world.condition("vip").message

    extender = Preempts(lambda victims: victims, ignorable=ignorable)
    preempting(extender, scenario)


def test_an_ignorable_extender_that_fails_changes_nothing() -> None:
    def refuse(victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        raise ExtenderError("out of order")

    async def scenario(world: World) -> None:
        full_nodes(world)
        await world.until(lambda: world.node_of("vip"), "the preemptor is bound")

    preempting(Preempts(refuse, ignorable=True), scenario)


def test_a_node_that_another_preemptor_took_meanwhile_is_no_candidate_any_more() -> None:
    """Both would rely on one victim, and keep each other out of its place."""
    extender = Preempts(lambda victims: {"n1": victims["n1"]} if "n1" in victims else {})

    async def scenario(world: World) -> None:
        full_nodes(world)
        await world.until(lambda: extender.given, "the call")
        world.create(a_pod("boss", "1", priority=100, nodeSelector={"only": "n1"}))
        await world.until(lambda: world.pod("boss").status.nominated_node_name, "the other preemptor is nominated")
        await world.sleep(3)
        assert world.pod("vip").status.nominated_node_name == ""
        await world.until(lambda: world.node_of("boss"), "the other preemptor is bound")
        assert world.exists("on-n2")

    preempting(extender, scenario)


def test_nobody_is_evicted_for_a_pod_deleted_while_an_extender_is_awaited() -> None:
    extender = Preempts(only("n1"))

    async def scenario(world: World) -> None:
        full_nodes(world)
        await world.until(lambda: extender.given, "the call")
        world.delete("vip", grace_period_seconds=0)
        await world.settle()
        assert world.exists("on-n1")
        assert world.exists("on-n2")

    preempting(extender, scenario)

"""Changes and faults that may meet a pod, or its node, at every stage of an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from harness import NODES, World, a_node, a_pod, play
from recording import Answers, holder

from kubesched.scheduler.framework.status import Status

#: How a pod is brought to each stage: (answers of the plugin, preparation).
STAGES = ("queued", "backing off", "unschedulable", "gated", "waiting", "prebind", "bind", "bound unseen", "bound")


def names(value: object) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", "")


async def bring_to(world: World, diary: Answers, stage: str) -> None:
    """Pod ``p``, wanting most of a node, at ``stage``."""
    world.create(a_node("n1", "1"), a_node("n2", "1"))
    await world.step()
    more: dict[str, Any] = {}
    if stage == "backing off":
        world.faults.fail("bind", times=2)
    elif stage == "unschedulable":
        more["nodeSelector"] = {"no": "where"}
    elif stage == "gated":
        more["schedulingGates"] = [{"name": "example.com/gate"}]
    elif stage == "waiting":
        diary.answers["permit"] = (Status.wait(), 8.0)
    elif stage == "prebind":
        diary.answers["pre_bind"] = lambda *_: asyncio.sleep(3)
    elif stage == "bind":
        world.faults.delay("bind", 3.0, times=1)
    elif stage == "bound unseen":
        world.faults.stall(3.0)
    world.create(a_pod("p", "800m", **more))
    if stage != "queued":
        await world.sleep(1.5 if stage not in ("backing off",) else 0.3)


async def delete(world: World) -> None:
    world.delete("p", grace_period_seconds=0)


async def delete_slowly(world: World) -> None:
    """With a finalizer, so that the deletion timestamp is seen before the pod goes."""
    world.patch("p", {"metadata": {"finalizers": ["example.com/wait"]}})
    world.delete("p", grace_period_seconds=0)
    await world.sleep(4)
    world.patch("p", {"metadata": {"finalizers": None}})


async def replace(world: World) -> None:
    world.delete("p", grace_period_seconds=0)
    world.create(a_pod("p", "300m", labels={"generation": "second"}))


async def replace_by_a_stranger(world: World) -> None:
    world.delete("p", grace_period_seconds=0)
    world.create(a_pod("p", "300m", scheduler="other-scheduler"))


async def relabel(world: World) -> None:
    world.patch("p", {"metadata": {"labels": {"a": "b"}}})
    await world.sleep(0.01)
    world.patch("p", {"metadata": {"labels": {"a": "c"}}})


async def bind_elsewhere(world: World) -> None:
    pod = world.pod("p")
    if not pod.spec.node_name and not pod.spec.scheduling_gates:
        world.store.bind("default", "p", pod.uid, "n2")


async def remove_nodes(world: World) -> None:
    world.delete_node("n1")
    world.delete_node("n2")
    await world.sleep(6)
    world.create(a_node("n1", "1"), a_node("n2", "1"))


async def taint_nodes(world: World) -> None:
    for name in ("n1", "n2"):
        world.patch_node(name, {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})


async def shrink_nodes(world: World) -> None:
    for name in ("n1", "n2"):
        world.resize_node(name, "100m")


async def cordon_nodes(world: World) -> None:
    for name in ("n1", "n2"):
        world.patch_node(name, {"spec": {"unschedulable": True}})


DEEDS: list[Callable[[World], Awaitable[None]]] = [
    delete,
    delete_slowly,
    replace,
    replace_by_a_stranger,
    relabel,
    bind_elsewhere,
    remove_nodes,
    taint_nodes,
    shrink_nodes,
    cordon_nodes,
]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("deed", DEEDS, ids=names)
def test_anything_may_happen_at_any_stage(stage: str, deed: Callable[[World], Awaitable[None]]) -> None:
    diary = Answers()

    async def scenario(world: World) -> None:
        world.overcommit_ok = True
        await bring_to(world, diary, stage)
        before = world.pod("p").uid
        await deed(world)
        diary.answers.clear()
        for _ in range(40):
            await world.sleep(0.25)
            world.check_always()
        world.faults.clear()
        await world.settle(permitted=True)
        if not world.exists("p"):
            assert deed in (delete, delete_slowly)
            assert not world.scheduler.queue.views.pending_pods()[0]
            return
        pod = world.pod("p")
        if deed in (replace, replace_by_a_stranger):
            assert pod.uid != before
            assert not [entry for entry in world.binds if entry[2] == before] or stage in ("bound", "bound unseen")
        if pod.spec.scheduler_name == "other-scheduler":
            assert not pod.spec.node_name
            assert not pod.status.conditions
            return
        # Set everything right: the pod gets its node, by an event and not by the five-minute flush.
        for name in ("n1", "n2"):
            world.patch_node(name, {"spec": {"taints": None, "unschedulable": None}})
            world.resize_node(name, "1")
        if pod.spec.scheduling_gates:
            world.patch("p", {"spec": {"schedulingGates": [{"$patch": "replace"}]}})
        world.patch_node("n1", {"metadata": {"labels": {"changed": "yes"}}})
        if pod.spec.node_selector:
            for name in ("n1", "n2"):
                world.patch_node(name, {"metadata": {"labels": {"no": "where"}}})
        await world.until(lambda: world.node_of("p"), f"the pod, {world.where('p')}", 11)
        await world.settle()
        if deed is not bind_elsewhere:  # there our own failed attempt has the last word, as upstream
            assert world.condition("p").status == "True"

    errors = ["?cannot forget pod", "?cannot patch the status"]
    play(scenario, plugins=[holder(diary, "Stage", "permit", "pre_bind")], expect_errors=errors)


@pytest.mark.parametrize("answer", ["before", "after"])
def test_a_bind_whose_answer_is_lost_ends_in_one_binding(answer: Any) -> None:
    """The write applied or not, the pod is bound exactly once and accounted once."""

    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        world.faults.fail("bind", when=answer, times=1)
        world.faults.stall(2.0)
        world.create(a_pod("p", "1"))
        await world.settle()
        assert len(world.binds) == 1
        node = world.node_of("p")
        world.create(a_pod("q", "1"))
        await world.settle()
        assert world.node_of("q") not in ("", node)

    play(scenario, expect_errors=["?cannot forget pod"])


def test_a_slow_bind_does_not_hold_up_others() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1)
        world.faults.delay("bind", 20, times=1)
        world.create(a_pod("slow"))
        await world.step()
        world.create(*(a_pod(f"p{number}") for number in range(10)))
        await world.sleep(0.1)
        assert len(world.binds) == 10
        assert world.scheduler.cache.table.info(0).requested.milli_cpu == 1100
        await world.settle()
        assert world.binds[-1][:2] == (20.0, "default/slow")

    play(scenario)


def test_a_node_that_goes_between_assume_and_bind_leaves_the_pod_bound_there() -> None:
    """As upstream: the API server takes a binding to any name; the cache keeps the node's ghost for it."""

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.faults.delay("bind", 3)
        world.create(a_pod("p"))
        await world.sleep(1)
        world.delete_node("n1")
        await world.settle()
        assert world.node_of("p") == "n1"
        assert [info.node for info in world.scheduler.cache.table.all_infos()] == [None]
        world.store.create(NODES, "", a_node("n1", "150m"))
        world.create(a_pod("q"))
        await world.settle()
        assert world.condition("q").message == "0/1 nodes are available: 1 Insufficient cpu."

    play(scenario)


def test_the_status_of_an_earlier_failure_never_overtakes_the_binding() -> None:
    """The condition of the failed attempt is slow to be written; meanwhile the pod fits."""

    async def scenario(world: World) -> None:
        world.faults.delay("patch", 5, times=1)
        world.create(a_node("n1", "50m"))
        world.create(a_pod("p"))
        await world.sleep(1)
        assert world.where("p") == "Unschedulable"
        world.resize_node("n1", "4")
        await world.settle()
        assert world.node_of("p") == "n1"
        conditions = [(item.type, item.status) for item in world.pod("p").status.conditions]
        assert conditions == [("PodScheduled", "True")]

    play(scenario)


def test_a_late_status_is_not_written_to_another_pod_of_that_name() -> None:
    async def scenario(world: World) -> None:
        world.nodes(1, "50m")
        world.faults.delay("patch", 5, times=1)
        world.create(a_pod("p"))
        await world.sleep(1)
        world.resize_node("n1", "60m")  # fails again: a second status waits behind the first
        await world.sleep(1)
        world.delete("p")
        world.create(a_pod("p", scheduler="other-scheduler"))
        world.faults.clear()
        await world.settle()
        # One was on its way and could not be called back: it names the UID of the old pod. The second was not sent.
        patches = {key: count for key, count in world.embedded.port.requests.items() if key[0] == "PATCH"}
        assert patches == {("PATCH", "409"): 1}

    play(scenario)


def test_failing_status_patches_and_events_block_no_pod() -> None:
    async def scenario(world: World) -> None:
        world.faults.fail("patch")
        world.faults.fail("create")
        world.nodes(1, "1")
        world.create(a_pod("big", "2"), a_pod("small", "500m"))
        await world.sleep(2)
        assert world.node_of("small") == "n1"
        assert world.where("big") == "Unschedulable"
        assert not world.pod("big").status.conditions
        world.faults.clear()
        world.scheduler.queue.activate({"default/big": world.pod("big")})
        await world.settle()
        assert world.condition("big").message == "0/1 nodes are available: 1 Insufficient cpu."

    play(scenario, expect_errors=["cannot patch the status of pod default/big: Internal error"])


def once(real: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    """A method that fails the first time it is called, before or after its work."""
    failures = [RuntimeError("a defect")]

    def call(*args: Any, **options: Any) -> Any:
        if failures and not after:
            raise failures.pop()
        result = real(*args, **options)
        if failures:
            raise failures.pop()
        return result

    return call


CYCLE_STAGES: dict[str, Callable[[World], tuple[Any, str]]] = {
    "find": lambda world: (world.scheduler.profiles["default-scheduler"].search, "find"),
    "assume": lambda world: (world.scheduler.cache, "assume_pod"),
    "reserve": lambda world: (world.scheduler.frameworks["default-scheduler"], "reserve"),
    "permit": lambda world: (world.scheduler.frameworks["default-scheduler"], "permit"),
    "start of the binding": lambda world: (world.scheduler.bindings, "start"),
}


@pytest.mark.parametrize("after", [False, True], ids=["before its work", "after its work"])
@pytest.mark.parametrize("stage", CYCLE_STAGES)
def test_a_defect_at_any_stage_of_the_cycle_undoes_it_and_the_pod_is_tried_again(stage: str, after: bool) -> None:
    async def scenario(world: World) -> None:
        world.nodes(1)
        owner, method = CYCLE_STAGES[stage](world)
        setattr(owner, method, once(getattr(owner, method), after=after))
        world.create(a_pod("p"))
        await world.settle()
        assert world.node_of("p") == "n1"
        begun = stage == "start of the binding" and after
        assert world.notes("p") == ([] if begun else ["a defect"])
        assert world.metric("schedule_attempts_total", "error", "default-scheduler") == (0 if begun else 1)
        assert world.metric("schedule_attempts_total", "scheduled", "default-scheduler") == 1

    play(scenario, expect_errors=["scheduling pod default/p failed unexpectedly"])

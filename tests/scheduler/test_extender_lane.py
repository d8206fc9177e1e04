"""Pods with extenders: what is decided while extenders are awaited, and what happens meanwhile. In virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from harness import PODS, World, a_config, a_node, a_pod, play, world

from kubesched.lab.simulate.run.virtual_time import run_virtual
from kubesched.scheduler.config import ConfigError
from kubesched.scheduler.extenders.interface import ExtenderError, FilterAnswer, InProcessExtender
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo

SLOW = 5.0
#: A resource that makes a pod interesting to extenders here.
GPU = {"example.com/gpu": "1"}


def with_gpu(name: str, cpu: str = "100m", **more: Any) -> dict[str, Any]:
    return a_pod(name, cpu, labels={"gpu": "yes"}, **more)


class Labelled(InProcessExtender):
    """Interested in pods labelled ``gpu``; every verb is recorded with its virtual time."""

    def __init__(self, name: str = "gpu", *, ignorable: bool = False, delay: float = 0.0) -> None:
        self.name = name
        self.ignorable = ignorable
        self.delay = delay
        self.calls: list[tuple[str, str, tuple[str, ...], float]] = []
        self.closed = 0

    def is_interested(self, pod: PodInfo) -> bool:
        return "gpu" in pod.labels

    async def called(self, verb: str, pod: PodInfo, nodes: Sequence[NodeInfo] = ()) -> None:
        loop = asyncio.get_running_loop()
        self.calls.append((verb, pod.name, tuple(sorted(node.name for node in nodes)), loop.time()))
        await asyncio.sleep(self.delay)

    async def close(self) -> None:
        self.closed += 1


class Filters(Labelled):
    """Keeps the nodes of ``keep`` (all when None); says of others what ``failed`` and ``unresolvable`` say."""

    def __init__(
        self,
        name: str = "gpu",
        *,
        keep: Sequence[str] | None = None,
        failed: Mapping[str, str] | None = None,
        unresolvable: Mapping[str, str] | None = None,
        error: Exception | None = None,
        **options: Any,
    ) -> None:
        super().__init__(name, **options)
        self.keep, self.error = keep, error
        self.failed, self.unresolvable = failed or {}, unresolvable or {}

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer:
        names = [node.name for node in nodes]
        await self.called("filter", pod, nodes)
        if self.error is not None:
            raise self.error
        kept = names if self.keep is None else list(self.keep)
        return FilterAnswer(kept, self.failed, self.unresolvable)


class Prioritizes(Labelled):
    def __init__(
        self, name: str, scores: Mapping[str, int], weight: int = 1, error: Exception | None = None, **options: Any
    ) -> None:
        super().__init__(name, **options)
        self.scores, self.weight, self.error = scores, weight, error

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> Mapping[str, int]:
        await self.called("prioritize", pod, nodes)
        if self.error is not None:
            raise self.error
        return self.scores


class Binds(Labelled):
    """Binds through the API as a service outside would, after ``error`` if there is one."""

    def __init__(self, name: str = "binder", error: Exception | None = None, **options: Any) -> None:
        super().__init__(name, **options)
        self.error = error
        self.world: World | None = None

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self.called("bind", pod)
        if self.error is not None:
            raise self.error
        assert self.world is not None
        self.world.store.bind(pod.namespace, pod.name, pod.uid, node_name)


# -- filter ------------------------------------------------------------------------------------------------


def test_the_nodes_that_an_extender_keeps_are_chosen_from() -> None:
    extender = Filters(keep=["n2"])

    async def scenario(world: World) -> None:
        world.nodes(3)
        world.create(with_gpu("p"))
        await world.settle()
        assert world.node_of("p") == "n2"
        assert [call[:3] for call in extender.calls] == [("filter", "p", ("n1", "n2", "n3"))]

    play(scenario, extenders=[extender])
    assert extender.closed == 1


def test_what_extenders_say_of_nodes_is_in_the_pods_message() -> None:
    extender = Filters(
        keep=[], failed={"n1": "no gpu left", "n2": "not this"}, unresolvable={"n2": "no gpu at all", "n9": "unknown"}
    )

    async def scenario(world: World) -> None:
        world.nodes(2)
        world.create(a_node("n3", "50m"), with_gpu("p"))
        await world.settle()
        text = "0/3 nodes are available: 1 Insufficient cpu, 1 no gpu at all, 1 no gpu left."
        assert world.condition("p").message == text
        assert world.condition("p").reason == "Unschedulable"
        queued = world.scheduler.queue.views.get_pod("p", "default")
        assert queued is not None
        assert queued.unschedulable_plugins == {"Extender", "NodeResourcesFit"}

    play(scenario, extenders=[extender])


def test_a_pod_that_extenders_rejected_is_tried_again_when_the_cluster_changes() -> None:
    extender = Filters(keep=[])

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("p"))
        await world.settle()
        assert world.where("p") == "Unschedulable"
        extender.keep = None
        world.patch_node("n1", {"metadata": {"labels": {"driver": "new"}}})
        await world.settle()
        assert world.node_of("p") == "n1"

    play(scenario, extenders=[extender])


def test_each_extender_is_given_what_the_one_before_left_and_ignorable_ones_come_last() -> None:
    ignorable = Filters("a", ignorable=True)
    first, second = Filters("b", keep=["n1", "n2"]), Filters("c", keep=["n2"])

    async def scenario(world: World) -> None:
        world.nodes(3)
        world.create(with_gpu("p"))
        await world.settle()
        assert [one.calls[0][2] for one in (first, second, ignorable)] == [("n1", "n2", "n3"), ("n1", "n2"), ("n2",)]

    play(scenario, extenders=[ignorable, first, second])


def test_no_further_extender_is_called_when_no_node_is_left() -> None:
    first, second = Filters("a", keep=[]), Filters("b")

    async def scenario(world: World) -> None:
        world.nodes(2)
        world.create(with_gpu("p"))
        await world.settle()
        assert len(first.calls) == 1
        assert not second.calls

    play(scenario, extenders=[first, second])


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ExtenderError("out of order"), "out of order"),
        (ValueError("a defect"), 'extender "gpu" failed in filter: ValueError: a defect'),
    ],
)
def test_a_failing_extender_fails_the_attempt_and_the_pod_is_retried(error: Exception, message: str) -> None:
    extender = Filters(error=error)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("p"), a_pod("q"))
        await world.until(lambda: extender.calls and world.events("p"), "the first attempt")
        assert world.node_of("q") == "n1"
        condition = world.condition("p")
        assert (condition.reason, condition.message) == ("SchedulerError", message)
        extender.error = None
        await world.settle()
        assert world.node_of("p") == "n1"

    # A defect of an in-process extender is logged with its traceback.
    expected = ["failed in filter"] if isinstance(error, ValueError) else []
    play(scenario, extenders=[extender], expect_errors=expected)


def test_an_ignorable_extender_that_fails_is_left_out() -> None:
    extender = Filters(error=ExtenderError("out of order"), ignorable=True)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("p"))
        await world.settle()
        assert world.node_of("p") == "n1"

    play(scenario, extenders=[extender])


def test_a_node_that_was_not_among_those_given_fails_the_attempt() -> None:
    extender = Filters(keep=["n1", "elsewhere"])

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("p"))
        await world.until(lambda: world.events("p"), "the first attempt")
        text = 'extender "gpu" claims a filtered node "elsewhere" which is not found in the input node list'
        assert world.condition("p").message == text
        extender.keep = None
        await world.settle()

    play(scenario, extenders=[extender])


def test_extenders_are_given_a_sample_of_many_nodes() -> None:
    extender = Filters()

    async def scenario(world: World) -> None:
        world.nodes(1000)
        await world.settle()
        world.create(with_gpu("p"), a_pod("q"))
        await world.settle()
        assert len(extender.calls[0][2]) == 420  # spec cycle 5.7
        assert world.node_of("p")
        assert world.node_of("q")

    play(scenario, extenders=[extender])


# -- prioritize --------------------------------------------------------------------------------------------


def test_scores_count_ten_times_their_weight() -> None:
    """Two extenders, called at once: 3 x 2 x 10 for n1 against 7 x 1 x 10 for n3; the plugins like all nodes alike."""
    one = Prioritizes("a", {"n1": 3, "elsewhere": 9}, weight=2, delay=2.0)
    other = Prioritizes("b", {"n3": 7}, delay=2.0)

    async def scenario(world: World) -> None:
        world.nodes(3)
        world.create(with_gpu("p"))
        await world.until(lambda: len(one.calls) and len(other.calls), "both calls")
        await world.step()
        assert one.calls[0][3] == other.calls[0][3]
        assert world.metric("goroutines", "prioritizing_extender") == 2
        await world.settle()
        assert world.node_of("p") == "n3"
        assert world.metric("goroutines", "prioritizing_extender") == 0

    play(scenario, extenders=[one, other])


@pytest.mark.parametrize("error", [ExtenderError("no"), RuntimeError("a defect")])
def test_an_extender_that_cannot_prioritize_adds_nothing(error: Exception) -> None:
    one, other = Prioritizes("a", {"n1": 10}, weight=5, error=error), Prioritizes("b", {"n3": 7})

    async def scenario(world: World) -> None:
        world.nodes(3)
        world.create(with_gpu("p"))
        await world.settle()
        assert world.node_of("p") == "n3"

    expected = ["failed in prioritize"] if isinstance(error, RuntimeError) else []
    play(scenario, extenders=[one, other], expect_errors=expected)


def test_a_single_feasible_node_is_not_prioritized() -> None:
    extender = Prioritizes("a", {"n1": 1})

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("p"))
        await world.settle()
        assert not extender.calls

    play(scenario, extenders=[extender])


def test_huge_scores_decide_and_do_not_overflow() -> None:
    extender = Prioritizes("a", {"n2": 1 << 62, "n1": -(1 << 62)}, weight=1 << 40)

    async def scenario(world: World) -> None:
        world.nodes(2)
        world.create(with_gpu("p"))
        await world.settle()
        assert world.node_of("p") == "n2"

    play(scenario, extenders=[extender])


# -- bind --------------------------------------------------------------------------------------------------


def test_an_extender_binds_in_place_of_the_plugins_and_other_pods_are_not_its_business() -> None:
    extender = Binds()

    async def scenario(world: World) -> None:
        extender.world = world
        world.nodes(2)
        world.create(with_gpu("p"), a_pod("q"))
        await world.settle()
        assert world.node_of("p")
        assert world.node_of("q")
        assert [call[:2] for call in extender.calls] == [("bind", "p")]
        note = f"Successfully assigned default/p to {world.node_of('p')}"
        assert world.notes("p", "Scheduled") == [note]

    play(scenario, extenders=[extender])


def test_a_binding_refused_by_an_extender_is_given_back_and_tried_again() -> None:
    extender = Binds(error=ExtenderError("device gone"))

    async def scenario(world: World) -> None:
        extender.world = world
        world.nodes(1)
        world.create(with_gpu("p"))
        await world.until(lambda: world.events("p"), "the failed binding")
        assert world.condition("p").message == "device gone"
        assert not world.scheduler.cache.assumed
        extender.error = None
        await world.settle()
        assert world.node_of("p") == "n1"

    play(scenario, extenders=[extender])


def test_an_ignorable_extender_that_cannot_bind_leaves_it_to_the_plugins() -> None:
    extender = Binds(error=ExtenderError("device gone"), ignorable=True)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("p"))
        await world.settle()
        assert world.node_of("p") == "n1"

    play(scenario, extenders=[extender])


# -- meanwhile ---------------------------------------------------------------------------------------------


def test_other_pods_are_bound_while_an_extender_is_awaited() -> None:
    extender = Filters(delay=SLOW)

    async def scenario(world: World) -> None:
        world.nodes(3, "40")
        world.create(with_gpu("p"))
        await world.until(lambda: extender.calls, "the call")
        start = world.now()
        world.create(*(a_pod(f"q{number}") for number in range(200)))
        await world.until(lambda: len(world.binds) == 200, "all other pods")
        assert world.now() - start < SLOW
        assert not world.node_of("p")
        await world.settle()
        assert world.node_of("p")

    play(scenario, extenders=[extender])


def test_pods_with_extenders_go_one_after_the_other_in_the_order_of_the_queue() -> None:
    """Pods that wait for their turn are still queued: they are changed, deleted and put in order as any other pod."""
    extender = Filters(delay=1.0)

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("first"))
        await world.until(lambda: extender.calls, "the first call")
        world.create(with_gpu("low"), with_gpu("gone"))
        await world.step()
        assert world.where("low") == "Active"
        assert world.metric("pending_pods", "active") == 2
        world.delete("gone", grace_period_seconds=0)
        world.create(with_gpu("high", priority=1000))
        await world.settle()
        names = [call[1] for call in extender.calls]
        assert names == ["first", "high", "low"]
        times = [call[3] for call in extender.calls]
        assert all(later - earlier >= 1.0 for earlier, later in itertools.pairwise(times))

    play(scenario, extenders=[extender], believe_priority=True)


def during(extender: Labelled, act: Callable[[World], None], check: Callable[[World], None], **options: Any) -> None:
    """Let something happen while the first call waits; check after all settled."""

    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        world.create(with_gpu("p", "800m"))
        await world.until(lambda: extender.calls, "the call")
        act(world)
        await world.settle()
        check(world)

    extender.delay = 2.0
    play(scenario, extenders=[extender], **options)


def test_a_node_removed_while_an_extender_is_awaited_is_not_chosen() -> None:
    extender = Prioritizes("a", {"n1": 10})
    during(extender, lambda world: world.delete_node("n1"), lambda world: _is_on(world, "p", "n2"))


def _is_on(world: World, pod: str, node: str) -> None:
    assert world.node_of(pod) == node


def test_a_node_that_took_the_row_of_a_removed_one_is_not_mistaken_for_it() -> None:
    extender = Filters(keep=["n1"])

    def act(world: World) -> None:
        world.delete_node("n1")
        world.create(a_node("n9", "1"))

    def check(world: World) -> None:
        assert not world.node_of("p")
        assert "n9" in extender.calls[-1][2]

    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        world.create(with_gpu("p", "800m"))
        await world.until(lambda: extender.calls, "the call")
        act(world)
        await world.until(lambda: len(extender.calls) > 1, "the next attempt")
        check(world)
        extender.keep = None
        await world.settle()
        assert world.node_of("p")

    extender.delay = 2.0
    play(scenario, extenders=[extender])


def test_capacity_taken_while_an_extender_is_awaited_is_respected() -> None:
    """A pod without interest takes n1, so the node that the extender likes best does not fit any more."""
    extender = Prioritizes("a", {"n1": 10})

    def act(world: World) -> None:
        world.create(a_pod("q", "900m", nodeSelector={"kubernetes.io/hostname": "n1"}, nodeName="n1"))

    during(extender, act, lambda world: _is_on(world, "p", "n2"))


def test_when_all_capacity_is_taken_meanwhile_the_pod_is_rejected_as_usual() -> None:
    extender = Filters()

    def act(world: World) -> None:
        world.create(*(a_pod(f"q{number}", "900m", nodeName=f"n{number}") for number in (1, 2)))

    def check(world: World) -> None:
        assert world.condition("p").message == "0/2 nodes are available: 2 Insufficient cpu."
        queued = world.scheduler.queue.views.get_pod("p", "default")
        assert queued is not None
        assert queued.unschedulable_plugins == {"NodeResourcesFit"}

    during(extender, act, check)


def test_when_every_node_goes_meanwhile_the_pod_waits_for_one() -> None:
    extender = Filters()

    def act(world: World) -> None:
        world.delete_node("n1")
        world.delete_node("n2")

    async def scenario(world: World) -> None:
        world.nodes(2, "1")
        world.create(with_gpu("p", "800m"))
        await world.until(lambda: extender.calls, "the call")
        act(world)
        await world.until(lambda: world.events("p"), "the end of the attempt")
        assert world.condition("p").message == "no nodes available to schedule pods"
        world.create(a_node("n3"))
        await world.settle()
        assert world.node_of("p") == "n3"

    extender.delay = 2.0
    play(scenario, extenders=[extender])


def test_a_pod_deleted_while_an_extender_is_awaited_is_forgotten() -> None:
    extender = Filters()

    def check(world: World) -> None:
        assert not world.exists("p")
        assert not world.tries
        assert not world.events("p")

    during(extender, lambda world: world.delete("p", grace_period_seconds=0), check)


def test_a_pod_that_another_one_replaced_meanwhile_gets_an_attempt_of_its_own() -> None:
    extender = Filters()

    def act(world: World) -> None:
        world.delete("p", grace_period_seconds=0)
        world.create(with_gpu("p", "500m"))

    def check(world: World) -> None:
        assert world.node_of("p")
        assert [uid for _, _, uid, _ in world.tries] == [world.pod("p").uid]

    during(extender, act, check)


def test_a_pod_bound_by_somebody_else_meanwhile_is_left_alone() -> None:
    extender = Filters()

    def act(world: World) -> None:
        pod = world.pod("p")
        world.store.bind("default", "p", pod.uid, "n2")

    def check(world: World) -> None:
        assert len(world.tries) == 1
        assert world.node_of("p") == "n2"

    during(extender, act, check)


def test_a_pod_changed_meanwhile_is_decided_about_as_it_is_then() -> None:
    """A toleration added during the await makes no difference to the extender, and all to the plugins."""
    extender = Filters()
    toleration = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}

    def act(world: World) -> None:
        world.patch_node("n1", {"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}})
        world.create(a_pod("q", "900m", nodeName="n2"))
        world.patch("p", {"spec": {"tolerations": [toleration]}})

    def check(world: World) -> None:
        _is_on(world, "p", "n1")
        assert world.notes("p") == [], "by the first attempt"

    during(extender, act, check)


def test_the_scheduler_stops_while_an_extender_is_awaited() -> None:
    extender = Filters(delay=3600.0)

    async def main() -> None:
        async with world(extenders=[extender], settled=False) as found:
            found.nodes(1)
            found.create(with_gpu("p"))
            await found.until(lambda: extender.calls, "the call")
        assert not found.tries
        assert extender.closed == 1

    run_virtual(main())


# -- nominations -------------------------------------------------------------------------------------------


async def nominate(world: World) -> None:
    """A gated pod is nominated to n2; then it may go."""
    world.nodes(3)
    world.create(with_gpu("p", schedulingGates=[{"name": "wait"}]))
    world.patch("p", {"status": {"nominatedNodeName": "n2"}}, "status")
    await world.step()
    world.change(PODS, "p", lambda data: data["spec"].pop("schedulingGates"))


def test_the_nominated_node_is_asked_about_alone() -> None:
    extender = Filters()

    async def scenario(world: World) -> None:
        await nominate(world)
        await world.settle()
        assert [call[2] for call in extender.calls] == [("n2",)]
        assert world.node_of("p") == "n2"

    play(scenario, extenders=[extender])


@pytest.mark.parametrize("trouble", ["rejected", "error"])
def test_all_nodes_are_searched_when_the_nominated_one_is_not_to_be_had(trouble: str) -> None:
    class Refuses(Filters):
        async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer:
            answer = await super().filter(pod, nodes)
            if len(self.calls) > 1:
                return answer
            if trouble == "error":
                raise ExtenderError("not now")
            return FilterAnswer([], {"n2": "no"})

    extender = Refuses()

    async def scenario(world: World) -> None:
        await nominate(world)
        await world.settle()
        assert [len(call[2]) for call in extender.calls] == [1, 3]
        assert world.node_of("p")

    play(scenario, extenders=[extender])


# -- plugins still count -----------------------------------------------------------------------------------


def test_reserve_and_permit_still_reject_pods_with_extenders() -> None:
    class Never:
        name = "Never"

        def __init__(self, args: Any, handle: Any) -> None:
            pass

        def reserve(self, state: Any, pod: PodInfo, node_name: str) -> Status | None:
            return Status.unschedulable("never")

    async def scenario(world: World) -> None:
        world.nodes(1)
        world.create(with_gpu("p"))
        await world.settle()
        assert world.condition("p").message == "0/1 nodes are available: 1 never."
        assert not world.scheduler.cache.assumed

    play(scenario, plugins=[Never], extenders=[Filters()])


def test_a_configured_extender_must_be_there() -> None:
    async def main() -> None:
        config = a_config(extenders=[{"urlPrefix": "http://localhost:1/gpu", "filterVerb": "filter"}])
        with pytest.raises(ConfigError, match="nothing here calls the configured extender http://localhost:1/gpu"):
            async with world(config=config):
                pass

    run_virtual(main())

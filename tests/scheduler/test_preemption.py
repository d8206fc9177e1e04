"""Preemption from end to end: who goes, who waits for it, what is written, and what failures lead to."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness import World, a_config, a_node, a_pod, play, server_error, world
from recording import Answers, holder

from builders import Preemptions
from kubesched.api.kinds import BUDGETS
from kubesched.api.types import Pod
from kubesched.api.wire import ApiError
from kubesched.client.port import ApiPort
from kubesched.cluster.store import InProcessClient
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.config.features import FeatureGates
from kubesched.scheduler.framework.preemption import Preemption
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler

SYNCHRONOUS = FeatureGates.of({"SchedulerAsyncPreemption": False})


def preempting(*plugins: str) -> KubeSchedulerConfiguration:
    multi_point = {"enabled": [{"name": name} for name in plugins], "disabled": [{"name": "DynamicResources"}]}
    return a_config(profiles=[{"schedulerName": "default-scheduler", "plugins": {"multiPoint": multi_point}}])


def play_preempting(scenario: Any, **options: Any) -> Any:
    return play(scenario, config=preempting(), believe_priority=True, **options)


def low(name: str, cpu: str = "2", priority: int = 1, **more: Any) -> dict[str, Any]:
    return a_pod(name, cpu, priority=priority, terminationGracePeriodSeconds=0, **more)


def high(name: str = "high", cpu: str = "3", priority: int = 10, **more: Any) -> dict[str, Any]:
    return a_pod(name, cpu, priority=priority, terminationGracePeriodSeconds=0, **more)


async def crowded(there: World, nodes: int = 1) -> None:
    """Each node holds two pods of low priority."""
    there.nodes(nodes)
    there.create(*(low(f"low{number}") for number in range(2 * nodes)))
    await there.settle()


@pytest.mark.parametrize("gates", [FeatureGates(), SYNCHRONOUS], ids=["in the background", "while the cycle waits"])
def test_victims_go_and_the_preemptor_takes_their_place(gates: FeatureGates) -> None:
    async def scenario(there: World) -> None:
        await crowded(there)
        uid = there.create(high())[0].uid
        await there.until(lambda: there.node_of("high"), "preemption")
        assert there.node_of("high") == "n1"
        assert not there.exists("low0")
        assert not there.exists("low1")
        for name in ("low0", "low1"):
            (event,) = there.events(name, "Preempted")
            assert (event["type"], event["action"]) == ("Normal", "Preempting")
            assert event["note"] == f"Preempted by pod {uid} on node n1"
        assert there.notes("high") == ["0/1 nodes are available: 1 Insufficient cpu."]
        assert there.metric("preemption_attempts_total") == 1
        assert there.metric("preemption_victims") == 1

    play_preempting(scenario, gates=gates)


def test_a_victim_with_a_grace_period_is_marked_and_the_preemptor_waits_for_its_end() -> None:
    async def scenario(there: World) -> None:
        there.nodes(1)
        there.create(a_pod("slow", "3", priority=1, terminationGracePeriodSeconds=20))
        await there.until(lambda: there.node_of("slow"), "binding")
        await there.sleep(5)
        there.create(high())
        await there.until(lambda: there.pod("slow").metadata.deletion_timestamp, "eviction")
        marked = there.pod("slow")
        (condition,) = [each for each in marked.status.conditions if each.type == "DisruptionTarget"]
        assert (condition.status, condition.reason) == ("True", "PreemptionByScheduler")
        assert condition.message == "default-scheduler: preempting to accommodate a higher priority pod"
        await there.step()
        assert there.pod("high").status.nominated_node_name == "n1"
        assert there.node_of("high") == ""
        # Another attempt meanwhile does not preempt again.
        attempts = there.metric("preemption_victims")
        there.create(a_node("n2", unschedulable=True))
        await there.sleep(11)
        assert "preemption: not eligible due to a terminating pod on the nominated node." in there.notes("high")[-1]
        assert there.metric("preemption_victims") == attempts
        assert await there.until(lambda: there.node_of("high"), "binding") > 1

    play_preempting(scenario, kubelets=True)


def test_equal_and_higher_priority_is_never_preempted() -> None:
    async def scenario(there: World) -> None:
        there.nodes(1)
        there.create(low("equal", priority=10), low("higher", priority=11))
        await there.settle()
        there.create(high())
        await there.settle()
        assert there.exists("equal")
        assert there.exists("higher")
        assert there.notes("high")[0].endswith(
            "preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
        )

    play_preempting(scenario)


def test_two_preemptors_do_not_rely_on_the_same_victims() -> None:
    async def scenario(there: World) -> None:
        await crowded(there, 3)
        there.create(*(high(f"high{number}") for number in range(3)))
        await there.until(lambda: all(there.node_of(f"high{number}") for number in range(3)), "preemptions")
        assert {there.node_of(f"high{number}") for number in range(3)} == {"n1", "n2", "n3"}
        assert there.metric("preemption_victims") == 3

    play_preempting(scenario)


def test_the_room_of_a_nominated_pod_is_not_given_to_pods_of_lower_or_equal_priority() -> None:
    async def scenario(there: World) -> None:
        there.nodes(1)
        there.create(a_pod("slow", "3", priority=1, terminationGracePeriodSeconds=30))
        await there.until(lambda: there.node_of("slow"), "binding")
        await there.sleep(5)
        there.create(high())
        await there.until(lambda: there.pod("high").status.nominated_node_name, "nomination")
        there.create(low("equal", "2", priority=10), low("lower", "2", priority=0))
        await there.until(lambda: there.node_of("high"), "binding")
        await there.settle()
        assert there.node_of("equal") == ""
        assert there.node_of("lower") == ""

    play_preempting(scenario, kubelets=True)


async def waiting_for_victims(there: World, preemptors: int) -> None:
    """As many nodes as preemptors, each with a victim that takes 30 s to end; and a last node, full of small pods."""
    there.nodes(preemptors)
    there.create(
        *(a_pod(f"slow{each}", "3", priority=1, terminationGracePeriodSeconds=30) for each in range(preemptors))
    )
    await there.until(lambda: all(there.node_of(f"slow{each}") for each in range(preemptors)), "binding")
    there.create(a_node("other"), *(low(f"small{each}", "2", priority=10) for each in range(2)))
    await there.until(lambda: there.node_of("small1"), "binding")
    await there.sleep(5)
    there.create(*(high(f"high{each}") for each in range(preemptors)))
    await there.until(
        lambda: all(there.pod(f"slow{each}").metadata.deletion_timestamp for each in range(preemptors)), "evictions"
    )
    await there.sleep(12)  # longer than any backoff


def attempts(there: World) -> float:
    return sum(
        there.metric("schedule_attempts_total", result, "default-scheduler") for result in ("unschedulable", "error")
    )


def test_preemptors_that_wait_for_victims_are_not_tried_again_for_deletions_that_cannot_help_them() -> None:
    async def scenario(there: World) -> None:
        await waiting_for_victims(there, 3)
        before = attempts(there)
        there.delete("small0")  # 2 of 4 CPUs are free then
        await there.sleep(3)
        assert attempts(there) == before
        there.delete("small1")
        await there.sleep(3)
        placed = [each for each in range(3) if there.node_of(f"high{each}") == "other"]
        assert len(placed) == 1  # it has room now, for one of them
        await there.until(lambda: all(there.node_of(f"high{each}") for each in range(3)), "bindings")

    play_preempting(scenario, kubelets=True)


def test_a_preemptor_that_lost_its_nomination_is_tried_again_for_any_deletion() -> None:
    async def scenario(there: World) -> None:
        there.nodes(1)
        for name, priority in (("slow1", 1), ("slow3", 3)):
            there.create(a_pod(name, "2", priority=priority, terminationGracePeriodSeconds=30))
        await there.until(lambda: there.node_of("slow3"), "binding")
        there.create(a_node("other", "2"), low("small", "2", priority=10))
        await there.until(lambda: there.node_of("small"), "binding")
        await there.sleep(5)
        there.create(high("middle", "2", priority=2))
        await there.until(lambda: there.pod("middle").status.nominated_node_name, "nomination")
        there.create(high("high", "4", priority=10))
        await there.until(lambda: there.pod("high").status.nominated_node_name, "nomination")
        await there.sleep(12)
        assert there.pod("middle").status.nominated_node_name == ""
        there.delete("small")
        await there.until(lambda: there.node_of("middle"), "binding", 5)
        assert there.node_of("middle") == "other"
        await there.until(lambda: there.node_of("high"), "binding")

    play_preempting(scenario, kubelets=True)


def test_lower_nominations_to_the_node_are_cleared() -> None:
    async def scenario(there: World) -> None:
        there.nodes(1)
        for name, priority in (("slow1", 1), ("slow3", 3)):
            there.create(a_pod(name, "2", priority=priority, terminationGracePeriodSeconds=30))
        await there.until(lambda: there.node_of("slow3"), "binding")
        await there.sleep(5)
        there.create(high("middle", "2", priority=2))
        await there.until(lambda: there.pod("middle").status.nominated_node_name, "nomination")
        there.create(high("high", "4", priority=10))
        await there.until(lambda: there.pod("high").status.nominated_node_name, "nomination")
        await there.step()
        assert there.pod("middle").status.nominated_node_name == ""
        await there.until(lambda: there.node_of("high"), "binding")
        assert there.node_of("middle") == ""

    play_preempting(scenario, kubelets=True)


def test_a_budget_is_violated_only_when_there_is_no_other_candidate() -> None:
    async def scenario(there: World) -> None:
        there.nodes(2)
        there.create(low("guarded", "3", labels={"app": "web"}), low("free", "3", priority=3))
        await there.settle()
        there.store.create(
            BUDGETS,
            "default",
            {
                "metadata": {"name": "web"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            },
        )
        await there.settle()
        there.create(high("first"))
        await there.until(lambda: there.node_of("first"), "preemption")
        assert there.exists("guarded")
        assert not there.exists("free")
        there.create(high("second"))
        await there.until(lambda: there.node_of("second"), "preemption")
        assert not there.exists("guarded")

    play_preempting(scenario)


def test_a_pod_that_never_preempts_says_so() -> None:
    async def scenario(there: World) -> None:
        await crowded(there)
        there.create(high(preemptionPolicy="Never"))
        await there.settle()
        assert there.exists("low0")
        assert there.notes("high") == [
            "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never."
        ]

    play_preempting(scenario)


# -- failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gates", [FeatureGates(), SYNCHRONOUS], ids=["in the background", "while the cycle waits"])
@pytest.mark.parametrize("verb", ["delete", "patch"])
def test_a_refused_eviction_is_tried_again(gates: FeatureGates, verb: Any) -> None:
    async def scenario(there: World) -> None:
        await crowded(there)
        there.faults.fail(verb, name="low0", error=server_error(), times=5)
        there.create(high())
        await there.until(lambda: there.node_of("high"), "preemption", 120)

    errors = ["?preemption on node n1 for pod default/high: .*injected 500", "?cannot patch"]
    play_preempting(scenario, gates=gates, expect_errors=errors)


@pytest.mark.parametrize("gates", [FeatureGates(), SYNCHRONOUS], ids=["in the background", "while the cycle waits"])
def test_a_server_that_refuses_evictions_is_asked_once_a_second(gates: FeatureGates) -> None:
    async def scenario(there: World) -> None:
        await crowded(there)
        there.faults.delay("delete", 0.01)
        refused = there.faults.fail("delete", name="low0", error=server_error())
        there.create(high())
        await there.sleep(10)
        assert 5 <= refused.hits <= 11
        there.create(a_pod("other", "100m", nodeSelector={"no": "where"}))  # other pods are tried meanwhile
        await there.until(lambda: there.notes("other"), "attempt", 1)
        there.faults.remove(refused)
        await there.until(lambda: there.node_of("high"), "preemption", 3)

    play_preempting(
        scenario, gates=gates, expect_errors=["?preemption on node n1 for pod default/high: .*injected 500"]
    )


def test_a_preemptor_is_tried_when_the_binding_of_its_victim_failed_before_the_eviction() -> None:
    """The end of the victim's room was an event while the preemptor was held; its deletion is none."""

    async def scenario(there: World) -> None:
        there.nodes(1)
        there.faults.delay("bind", 5, name="low", times=1)
        there.faults.fail("bind", name="low", error=server_error(403, "Forbidden"), times=1)
        there.faults.delay("delete", 8, name="low")
        there.create(low("low", "3"))
        await there.sleep(1)
        there.create(high())
        await there.sleep(6)
        assert there.where("high") == "Gated"
        await there.until(lambda: not there.exists("low"), "eviction")
        await there.until(lambda: there.node_of("high"), "binding", 2)

    play_preempting(scenario)


def test_preemptions_that_begin_together_fail_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three begin in one turn: one is refused at once, one has to wait for the server, one needs nothing of that."""
    refused = ApiError(403, "Forbidden", "not this one")
    delete_pod, calls = ApiPort.delete_pod, Counter[str]()

    async def delete(port: ApiPort, pod: Pod) -> bool:
        node = pod.spec.node_name
        calls[node] += 1
        if node == "n1" and calls[node] == 1:
            raise refused
        if node == "n2":
            await asyncio.sleep(0.1)
        return await delete_pod(port, pod)

    async def scenario(there: World) -> None:
        names = ["n1", "n2", "n3"]
        there.create(*(a_node(name, labels={"name": name}) for name in names))
        there.create(*(low(f"low{number}", nodeSelector={"name": name}) for number, name in enumerate(2 * names)))
        await there.settle()
        monkeypatch.setattr(ApiPort, "delete_pod", delete)
        there.create(*(high(name, nodeSelector={"name": name}) for name in names))
        await there.settle()
        assert [there.node_of(name) for name in names] == names
        assert not any(there.exists(f"low{number}") for number in range(6))
        results = [there.metric("preemption_goroutines_execution_total", result) for result in ("error", "success")]
        assert results == [1, 3]

    play_preempting(scenario, expect_errors=["?preemption on node n1 for pod default/n1: .*not this one"])


def test_a_victim_that_is_gone_already_holds_nobody_up() -> None:
    async def scenario(there: World) -> None:
        await crowded(there)
        there.faults.delay("patch", 2.0, name="low0")
        there.create(high())
        await there.sleep(1)
        there.delete("low0")
        there.delete("low1")
        await there.until(lambda: there.node_of("high"), "binding")

    play_preempting(scenario)


def test_a_preemptor_deleted_while_its_victims_terminate_leaves_nothing_behind() -> None:
    async def scenario(there: World) -> None:
        there.nodes(1)
        there.create(a_pod("slow", "3", priority=1, terminationGracePeriodSeconds=30))
        await there.until(lambda: there.node_of("slow"), "binding")
        await there.sleep(5)
        there.create(high())
        await there.until(lambda: there.pod("slow").metadata.deletion_timestamp, "eviction")
        there.delete("high")
        there.create(low("next", "3"))
        await there.until(lambda: there.node_of("next"), "binding")
        assert not there.scheduler.queue.nominator.nominated_nodes()

    play_preempting(scenario, kubelets=True)


@asynccontextmanager
async def scheduling(there: World, seed: int) -> AsyncIterator[Scheduler]:
    """A scheduler of its own over the world's store."""
    clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(seed)
    port = ApiPort(InProcessClient(there.store), clock=clock, rng=rng)
    scheduler = Scheduler(preempting(), in_tree_registry(), port, clock=clock, rng=rng)
    events = asyncio.create_task(port.events.run())
    await scheduler.start()
    running = asyncio.create_task(scheduler.run())
    yield scheduler
    await scheduler.stop()
    port.events.stop()
    await asyncio.gather(events, running)


def test_a_restarted_scheduler_keeps_the_nomination_and_preempts_nobody_else() -> None:
    async def main() -> None:
        async with world(believe_priority=True, kubelets=True, start=False, settled=False) as there:
            await there.embedded.start(scheduler=False)
            there.nodes(1)
            async with scheduling(there, 1):
                for name in ("slow1", "slow2"):
                    there.create(a_pod(name, "2", priority=1, terminationGracePeriodSeconds=30))
                await there.until(lambda: there.node_of("slow2"), "binding")
                await there.sleep(5)
                there.create(high("high", "2"))
                await there.until(lambda: there.pod("high").status.nominated_node_name, "nomination")
                await there.step()
            async with scheduling(there, 2):
                await there.sleep(3)
                ending = [there.pod(name).metadata.deletion_timestamp for name in ("slow1", "slow2")]
                assert ending.count(None) == 1
                await there.until(lambda: there.node_of("high"), "binding")
                assert there.exists("slow1") + there.exists("slow2") == 1

    run_virtual(main())


def test_a_victim_that_waits_on_permit_is_given_back_without_a_call() -> None:
    diary = Answers(permit=lambda state, pod, node: (Status.wait(), 60.0) if pod.name == "low0" else None)
    plugin = holder(diary, "A", "permit")

    async def main() -> None:
        errors = ["?waiting on permit for pod: preempted"]
        async with world(
            config=preempting("A"), plugins=[plugin], believe_priority=True, expect_errors=errors
        ) as there:
            there.nodes(1)
            there.create(low("low0", "3"))
            await there.until(lambda: len(there.scheduler.waiting_pods), "waiting")
            there.create(high())
            await there.until(lambda: there.node_of("high"), "preemption")
            assert there.exists("low0")
            assert there.notes("low0", "Preempted")[0].endswith(" on node n1 (in kube-scheduler memory).")
            assert there.notes("low0")[0] == "waiting on permit for pod: preempted"

    run_virtual(main())


def test_preemptions_are_reported_with_those_that_lost() -> None:
    seen: list[tuple[Preemption, list[Any], dict[str, Status]]] = []

    async def main() -> None:
        async with world(
            config=preempting(),
            believe_priority=True,
            observers=[Preemptions(lambda each: seen.append((each, list(each.others()), dict(each.rejected()))))],
        ) as there:
            there.nodes(3)
            there.create(low("a", "3"), low("b", "3", priority=3), low("c", "3", priority=10))
            await there.settle()
            there.create(high())
            await there.until(lambda: there.node_of("high"), "preemption")
            (preemption, others, rejected) = seen[0]
            where = {name: there.node_of(name) for name in ("b", "c")}
            assert preemption.pod.name == "high"
            assert [pod.name for pod in preemption.chosen.victims.pods] == ["a"]
            assert [(each.node_name, why) for each, why in others] == [(where["b"], "a victim of higher priority")]
            assert {name: status.message() for name, status in rejected.items()} == {
                where["c"]: "No preemption victims found for incoming pod"
            }

    run_virtual(main())


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_stuck_or_lost_whatever_fails(seed: int) -> None:
    """Random pods of random priorities, with random failures; afterwards every pod that fits is placed."""

    async def scenario(there: World) -> None:
        rng = random.Random(seed)
        there.nodes(4)
        for verb in ("delete", "patch", "bind"):
            there.faults.fail(verb, fraction=0.2, error=server_error())
        for number in range(40):
            make = low if rng.random() < 0.6 else high
            there.create(make(f"p{number}", rng.choice(("1", "2", "3")), priority=rng.choice((0, 1, 5, 10))))
            await there.sleep(rng.choice((0, 0.3, 2.0)))
            there.check_always()
        there.faults.clear()
        await there.settle(900)
        assert there.scheduler.is_idle
        # Nothing of higher priority waits for room that pods of lower priority hold on a node where it would fit alone.
        waiting = [pod for pod in there.embedded.pods() if not pod.spec.node_name]
        for pod in waiting:
            assert not pod.status.nominated_node_name, pod.key

    play_preempting(scenario, seed=seed, expect_errors=["?injected", "?preemption", "?cannot", "?already"])

"""Preemption in random clusters with faults, judged by rules written down here and nowhere else.

Nothing below calls a procedure of the scheduler: what a preemption may do, which victims are needed, which node is best
and where a pod fits is computed naively from pod objects, by the rules (rules/preemption §4, §6
and §12). Only the scheduler's state is read: the pods it counts on nodes, its nominations, its informers' objects.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from harness import World, a_node, a_pod, server_error, world

from builders import Preemptions
from kubesched.api.kinds import BUDGETS
from kubesched.api.types import Pod
from kubesched.base.times import parse_time
from kubesched.client.port import ApiPort
from kubesched.cluster.store import InProcessClient
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.extenders.interface import FilterAnswer, InProcessExtender
from kubesched.scheduler.framework.preemption import Preemption, Victims
from kubesched.scheduler.nodes.nodeinfo import NodeInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.scheduler import Scheduler

CPUS = {"n1": 4000, "n2": 4000, "n3": 3000, "n4": 2000}


def cpu(pod: Pod) -> int:
    total = 0
    for container in pod.spec.containers:
        text = str((container.resources.requests if container.resources else {}).get("cpu", "0"))
        total += int(text[:-1]) if text.endswith("m") else 1000 * int(text)
    return total


def priority(pod: Pod) -> int:
    return pod.spec.priority or 0


def rank(pod: Pod, now: float) -> tuple[int, float]:
    start = pod.status.start_time
    return -priority(pod), parse_time(start) if start else now


def by_importance(pods: Iterable[Pod], now: float) -> list[list[Pod]]:
    """Every order of importance: pods of equal priority and start may be in any. At most a few hundred."""
    groups = [
        list(group)
        for _, group in itertools.groupby(sorted(pods, key=lambda pod: rank(pod, now)), lambda pod: rank(pod, now))
    ]
    found: list[list[Pod]] = [[]]
    for group in groups:
        found = [[*before, *order] for before in found for order in itertools.permutations(group)][:500]
    return found


def split(pods: Sequence[Pod], budgets: Sequence[Mapping[str, Any]]) -> tuple[list[Pod], list[Pod]]:
    """Pods whose eviction violates a budget, and the others (rules/preemption §4.3)."""
    left = [int((budget.get("status") or {}).get("disruptionsAllowed") or 0) for budget in budgets]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        over = False
        for place, budget in enumerate(budgets):
            wanted = budget["spec"]["selector"]["matchLabels"].items()
            disrupted = (budget.get("status") or {}).get("disruptedPods") or {}
            if wanted <= pod.metadata.labels.items() and pod.name not in disrupted:
                left[place] -= 1
                over |= left[place] < 0
        (violating if over else others).append(pod)
    return violating, others


def victims(pods: Sequence[Pod], budgets: Any, preemptor: Pod, room: int) -> tuple[list[Pod], int] | None:
    """The victims among a node's lower pods, in this order of importance, and violations; ``room`` is free without them."""
    if cpu(preemptor) > room:
        return None
    room -= cpu(preemptor)
    found: list[Pod] = []
    violations = 0
    violating, others = split(pods, budgets)
    for pod in (*violating, *others):
        if cpu(pod) <= room:
            room -= cpu(pod)
        else:
            found.append(pod)
            violations += pod in violating
    return [pod for pod in pods if pod in found], violations


class Judge:
    """Looks over a scheduler's shoulder."""

    def __init__(self, there: World, *, with_extenders: bool) -> None:
        self.there = there
        self.with_extenders = with_extenders
        self.preemptions: list[tuple[str, list[str]]] = []
        self.judged = 0
        self.broken: list[str] = []
        self.evicted: set[str] = set()

    def watch(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        real = scheduler.cache.assume_pod

        def assume(pod: PodInfo) -> None:
            self.judge(self.on_assume, pod.pod)
            real(pod)

        scheduler.cache.assume_pod = assume  # type: ignore[method-assign]  # the test's onlooker

    def judge(self, rule: Callable[[Any], None], event: Any) -> None:
        """Keep what a rule finds: raised here it would only be one more failed attempt."""
        try:
            rule(event)
        except AssertionError as error:
            self.broken.append(str(error))

    def now(self) -> float:
        return self.scheduler.clock.now()

    def on_node(self, name: str) -> list[Pod]:
        return [info.pod for info in self.scheduler.cache.pods.values() if info.pod.spec.node_name == name]

    def nominated(self, name: str, least: int, but: str) -> list[Pod]:
        node_of = self.scheduler.queue.nominator.node_of
        pods = self.scheduler.informers["pods"].values()
        return [pod for pod in pods if node_of(pod.uid) == name and priority(pod) >= least and pod.uid != but]

    def on_assume(self, pod: Pod) -> None:
        """Check that no pod of lower or equal priority gets what nominated pods were promised."""
        name = pod.spec.node_name
        promised = self.nominated(name, priority(pod), pod.uid)
        total = sum(map(cpu, [*self.on_node(name), *promised, pod]))
        assert total <= CPUS[name], f"{pod.name} takes what {[each.name for each in promised]} were promised on {name}"

    def on_preemption(self, preemption: Preemption) -> None:
        preemptor, chosen = preemption.pod.pod, preemption.chosen
        gone = [info.pod for info in chosen.victims.pods]
        assert gone
        assert all(priority(pod) < priority(preemptor) for pod in gone)
        assert all(pod.spec.node_name == chosen.node_name for pod in gone)
        self.preemptions.append((preemptor.name, [pod.name for pod in gone]))
        self.evicted.update(pod.uid for pod in gone)
        if self.with_extenders:
            return  # they may have changed the victims, and time has passed
        budgets = list(self.scheduler.informers.objects("poddisruptionbudgets").values())
        outcomes = {name: self.outcomes(name, preemptor, budgets) for name in CPUS}
        possible = [[pod.uid for pod in found] for found, _ in outcomes[chosen.node_name]]
        uids = [pod.uid for pod in gone]
        assert sorted(uids) in [sorted(each) for each in possible], (chosen.node_name, [pod.name for pod in gone])
        if any(len(found) > 1 for found in outcomes.values()):
            return  # equally important pods: another order may have made another node better
        self.judged += 1
        mine = self.measure(*outcomes[chosen.node_name][0])
        for name, found in outcomes.items():
            for each in found:
                assert mine <= self.measure(*each), f"{preemptor.name}: {name} is better than {chosen.node_name}"

    def outcomes(self, name: str, preemptor: Pod, budgets: Any) -> list[tuple[list[Pod], int]]:
        """Return the victims of a node: one answer for each order of equally important pods, none if it is no candidate."""
        pods = self.on_node(name)
        lower = [pod for pod in pods if priority(pod) < priority(preemptor)]
        promised = self.nominated(name, priority(preemptor), preemptor.uid)
        room = CPUS[name] - sum(map(cpu, promised)) - sum(cpu(pod) for pod in pods if pod not in lower)
        if not lower:
            return []
        answers: dict[tuple[str, ...], tuple[list[Pod], int]] = {}
        for order in by_importance(lower, self.now()):
            answer = victims(order, budgets, preemptor, room)
            if answer is not None:
                answers[(*sorted(pod.uid for pod in answer[0]), str(answer[1]))] = answer
        return list(answers.values())

    def measure(self, gone: Sequence[Pod], violations: int) -> tuple[float, ...]:
        """Sort key of a candidate (rules/preemption §6): the least wins."""
        highest = max(map(priority, gone))
        earliest = min(rank(pod, self.now())[1] for pod in gone if priority(pod) == highest)
        return violations, highest, sum(priority(pod) + 2**31 for pod in gone), len(gone), -earliest

    def judge_the_end(self, allowed: Mapping[str, set[str]]) -> None:
        """Every pod that fits somewhere, or would fit in the place of lower pods, is placed."""
        pods = self.there.embedded.pods()
        for pod in pods:
            if pod.spec.node_name:
                continue
            for name, capacity in CPUS.items():
                if name not in allowed.get(pod.metadata.labels.get("kind", ""), set(CPUS)):
                    continue
                there = [other for other in pods if other.spec.node_name == name]
                free = capacity - sum(map(cpu, there))
                assert cpu(pod) > free, f"{pod.name} fits on {name} and has no node"
                free += sum(cpu(other) for other in there if priority(other) < priority(pod))
                assert cpu(pod) > free, f"{pod.name} would fit on {name} in the place of others and has no node"


@asynccontextmanager
async def scheduling(there: World, judge: Judge, seed: int, extenders: Sequence[Any]) -> AsyncIterator[Scheduler]:
    """A scheduler of its own over the world's store, with the world's faults."""
    clock, rng = VirtualClock(asyncio.get_running_loop()), random.Random(seed)
    port = ApiPort(InProcessClient(there.store, faults=there.faults), clock=clock, rng=rng)
    scheduler = Scheduler(
        default_config(),
        in_tree_registry(),
        port,
        clock=clock,
        rng=rng,
        extenders=extenders,
        observers=[Preemptions(lambda each: judge.judge(judge.on_preemption, each))],
    )
    judge.watch(scheduler)
    events = asyncio.create_task(port.events.run())
    await scheduler.start()
    running = asyncio.create_task(scheduler.run())
    yield scheduler
    await scheduler.stop()
    port.events.stop()
    await asyncio.gather(events, running)


class Interferes(InProcessExtender):
    """Takes part for pods of kind ``vip``: never on n1; slow, failing and trimming victims until it is told to behave."""

    def __init__(self, rng: random.Random, *, ignorable: bool) -> None:
        self.rng, self.ignorable, self.behaves = rng, ignorable, False
        self.calls: list[str] = []

    def is_interested(self, pod: PodInfo) -> bool:
        return pod.labels.get("kind") == "vip"

    async def _wait(self, verb: str) -> None:
        self.calls.append(verb)
        await asyncio.sleep(self.rng.choice((0, 0.5, 3)))
        if not self.behaves and self.rng.random() < 0.3:
            raise RuntimeError("the extender fails")

    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> FilterAnswer:
        await self._wait("filter")
        return FilterAnswer([node.name for node in nodes if node.name != "n1"])

    async def process_preemption(self, pod: PodInfo, victims: Mapping[str, Victims]) -> Mapping[str, Victims]:
        await self._wait("preempt")
        left = {name: found for name, found in victims.items() if name != "n1"}
        if self.behaves or not left:
            return left
        name = self.rng.choice(sorted(left))
        trimmed = left[name].pods[: max(1, len(left[name].pods) - self.rng.randrange(2))]
        return (
            {**left, name: Victims(trimmed, left[name].pdb_violations)}
            if self.rng.random() < 0.7
            else {name: left[name]}
        )


async def live(there: World, rng: random.Random, number: int, kinds: Sequence[str]) -> None:
    """Create a pod, or do something to one that is there."""
    if rng.random() < 0.8:
        there.create(
            a_pod(
                f"p{number}",
                rng.choice(("1", "1500m", "2", "3")),
                priority=rng.choice((0, 1, 1, 5, 10)),
                labels={"kind": rng.choice(kinds), "app": rng.choice(("web", "db"))},
                terminationGracePeriodSeconds=rng.choice((0, 0, 5, 30)),
            )
        )
    elif pods := there.embedded.pods():
        # Any pod may be deleted by its owner: a victim, a preemptor that waits, a pod that runs.
        chosen = rng.choice([pod for pod in pods if pod.status.nominated_node_name] or pods)
        there.delete(chosen.name)
    await there.sleep(rng.choice((0, 0.3, 1.3, 4)))


def play(seed: int, *, extenders: bool, budgets: bool, restarts: int) -> Judge:
    async def main() -> Judge:
        rng = random.Random(seed)
        interferes = [Interferes(random.Random(seed), ignorable=seed % 2 == 0)] if extenders else []
        errors = ["?injected", "?preemption", "?cannot", "?already", "?extender", "?not found", "?was given back"]
        async with world(
            seed,
            believe_priority=True,
            kubelets=True,
            controllers=budgets,
            start=False,
            settled=False,
            expect_errors=errors,
        ) as there:
            await there.embedded.start(scheduler=False)
            there.create(*(a_node(name, f"{capacity}m") for name, capacity in CPUS.items()))
            if budgets:
                spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
                there.store.create(BUDGETS, "default", {"metadata": {"name": "web"}, "spec": spec})
            judge = Judge(there, with_extenders=extenders)
            number = 0
            for phase in range(restarts + 1):
                async with scheduling(there, judge, seed + phase, interferes) as scheduler:
                    for verb in ("delete", "patch", "bind"):
                        there.faults.fail(verb, fraction=0.2, error=server_error())
                    for _ in range(30):
                        number += 1
                        await live(there, rng, number, ("vip", "plain") if extenders else ("plain",))
                        problems = scheduler.queue.views.check()
                        assert not problems, problems
                    if phase < restarts:
                        continue  # the next scheduler finds preemptions half done
                    there.faults.clear()
                    for each in interferes:
                        each.behaves = True
                    await there.sleep(900)  # longer than the longest that a pod waits without any event
                    assert scheduler.is_idle
                    assert not scheduler.queue.nominator.nominated_nodes()
                    judge.judge_the_end({"vip": set(CPUS) - {"n1"}} if extenders else {})
                    known = {info.pod.uid for info in scheduler.cache.pods.values()}
                    queued = {pod.uid for pod in scheduler.queue.views.pending_pods()[0]}
                    assert {pod.uid for pod in there.embedded.pods()} == known | queued
            assert not judge.broken, "\n".join(judge.broken)
            if extenders:
                assert {"filter", "preempt"} <= set(interferes[0].calls)
            return judge

    return run_virtual(main())


@pytest.mark.parametrize("seed", range(8))
def test_victims_are_those_that_the_rules_allow_and_the_best_node_is_taken(seed: int) -> None:
    judge = play(seed, extenders=False, budgets=False, restarts=0)
    assert judge.preemptions
    assert judge.judged


@pytest.mark.parametrize("seed", range(8))
def test_budgets_are_violated_only_when_no_other_node_would_do(seed: int) -> None:
    judge = play(100 + seed, extenders=False, budgets=True, restarts=0)
    assert judge.judged


@pytest.mark.parametrize("seed", range(4))
def test_schedulers_that_take_over_half_done_preemptions_lose_nothing(seed: int) -> None:
    assert play(200 + seed, extenders=False, budgets=True, restarts=2).preemptions


@pytest.mark.parametrize("seed", range(6))
def test_extenders_that_are_slow_fail_or_trim_victims_leave_nothing_stuck(seed: int) -> None:
    assert play(300 + seed, extenders=True, budgets=False, restarts=seed % 2).preemptions


@pytest.mark.parametrize("seed", range(4))
def test_extenders_that_trim_victims_of_which_budgets_cover_some_leave_nothing_stuck(seed: int) -> None:
    assert play(400 + seed, extenders=True, budgets=True, restarts=seed % 2).preemptions

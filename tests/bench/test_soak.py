"""Memory and CPU of a long run: a scheduler that was replaced is forgotten, and pods that wait are left alone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from random import Random
from typing import Any

import pytest

from kubesched.api.kinds import NODES, PODS
from kubesched.api.types import Pod
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.plugins import in_tree_registry


class Attempts(AttemptObserver):
    """Observer that lists the names of the pods that are tried."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def attempted(self, queued: QueuedPodInfo) -> None:
        self.names.append(queued.pod_info.pod.name)


def an_embedded(attempts: Attempts) -> Embedded:
    clock = VirtualClock(asyncio.get_running_loop())
    return Embedded(default_config(), in_tree_registry(), clock=clock, observers=[attempts], believe_priority=True)


def create_pod(embedded: Embedded, name: str, cpu: str, priority: int = 0) -> None:
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    embedded.store.create(
        PODS, "default", {"metadata": {"name": name}, "spec": {"containers": [container], "priority": priority}}
    )


def cpu_of(pod: Pod) -> str:
    return str(pod.spec.containers[0].resources.requests["cpu"])


def create_node(embedded: Embedded, name: str = "n") -> None:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    embedded.store.create(NODES, "", {"metadata": {"name": name}, "status": status})


def test_a_scheduler_that_was_replaced_is_forgotten_and_its_gauges_are_those_of_the_next() -> None:
    async def main() -> None:
        embedded = an_embedded(Attempts())
        create_node(embedded)
        async with embedded.running():
            create_pod(embedded, "one", "1")
            await asyncio.sleep(5)
            old = weakref.ref(embedded.scheduler)
            await embedded.restart_scheduler(default_config())
            create_pod(embedded, "two", "1")
            await asyncio.sleep(5)
            gc.collect()
            assert old() is None
            metrics = embedded.scheduler.metrics
            list(metrics.collect())
            assert metrics.cache_size.labels("pods").value == 2

    run_virtual(main())


def test_pods_that_fit_nowhere_are_not_tried_for_events_that_do_not_help_and_hold_nobody_up() -> None:
    async def main() -> None:
        attempts = Attempts()
        embedded = an_embedded(attempts)
        create_node(embedded)
        async with embedded.running():
            for number in range(50):
                create_pod(embedded, f"waiting-{number}", "1000")
            await asyncio.sleep(30)
            attempts.names.clear()
            for number in range(20):
                create_pod(embedded, f"pod-{number}", "100m")
                await asyncio.sleep(0.5)
                assert attempts.names == [f"pod-{each}" for each in range(number + 1)]
                label = {"metadata": {"labels": {"touched": str(number)}}}
                embedded.store.patch(NODES, "", "n", label)
                await asyncio.sleep(0.5)

    run_virtual(main())


def test_a_deletion_lets_the_pods_try_again_for_which_it_makes_room() -> None:
    async def main() -> None:
        attempts = Attempts()
        embedded = an_embedded(attempts)
        create_node(embedded)
        async with embedded.running():
            for number, cpu in enumerate(("1", "1", "2")):
                create_pod(embedded, f"runs-{number}", cpu)
            await asyncio.sleep(5)
            for number in range(30):
                create_pod(embedded, f"needs-2-{number}", "2")
                create_pod(embedded, f"needs-3-{number}", "3")
            await asyncio.sleep(30)
            attempts.names.clear()
            embedded.store.delete(PODS, "default", "runs-0", grace_period_seconds=0)
            await asyncio.sleep(20)
            assert attempts.names == []
            embedded.store.delete(PODS, "default", "runs-1", grace_period_seconds=0)
            await asyncio.sleep(20)
            assert sorted(attempts.names) == sorted(f"needs-2-{number}" for number in range(30))
            assert embedded.store.get(PODS, "default", "needs-2-0").typed.spec.node_name == "n"

    run_virtual(main())


@pytest.mark.parametrize("seed", range(3))
def test_no_pod_waits_for_room_that_is_there(seed: int) -> None:
    async def main() -> None:
        rng, embedded = Random(seed), an_embedded(Attempts())
        for name in "abc":
            create_node(embedded, name)
        made = 0
        async with embedded.running():
            for _ in range(25):
                for _ in range(rng.randrange(4)):
                    create_pod(embedded, f"pod-{made}", rng.choice(("1", "2", "3")), rng.choice((0, 0, 0, 5)))
                    made += 1
                running = [pod for pod in embedded.pods() if pod.spec.node_name]
                for pod in rng.sample(running, min(len(running), rng.randrange(3))):
                    embedded.store.delete(PODS, "default", pod.name, grace_period_seconds=0)
                await asyncio.sleep(25)
                free = dict.fromkeys("abc", 4)
                for pod in embedded.pods():
                    free[pod.spec.node_name or "a"] -= int(cpu_of(pod)) if pod.spec.node_name else 0
                waiting = [int(cpu_of(pod)) for pod in embedded.pods() if not pod.spec.node_name]
                assert min(waiting, default=9) > max(free.values())
        assert made > 20

    run_virtual(main())


def test_a_deletion_wakes_pods_that_may_evict_others() -> None:
    async def main() -> None:
        attempts = Attempts()
        embedded = an_embedded(attempts)
        create_node(embedded)
        async with embedded.running():
            for number, priority in enumerate((0, 9, 9)):
                create_pod(embedded, f"runs-{number}", "1", priority)
            await asyncio.sleep(5)
            create_pod(embedded, "needs-3", "3", 5)
            await asyncio.sleep(20)
            attempts.names.clear()
            # Two are free afterwards, and a third after an eviction.
            embedded.store.delete(PODS, "default", "runs-1", grace_period_seconds=0)
            await asyncio.sleep(60)
            assert attempts.names[0] == "needs-3"
            assert embedded.store.get(PODS, "default", "needs-3").typed.spec.node_name == "n"

    run_virtual(main())


def test_deletions_and_changed_nodes_wake_no_pod_that_lacks_a_gpu() -> None:
    async def main() -> None:
        attempts = Attempts()
        embedded = an_embedded(attempts)
        gpu = "example.com/gpu"
        for name, count in (("n", "2"), ("other", "0")):
            amounts = {"cpu": "8", "memory": "8Gi", "pods": "110", gpu: count}
            node = {"metadata": {"name": name}, "status": {"capacity": amounts, "allocatable": amounts}}
            embedded.store.create(NODES, "", node)
        embedded.store.patch(NODES, "", "other", {"spec": {"unschedulable": True}})

        def create(name: str, gpus: int) -> None:
            amounts = {"cpu": "1", **({gpu: str(gpus)} if gpus else {})}
            container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
            embedded.store.create(PODS, "default", {"metadata": {"name": name}, "spec": {"containers": [container]}})

        async with embedded.running():
            for name, gpus in (("one", 1), ("two", 1), ("none", 0)):
                create(name, gpus)
            await asyncio.sleep(5)
            for number in range(20):
                create(f"waits-{number}", 2)
            await asyncio.sleep(30)
            attempts.names.clear()
            for name in ("none", "one"):
                embedded.store.delete(PODS, "default", name, grace_period_seconds=0)
                await asyncio.sleep(20)
            embedded.store.patch(NODES, "", "other", {"spec": {"unschedulable": False}})
            await asyncio.sleep(20)
            assert attempts.names == []
            embedded.store.delete(PODS, "default", "two", grace_period_seconds=0)
            await asyncio.sleep(20)
            assert len(attempts.names) == 20
            names = {pod.spec.node_name for pod in embedded.pods() if pod.name.startswith("waits")}
            assert names == {"n", ""}

    run_virtual(main())

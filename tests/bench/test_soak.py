"""Memory and CPU of a long run: a scheduler that was replaced is forgotten, and pods that wait are left alone."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

from kubesched.api.kinds import NODES, PODS
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
    return Embedded(default_config(), in_tree_registry(), clock=clock, observers=[attempts])


def create_pod(embedded: Embedded, name: str, cpu: str) -> None:
    container: dict[str, Any] = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    embedded.store.create(PODS, "default", {"metadata": {"name": name}, "spec": {"containers": [container]}})


def create_node(embedded: Embedded) -> None:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts}
    embedded.store.create(NODES, "", {"metadata": {"name": "n"}, "status": status})


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

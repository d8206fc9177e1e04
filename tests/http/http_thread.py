"""A server in a thread of its own, for clients that block: kubectl and the synchronous libraries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

from http_world import a_node

from kubesched.api.kinds import CORE_EVENTS, NODES, PODS, Kind, kind_by_plural
from kubesched.api.wire import ApiError, Item
from kubesched.cluster.http import HttpServer
from kubesched.cluster.kubelets import HollowKubelets, default_stages
from kubesched.cluster.store import InProcessClient, Store


def _deployments() -> Kind:
    found = kind_by_plural("apps", "deployments")
    assert found is not None
    return found


DEPLOYMENTS = _deployments()


class RealClock:
    """Seconds since a moment long ago, moved by the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time()

    def now(self) -> float:
        return 1_780_000_000.0 + self._loop.time() - self._begin


def _event(pod: Item, node: str, now: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{pod.name}.{pod.resource_version:x}"},
        "type": "Normal",
        "reason": "Scheduled",
        "message": f"Successfully assigned {pod.key} to {node}",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "source": {"component": "default-scheduler"},
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }


def _roll_out(store: Store) -> None:
    """Deployments are said to be done at once: nothing here makes their pods."""
    for item in store.list(DEPLOYMENTS).items:
        data = item.data()
        replicas = data["spec"]["replicas"]
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), replicas)
        status = {"observedGeneration": data["metadata"]["generation"], **counts}
        if data.get("status") != status:
            store.patch(DEPLOYMENTS, item.namespace, item.name, {"status": status}, subresource="status")


async def _bind_pods(store: Store) -> None:
    """The smallest scheduler: every pod goes to the first node that is not cordoned, with an event."""
    while True:
        await asyncio.sleep(0.02)
        _roll_out(store)
        nodes = store.list(NODES, field_selector="spec.unschedulable=false").items
        for item in store.list(PODS, field_selector="spec.nodeName=,status.phase=Pending").items if nodes else ():
            with suppress(ApiError):
                store.bind(item.namespace, item.name, item.uid, nodes[0].name)
                store.create(CORE_EVENTS, item.namespace, _event(item, nodes[0].name, store.now()))


@contextmanager
def cluster(nodes: int = 2, **options: Any) -> Iterator[HttpServer]:
    """Nodes, hollow kubelets, a scheduler of sorts and a server, all in another thread until the block ends."""
    ready, stop = threading.Event(), threading.Event()
    found: list[HttpServer] = []

    async def main() -> None:
        clock = RealClock()
        store = Store(clock, random=Random(3))
        for index in range(nodes):
            store.create(NODES, "", a_node(f"n{index}"))
        kubelets = HollowKubelets(InProcessClient(store), clock, stages=default_stages(0.05, 0.05))
        async with HttpServer(store, **options) as server:
            tasks = [asyncio.create_task(kubelets.run()), asyncio.create_task(_bind_pods(store))]
            found.append(server)
            ready.set()
            while not stop.is_set():  # noqa: ASYNC110 - set by another thread
                await asyncio.sleep(0.02)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="cluster")
    thread.start()
    try:
        assert ready.wait(10)
        yield found[0]
    finally:
        stop.set()
        thread.join(10)

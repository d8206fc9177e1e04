"""A whole cluster as ``kubesched up`` runs it: scheduler, controllers, hollow nodes and server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from kubesched.api.kinds import NODES
from kubesched.base.times import RealClock
from kubesched.cli.memory import EVENT_CACHE
from kubesched.cluster.http import HttpServer
from kubesched.cluster.kubelets import default_stages, make_nodes, node_template
from kubesched.cluster.store import Store
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

T = TypeVar("T")


class FullCluster:
    """The running parts, for a test in another thread."""

    def __init__(self, embedded: Embedded, server: HttpServer, loop: asyncio.AbstractEventLoop) -> None:
        self.embedded = embedded
        self.server = server
        self.loop = loop

    def call(self, work: Callable[[Store], T]) -> T:
        """Do something to the store in the cluster's own thread."""

        async def inside() -> T:
            return work(self.embedded.store)

        return asyncio.run_coroutine_threadsafe(inside(), self.loop).result(30)


def three_nodes() -> list[dict[str, Any]]:
    """n0 and n1 with 4 CPUs, n2 with 8: where only load decides, n2 is chosen first."""
    small, large = node_template(cpu=4, memory="8Gi"), node_template(cpu=8, memory="16Gi")
    return [
        *make_nodes(2, small, prefix="n", width=1, zones=["a", "b"]),
        *make_nodes(1, large, prefix="n", width=1, zones=["a", "b"], start=2),
    ]


@asynccontextmanager
async def living(
    startup_delay: float = 0.5, stop_delay: float = 0.2, heartbeats: float | None = 10.0, **options: Any
) -> AsyncIterator[FullCluster]:
    """Three nodes and everything that runs a cluster, in this loop. ``options`` are the server's."""
    embedded = Embedded(
        default_config(),
        in_tree_registry(),
        clock=RealClock(),
        seed=3,
        controllers=True,
        stages=default_stages(startup_delay, stop_delay),
        kubelet_options={"heartbeat_seconds": heartbeats},
        event_cache_size=EVENT_CACHE,
    )
    for node in three_nodes():
        embedded.store.create(NODES, "", node)
    await embedded.start()
    try:
        async with HttpServer(embedded.store, **options) as server:
            yield FullCluster(embedded, server, asyncio.get_running_loop())
    finally:
        await embedded.stop()


@contextmanager
def full_cluster(**options: Any) -> Iterator[FullCluster]:
    """Run :func:`living` in a thread of its own, until the block ends."""
    ready, begun = threading.Event(), list[FullCluster]()
    stop: list[Callable[[], object]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
        async with living(**options) as cluster:
            begun.append(cluster)
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="full-cluster")
    thread.start()
    try:
        assert ready.wait(30)
        yield begun[0]
    finally:
        for end in stop:
            end()
        thread.join(30)

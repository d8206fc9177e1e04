"""Work that holds the event loop of a large embedded cluster, and for how long.

    python bench/holds.py
    python bench/holds.py --nodes 1000 --pods 10000

Builds a cluster as ``kubesched up`` does, with pods that run and as many that fit nowhere as ``--waiting`` says, then does one
thing after the other. For each it prints the longest time that the event loop ran nothing else: milliseconds of CPU of its
thread, so other programs on the machine count little, and the function that was seen most often.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp
import msgspec

from kubesched.api.kinds import NAMESPACES, NODES, PODS
from kubesched.base.collector import collector_paused
from kubesched.base.loop_watch import Hold, watch_loop
from kubesched.base.times import SteadyClock
from kubesched.base.turns import in_turns
from kubesched.cli.memory import give_back
from kubesched.client.informer import Informer
from kubesched.cluster.files import saving
from kubesched.cluster.http import HttpServer
from kubesched.cluster.kubelets import default_stages, make_nodes, node_template
from kubesched.cluster.store import InProcessClient
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

_PATH: Final = "/api/v1/pods"
_TABLE: Final = "application/json;as=Table;v=v1;g=meta.k8s.io"
#: Shorter ones are not noted.
_LIMIT: Final = 0.01


def a_pod(name: str, cpu: str) -> dict[str, Any]:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "10Mi"}}}
    return {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": [container]}}


class Holds:
    """A cluster, and what is done to it."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        self._options = options
        self._scratch = scratch
        config = msgspec.structs.replace(default_config(), pod_max_backoff_seconds=options.max_backoff)
        self.embedded = Embedded(
            config,
            in_tree_registry(),
            clock=SteadyClock(),
            seed=1,
            controllers=True,
            kubelet_options={"heartbeat_seconds": 10.0},
            stages=default_stages(stop_delay=1.0),
        )
        self.store = self.embedded.store
        self.store.most_events = 3_000
        zones = ["zone-a", "zone-b", "zone-c"]
        for node in make_nodes(options.nodes, node_template(), zones=zones, now=self.store.now()):
            self.store.create(NODES, "", node)
        for name in ("one", "two", "waiting"):
            self.store.create(NAMESPACES, "", {"metadata": {"name": name}})

    async def run(self) -> None:
        with ExitStack() as stack:
            with collector_paused(stack.callback):
                await self.embedded.start()
            async with (
                HttpServer(self.store) as server,
                aiohttp.ClientSession(server.url, read_bufsize=1 << 20) as self._session,
            ):
                await self._all()
        await self.embedded.stop()

    async def _all(self) -> None:
        pods = self._options.pods
        await self._step(f"{pods} pods are created and run", self._create("one", pods // 2, "10m"))
        await self._step("as many again", self._create("two", pods // 2, "10m"))
        await self._step("a save", lambda: in_turns(saving(self.store, self._scratch / "saved.jsonl")))
        await self._step("memory is given back", lambda: give_back(self.store))
        await self._step("a list over HTTP", self._read(_PATH))
        await self._step("the same, indented", self._read(_PATH, pretty="true"))
        await self._step("the same as a table", self._read(_PATH, _TABLE))
        await self._step("2,000 pods as YAML", self._read(_PATH, "application/yaml", limit="2000"))
        await self._step("a list by labels", self._read(_PATH, labelSelector="app=none"))
        await self._step("a watch from the beginning", self._read(_PATH, watch="1", timeoutSeconds="3"))
        await self._step("an informer begins, with pages", self._inform(watch_list=False))
        await self._step("an informer begins, with a streamed list", self._inform(watch_list=True))
        await self._step("every watch of pods expires", self._expire)
        waiting = self._options.waiting
        await self._step(f"{waiting} pods that fit nowhere", self._create("waiting", waiting, "1000"))
        await self._step("a node is added, which may help them", self._add_node)
        await self._step("a label of a node changes, which may help them", self._label_node)
        await self._step("a pod is deleted, which may help them", self._delete_pod)
        await self._step("they have waited for five minutes", self._time_out)
        await self._step("SIGUSR2: comparing", lambda: in_turns(self.embedded.scheduler.debugger.comparing()))
        await self._step("SIGUSR2: writing the log", lambda: in_turns(self.embedded.scheduler.debugger.dumping()))
        await self._step("a node with its pods is deleted", lambda: self.store.delete(NODES, "", "hollow-00000"))
        await self._step("a namespace with half of the pods is deleted", self._empty)
        await self._step("a collection of the other half is deleted", self._delete_collection)

    async def _step(self, name: str, act: Callable[[], Awaitable[Any] | object]) -> None:
        """Do something, and a second of what follows from it; print what held the loop longest."""
        holds: list[Hold] = []
        with watch_loop(holds.append, limit=_LIMIT):
            await asyncio.sleep(0.1)
            done = act()
            if isinstance(done, Awaitable):
                await done
            await asyncio.sleep(1)
        longest = max(holds, key=lambda hold: hold.cpu_seconds, default=None)
        text = "less than 10 ms" if longest is None else f"{1e3 * longest.cpu_seconds:.0f} ms by {longest.where or '?'}"
        print(f"{name}: {text}", flush=True)

    def _create(self, namespace: str, count: int, cpu: str) -> Callable[[], Awaitable[None]]:
        async def create() -> None:
            for number in range(count):
                self.store.create(PODS, namespace, a_pod(f"pod-{number:06}", cpu))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await self._settled()
            await asyncio.sleep(3)  # until they run

        return create

    async def _settled(self) -> None:
        while not self.embedded.scheduler.is_idle:  # noqa: ASYNC110 - of several queues, none of which says so
            await asyncio.sleep(0.1)

    def _read(self, path: str, accept: str = "application/json", **query: str) -> Callable[[], Awaitable[None]]:
        async def read() -> None:
            async with self._session.get(path, params=query, headers={"Accept": accept}) as response:
                async for _ in response.content.iter_any():
                    await asyncio.sleep(0)

        return read

    def _inform(self, *, watch_list: bool) -> Callable[[], Awaitable[None]]:
        async def inform() -> None:
            informer = Informer(InProcessClient(self.store), PODS, rng=Random(1), watch_list=watch_list)
            self.embedded.tasks.spawn(informer.run(), "another informer", lasting=False)
            await informer.wait_synced()
            informer.stop()

        return inform

    async def _expire(self) -> None:
        for watch in self.store.table(PODS).watches:
            watch.expire()
        await asyncio.sleep(10)

    async def _add_node(self) -> None:
        node = next(make_nodes(1, node_template(), zones=["zone-a"], start=self._options.nodes, now=self.store.now()))
        self.store.create(NODES, "", node)
        await asyncio.sleep(1)
        await self._settled()

    async def _label_node(self) -> None:
        patch = {"metadata": {"labels": {"changed": "yes"}}}
        await InProcessClient(self.store).patch(NODES, "", "hollow-00001", patch)
        await asyncio.sleep(1)
        await self._settled()

    async def _delete_pod(self) -> None:
        self.store.delete(PODS, "two", "pod-000000")
        await asyncio.sleep(2)
        await self._settled()

    async def _time_out(self) -> None:
        queue = self.embedded.scheduler.queue
        queue._max_in_unschedulable = 0.0  # instead of waiting for so long
        queue.flush_unschedulable_leftover()
        queue._max_in_unschedulable = 300.0
        await asyncio.sleep(1)
        await self._settled()

    async def _empty(self) -> None:
        self.store.delete(NAMESPACES, "", "one")
        while ("", "one") in self.store.table(NAMESPACES).objects:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)

    async def _delete_collection(self) -> None:
        async with self._session.delete("/api/v1/namespaces/two/pods") as response:
            async for _ in response.content.iter_any():
                await asyncio.sleep(0)
        await asyncio.sleep(3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--pods", type=int, default=100_000)
    parser.add_argument("--waiting", type=int, default=50_000)
    parser.add_argument("--max-backoff", type=int, default=10, help="1 second: pods are tried together at once")
    options = parser.parse_args()
    logging.getLogger("kubesched").setLevel(logging.CRITICAL)

    async def run(scratch: Path) -> None:
        await Holds(options, scratch).run()

    with tempfile.TemporaryDirectory(prefix="kubesched-") as scratch:
        asyncio.run(run(Path(scratch)))


if __name__ == "__main__":
    main()

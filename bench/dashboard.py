"""Throughput that open pages of the dashboard cost a scheduler.

    python bench/dashboard.py
    python bench/dashboard.py --nodes 500 --pods 2000 --rounds 1

A cluster in this process binds pods as fast as it can, while 0, 1 and 10 pages listen, in turn and in mixed order. The pages are
in a process of their own, and read over loopback as browsers do. Printed are pods per second and the CPU time of this process per
pod, as medians, and the cost against a scheduler without a dashboard as the median over the rounds. Then the time and the size of
one state, as a page asks for it when it is opened.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from os import environ
from statistics import median
from typing import Final

import aiohttp

from kubesched.api.kinds import NODES, PODS
from kubesched.base.collector import collector_paused
from kubesched.base.times import RealClock
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.dashboard.listener import Listener
from kubesched.dashboard.live import Live
from kubesched.dashboard.server import Site
from kubesched.explain.watchers import Watchers
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

#: Numbers of pages; None is a scheduler without a dashboard.
_PAGES: Final = (None, 0, 1, 10)
_CREATED_AT_ONCE: Final = 50


class _Cluster:
    """Cluster of hollow nodes without kubelets and controllers, with a dashboard or without."""

    def __init__(self, nodes: int, *, with_dashboard: bool) -> None:
        self.watchers = Watchers(None, annotate_why=False, event_why=False, simulator_results=False)
        self.live = Live("bench", "embedded") if with_dashboard else None
        observers = [*self.watchers.observers, *([self.live.observer] if self.live is not None else [])]
        self.embedded = Embedded(
            default_config(), in_tree_registry(), clock=RealClock(), observers=observers, kubelets=False
        )
        self.watchers.attach(self.embedded.scheduler, self.embedded.port, objects=self.embedded.objects)
        if self.live is not None:
            self.live.attach(lambda: self.embedded.scheduler, self.watchers)
        template, zones = node_template(cpu="32"), [f"zone-{letter}" for letter in "abc"]
        for node in make_nodes(nodes, template, zones=zones):
            self.embedded.store.create(NODES, "", node)

    async def bind(self, pods: int) -> None:
        """Create pods, and wait until all have a node."""
        store, table = self.embedded.store, self.embedded.scheduler.cache
        wanted = len(table.pods) + pods
        for number in range(pods):
            requests = {"cpu": "10m", "memory": "50Mi"}
            spec = {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}
            store.create(PODS, "default", {"metadata": {"generateName": "pod-", "namespace": "default"}, "spec": spec})
            if number % _CREATED_AT_ONCE == 0:
                await asyncio.sleep(0)
        while len(table.pods) < wanted or self.embedded.scheduler.busy:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _pages(cluster: _Cluster, count: int) -> AsyncIterator[str]:
    """Address of the dashboard, while pages listen in another process."""
    links: list[str] = []
    assert cluster.live is not None
    listener = Listener(Site([cluster.live]), ("127.0.0.1", 0), announce=links.append, warn=print)
    await listener.start()
    words = [sys.executable, __file__, "--read", links[0], "--pages", str(count)]
    reader = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    assert reader.stdout is not None
    assert reader.stdin is not None
    try:
        yield (await reader.stdout.readline()).decode().strip()
        reader.stdin.close()
        told = (await reader.stdout.read()).decode().strip()
        if count:
            print(f"    {count} pages read {told}", file=sys.stderr)
    finally:
        await reader.wait()
        await listener.stop()


async def _read(link: str, pages: int) -> None:
    """Be some pages: log in, open the streams, read until the standard input ends."""
    loop = asyncio.get_running_loop()
    jar = aiohttp.CookieJar(unsafe=True)
    timeout = aiohttp.ClientTimeout(total=None)
    events = octets = resyncs = 0

    async def page(session: aiohttp.ClientSession, address: str, first: asyncio.Event) -> None:
        nonlocal events, octets, resyncs
        async with session.get(f"{address}/changes") as stream:
            async for line in stream.content:
                first.set()
                octets += len(line)
                events += line.startswith(b"event: change")
                resyncs += line.startswith(b"event: resync")

    async with aiohttp.ClientSession(cookie_jar=jar, timeout=timeout, read_bufsize=1 << 22) as session:
        async with session.get(link, allow_redirects=False) as answer:
            assert answer.status == 303
        address = f"{link.partition('/ui/')[0]}/ui/api/v1/runs/0"
        begun = [asyncio.Event() for _ in range(pages)]
        reading = [asyncio.create_task(page(session, address, first)) for first in begun]
        for first in begun:
            await first.wait()
        before = time.monotonic()
        async with session.get(f"{address}/state") as answer:
            packed = int(answer.headers["Content-Length"])
            size = len(await answer.read())
        print(f"state: {1000 * (time.monotonic() - before):.0f} ms, {size:,} bytes, {packed:,} compressed", flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
    print(f"{events} changes, {octets:,} bytes; asked anew {resyncs - pages} times")


async def _measure(nodes: int, pods: int, pages: int | None) -> tuple[float, float, str]:
    """Return pods per second, CPU in microseconds per pod, and what was said about a state."""
    cluster = _Cluster(nodes, with_dashboard=pages is not None)
    async with cluster.embedded.running():
        for name, task in cluster.live.tasks() if cluster.live is not None else ():
            cluster.embedded.tasks.spawn(task, name)
        await cluster.bind(pods // 10)
        if pages is None:
            return *(await _bound(cluster, pods)), ""
        async with _pages(cluster, pages) as told:
            await asyncio.sleep(1)
            return *(await _bound(cluster, pods)), told


async def _bound(cluster: _Cluster, pods: int) -> tuple[float, float]:
    with _paused():
        wall, cpu = time.monotonic(), time.process_time()
        await cluster.bind(pods)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return pods / wall, 1e6 * cpu / pods


@contextmanager
def _paused() -> Iterator[None]:
    ends: list[object] = []
    with collector_paused(ends.append):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        asyncio.run(_read(options.read, options.pages))
        return
    with tempfile.TemporaryDirectory() as home:
        environ["XDG_STATE_HOME"] = home
        found: dict[int | None, list[tuple[float, float]]] = {pages: [] for pages in _PAGES}
        order, told = list(_PAGES), ""
        for round_number in range(options.rounds):
            random.Random(round_number).shuffle(order)
            for pages in order:
                rate, cpu, said = asyncio.run(_measure(options.nodes, options.pods, pages))
                told = said or told
                found[pages].append((rate, cpu))
                print(f"  round {round_number + 1}, {_name(pages)}: {rate:,.0f} pods/s, {cpu:.1f} µs", file=sys.stderr)
    print(f"{options.nodes:,} nodes, {options.pods:,} pods, {options.rounds} rounds")
    for pages, figures in found.items():
        rate, cpu = (median(values) for values in zip(*figures, strict=True))
        more = [mine[1] / bare[1] - 1 for mine, bare in zip(figures, found[None], strict=True)]
        print(f"{_name(pages)}: {rate:,.0f} pods/s, {cpu:.1f} µs of CPU per pod ({100 * median(more):+.1f} %)")
    print(told)


def _name(pages: int | None) -> str:
    return "no dashboard" if pages is None else f"{pages} page{'s' if pages != 1 else ''} open"


if __name__ == "__main__":
    main()

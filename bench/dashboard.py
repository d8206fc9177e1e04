"""CPU that open pages of the dashboard cost a scheduler.

    python bench/dashboard.py
    python bench/dashboard.py --nodes 500 --pods 500 --repeats 2

A cluster in this process binds pods as fast as it can, in portions: with no page, one and ten pages that listen, in mixed order. The
pages are in a process of their own, and read over loopback as browsers do. The cost is the CPU time of this process per pod against the
portion without a page that is nearest in time. Clusters without a dashboard bind as many portions, for comparison. Then come the time
and the size of one state, as a page asks for it when it is opened.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from os import environ
from statistics import median
from typing import Final

import aiohttp

from kubesched.api.kinds import NODES, PODS
from kubesched.base.collector import collector_off
from kubesched.base.times import RealClock
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.dashboard.listener import Listener
from kubesched.dashboard.live import Live
from kubesched.dashboard.server import Site
from kubesched.explain.watchers import Watchers
from kubesched.lab.simulate.embedded import Embedded
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

#: Numbers of pages that are compared with none.
_PAGES: Final = (1, 10)
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


async def _measure(nodes: int, pods: int, repeats: int, *, with_dashboard: bool) -> _Found:
    """Bind portions of pods in one cluster."""
    cluster, found = _Cluster(nodes, with_dashboard=with_dashboard), _Found()
    async with cluster.embedded.running():
        for name, task in cluster.live.tasks() if cluster.live is not None else ():
            cluster.embedded.tasks.spawn(task, name)
        await cluster.bind(pods)
        for repeat in range(repeats):
            order = list(_PAGES)
            random.Random(repeat).shuffle(order)
            for pages in order:
                found.bare.append(await _bound(cluster, pods))
                if not with_dashboard:
                    continue
                async with _pages(cluster, pages) as found.state:
                    await asyncio.sleep(0.5)
                    figures = await _bound(cluster, pods)
                found.bare.append(await _bound(cluster, pods))
                near = (found.bare[-1][1] + found.bare[-2][1]) / 2
                found.open[pages].append((*figures, figures[1] / near - 1))
                print(
                    f"  {pages} open: {figures[0]:,.0f} pods/s, {figures[1]:.1f} µs, none: {near:.1f} µs",
                    file=sys.stderr,
                )
    return found


async def _bound(cluster: _Cluster, pods: int) -> tuple[float, float]:
    """Bind pods. Return pods per second, and microseconds of CPU per pod."""
    gc.collect()
    with collector_off():
        wall, cpu = time.monotonic(), time.process_time()
        await cluster.bind(pods)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return pods / wall, 1e6 * cpu / pods


class _Found:
    """Figures of one cluster: pods per second and microseconds per pod; with pages also the cost, a share."""

    def __init__(self) -> None:
        self.bare: list[tuple[float, float]] = []
        self.open: dict[int, list[tuple[float, float, float]]] = {pages: [] for pages in _PAGES}
        self.state = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=4_000, help="pods of a portion")
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        asyncio.run(_read(options.read, options.pages))
        return
    size = options.nodes, options.pods, options.repeats
    with tempfile.TemporaryDirectory() as home:
        environ["XDG_STATE_HOME"] = home
        before = asyncio.run(_measure(*size, with_dashboard=False))
        found = asyncio.run(_measure(*size, with_dashboard=True))
        after = asyncio.run(_measure(*size, with_dashboard=False))
    print(f"{options.nodes:,} nodes, portions of {options.pods:,} pods, medians of {options.repeats}")
    _say("no dashboard", [*before.bare, *after.bare])
    _say("no page open", found.bare)
    for pages, figures in found.open.items():
        costs = sorted(100 * cost for *_, cost in figures)
        text = f": {median(costs):+.1f} % against no page (from {costs[0]:+.1f} to {costs[-1]:+.1f})"
        _say(f"{pages} page{'s' if pages > 1 else ''} open", [one[:2] for one in figures], text)
    print(found.state)


def _say(what: str, figures: Sequence[tuple[float, float]], more: str = "") -> None:
    rate, cpu = (median(values) for values in zip(*figures, strict=True))
    print(f"{what}: {rate:,.0f} pods/s, {cpu:.1f} µs of CPU per pod{more}")


if __name__ == "__main__":
    main()

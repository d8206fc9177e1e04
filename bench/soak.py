"""Memory of a cluster under churn: a week in virtual time, or some minutes of ``kubesched up``.

    python bench/soak.py                                     # 1,000 nodes, 7 days of virtual time
    python bench/soak.py --days 2 --nodes 100 --trace        # with the lines that allocated what grew
    python bench/soak.py --up --duration 3600 --rate 1000    # real time, against a process of its own
    python bench/soak.py --kubeconfig FILE --pid PID         # real time, a process that works on another API server

Pods arrive and end, with claims for volumes and devices and with priorities that evict others; nodes are cordoned, removed and added;
every six hours another scheduler takes over. The population is the same at the end of each day. Objects are counted then, by type.
The exit code is 1 if memory or the number of objects has grown by more than ``--limit`` percent since the first day.
In real time memory is read twelve times; the first four are for warming up. The exit code is 1, too, if a pod stays unbound.

Memories with a bound (texts, events, changes) fill slowly in such a cluster, and hide what has none. So their bounds are divided by ``--fill``,
and they are full before the first day ends. ``--fill 1`` leaves them as they are; then the growth is that of the memories, which the last
lines list with their bounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import sys
import tempfile
import time
import tracemalloc
from collections import Counter, deque
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from kubesched.api.kinds import (
    CLAIMS,
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    STORAGE_CLASSES,
    Kind,
)
from kubesched.api.wire import ApiError
from kubesched.base.kept import Kept
from kubesched.cli.bench_processes import cluster, memory_mib
from kubesched.cli.memory import EVENT_CACHE, FORGET_SECONDS, MOST_EVENTS, TIMED_SECONDS, give_back
from kubesched.client.access import ClusterAccess, load_kubeconfig
from kubesched.client.event_writer import EventWriter
from kubesched.client.http import HttpTransport
from kubesched.cluster.kubelets import default_stages, make_nodes, node_template
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

__all__ = ["Day", "Soak", "grown"]

_DEVICES: Final = "- driver: gpu.example\n  devices:\n  - {name: gpu, count: 2}\n"
_HOURS: Final = 24
#: Hours between two changes of the leader.
_TERM: Final = 6
#: Most nodes that are cordoned at a time.
_CORDONED: Final = 12


class Day(NamedTuple):
    """Figures at the end of a day."""

    memory_mib: float
    objects: int
    stored: int
    types: Counter[str]


class Soak:
    """Cluster in virtual time, and what happens to it."""

    def __init__(self, nodes: int, per_hour: int, seed: int) -> None:
        """``per_hour``: pods that arrive in an hour; as many leave."""
        self._rng = Random(seed)
        self._per_hour = per_hour
        self._nodes = nodes
        self._made = 0
        self._live: deque[tuple[str, bool]] = deque()
        self._cordoned: deque[str] = deque()
        self.bound = self.evicted = 0
        self.config = default_config()
        self.embedded = Embedded(
            self.config,
            in_tree_registry(),
            clock=VirtualClock(asyncio.get_running_loop()),
            seed=seed,
            controllers=True,
            believe_priority=True,
            stages=default_stages(stop_delay=1.0),
            event_cache_size=EVENT_CACHE,
            on_bind=self._on_bind,
        )
        self.store = self.embedded.store
        self.store.most_events = MOST_EVENTS

    def _on_bind(self, namespace: str, name: str, node: str) -> None:
        self.bound += 1

    def build(self) -> None:
        """Create nodes, classes and the first pods."""
        template = node_template()
        template["metadata"].setdefault("annotations", {})["kubesched.io/devices"] = _DEVICES
        for node in make_nodes(self._nodes, template, zones=["a", "b", "c"], now=self.store.now()):
            self.store.create(NODES, "", node)
        self._create(DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 1}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        self._create(RESOURCE_CLAIM_TEMPLATES, {"metadata": {"name": "gpu"}, "spec": spec})
        provisioner = {"provisioner": "disk.example", "volumeBindingMode": "WaitForFirstConsumer"}
        self._create(STORAGE_CLASSES, {"metadata": {"name": "fast"}, **provisioner})
        for _ in range(3 * self._nodes):
            self._arrive()

    async def day(self, trace: bool = False) -> Day:
        """Let a day pass."""
        for hour in range(_HOURS):
            await self.hour()
            if hour % _TERM == _TERM - 1:
                await self.embedded.restart_scheduler(self.config)
        await asyncio.sleep(600)
        return self.measure()

    async def hour(self) -> None:
        """Let an hour of arrivals, departures, evictions and changes of nodes pass."""
        for quarter in range(4):
            for _ in range(self._per_hour // 4):
                self._leave()
                self._arrive()
            if quarter == 0:
                self._change_nodes()
                self._evict()
            await asyncio.sleep(900)
            give_back(self.store, seconds=TIMED_SECONDS if quarter else FORGET_SECONDS)  # as kubesched up does

    def measure(self) -> Day:
        """Count memory and objects."""
        gc.collect()
        give_back(self.store)
        types = Counter(type(each).__name__ for each in gc.get_objects())
        stored = sum(len(table.objects) for table in self.store.tables.values())
        return Day(_own_memory(), sum(types.values()), stored, types)

    # -- what happens --------------------------------------------------------------------------------------

    def _create(self, kind: Kind, obj: dict[str, Any]) -> None:
        self.store.create(kind, "default" if kind.namespaced else "", obj)

    def _arrive(self, cpu: str = "2", priority: int = 0) -> None:
        self._made += 1
        name, draw = f"pod-{self._made:07}", self._rng.random()
        container: dict[str, Any] = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
        spec: dict[str, Any] = {"containers": [container], "priority": priority}
        has_claim = draw < 0.1
        if has_claim:
            amounts = {"requests": {"storage": "1Gi"}}
            body = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": amounts}
            self._create(CLAIMS, {"metadata": {"name": name}, "spec": body})
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        elif draw < 0.2:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        self._create(PODS, {"metadata": {"name": name, "labels": {"app": f"app-{self._made % 50}"}}, "spec": spec})
        self._live.append((name, has_claim))

    def _leave(self) -> None:
        name, has_claim = self._live.popleft()
        for kind in (PODS, CLAIMS) if has_claim else (PODS,):
            try:
                self.store.delete(kind, "default", name)
            except ApiError:
                self.evicted += kind is PODS  # it was evicted, or went with its node

    def _evict(self) -> None:
        """Pods of high priority come that fit nowhere without evictions."""
        for _ in range(3):
            self._arrive("7", 1000)
            self._leave()

    def _change_nodes(self) -> None:
        names = [item.name for item in self.store.list(NODES).items]
        # As many nodes are cordoned on the last day as on the first: the room for pods must not change.
        self._cordoned.extend(self._rng.sample(names, 3))
        for name in list(self._cordoned)[-3:]:
            self.store.patch(NODES, "", name, {"spec": {"unschedulable": True}})
        while len(self._cordoned) > _CORDONED:
            self.store.patch(NODES, "", self._cordoned.popleft(), {"spec": {"unschedulable": False}})
        gone = self._rng.choice(names)
        node = self.store.get(NODES, "", gone).data()
        self.store.delete(NODES, "", gone)
        metadata = {key: node["metadata"][key] for key in ("name", "labels", "annotations") if key in node["metadata"]}
        status = {key: node["status"][key] for key in ("capacity", "allocatable")}
        self._create(NODES, {"metadata": metadata, "status": status})


def _own_memory() -> float:
    memory = memory_mib(os.getpid())
    return memory[0] if memory is not None else 0.0


def narrow(divisor: int) -> None:
    """Divide the bounds of the memories of texts and events of this process."""
    for each in gc.get_objects():
        if isinstance(each, Kept):
            each._most //= divisor
            each.clear()
        elif isinstance(each, EventWriter):
            each._cache_size //= divisor


def memories() -> list[str]:
    """Describe the memories of texts and events of this process: how full they are."""
    kept = [each for each in gc.get_objects() if isinstance(each, Kept) and each]
    writers = [each for each in gc.get_objects() if isinstance(each, EventWriter)]
    lines = [
        f"texts ({type(next(iter(each.values()))).__name__}): {len(each):,} entries, {(each._most - each._left) / 1024:,.0f} of {each._most / 1024:,.0f} KiB"
        for each in sorted(kept, key=lambda one: one._left - one._most)[:10]
    ]
    return lines + [f"events of a writer: {len(each):,} of {each._cache_size:,}" for each in writers]


def grown(first: Day, last: Day) -> list[tuple[str, int]]:
    """Return the types of which there are more objects than before, with the difference; the most first."""
    return (last.types - first.types).most_common(8)


async def _virtual(options: argparse.Namespace) -> int:
    soak = Soak(options.nodes, options.per_hour, options.seed)
    narrow(options.fill)
    soak.build()
    days: list[Day] = []
    async with soak.embedded.running():
        await asyncio.sleep(600)
        for number in range(options.days):
            begun = time.process_time()
            days.append(await soak.day())
            day = days[-1]
            print(
                f"day {number + 1}: {day.memory_mib:.1f} MiB, {day.objects:,} objects in memory, {day.stored:,} stored, "
                f"{soak.bound:,} bindings, {soak.evicted:,} gone early, {time.process_time() - begun:.0f} s of CPU",
                flush=True,
            )
            if options.trace and number == 0:
                tracemalloc.start(3)
                before = tracemalloc.take_snapshot()
    if options.trace and days[1:]:
        for line in tracemalloc.take_snapshot().compare_to(before, "lineno")[:12]:
            print(line)
    print("memories with a bound:", *memories(), sep="\n  ")
    print("more than on the first day:", ", ".join(f"{name} +{count}" for name, count in grown(days[0], days[-1])))
    return _verdict([day.memory_mib for day in days], options.limit) or _verdict(
        [day.objects for day in days], options.limit
    )


def _verdict(figures: list[float] | list[int], limit: float) -> int:
    if len(figures) < 2:
        print("too short to show anything")
        return 1
    growth = 100 * (max(figures[1:]) / figures[0] - 1)
    print(f"growth after the first: {growth:+.1f} %, at most {limit:g} % is allowed")
    return int(growth > limit)


# -- real time ---------------------------------------------------------------------------------------------


async def _churn(access: ClusterAccess, process: int, options: argparse.Namespace) -> tuple[list[float], int]:
    """Create ``rate`` pods a second for a time; each is deleted when ``live`` younger ones exist.

    Returns the memory of the process in MiB at twelve moments, and the number of pods that stay unbound.
    """
    live: deque[str] = deque()
    memory, made, begun = [], 0, time.monotonic()
    pod = {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "10m"}}}]}
    async with HttpTransport.connect(access) as transport:
        gate = asyncio.Semaphore(32)

        async def one(number: int) -> None:
            async with gate:
                name = f"soak-{number:09}"
                await transport.create(PODS, "default", {"metadata": {"name": name}, "spec": pod})
                live.append(name)
                if len(live) > options.live:
                    await transport.delete(PODS, "default", live.popleft(), grace_period_seconds=0)

        period = max(1.0, options.duration / 12)
        report = begun + period
        while (now := time.monotonic()) < begun + options.duration:
            due = int((now - begun) * options.rate) - made
            for start in range(made, made + min(due, 256)):
                made = start + 1
            if due > 0:
                await asyncio.gather(*(one(number) for number in range(made - min(due, 256), made)))
            else:
                await asyncio.sleep(0.01)
            if now >= report:
                report += period
                memory.append((memory_mib(process) or (0.0, 0.0))[0])
                print(f"{now - begun:.0f} s: {made:,} pods made, {memory[-1]:.1f} MiB", flush=True)
        for _ in range(60):
            page = await transport.list(PODS, "default", field_selector="spec.nodeName=")
            unbound = sum(item.name.startswith("soak-") for item in page.items)
            if not unbound:
                break
            await asyncio.sleep(1)
    return memory, unbound


def _in_real_time(access: ClusterAccess, process: int, options: argparse.Namespace) -> int:
    memory, unbound = asyncio.run(_churn(access, process, options))
    print(f"{unbound} pods stay unbound")
    return _verdict(memory[len(memory) // 3 :], options.limit) or int(unbound > 0)


def _against_up(options: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="kubesched-") as scratch,
        cluster(Path(scratch) / "kubeconfig", options.nodes, options.seed) as (url, process),
    ):
        return _in_real_time(ClusterAccess(url), process, options)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--days", type=int, default=7, help="of virtual time")
    parser.add_argument("--per-hour", type=int, default=200, help="pods that arrive in an hour of virtual time")
    parser.add_argument(
        "--fill", type=int, default=64, help="divides the bounds of memories, so that they are full on the first day"
    )
    parser.add_argument("--trace", action="store_true", help="print the lines that allocated what grew; slow")
    parser.add_argument("--up", action="store_true", help="in real time, against kubesched up")
    parser.add_argument("--kubeconfig", help="in real time, against this API server, with --pid")
    parser.add_argument("--pid", type=int, help="process whose memory is read, such as that of kubesched run")
    parser.add_argument("--duration", type=float, default=3_600.0, help="seconds, in real time")
    parser.add_argument("--rate", type=float, default=1_000.0, help="pods a second, in real time")
    parser.add_argument("--live", type=int, default=5_000, help="pods that exist at a time, in real time")
    parser.add_argument("--limit", type=float, default=5.0, help="percent of growth that is allowed")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("kubesched").setLevel(logging.CRITICAL)
    if bool(options.kubeconfig) != bool(options.pid):
        parser.error("give --kubeconfig and --pid together")
    if options.kubeconfig:
        return _in_real_time(asyncio.run(load_kubeconfig(options.kubeconfig)), options.pid, options)
    if options.up:
        return _against_up(options)
    return run_virtual(_virtual(options))


if __name__ == "__main__":
    sys.exit(main())

"""Cost of pods that wait and cannot be placed: CPU of a virtual hour of events, and the latency of pods that can.

    python bench/waiting.py                      # 1,000 nodes, 100,000 pods that wait, an hour of events
    python bench/waiting.py --waiting 0          # the same hour without them

In each virtual second a pod that fits is created, and with ``--deletions`` an older one deleted: each deletion lets every pod try again that lacks resources,
as in Kubernetes. Each minute a node's label changes, and each ten minutes a node is cordoned or opened. The latency is the CPU time of the process from a pod's creation until it is bound, because virtual time does not pass meanwhile.
Pods come at whole seconds, as do the retries of waiting pods, so the figures are those of the worst moment; ``--offset 0.25`` gives those of any other.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from statistics import quantiles
from typing import Any, Final

from kubesched.api.kinds import NODES, PODS
from kubesched.cli.memory import MOST_EVENTS
from kubesched.cluster.kubelets import default_stages, make_nodes, node_template
from kubesched.lab.simulate.embedded import Embedded
from kubesched.lab.simulate.run.virtual_time import VirtualClock, run_virtual
from kubesched.scheduler.config import default_config
from kubesched.scheduler.plugins import in_tree_registry

_LIVE: Final = 100


def a_pod(name: str, cpu: str, app: str) -> dict[str, Any]:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name, "labels": {"app": app}}, "spec": {"containers": [container]}}


class Waiting:
    """Cluster with pods that fit nowhere."""

    def __init__(self, nodes: int, *, deletes: bool, offset: float) -> None:
        self._deletes = deletes
        self._offset = offset
        self._bound_at: dict[str, float] = {}
        self.embedded = Embedded(
            default_config(),
            in_tree_registry(),
            clock=VirtualClock(asyncio.get_running_loop()),
            stages=default_stages(stop_delay=0.0),
            on_bind=lambda namespace, name, node: self._bound_at.setdefault(name, time.process_time()),
        )
        self.store = self.embedded.store
        self.store.most_events = MOST_EVENTS
        for node in make_nodes(nodes, node_template(), zones=["a", "b", "c"], now=self.store.now()):
            self.store.create(NODES, "", node)

    async def fill(self, count: int) -> float:
        """Create the pods that wait. Return the CPU seconds until each was tried once."""
        begun = time.process_time()
        for number in range(count):
            self.store.create(PODS, "default", a_pod(f"waiting-{number:06}", "1000", f"app-{number % 100}"))
            if number % 500 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(600)  # until backoff and the flush of five minutes are over
        return time.process_time() - begun

    async def second(self, number: int) -> float | None:
        """Let a second of events pass. Return the latency of its pod in CPU seconds; None if it was not bound."""
        await asyncio.sleep(self._offset)
        name, begun = f"pod-{number:06}", time.process_time()
        self.store.create(PODS, "default", a_pod(name, "100m", "live"))
        if self._deletes and number >= _LIVE:
            self.store.delete(PODS, "default", f"pod-{number - _LIVE:06}", grace_period_seconds=0)
        if number % 60 == 0:
            label = {"metadata": {"labels": {"touched": str(number)}}}
            self.store.patch(NODES, "", f"hollow-{number // 60 % 10:05}", label)
        if number % 600 == 0:
            self.store.patch(NODES, "", "hollow-00011", {"spec": {"unschedulable": number % 1200 == 0}})
        await asyncio.sleep(1.0 - self._offset)
        bound = self._bound_at.pop(name, None)
        return None if bound is None else bound - begun


async def measure(nodes: int, waiting: int, seconds: int, *, deletes: bool, offset: float = 0.0) -> None:
    """Run, and print the figures."""
    cluster = Waiting(nodes, deletes=deletes, offset=offset)
    async with cluster.embedded.running():
        filled = await cluster.fill(waiting)
        begun = time.process_time()
        latencies = [await cluster.second(number) for number in range(seconds)]
        used = time.process_time() - begun
    known = [each for each in latencies if each is not None]
    parts = quantiles(known, n=100)
    print(f"{waiting:,} pods wait, {nodes:,} nodes: {filled:.1f} s of CPU until each was tried")
    print(f"{seconds:,} virtual seconds: {used:.1f} s of CPU, {100 * used / seconds:.2f} % of a core")
    print(
        f"{len(known):,} pods bound, latency p50 {1e3 * parts[49]:.2f} ms, p99 {1e3 * parts[98]:.2f} ms, most {1e3 * max(known):.2f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=3_600, help="of virtual time")
    parser.add_argument("--deletions", action="store_true", help="pods are deleted, too")
    parser.add_argument(
        "--offset",
        type=float,
        default=0.0,
        help="of the pods' arrival in their second; at 0 and 0.5 waiting pods are retried",
    )
    options = parser.parse_args()
    logging.getLogger("kubesched").setLevel(logging.CRITICAL)
    run_virtual(
        measure(options.nodes, options.waiting, options.seconds, deletes=options.deletions, offset=options.offset)
    )


if __name__ == "__main__":
    main()

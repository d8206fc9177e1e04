"""Time that one preemption decision takes: no node fits, and victims are found among the pods of full nodes.

    python bench/preemption.py
    python bench/preemption.py --nodes 100000

Every node is full of four pods of low priority, started at different times. A decision is the search that finds no node
and the PostFilter that chooses victims, timed as one. After each the victims leave and the preemptor takes their place, or
with ``--nominated`` it stays nominated and the victims stay. With ``--budgets`` there are disruption budgets, which cover
no victim, or with ``--covered`` each the victims of some nodes; with ``--renewed`` every decision finds that the status of
each of them has changed, so that nothing found before is of use. No API, no queue: the parts of the scheduler only.
"""

from __future__ import annotations

import argparse
import gc
import random
import resource
import statistics
import time

import msgspec

from kubesched.api.decode import from_builtins
from kubesched.api.types import Node, Pod
from kubesched.base.times import RealClock, timestamp
from kubesched.scheduler.cache import Cache
from kubesched.scheduler.config import default_config
from kubesched.scheduler.core.diagnosis import Rejection
from kubesched.scheduler.core.full_scan import Rotation
from kubesched.scheduler.core.handle import Backends
from kubesched.scheduler.core.profiles import build_frameworks
from kubesched.scheduler.core.search import Search
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.nodes.nominating import NominatingInfo
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins import in_tree_registry
from kubesched.scheduler.queue.nominator import Nominator

_STARTED = 1_780_000_000


def a_pod(name: str, cpu: str, priority: int, **status: object) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}
    return from_builtins(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"containers": [container], "priority": priority, "schedulerName": "default-scheduler"},
            "status": status,
        },
        Pod,
    )


def a_node(name: str) -> Node:
    capacity = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    return from_builtins({"metadata": metadata, "status": {"allocatable": capacity, "capacity": capacity}}, Node)


def measure(
    nodes: int, decisions: int, nominated: bool, budgets: int, covered: bool, renewed: bool, seed: int
) -> list[float]:
    """Seconds of each decision, in order."""
    rng, cache, waiting = random.Random(seed), Cache(), {}
    nominator = Nominator(None, waiting.get)
    objects = {"poddisruptionbudgets": {f"default/{number}": a_budget(number) for number in range(budgets)}}
    backends = Backends(
        RealClock(),
        rng,
        cache.snapshot(),
        nominations=lambda: nominator,
        informed=lambda kind: objects.get(kind, {}),
    )
    (framework,) = build_frameworks(default_config(), in_tree_registry(), backends, SchedulerMetrics()).values()
    search = Search(framework, cache.snapshot(), nominator, rng, Rotation())
    low = PodInfo(a_pod("low", "900m", 0))
    begin = time.perf_counter()
    for number in range(nodes):
        cache.set_node(a_node(f"node-{number:06d}"))
        for which in range(4):
            pod = a_pod(f"low-{number}-{which}", "900m", 0, startTime=timestamp(_STARTED + rng.randrange(1 << 20)))
            labels = {"app": str(number % budgets if covered else -1), "tier": "low"}
            pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
            cache.add_pod(PodInfo.derive(pod.on_node(f"node-{number:06d}"), low))
    print(f"{nodes:,} nodes, {4 * nodes:,} pods in {time.perf_counter() - begin:.1f} s")
    search.find(PodInfo(a_pod("small", "100m", 0)))  # the scheduler has run before
    gc.collect()
    gc.freeze()
    found = []
    for number in range(decisions):
        preemptor = PodInfo(a_pod(f"high-{number}", "3", 10))
        if renewed:
            objects["poddisruptionbudgets"] = {f"default/{number}": a_budget(number) for number in range(budgets)}
        start = time.perf_counter()
        rejection = search.find(preemptor)
        assert isinstance(rejection, Rejection)
        result, status = framework.post_filter(rejection.state, preemptor, rejection.diagnosis.statuses)
        found.append(time.perf_counter() - start)
        assert result is not None, status
        assert result.preemption is not None
        chosen = result.preemption.chosen
        if nominated:
            waiting[preemptor.key] = preemptor
            nominator.add(preemptor.pod, NominatingInfo.override(chosen.node_name))
            continue
        for victim in chosen.victims.pods:
            cache.remove_pod(victim.pod)
        cache.assume_pod(preemptor.with_pod(preemptor.pod.on_node(chosen.node_name)))
    gc.unfreeze()
    return found


def a_budget(number: int) -> dict[str, object]:
    return {
        "metadata": {"name": str(number), "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": str(number)}}},
        "status": {"disruptionsAllowed": 1},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--decisions", type=int, default=200)
    parser.add_argument("--nominated", action="store_true", help="preemptors stay nominated")
    parser.add_argument("--budgets", type=int, default=0, help="disruption budgets, each allows one")
    parser.add_argument("--covered", action="store_true", help="they cover all victims")
    parser.add_argument("--renewed", action="store_true", help="their status changes before each decision")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.covered and not options.budgets:
        parser.error("--covered needs --budgets")
    found = measure(
        options.nodes,
        options.decisions,
        options.nominated,
        options.budgets,
        options.covered,
        options.renewed,
        options.seed,
    )
    first, rest = found[0] * 1e3, sorted(each * 1e3 for each in found[1:])
    print(
        f"first {first:.2f} ms; the other {len(rest)}: mean {statistics.mean(rest):.2f} ms, p50 {rest[len(rest) // 2]:.2f} ms, "
        f"p99 {rest[int(len(rest) * 0.99)]:.2f} ms, worst {rest[-1]:.2f} ms"
    )
    print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()

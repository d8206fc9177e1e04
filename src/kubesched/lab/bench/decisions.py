"""Benchmark of the decision core alone: pop, decide, assume. Nothing is bound and nothing is watched.

Nodes and pods come from a workload: nodes from all its createNodes operations, pods from its measured operations, in
order. Caller: ``kubesched bench --decisions``.
"""

from __future__ import annotations

import random
import time

from kubesched.api.kinds import PODS
from kubesched.base.collector import settle_collector
from kubesched.base.times import RealClock
from kubesched.scheduler.core.search import Decision
from kubesched.scheduler.framework.registry import Registry
from kubesched.scheduler.nodes.podinfo import PodInfo

from ..simulate.embedded import Embedded
from .configuration import config_of
from .maker import Maker
from .measure import Decisions, Percentiles
from .workloads import CreateNodes, CreatePods, Workload

__all__ = ["measure_decisions"]


async def measure_decisions(workload: Workload, registry: Registry, *, seed: int = 0) -> Decisions:
    """Decide about every measured pod of a workload, one after the other.

    Raises:
        WorkloadError: when the workload cannot be used.
        ConfigError: when a profile cannot be built.
    """
    embedded = Embedded(
        config_of(workload), registry, clock=RealClock(), seed=seed, kubelets=False, believe_priority=True
    )
    maker = Maker(workload, embedded)
    for op in workload.operations():
        if isinstance(op, CreateNodes):
            maker.nodes(op)
        elif isinstance(op, CreatePods) and op.collect_metrics:
            template = maker.pod_template(op)
            for index in range(op.count):
                embedded.store.create(PODS, "default", template.make(index, op.count))
    scheduler = embedded.scheduler
    cache, queue, profiles = scheduler.cache, scheduler.queue, scheduler.profiles
    for node in embedded.nodes():
        cache.set_node(node)
    pods = embedded.pods()
    random.Random(seed).shuffle(pods)  # the store lists by name, not in the order of creation
    for pod in pods:
        queue.add(pod)
    restore_collector = settle_collector()
    samples: list[float] = []
    unschedulable = 0
    begin = time.perf_counter()
    while (queued := queue.pop_nowait()) is not None:
        info: PodInfo = queued.pod_info
        start = time.perf_counter()
        decision = profiles[info.spec.scheduler_name].search.find(info)
        if isinstance(decision, Decision):
            cache.assume_pod(info.on_node(decision.node.name))
        else:
            unschedulable += 1
        samples.append(time.perf_counter() - start)
        queue.done(queued.uid)
    seconds = max(time.perf_counter() - begin, 1e-9)
    restore_collector()
    await embedded.stop()
    return Decisions(
        decisions=len(samples),
        unschedulable=unschedulable,
        per_second=round(len(samples) / seconds, 1),
        decision_us=Percentiles.of(samples, 1e6),
    )

"""Demonstration ``kubesched demo``: a cluster in three zones, the example workloads enlarged, scheduled in real time.

Nothing is printed here. The pods wait in the store before the scheduler starts, as after a restart in a real cluster.
The measured time is from the scheduler's start to the last binding. It includes lists, decisions, bindings, watches and
events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.api.kinds import NODES
from kubesched.base.data import data_folder
from kubesched.base.times import RealClock
from kubesched.cluster.files import Manifest, load_manifests
from kubesched.cluster.kubelets import make_nodes, node_template
from kubesched.explain.report import Pending
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.config import KubeSchedulerConfiguration
from kubesched.scheduler.framework.registry import Registry

from ..embedded import Embedded
from ..inputs.intake import gather
from ..inputs.storing import store_objects
from ..results.outcome import node_uses
from ..results.result import NodeUse

__all__ = ["ZONES", "Outcome", "cluster_nodes", "demo_workloads", "schedule"]

ZONES: Final = ("zone-a", "zone-b", "zone-c")
_FOLDERS: Final = ("web-shop", "gpu-batch", "gates-and-taints")
#: Nodes per copy of the example workloads, whose replicas are meant for a handful of nodes.
_NODES_PER_PORTION: Final = 3
_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a run. ``seconds`` is from the scheduler's start to the last binding."""

    pods: int
    bound: int
    seconds: float
    cpu_seconds: float
    #: Pods per zone, by workload.
    per_zone: dict[str, dict[str, int]]
    nodes: list[NodeUse]
    pending: list[Pending]


def cluster_nodes(count: int) -> list[dict[str, Any]]:
    """Return node manifests: four in a hundred with GPUs, ten in a hundred spot, the rest general; over three zones."""
    gpu, spot = max(1, count * 4 // 100), max(1, count * 10 // 100)
    general = max(1, count - gpu - spot)
    gpu_taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    spot_taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    templates = (
        ("general", general, node_template(cpu="4", memory="16Gi", labels={"pool": "general"})),
        (
            "gpu",
            gpu,
            node_template(
                cpu="32", memory="128Gi", labels={"pool": "gpu"}, taints=[gpu_taint], extended={"nvidia.com/gpu": 8}
            ),
        ),
        ("spot", spot, node_template(cpu="8", memory="32Gi", labels={"pool": "spot"}, taints=[spot_taint])),
    )
    made: list[dict[str, Any]] = []
    for name, number, template in templates:
        made += make_nodes(number, template, prefix=f"{name}-", zones=ZONES, start=0, width=4)
    return made


def demo_workloads(nodes: int) -> list[Manifest]:
    """Return the example manifests, with replicas and parallelism made large enough for the cluster.

    Raises:
        FileNotFoundError: when the examples were not installed.
        ManifestError: when they are invalid.
    """
    folder = data_folder("examples")
    portions = max(1, nodes // _NODES_PER_PORTION)
    objects = []
    for item in load_manifests(folder / name for name in _FOLDERS).objects:
        data = msgspec.json.decode(msgspec.json.encode(item.data))
        spec = data.get("spec") or {}
        if item.kind.kind == "Deployment":
            spec["replicas"] = spec.get("replicas", 1) * portions
        elif item.kind.kind == "Job":
            spec["parallelism"] = max(1, spec.get("parallelism", 1) * portions // 4)
            spec["completions"] = spec["parallelism"]
        objects.append(Manifest(item.kind, data, item.source))
    return objects


async def schedule(
    objects: Iterable[Manifest],
    nodes: Iterable[Mapping[str, Any]],
    *,
    config: KubeSchedulerConfiguration,
    registry: Registry,
    seed: int,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Place the objects' pods in real time and report the result.

    Raises:
        ConfigError: when a profile cannot be built.
        ManifestError: when an object is refused.
        TaskCrashedError: when a part of the cluster crashed.
    """
    bound: dict[str, float] = {}

    def note(namespace: str, name: str, node: str) -> None:
        bound[f"{namespace}/{name}"] = time.perf_counter()
        on_progress(len(bound), total)

    intake = gather([*(Manifest(NODES, dict(node), "the demo's nodes") for node in nodes), *objects])
    embedded = Embedded(
        config, registry, clock=RealClock(), seed=seed, kubelets=False, event_queue_size=1 << 20, on_bind=note
    )
    store_objects(embedded.store, intake.objects)
    total = sum(1 for pod in embedded.pods() if not pod.spec.scheduling_gates)
    start, cpu = time.perf_counter(), time.process_time()
    async with embedded.running():
        seen = -1
        while not (embedded.scheduler.is_idle and seen == len(bound)):
            seen = len(bound)
            await asyncio.sleep(_POLL_SECONDS)
        cpu = time.process_time() - cpu
        end = max(bound.values(), default=time.perf_counter())
        return _outcome(embedded, len(bound), end - start, cpu)


def _outcome(embedded: Embedded, bound: int, seconds: float, cpu: float) -> Outcome:
    pods = embedded.pods()
    zone_of = {node.name: node.labels.get("topology.kubernetes.io/zone", "") for node in embedded.nodes()}
    workloads = Workloads(embedded.objects)
    per_zone: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.spec.node_name:
            counts = per_zone.setdefault(workloads.of(pod) or f"Pod/{pod.name}", dict.fromkeys(ZONES, 0))
            counts[zone_of[pod.spec.node_name]] += 1
    pending = embedded.explain([pod for pod in pods if not pod.spec.node_name])
    return Outcome(len(pods), bound, seconds, cpu, dict(sorted(per_zone.items())), node_uses(embedded), pending)

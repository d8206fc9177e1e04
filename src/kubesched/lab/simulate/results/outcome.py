"""Result of a run, read from the cluster when nothing moves any more.

Caller: :mod:`..run.simulation`; the demonstration asks for the use of the nodes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from kubesched.api.requests import PODS as POD_COUNT
from kubesched.api.types import Pod
from kubesched.base.said_once import said_once
from kubesched.explain.explainer import Explainer
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.nodes.nodeinfo import NodeInfo

from ..embedded import Embedded
from .course import Course
from .device_uses import cluster_devices, node_devices
from .group_outcomes import group_outcomes
from .node_status import is_failed, node_status
from .node_times import NodeBook
from .pod_times import FINISHED, PodBook, run_times, useful_parts
from .result import (
    MissingNode,
    NodeUse,
    Placement,
    PodTimes,
    Refusal,
    ResourceShare,
    ResourceUse,
    Result,
    Stopped,
    Totals,
)

__all__ = ["node_uses", "outcome"]

#: Most names in one message.
_MOST_NAMES: Final = 5
_ZONE: Final = "topology.kubernetes.io/zone"


def outcome(
    embedded: Embedded,
    book: PodBook,
    course: Course,
    end: float,
    *,
    seed: int,
    stopped: Stopped,
    refused: list[Refusal],
    nodes: NodeBook,
) -> Result:
    """Return the result of a run that ended at ``end``, in virtual seconds since the start."""
    pods, scheduler = embedded.pods(), embedded.scheduler
    times = book.pods(lambda pod: scheduler.queue.views.get_pod(pod.name, pod.namespace), scheduler.informers.seen)
    series, shares = course.finish(end, len(embedded.scheduler.cache.pods))
    missing = _missing_nodes(embedded, pods)
    lost = {key for item in missing for key in item.pods}
    infos = _infos(embedded)
    failed = {info.name for info in infos if info.node is not None and is_failed(info.node)}
    working = [info for info in infos if info.name not in failed]
    stuck = {pod.key for pod in pods if pod.spec.node_name in failed and pod.status.phase not in FINISHED}
    placed = [pod for pod in pods if pod.spec.node_name and pod.key not in lost and pod.key not in stuck]
    waiting = [pod for pod in pods if not pod.spec.node_name]
    pending = embedded.explain(waiting)
    names = _resource_names(infos)
    attempts = embedded.scheduler.metrics.schedule_attempts_total
    totals = Totals(
        nodes=len(infos),
        pods=len(pods),
        placed=len(placed),
        on_missing_nodes=len(lost),
        on_failed_nodes=len(stuck),
        succeeded=sum(pod.status.phase == "Succeeded" for pod in placed),
        failed=sum(pod.status.phase == "Failed" for pod in placed),
        pending=len(waiting),
        gated=sum(group.count for group in pending if group.reason == "SchedulingGated"),
        refused=sum(item.count for item in refused),
        removed=sum(one.removed is not None for one in times),
        attempts=int(sum(child.value for child in attempts.children.values())),
    )
    return Result(
        seed=seed,
        stopped=stopped,
        virtual_seconds=end,
        totals=totals,
        resources=[*_cluster_use(working, names, course.peak), *cluster_devices(embedded)],
        nodes=_node_uses(embedded, infos, names),
        placements=_placements(embedded, book, placed),
        pending=pending,
        groups=group_outcomes(embedded, pods, times, end),
        not_created=Explainer(scheduler, embedded.objects).not_created(pods),
        refused=refused,
        missing_nodes=missing,
        pods=times,
        node_times=nodes.nodes(),
        times=msgspec.structs.replace(run_times(times, end), resources=_with_goodput(shares, times, end)),
        series=series,
        warnings=[*map(_missing_text, missing), *said_once(text for one in embedded.movers for text in one.problems)],
    )


def _missing_text(item: MissingNode) -> str:
    more = f" and {item.count - _MOST_NAMES:,} more" if item.count > _MOST_NAMES else ""
    text = f"node {item.node} does not exist, but pods are bound to it, which are not counted as placed"
    return f"{text}: {', '.join(item.pods[:_MOST_NAMES])}{more}"


def _with_goodput(shares: Iterable[ResourceShare], pods: list[PodTimes], end: float) -> list[ResourceShare]:
    parts = useful_parts(pods, end)
    return [
        msgspec.structs.replace(one, goodput=round(one.utilisation * parts.get(one.name, 1.0), 6)) for one in shares
    ]


def _missing_nodes(embedded: Embedded, pods: list[Pod]) -> list[MissingNode]:
    """Return nodes that pods are bound to but that do not exist. Finished pods do not count: their node may be gone."""
    nodes = {node.name for node in embedded.nodes()}
    found: dict[str, list[str]] = {}
    for pod in pods:
        name = pod.spec.node_name
        if name and name not in nodes and pod.status.phase not in FINISHED:
            found.setdefault(name, []).append(pod.key)
    return [MissingNode(node=name, count=len(keys), pods=sorted(keys)) for name, keys in sorted(found.items())]


def _placements(embedded: Embedded, book: PodBook, placed: list[Pod]) -> list[Placement]:
    workloads = Workloads(embedded.objects)
    found = [
        Placement(
            namespace=pod.namespace,
            name=pod.name,
            workload=workloads.of(pod),
            node=pod.spec.node_name,
            phase=pod.status.phase,
            bound_at=book.bound_at(pod.uid),
        )
        for pod in placed
    ]
    return sorted(found, key=lambda item: (item.namespace, item.name))


# -- resources ---------------------------------------------------------------------------------------------


def _infos(embedded: Embedded) -> list[NodeInfo]:
    table = embedded.scheduler.cache.table
    return sorted((table.info(row) for row in table.order().tolist()), key=lambda info: info.name)


def node_uses(embedded: Embedded) -> list[NodeUse]:
    """Return every node by name, with the requests on it, as the scheduler accounts them now."""
    infos = _infos(embedded)
    names = _resource_names(infos)
    return _node_uses(embedded, infos, names)


def _node_uses(embedded: Embedded, infos: list[NodeInfo], names: list[str]) -> list[NodeUse]:
    devices = node_devices(embedded, infos)
    return [_node_use(info, names, devices.get(info.name, ())) for info in infos]


def _resource_names(infos: list[NodeInfo]) -> list[str]:
    """Return names of resources: cpu, memory, pods, then those of some node, by name."""
    extra = {name for info in infos for name, amount in info.allocatable.scalars.items() if amount}
    extra |= {name for info in infos for name, amount in info.requested.scalars.items() if amount}
    storage = [EPHEMERAL_STORAGE] if any(info.allocatable.ephemeral_storage for info in infos) else []
    return [CPU, MEMORY, *storage, POD_COUNT, *sorted(extra)]


def _requested(info: NodeInfo, name: str) -> int:
    return len(info.pods) if name == POD_COUNT else info.requested.get(name)


def _node_use(info: NodeInfo, names: list[str], devices: Iterable[ResourceUse]) -> NodeUse:
    return NodeUse(
        name=info.name,
        zone=info.labels.get(_ZONE, ""),
        status=node_status(info.node) if info.node is not None else "",
        resources=[
            *(
                ResourceUse(name=name, allocatable=info.allocatable.get(name), requested=_requested(info, name))
                for name in names
                if name in (CPU, MEMORY, POD_COUNT) or info.allocatable.get(name) or info.requested.get(name)
            ),
            *devices,
        ],
    )


def _cluster_use(infos: list[NodeInfo], names: list[str], peak: Mapping[str, int]) -> list[ResourceUse]:
    return [
        ResourceUse(
            name=name,
            allocatable=sum(info.allocatable.get(name) for info in infos),
            requested=sum(_requested(info, name) for info in infos),
            peak=peak.get(name, 0),
        )
        for name in names
    ]

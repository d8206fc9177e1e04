"""Pods and nodes of a live scheduler: lists, and the page of one pod or node."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import Final

from kubesched.api.groups import group_key
from kubesched.api.kinds import CLAIMS, PODS, RESOURCE_CLAIMS
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, Resources
from kubesched.api.types import Pod
from kubesched.base.times import cached_time
from kubesched.base.turns import Steps
from kubesched.explain.objects import Objects
from kubesched.explain.workloads import Workloads
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.scheduler import Scheduler

from .devices import DeviceCounts
from .node_map import device_column, status_of, taint_texts
from .queue_groups import MOST_NAME, MOST_TEXT, scheduled_message, workload_of
from .schema import Condition, Link, NodePage, PodList, PodPage, PodRow, PodShare
from .source import PodQuery, Refused

__all__ = ["Places", "finding_pods", "links_of", "node_page", "pod_of", "pod_page", "requests_of"]

#: Pods that are looked at in one step.
_BATCH: Final = 500
#: Most links of a pod, and most conditions and pods of a node that are listed.
_MOST_LINKS: Final = 64
_MOST_CONDITIONS: Final = 64
_MOST_SHARES: Final = 500


class Places:
    """Places of pods in a scheduler at one time: where they wait, or their phases."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._binding = scheduler.bindings.uids()

    def of(self, pod: Pod) -> str:
        """Return the place of a pod that waits, else its phase."""
        if pod.spec.node_name:
            return pod.status.phase or "Pending"
        scheduler = self._scheduler
        if scheduler.waiting_pods.get(pod.uid) is not None:
            return "Permit"
        if pod.uid in self._binding:
            return "Binding"
        place = scheduler.queue.views.where(pod, settled=False)
        return "Active" if place == "InFlight" else place or pod.status.phase or "Pending"

    def node_of(self, pod: Pod) -> str:
        """Return the node of a pod, also one that it is being bound to."""
        if pod.spec.node_name:
            return pod.spec.node_name
        assumed = self._scheduler.cache.get_pod(pod.uid)
        return assumed.spec.node_name if assumed is not None else ""


def finding_pods(scheduler: Scheduler, objects: Objects, query: PodQuery) -> Steps[PodList]:
    """Return the pods that a query wants, those without a node first. Finished pods are not among them."""
    places, workloads = Places(scheduler), Workloads(objects)
    pods: list[Pod] = scheduler.informers.pods.values()
    best: list[tuple[bool, str, str, Pod]] = []
    total = 0
    for start in range(0, len(pods), _BATCH):
        found = [
            (bool(pod.spec.node_name), pod.namespace, pod.name, pod)
            for pod in pods[start : start + _BATCH]
            if _is_wanted(pod, query, places, workloads)
        ]
        total += len(found)
        if found:
            best = nsmallest(query.limit, [*best, *found], key=lambda one: one[:3])
        yield
    rows = [_row(pod, places, workloads) for *_, pod in best]
    return PodList(pods=rows, total=total)


def _is_wanted(pod: Pod, query: PodQuery, places: Places, workloads: Workloads) -> bool:
    return (
        query.namespace in ("", pod.namespace)
        and query.text in pod.name
        and (not query.node or places.node_of(pod) == query.node)
        and (not query.workload or workload_of(workloads, pod) == query.workload)
        and (not query.state or places.of(pod) == query.state)
    )


def _row(pod: Pod, places: Places, workloads: Workloads) -> PodRow:
    return PodRow(
        namespace=pod.namespace,
        name=pod.name,
        workload=workload_of(workloads, pod),
        state=places.of(pod),
        node=places.node_of(pod),
        priority=pod.spec.priority or 0,
        created=_time(pod.metadata.creation_timestamp),
    )


def _time(text: str | None) -> float | None:
    return cached_time(text) if text else None


def requests_of(requests: Resources) -> dict[str, int]:
    """Return the amounts of a vector that are not 0, by resource."""
    amounts = {
        CPU: requests.milli_cpu,
        MEMORY: requests.memory,
        EPHEMERAL_STORAGE: requests.ephemeral_storage,
        **requests.scalars,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def pod_of(scheduler: Scheduler, objects: Objects, namespace: str, name: str) -> Pod:
    """Return a pod, also a finished one if it is known.

    Raises:
        Refused: 404 if there is none.
    """
    pod: Pod | None = scheduler.informers.live_pod(namespace, name)
    if pod is None and objects.knows(PODS):
        pod = objects.get(PODS, namespace, name)
    if pod is None:
        raise Refused(404, f"no pod is named {namespace}/{name}; it may have finished or have been deleted")
    return pod


def pod_page(scheduler: Scheduler, objects: Objects, pod: Pod) -> PodPage:
    """Return the page of a pod, without its life."""
    places, workloads = Places(scheduler), Workloads(objects)
    links = list(links_of(scheduler, objects, pod, workload_of(workloads, pod), places.node_of(pod)))
    return PodPage(
        pod=_row(pod, places, workloads),
        uid=pod.uid,
        scheduler_name=pod.spec.scheduler_name,
        requests=requests_of(PodInfo(pod).requests),
        links=links[:_MOST_LINKS],
        message="" if pod.spec.node_name else scheduled_message(pod),
    )


def links_of(scheduler: Scheduler, objects: Objects, pod: Pod, workload: str, node: str) -> Iterator[Link]:
    """Yield the objects that belong to a pod: nodes, workload, owner, group, claims."""
    if node:
        found = scheduler.cache.table.get(node)
        there = found.node if found is not None else None
        yield Link(kind="Node", name=node, state=status_of(there) if there is not None else "does not exist")
    if pod.status.nominated_node_name:
        yield Link(kind="Node", name=pod.status.nominated_node_name, state="nominated")
    owner = next((one for one in pod.metadata.owner_references if one.controller), None)
    if owner is not None:
        above, _, name = workload.partition("/")
        if (above, name) != (owner.kind, owner.name) and name:
            yield Link(kind=above, namespace=pod.namespace, name=name)
        yield Link(kind=owner.kind[:MOST_NAME], namespace=pod.namespace, name=owner.name[:MOST_NAME])
    if pod.spec.scheduling_group is not None:
        yield Link(kind="PodGroup", namespace=pod.namespace, name=group_key(pod).partition("/")[2])
    yield from _claims(objects, pod)


def _claims(objects: Objects, pod: Pod) -> Iterator[Link]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is None and volume.ephemeral is None:
            continue
        claimed = volume.persistent_volume_claim
        name = claimed.claim_name if claimed is not None else f"{pod.name}-{volume.name}"
        claim = objects.get(CLAIMS, pod.namespace, name)
        if claim is None:
            state = "does not exist" if objects.knows(CLAIMS) else ""
        else:
            state = f"bound to {claim.spec.volume_name}" if claim.spec.volume_name else "not bound"
        yield Link(kind="PersistentVolumeClaim", namespace=pod.namespace, name=name, state=state)
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    for wanted in pod.spec.resource_claims:
        claim_name = wanted.resource_claim_name or made.get(wanted.name)
        if not claim_name:
            continue
        claim = objects.get(RESOURCE_CLAIMS, pod.namespace, claim_name)
        if claim is None:
            state = "does not exist" if objects.knows(RESOURCE_CLAIMS) else ""
        else:
            state = "allocated" if claim.status.allocation is not None else "not allocated"
        yield Link(kind="ResourceClaim", namespace=pod.namespace, name=claim_name, state=state)


def node_page(scheduler: Scheduler, objects: Objects, devices: DeviceCounts | None, name: str) -> Steps[NodePage]:
    """Return the page of a node.

    Raises:
        Refused: 404 if there is none.
    """
    table = scheduler.cache.table
    row = table.row_of(name)
    info = table.info(row) if row is not None else None
    if row is None or info is None or info.node is None:
        raise Refused(404, f"no node is named {name}")
    node, workloads = info.node, Workloads(objects)
    counts = {device_column(driver): both for driver, both in (devices.of(name) if devices is not None else {}).items()}
    have, want = requests_of(info.allocatable), requests_of(info.requested)
    pods = list(info.pods.values())
    yield
    shares = [(max((pod.requests.get(key) / amount for key, amount in have.items()), default=0.0), pod) for pod in pods]
    yield
    largest = nsmallest(_MOST_SHARES, shares, key=lambda one: (-one[0], one[1].pod.key))
    return NodePage(
        row=row,
        name=name,
        status=status_of(node),
        allocatable={
            **have,
            "pods": info.allocatable.allowed_pods,
            **{key: count for key, (count, _) in counts.items()},
        },
        requested={**want, "pods": len(pods), **{key: used for key, (_, used) in counts.items()}},
        labels=dict(node.metadata.labels),
        taints=taint_texts(node),
        conditions=[
            Condition(type=one.type[:MOST_TEXT], status=one.status[:MOST_TEXT], message=one.reason[:MOST_TEXT])
            for one in node.status.conditions[:_MOST_CONDITIONS]
        ],
        pods=[
            PodShare(
                namespace=info.pod.namespace,
                name=info.pod.name,
                workload=workload_of(workloads, info.pod),
                phase=info.status.phase or "Pending",
                priority=info.priority,
                requests=requests_of(info.requests),
            )
            for _, info in largest
        ],
        left_out=len(pods) - len(largest),
    )

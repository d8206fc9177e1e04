"""Metrics of ``/metrics/resources``: requests and limits by pod and resource.

Caller: :mod:`.endpoints`. Source: rules/metrics-and-client §3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from kubesched.api.quantity import Quantity, QuantityError
from kubesched.api.requests import CPU, EPHEMERAL_STORAGE, MEMORY, pod_limit_amounts, pod_request_amounts
from kubesched.api.types import Pod

from ..framework.metrics import HistogramSample, MetricDef, MetricFamily

__all__ = ["DEFINITIONS", "PodResources", "pod_resource_families"]

_LABELS: Final = ("namespace", "pod", "node", "scheduler", "priority", "resource", "unit")
#: Both metrics of this endpoint.
DEFINITIONS: Final[tuple[MetricDef, ...]] = (
    MetricDef("kube_pod_resource_request", "gauge", "Amount of a resource that a pod requests, init containers and overhead included.", _LABELS, level="STABLE", prefix=""),
    MetricDef("kube_pod_resource_limit", "gauge", "Amount of a resource that a pod is limited to, init containers included.", _LABELS, level="STABLE", prefix=""),
)  # fmt: skip
_BYTES: Final = frozenset({MEMORY, EPHEMERAL_STORAGE, "storage"})
_NANO: Final = 10**9

Sample = tuple[tuple[str, ...], float | HistogramSample]


class PodResources:
    """Source of the endpoint's pods. ``leading`` is True if this process schedules: only then pods are shown."""

    def __init__(self, pods: Callable[[], Collection[Pod]], leading: Callable[[], bool]) -> None:
        self._pods = pods
        self._leading = leading

    def pods(self) -> list[Pod]:
        """Return the pods to show, as a new list."""
        return list(self._pods()) if self._leading() else []


def pod_resource_families(pods: Iterable[Pod]) -> list[MetricFamily]:
    """Make both metrics for these pods, without empty ones. Pods are immutable: any thread may do this.

    A pod with an amount that is no quantity is left out; it cannot be scheduled either.
    """
    requests: list[Sample] = []
    limits: list[Sample] = []
    for pod in pods:
        if pod.status.phase in ("Succeeded", "Failed") and pod.spec.node_name:
            continue
        try:
            requested, limited = pod_request_amounts(pod, status_aware=False), pod_limit_amounts(pod)
        except QuantityError:
            continue
        spec = pod.spec
        priority = "" if spec.priority is None else str(spec.priority)
        head = (pod.metadata.namespace, pod.metadata.name, spec.node_name, spec.scheduler_name, priority)
        requests += _samples(head, requested)
        limits += _samples(head, limited)
    families = zip(DEFINITIONS, (requests, limits), strict=True)
    return [
        MetricFamily(row.full_name, row.kind, f"[{row.level}] {row.help}", row.labels, samples)
        for row, samples in families
        if samples
    ]


def _samples(head: tuple[str, ...], amounts: Mapping[str, Quantity]) -> list[Sample]:
    return [
        ((*head, name, _unit(name)), amount.nanos / _NANO if name == CPU else float(amount.value()))
        for name, amount in sorted(amounts.items())
        if amount.nanos
    ]


def _unit(resource: str) -> str:
    if resource == CPU:
        return "cores"
    if resource in _BYTES or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""

"""Requests of a pod: the request arithmetic of Kubernetes 1.36.

Source: rules/node-plugins §8.1, rules/cache-and-events §5 (upstream ``component-helpers/resource/helpers.go`` and
``NodeInfo``).

All sums are exact (:class:`~kubesched.api.quantity.Quantity`). Only the final vector is rounded, up.
Caller: ``framework.podinfo``, once per pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kubesched.base.kept import remembered

from .quantity import Quantity, QuantityText, int_value, milli_value, parse_quantity
from .resource import EXTENDED_RESOURCE_PREFIX
from .selectors import is_qualified_name
from .types import Container, ContainerStatus, Pod, ResourceList, ResourceRequirements

__all__ = [
    "CPU",
    "DEFAULT_CPU_MILLI",
    "DEFAULT_MEMORY",
    "EPHEMERAL_STORAGE",
    "MEMORY",
    "PODS",
    "Resources",
    "container_requests_with_defaults",
    "has_actual_resources",
    "is_extended_resource",
    "is_scalar_resource",
    "may_be_devices",
    "nonzero_requests",
    "pod_limit_amounts",
    "pod_request_amounts",
    "pod_requests",
]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

#: Requests that scoring assumes for a container without its own.
DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEMORY: Final = 200 * 1024 * 1024

_DEFAULT_CPU: Final = Quantity.parse("100m")
_DEFAULT_MEMORY: Final = Quantity.parse("200Mi")
_ZERO: Final = Quantity(0)

Amounts = dict[str, Quantity]


@remembered(1 << 20)
def is_extended_resource(name: str) -> bool:
    """True if a resource is extended: its name has a domain outside kubernetes.io and no quota prefix."""
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and is_qualified_name(f"requests.{name}")
    )


@remembered(1 << 20)
def is_scalar_resource(name: str) -> bool:
    """True if the scheduler counts this resource in addition to cpu, memory, ephemeral-storage and pods."""
    return (
        is_extended_resource(name) or name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name
    )


@remembered(1 << 20)
def may_be_devices(name: str) -> bool:
    """True if a device class could serve a resource of this name."""
    return is_extended_resource(name) or name.startswith(EXTENDED_RESOURCE_PREFIX)


class Resources:
    """Resource vector in integers: milli-CPU, bytes, counts.

    ``scalars`` holds extended resources, huge pages and the like. An entry of zero counts as an entry.
    """

    __slots__ = ("allowed_pods", "ephemeral_storage", "memory", "milli_cpu", "scalars")

    def __init__(
        self,
        milli_cpu: int = 0,
        memory: int = 0,
        ephemeral_storage: int = 0,
        allowed_pods: int = 0,
        scalars: dict[str, int] | None = None,
    ) -> None:
        self.milli_cpu = milli_cpu
        self.memory = memory
        self.ephemeral_storage = ephemeral_storage
        self.allowed_pods = allowed_pods
        self.scalars = {} if scalars is None else scalars

    @classmethod
    def from_list(cls, amounts: Mapping[str, QuantityText]) -> Resources:
        """Read a resource list as written. Names that are not counted are ignored.

        Raises:
            QuantityError: if a value is not a quantity.
        """
        result = cls()
        for name, text in amounts.items():
            if name == CPU:
                result.milli_cpu = milli_value(text)
            elif name == MEMORY:
                result.memory = int_value(text)
            elif name == EPHEMERAL_STORAGE:
                result.ephemeral_storage = int_value(text)
            elif name == PODS:
                result.allowed_pods = int_value(text)
            elif is_scalar_resource(name):
                result.scalars[name] = int_value(text)
        return result

    @classmethod
    def from_amounts(cls, amounts: Mapping[str, Quantity]) -> Resources:
        """Make a vector of exact sums, rounded up."""
        result = cls()
        for name, amount in amounts.items():
            if name == CPU:
                result.milli_cpu = amount.milli()
            elif name == MEMORY:
                result.memory = amount.value()
            elif name == EPHEMERAL_STORAGE:
                result.ephemeral_storage = amount.value()
            elif name == PODS:
                result.allowed_pods = amount.value()
            elif is_scalar_resource(name):
                result.scalars[name] = amount.value()
        return result

    def plus(self, others: Iterable[Resources]) -> Resources:
        """Return a new vector with the amounts of ``others`` added. ``allowed_pods`` is not added."""
        cpu, memory, ephemeral, scalars = self.milli_cpu, self.memory, self.ephemeral_storage, dict(self.scalars)
        for other in others:
            cpu += other.milli_cpu
            memory += other.memory
            ephemeral += other.ephemeral_storage
            for name, amount in other.scalars.items():
                scalars[name] = scalars.get(name, 0) + amount
        return Resources(cpu, memory, ephemeral, self.allowed_pods, scalars)

    def get(self, name: str) -> int:
        """Return the amount of one resource; 0 if it is not in the vector."""
        if name == CPU:
            return self.milli_cpu
        if name == MEMORY:
            return self.memory
        if name == EPHEMERAL_STORAGE:
            return self.ephemeral_storage
        if name == PODS:
            return self.allowed_pods
        return self.scalars.get(name, 0)

    def as_tuple(self) -> tuple[int, int, int, tuple[tuple[str, int], ...]]:
        """Return a hashable form, without the pod count. Equal tuples are equal requests."""
        scalars = tuple(sorted(self.scalars.items())) if self.scalars else ()
        return (self.milli_cpu, self.memory, self.ephemeral_storage, scalars)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Resources)
            and self.as_tuple() == other.as_tuple()
            and self.allowed_pods == other.allowed_pods
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        extra = f", scalars={self.scalars}" if self.scalars else ""
        pods = f", allowed_pods={self.allowed_pods}" if self.allowed_pods else ""
        return (
            f"Resources(milli_cpu={self.milli_cpu}, memory={self.memory}, "
            f"ephemeral_storage={self.ephemeral_storage}{pods}{extra})"
        )


def _amounts(source: ResourceList) -> Amounts:
    return {name: parse_quantity(text) for name, text in source.items()}


def _add(total: Amounts, other: Mapping[str, Quantity]) -> None:
    for name, amount in other.items():
        total[name] = total[name] + amount if name in total else amount


def _maximum(first: Mapping[str, Quantity], *others: Mapping[str, Quantity]) -> Amounts:
    result = dict(first)
    for other in others:
        for name, amount in other.items():
            if name not in result or result[name] < amount:
                result[name] = amount
    return result


def _listed(resources: ResourceRequirements, limits: bool) -> ResourceList:
    return resources.limits if limits else resources.requests


def _pod_level_names(pod: Pod, *, limits: bool = False) -> list[str]:
    """Return the supported names in ``spec.resources``. Non-empty means that pod-level requests (limits) are set."""
    if pod.spec.resources is None:
        return []
    names = _listed(pod.spec.resources, limits)
    return [name for name in names if name in (CPU, MEMORY) or name.startswith("hugepages-")]


def _resize_infeasible(pod: Pod) -> bool:
    for condition in pod.status.conditions:
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _with_defaults(amounts: Amounts, defaults: Mapping[str, Quantity]) -> Amounts:
    for name, amount in defaults.items():
        amounts.setdefault(name, amount)
    return amounts


def _sum_requests(
    pod: Pod,
    *,
    status_aware: bool,
    pod_level: bool,
    defaults: Mapping[str, Quantity] | None = None,
    limits: bool = False,
) -> Amounts:
    """Sum exact amounts by the whole formula: containers, sidecars, init peaks, pod level, overhead.

    ``limits`` sums limits in place of requests. Overhead then only adds to resources that have a limit. The status has
    only requests, so ``limits`` must not be combined with ``status_aware``.
    """
    spec, status = pod.spec, pod.status
    defaults = defaults or {}
    statuses: dict[str, ContainerStatus] = {}
    infeasible = False
    if status_aware and has_actual_resources(pod):
        statuses = {item.name: item for item in (*status.container_statuses, *status.init_container_statuses)}
        infeasible = _resize_infeasible(pod)

    def effective(container: Container) -> Amounts:
        amounts = _amounts(_listed(container.resources, limits))
        current = statuses.get(container.name)
        if current is not None and current.resources is not None:
            actual, allocated = _amounts(current.resources.requests), _amounts(current.allocated_resources)
            amounts = _maximum(actual, allocated) if infeasible else _maximum(amounts, actual, allocated)
        return _with_defaults(amounts, defaults)

    total: Amounts = {}
    for container in spec.containers:
        _add(total, effective(container))
    if spec.init_containers:
        sidecars: Amounts = {}
        peak: Amounts = {}
        for container in spec.init_containers:
            if container.restart_policy == "Always":
                request = effective(container)
                _add(total, request)
                _add(sidecars, request)
                peak = _maximum(peak, sidecars)
            else:
                use = _with_defaults(_amounts(_listed(container.resources, limits)), defaults)
                _add(use, sidecars)
                peak = _maximum(peak, use)
        total = _maximum(total, peak)
    if pod_level and spec.resources is not None:
        total.update(_pod_level_amounts(pod, status_aware=status_aware, limits=limits))
    overhead = _amounts(spec.overhead)
    _add(total, {name: amount for name, amount in overhead.items() if name in total} if limits else overhead)
    return total


def _pod_level_amounts(pod: Pod, *, status_aware: bool, limits: bool = False) -> Amounts:
    assert pod.spec.resources is not None
    names = _pod_level_names(pod, limits=limits)
    own = _amounts(_listed(pod.spec.resources, limits))
    if not status_aware or pod.status.resources is None:
        return {name: own[name] for name in names}
    actual, allocated = _amounts(pod.status.resources.requests), _amounts(pod.status.allocated_resources)
    sources = (actual, allocated) if _resize_infeasible(pod) else (own, actual, allocated)
    merged = _maximum(*sources)
    return {name: merged.get(name, _ZERO) for name in names}


def has_actual_resources(pod: Pod) -> bool:
    """True if the status has resources of the pod or a container. Only then does it count as well as the spec.

    A running pod always has container statuses. Kubelets that cannot resize leave the resources out of them.
    """
    status = pod.status
    if status.resources is not None:
        return True
    if not status.container_statuses and not status.init_container_statuses:
        return False
    return any(item.resources is not None for item in (*status.container_statuses, *status.init_container_statuses))


def _is_plain(pod: Pod) -> bool:
    """True for a pod with one container and nothing that complicates the sum, as most pods are."""
    spec = pod.spec
    return (
        len(spec.containers) == 1
        and not spec.init_containers
        and not spec.overhead
        and spec.resources is None
        and not has_actual_resources(pod)
    )


def pod_requests(pod: Pod, *, status_aware: bool = True, pod_level: bool = True) -> Resources:
    """Return the requests of a pod.

    With ``status_aware`` in-place resizes count: the result is charged to a node. Without it only the spec counts: the
    result filters nodes for an incoming pod.

    Raises:
        QuantityError: if a request is not a quantity.
    """
    if _is_plain(pod):
        return Resources.from_list(pod.spec.containers[0].resources.requests)
    return Resources.from_amounts(_sum_requests(pod, status_aware=status_aware, pod_level=pod_level))


def pod_request_amounts(pod: Pod, *, status_aware: bool = True) -> dict[str, Quantity]:
    """Return the exact request for each resource name, whether the scheduler counts the resource or not."""
    return _sum_requests(pod, status_aware=status_aware, pod_level=True)


def pod_limit_amounts(pod: Pod) -> dict[str, Quantity]:
    """Return the exact limit for each resource name, summed like requests. Overhead adds only to limited resources."""
    return _sum_requests(pod, status_aware=False, pod_level=True, limits=True)


def _missing(containers: Iterable[Container], name: str) -> bool:
    return any(name not in container.resources.requests for container in containers)


def nonzero_requests(pod: Pod, total: Resources) -> tuple[int, int]:
    """Return (milli-CPU, bytes) that a node is charged for scoring: ``total``, with defaults for missing requests.

    ``total`` must be the status-aware :func:`pod_requests` of the pod.
    """
    spec = pod.spec
    if _is_plain(pod):
        requests = spec.containers[0].resources.requests
        return (
            total.milli_cpu if CPU in requests else DEFAULT_CPU_MILLI,
            total.memory if MEMORY in requests else DEFAULT_MEMORY,
        )
    containers = (*spec.containers, *spec.init_containers)
    defaults: Amounts = {}
    if _pod_level_names(pod):
        present = _sum_requests(pod, status_aware=True, pod_level=True)
        defaults = {
            name: amount for name, amount in ((CPU, _DEFAULT_CPU), (MEMORY, _DEFAULT_MEMORY)) if name not in present
        }
    else:
        # With an infeasible resize only the status counts, and it may lack requests that the spec has.
        from_status = has_actual_resources(pod)
        defaults = {
            name: amount
            for name, amount in ((CPU, _DEFAULT_CPU), (MEMORY, _DEFAULT_MEMORY))
            if from_status or _missing(containers, name)
        }
    if not defaults:
        return total.milli_cpu, total.memory
    filled = Resources.from_amounts(_sum_requests(pod, status_aware=True, pod_level=True, defaults=defaults))
    return filled.milli_cpu, filled.memory


def container_requests_with_defaults(pod: Pod) -> Resources:
    """Return the requests by which NodeResourcesFit scores an incoming pod: containers only, each with defaults.

    Pod-level requests and resizes are ignored (rules/node-plugins §11 quirk Q1; kept because placements show it).
    """
    if _is_plain(pod):
        requests = pod.spec.containers[0].resources.requests
        if CPU in requests and MEMORY in requests:
            return Resources.from_list(requests)
    defaults = {CPU: _DEFAULT_CPU, MEMORY: _DEFAULT_MEMORY}
    return Resources.from_amounts(_sum_requests(pod, status_aware=False, pod_level=False, defaults=defaults))

"""How much a pod asks for: the request arithmetic of Kubernetes 1.36.

Source of the rules: rules/node-plugins §8.1 and "Scheduler cache" section 5
(upstream ``component-helpers/resource/helpers.go`` and ``NodeInfo``).

All sums are exact (:class:`~kubesched.api.quantity.Quantity`); only the final vector is rounded, up.
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

#: What a container without a request is taken to ask for when nodes are scored.
DEFAULT_CPU_MILLI: Final = 100
DEFAULT_MEMORY: Final = 200 * 1024 * 1024

_DEFAULT_CPU: Final = Quantity.parse("100m")
_DEFAULT_MEMORY: Final = Quantity.parse("200Mi")
_ZERO: Final = Quantity(0)

Amounts = dict[str, Quantity]


@remembered(1 << 20)
def is_extended_resource(name: str) -> bool:
    """Whether a resource is extended: a domain outside kubernetes.io and no quota prefix."""
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and is_qualified_name(f"requests.{name}")
    )


@remembered(1 << 20)
def is_scalar_resource(name: str) -> bool:
    """Whether the scheduler counts a resource besides cpu, memory, ephemeral-storage and pods."""
    return (
        is_extended_resource(name) or name.startswith(("hugepages-", "attachable-volumes-")) or "kubernetes.io/" in name
    )


@remembered(1 << 20)
def may_be_devices(name: str) -> bool:
    """Whether a device class could serve a resource of this name."""
    return is_extended_resource(name) or name.startswith(EXTENDED_RESOURCE_PREFIX)


class Resources:
    """A resource vector in integers: milli-CPU, bytes, counts.

    ``scalars`` holds extended resources, huge pages and the like; a zero entry is an entry.
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
        """Read a resource list as written; names that are not counted are ignored.

        Raises:
            QuantityError: for a value that is not a quantity.
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
        """Round exact sums up into a vector."""
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
        """A new vector with the amounts of ``others`` added; ``allowed_pods`` is this one's."""
        cpu, memory, ephemeral, scalars = self.milli_cpu, self.memory, self.ephemeral_storage, dict(self.scalars)
        for other in others:
            cpu += other.milli_cpu
            memory += other.memory
            ephemeral += other.ephemeral_storage
            for name, amount in other.scalars.items():
                scalars[name] = scalars.get(name, 0) + amount
        return Resources(cpu, memory, ephemeral, self.allowed_pods, scalars)

    def get(self, name: str) -> int:
        """The amount of one resource, 0 when it is not in the vector."""
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
        """A hashable form (without the pod count): equal tuples are equal requests."""
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
    """The supported names in ``spec.resources``; non-empty means pod-level requests (limits) are set."""
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
    """The whole formula: containers, sidecars, init peaks, pod level, overhead, in exact amounts.

    ``limits`` sums limits in place of requests; overhead then only adds to resources that have a limit. The status
    knows of requests only: ``limits`` does not go with ``status_aware``.
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
    """Whether the status says what the pod or a container has been given: only then does it count in addition to the spec.

    A running pod has container statuses in any case; kubelets that cannot resize leave resources out of them.
    """
    status = pod.status
    if status.resources is not None:
        return True
    if not status.container_statuses and not status.init_container_statuses:
        return False
    return any(item.resources is not None for item in (*status.container_statuses, *status.init_container_statuses))


def _is_plain(pod: Pod) -> bool:
    """One container and nothing that complicates the sum: what most pods are."""
    spec = pod.spec
    return (
        len(spec.containers) == 1
        and not spec.init_containers
        and not spec.overhead
        and spec.resources is None
        and not has_actual_resources(pod)
    )


def pod_requests(pod: Pod, *, status_aware: bool = True, pod_level: bool = True) -> Resources:
    """What a pod asks for.

    ``status_aware`` counts in-place resizes (what a node is charged); without it, the spec alone counts
    (what an incoming pod is filtered by).

    Raises:
        QuantityError: for a request that is not a quantity.
    """
    if _is_plain(pod):
        return Resources.from_list(pod.spec.containers[0].resources.requests)
    return Resources.from_amounts(_sum_requests(pod, status_aware=status_aware, pod_level=pod_level))


def pod_request_amounts(pod: Pod, *, status_aware: bool = True) -> dict[str, Quantity]:
    """The exact request per resource name, counted by the scheduler or not."""
    return _sum_requests(pod, status_aware=status_aware, pod_level=True)


def pod_limit_amounts(pod: Pod) -> dict[str, Quantity]:
    """The exact limit per resource name, summed like requests; overhead adds to what is limited."""
    return _sum_requests(pod, status_aware=False, pod_level=True, limits=True)


def _missing(containers: Iterable[Container], name: str) -> bool:
    return any(name not in container.resources.requests for container in containers)


def nonzero_requests(pod: Pod, total: Resources) -> tuple[int, int]:
    """(milli-CPU, bytes) charged to a node for scoring: ``total`` with defaults for what is missing.

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
        # With an infeasible resize the status counts alone, and may lack what the spec has.
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
    """What NodeResourcesFit scores an incoming pod by: containers only, with defaults for every container.

    Pod-level requests and resizes are ignored (upstream quirk Q1, kept: it is visible in placements).
    """
    if _is_plain(pod):
        requests = pod.spec.containers[0].resources.requests
        if CPU in requests and MEMORY in requests:
            return Resources.from_list(requests)
    defaults = {CPU: _DEFAULT_CPU, MEMORY: _DEFAULT_MEMORY}
    return Resources.from_amounts(_sum_requests(pod, status_aware=False, pod_level=False, defaults=defaults))

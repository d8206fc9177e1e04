"""A pod with what the scheduler derives from it, computed once.

Source: spec "Scheduler cache" section 4.1 (upstream ``framework.PodInfo`` and ``QueuedPodInfo``).
Plugins receive :class:`PodInfo`; queue, cache and cycle pass the same object along.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from kubesched.api.requests import (
    Resources,
    container_requests_with_defaults,
    nonzero_requests,
    pod_requests,
)
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector
from kubesched.api.types import (
    Container,
    ContainerPort,
    Labels,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
)

__all__ = ["AffinityTerm", "HostPort", "PodInfo", "WeightedAffinityTerm", "host_ports", "pvc_keys"]

#: (ip, protocol, port), with the defaults ``0.0.0.0`` and ``TCP`` filled in.
HostPort = tuple[str, str, int]

_WILDCARD_IP: Final = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A processed (anti-)affinity term: which pods it means, and within which topology."""

    namespaces: frozenset[str]
    selector: Selector
    topology_key: str
    namespace_selector: Selector

    def matches(self, pod: Pod, namespace_labels: dict[str, str]) -> bool:
        """Whether the term means ``pod``; ``namespace_labels`` are those of the pod's namespace."""
        in_namespace = pod.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        return in_namespace and self.selector.matches(pod.metadata.labels)


@dataclass(frozen=True, slots=True)
class WeightedAffinityTerm:
    weight: int
    term: AffinityTerm


def _process_term(pod: Pod, term: PodAffinityTerm) -> AffinityTerm:
    own_namespace = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        namespaces=frozenset((pod.namespace,)) if own_namespace else frozenset(term.namespaces),
        selector=compile_label_selector(term.label_selector),
        topology_key=term.topology_key,
        namespace_selector=compile_label_selector(term.namespace_selector, "namespaceSelector"),
    )


def _required(pod: Pod, affinity: PodAffinity | None) -> tuple[AffinityTerm, ...]:
    """An invalid selector anywhere empties the whole list, as upstream."""
    try:
        return tuple(_process_term(pod, term) for term in affinity.required) if affinity else ()
    except SelectorError:
        return ()


def _preferred(pod: Pod, affinity: PodAffinity | None) -> tuple[WeightedAffinityTerm, ...]:
    try:
        return (
            tuple(
                WeightedAffinityTerm(item.weight, _process_term(pod, item.pod_affinity_term))
                for item in affinity.preferred
            )
            if affinity
            else ()
        )
    except SelectorError:
        return ()


def _wanted(port: ContainerPort) -> HostPort:
    return (port.host_ip or _WILDCARD_IP, port.protocol or "TCP", port.host_port)


def _port_containers(pod: Pod) -> tuple[Container, ...]:
    sidecars = tuple(item for item in pod.spec.init_containers if item.restart_policy == "Always")
    return (*sidecars, *pod.spec.containers) if sidecars else pod.spec.containers


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of sidecars and containers, in order (ordinary init containers do not count)."""
    return tuple(_wanted(port) for container in _port_containers(pod) for port in container.ports if port.host_port > 0)


def pvc_keys(pod: Pod) -> tuple[str, ...]:
    """``namespace/claim`` of every volume that names a claim, one per volume."""
    return tuple(
        f"{pod.namespace}/{volume.persistent_volume_claim.get('claimName', '')}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    )


class PodInfo:
    """A pod and the totals and terms derived from it.

    Attributes computed at once (every pod needs them):
        pod: the API object.
        requests: what a node is charged for the pod (status-aware).
        nonzero_cpu, nonzero_memory: milli-CPU and bytes charged for scoring, with defaults.
        ports: host ports.
        pvcs: claim keys.

    The rest is computed when first asked for.
    """

    def __init__(self, pod: Pod) -> None:
        """Derive the totals.

        Raises:
            QuantityError: when a request is not a quantity.
        """
        self.pod = pod
        self.requests: Resources = pod_requests(pod)
        self.nonzero_cpu, self.nonzero_memory = nonzero_requests(pod, self.requests)
        self.ports: tuple[HostPort, ...] = host_ports(pod)
        self.pvcs: tuple[str, ...] = pvc_keys(pod) if pod.spec.volumes else ()
        #: What the decision core remembers this pod's answers under; filled in by it, per plugin.
        self.signature: tuple[Hashable | None, ...] | None = None

    def with_pod(self, pod: Pod) -> PodInfo:
        """The same derived data around another version of the pod (see :meth:`derive` for what must not differ)."""
        twin = PodInfo.__new__(PodInfo)
        twin.__dict__.update(self.__dict__)
        twin.pod = pod
        twin.signature = None
        return twin

    @classmethod
    def derive(cls, pod: Pod, like: PodInfo | None) -> PodInfo:
        """A PodInfo for another version of a pod, reusing what was derived where it cannot have changed.

        Raises:
            QuantityError: when a request is not a quantity.
        """
        if like is not None:
            old, new, before, after = like.pod.spec, pod.spec, like.pod.status, pod.status
            if (
                not before.container_statuses
                and not after.container_statuses
                and before.init_container_statuses == after.init_container_statuses
                and before.resources == after.resources
                and before.allocated_resources == after.allocated_resources
                and old.containers == new.containers
                and old.init_containers == new.init_containers
                and old.overhead == new.overhead
                and old.resources == new.resources
                and old.volumes == new.volumes
                and old.affinity == new.affinity
                and like.pod.metadata.namespace == pod.metadata.namespace
            ):
                return like.with_pod(pod)
        return cls(pod)

    def counts_like(self, other: PodInfo) -> bool:
        """Whether a node's accounts and the rules between pods cannot tell the two apart (same pod, same place)."""
        mine, its = self.pod, other.pod
        return (
            mine.metadata.uid == its.metadata.uid
            and mine.spec.node_name == its.spec.node_name
            and mine.metadata.labels == its.metadata.labels
            and mine.metadata.namespace == its.metadata.namespace
            and mine.metadata.deletion_timestamp == its.metadata.deletion_timestamp
            and self.requests == other.requests
            and self.nonzero_cpu == other.nonzero_cpu
            and self.nonzero_memory == other.nonzero_memory
            and self.ports == other.ports
            and self.pvcs == other.pvcs
            and mine.spec.affinity == its.spec.affinity
            and mine.priority == its.priority
        )

    @property
    def metadata(self) -> ObjectMeta:
        return self.pod.metadata

    @property
    def spec(self) -> PodSpec:
        return self.pod.spec

    @property
    def status(self) -> PodStatus:
        return self.pod.status

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def labels(self) -> Labels:
        return self.pod.metadata.labels

    @property
    def priority(self) -> int:
        """``spec.priority``, 0 when unset."""
        return self.pod.spec.priority or 0

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        return self.pod.key

    @cached_property
    def fit_requests(self) -> Resources:
        """What an incoming pod is filtered by: the spec alone, resizes not counted."""
        status = self.pod.status
        if not status.container_statuses and not status.init_container_statuses and status.resources is None:
            return self.requests
        return pod_requests(self.pod, status_aware=False)

    @cached_property
    def score_requests(self) -> Resources:
        """What NodeResourcesFit scores an incoming pod by (upstream quirk Q1)."""
        return container_requests_with_defaults(self.pod)

    @cached_property
    def required_affinity(self) -> tuple[AffinityTerm, ...]:
        affinity = self.pod.spec.affinity
        return _required(self.pod, affinity.pod_affinity) if affinity else ()

    @cached_property
    def required_anti_affinity(self) -> tuple[AffinityTerm, ...]:
        affinity = self.pod.spec.affinity
        return _required(self.pod, affinity.pod_anti_affinity) if affinity else ()

    @cached_property
    def preferred_affinity(self) -> tuple[WeightedAffinityTerm, ...]:
        affinity = self.pod.spec.affinity
        return _preferred(self.pod, affinity.pod_affinity) if affinity else ()

    @cached_property
    def preferred_anti_affinity(self) -> tuple[WeightedAffinityTerm, ...]:
        affinity = self.pod.spec.affinity
        return _preferred(self.pod, affinity.pod_anti_affinity) if affinity else ()

    @property
    def has_affinity(self) -> bool:
        """``podAffinity`` or ``podAntiAffinity`` is present, even if empty."""
        affinity = self.pod.spec.affinity
        return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)

    def __repr__(self) -> str:
        return f"<PodInfo {self.key}>"

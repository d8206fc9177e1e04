"""A pod with what the scheduler derives from it, computed once.

Source: rules/cache-and-events §4.1 (upstream ``framework.PodInfo`` and ``QueuedPodInfo``).
Plugins receive :class:`PodInfo`; queue, cache and cycle pass the same object along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kubesched.api.requests import (
    Resources,
    container_requests_with_defaults,
    has_actual_resources,
    may_be_devices,
    nonzero_requests,
    pod_requests,
)
from kubesched.api.selectors import Selector, SelectorError, compile_label_selector, label_selector_problem
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
    Volume,
)

from .disks import DiskUse, disk_uses

__all__ = [
    "NO_AFFINITY_TERMS",
    "AffinityTerm",
    "AffinityTerms",
    "HostPort",
    "PodInfo",
    "WeightedAffinityTerm",
    "affinity_terms",
    "host_ports",
]

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


def _process_term(namespace: str, term: PodAffinityTerm) -> AffinityTerm:
    own_namespace = not term.namespaces and term.namespace_selector is None
    return AffinityTerm(
        namespaces=frozenset((namespace,)) if own_namespace else frozenset(term.namespaces),
        selector=compile_label_selector(term.label_selector),
        topology_key=term.topology_key,
        namespace_selector=compile_label_selector(term.namespace_selector, "namespaceSelector"),
    )


class AffinityTerms:
    """The four lists of (anti-)affinity terms of a pod, compiled. Pods with equal terms share one of these.

    A list with an invalid selector is empty, as upstream; ``errors`` says what is wrong with it, in
    upstream's words: the message an incoming pod is rejected with.
    """

    __slots__ = ("_hash", "_key", "errors", "preferred", "preferred_anti", "required", "required_anti")

    def __init__(self, key: tuple[str, bytes], affinity: PodAffinity | None, anti: PodAffinity | None) -> None:
        self._key = key
        self._hash = hash(key)
        errors: list[str] = []
        namespace = key[0]
        self.required = _required(namespace, affinity, "requiredAffinityTerms", errors)
        self.required_anti = _required(namespace, anti, "requiredAntiAffinityTerms", errors)
        self.preferred = _preferred(namespace, affinity, "preferredAffinityTerms", errors)
        self.preferred_anti = _preferred(namespace, anti, "preferredAntiAffinityTerms", errors)
        self.errors = tuple(errors)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, AffinityTerms) and self._key == other._key)


def _required(namespace: str, affinity: PodAffinity | None, name: str, errors: list[str]) -> tuple[AffinityTerm, ...]:
    if affinity is None:
        return ()
    try:
        return tuple([_process_term(namespace, term) for term in affinity.required])
    except SelectorError:
        errors.append(f"{name}: {_first_problem(affinity.required)}")
        return ()


def _preferred(
    namespace: str, affinity: PodAffinity | None, name: str, errors: list[str]
) -> tuple[WeightedAffinityTerm, ...]:
    if affinity is None:
        return ()
    terms = [item.pod_affinity_term for item in affinity.preferred]
    try:
        compiled = [_process_term(namespace, term) for term in terms]
    except SelectorError:
        errors.append(f"{name}: {_first_problem(terms)}")
        return ()
    return tuple(
        [WeightedAffinityTerm(item.weight, term) for item, term in zip(affinity.preferred, compiled, strict=True)]
    )


def _first_problem(terms: Sequence[PodAffinityTerm]) -> str:
    """Upstream's message for the first selector it cannot parse."""
    problems = (
        label_selector_problem(selector)
        for term in terms
        for selector in (term.label_selector, term.namespace_selector)
    )
    return next(filter(None, problems), "")


NO_AFFINITY_TERMS: Final = AffinityTerms(("", b""), None, None)
#: Compiled terms by owner namespace and text; emptied when it grows too large.
_COMPILED: Final[dict[tuple[str, bytes], AffinityTerms]] = {}
_MOST_COMPILED: Final = 8192


def affinity_terms(pod: Pod) -> AffinityTerms:
    """A pod's terms about other pods, compiled; equal ones are shared."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.pod_affinity is None and affinity.pod_anti_affinity is None):
        return NO_AFFINITY_TERMS
    key = (pod.namespace, msgspec.msgpack.encode((affinity.pod_affinity, affinity.pod_anti_affinity)))
    terms = _COMPILED.get(key)
    if terms is None:
        if len(_COMPILED) >= _MOST_COMPILED:
            _COMPILED.clear()
        terms = _COMPILED[key] = AffinityTerms(key, affinity.pod_affinity, affinity.pod_anti_affinity)
    return terms


def _wanted(port: ContainerPort) -> HostPort:
    return (port.host_ip or _WILDCARD_IP, port.protocol or "TCP", port.host_port)


def _port_containers(pod: Pod) -> tuple[Container, ...]:
    sidecars = tuple(item for item in pod.spec.init_containers if item.restart_policy == "Always")
    return (*sidecars, *pod.spec.containers) if sidecars else pod.spec.containers


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """The host ports of sidecars and containers, in order (ordinary init containers do not count)."""
    return tuple(_wanted(port) for container in _port_containers(pod) for port in container.ports if port.host_port > 0)


def _pvc_keys(namespace: str, storage: tuple[Volume, ...]) -> tuple[str, ...]:
    """``namespace/claim`` of every volume that names a claim, one per volume."""
    return tuple(
        f"{namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in storage
        if volume.persistent_volume_claim is not None
    )


class PodInfo:
    """A pod and the totals and terms derived from it.

    Attributes computed at once (every pod needs them):
        pod: the API object.
        requests: what a node is charged for the pod (status-aware).
        nonzero_cpu, nonzero_memory: milli-CPU and bytes charged for scoring, with defaults.
        ports: host ports.
        storage: the volumes that storage plugins may have to do with.
        pvcs: the keys of the claims that volumes name.
        disks: the disks that volumes name without a claim.

    The rest is computed when first asked for.
    """

    __slots__ = (
        "_affinity_terms",
        "_fit_requests",
        "_score_requests",
        "disks",
        "model",
        "nonzero_cpu",
        "nonzero_memory",
        "pod",
        "ports",
        "pvcs",
        "requests",
        "signature",
        "storage",
    )

    def __init__(self, pod: Pod) -> None:
        """Derive the totals.

        Raises:
            QuantityError: when a request is not a quantity.
        """
        self.pod = pod
        self.requests: Resources = pod_requests(pod)
        self.nonzero_cpu, self.nonzero_memory = nonzero_requests(pod, self.requests)
        self.ports: tuple[HostPort, ...] = host_ports(pod)
        volumes = pod.spec.volumes
        self.storage: tuple[Volume, ...] = tuple([one for one in volumes if one.has_storage]) if volumes else ()
        self.pvcs: tuple[str, ...] = _pvc_keys(pod.metadata.namespace, self.storage) if self.storage else ()
        self.disks: tuple[DiskUse, ...] = disk_uses(self.storage) if self.storage else ()
        #: What the decision core remembers this pod's answers under; filled in by it, per plugin.
        self.signature: Any = None
        #: A pod with the same spec object, in the same namespace, if one is known.
        self.model: PodInfo | None = None
        self._fit_requests: Resources | None = None
        self._score_requests: Resources | None = None
        self._affinity_terms: AffinityTerms | None = None

    def with_pod(self, pod: Pod) -> PodInfo:
        """The same derived data around another version of the pod (see :meth:`derive` for what must not differ)."""
        twin = PodInfo.__new__(PodInfo)
        twin.pod = pod
        twin.requests = self.requests
        twin.nonzero_cpu, twin.nonzero_memory = self.nonzero_cpu, self.nonzero_memory
        twin.ports, twin.storage, twin.pvcs, twin.disks = self.ports, self.storage, self.pvcs, self.disks
        twin._fit_requests, twin._score_requests = self._fit_requests, self._score_requests
        twin._affinity_terms = self._affinity_terms
        twin.signature = twin.model = None
        return twin

    def alike(self, pod: Pod) -> PodInfo:
        """A PodInfo for another pod with the same spec object, in the same namespace."""
        twin = self.with_pod(pod)
        twin.model = self
        return twin

    def derive_all(self) -> None:
        """Compute what is otherwise computed when first asked for, so that twins share it."""
        _ = self.fit_requests, self.score_requests, self.affinity_terms

    def on_node(self, node_name: str) -> PodInfo:
        """The pod with its node filled in."""
        return self.with_pod(self.pod.on_node(node_name))

    @classmethod
    def derive(cls, pod: Pod, like: PodInfo | None) -> PodInfo:
        """A PodInfo for another version of a pod, reusing what was derived where it cannot have changed.

        Raises:
            QuantityError: when a request is not a quantity.
        """
        if like is not None:
            if like.pod is pod:
                return like
            old, new = like.pod.spec, pod.spec
            if (
                not has_actual_resources(like.pod)
                and not has_actual_resources(pod)
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
        """Whether a node's accounts and the rules between pods cannot distinguish the two (same pod, same node)."""
        mine, its = self.pod, other.pod
        return (
            mine.metadata.uid == its.metadata.uid
            and mine.spec.node_name == its.spec.node_name
            and mine.metadata.labels == its.metadata.labels
            and mine.metadata.namespace == its.metadata.namespace
            and mine.metadata.deletion_timestamp == its.metadata.deletion_timestamp
            and (self.requests is other.requests or self.requests == other.requests)
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

    @property
    def has_device_requests(self) -> bool:
        """Whether the pod requests, or claims, what may be devices."""
        if self.pod.spec.resource_claims:
            return True
        scalars = self.requests.scalars
        return bool(scalars) and any(map(may_be_devices, scalars))

    @property
    def fit_requests(self) -> Resources:
        """What an incoming pod is filtered by: the spec alone, resizes not counted."""
        if self._fit_requests is None:
            actual = has_actual_resources(self.pod)
            self._fit_requests = pod_requests(self.pod, status_aware=False) if actual else self.requests
        return self._fit_requests

    @fit_requests.setter
    def fit_requests(self, requests: Resources) -> None:
        self._fit_requests = requests

    @property
    def score_requests(self) -> Resources:
        """What NodeResourcesFit scores an incoming pod by (upstream quirk Q1)."""
        if self._score_requests is None:
            self._score_requests = container_requests_with_defaults(self.pod)
        return self._score_requests

    @property
    def affinity_terms(self) -> AffinityTerms:
        """The pod's terms about other pods, compiled."""
        if self._affinity_terms is None:
            self._affinity_terms = affinity_terms(self.pod)
        return self._affinity_terms

    @property
    def has_affinity(self) -> bool:
        """``podAffinity`` or ``podAntiAffinity`` is present, even if empty."""
        affinity = self.pod.spec.affinity
        return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)

    def __repr__(self) -> str:
        return f"<PodInfo {self.key}>"

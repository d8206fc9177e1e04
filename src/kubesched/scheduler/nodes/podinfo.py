"""Pod info: a pod with the data that the scheduler derives from it, computed once.

Plugins receive :class:`PodInfo`; queue, cache and cycle pass on the same object.

Source: rules/cache-and-events §4.1 (upstream ``framework.PodInfo``).
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

#: (IP, protocol, port), with the defaults ``0.0.0.0`` and ``TCP`` filled in.
HostPort = tuple[str, str, int]

WILDCARD_IP: Final = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Compiled term of pod affinity or anti-affinity: selectors of pods and namespaces, and a topology key."""

    namespaces: frozenset[str]
    selector: Selector
    topology_key: str
    namespace_selector: Selector

    def matches(self, pod: Pod, namespace_labels: dict[str, str]) -> bool:
        """Return True if the term selects ``pod``; ``namespace_labels`` are the labels of the pod's namespace."""
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
    """Compiled affinity and anti-affinity terms of a pod, in four lists. Pods with equal terms share one object.

    A list with an invalid selector is empty, as upstream. Its entry in ``errors`` is the message with which an incoming
    pod is rejected, in upstream's words.
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
    """Return upstream's message for the first selector that cannot be parsed."""
    problems = (
        label_selector_problem(selector)
        for term in terms
        for selector in (term.label_selector, term.namespace_selector)
    )
    return next(filter(None, problems), "")


NO_AFFINITY_TERMS: Final = AffinityTerms(("", b""), None, None)
#: Compiled terms by the pod's namespace and the terms' text.
_COMPILED: Final[dict[tuple[str, bytes], AffinityTerms]] = {}
#: Number of entries at which the compiled terms are emptied.
_MOST_COMPILED: Final = 8192


def affinity_terms(pod: Pod) -> AffinityTerms:
    """Return a pod's compiled terms about other pods; equal terms are one object."""
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
    return (port.host_ip or WILDCARD_IP, port.protocol or "TCP", port.host_port)


def _port_containers(pod: Pod) -> tuple[Container, ...]:
    sidecars = tuple(item for item in pod.spec.init_containers if item.restart_policy == "Always")
    return (*sidecars, *pod.spec.containers) if sidecars else pod.spec.containers


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports of sidecars and containers, in order (ordinary init containers do not count)."""
    return tuple(_wanted(port) for container in _port_containers(pod) for port in container.ports if port.host_port > 0)


def _pvc_keys(namespace: str, storage: tuple[Volume, ...]) -> tuple[str, ...]:
    """Return ``namespace/claim`` for every volume that names a claim."""
    return tuple(
        f"{namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in storage
        if volume.persistent_volume_claim is not None
    )


class PodInfo:
    """Pod with the amounts and terms derived from it.

    Attributes that are computed at once, because every pod needs them:
        pod: the API object.
        requests: amounts that a node is charged for the pod; a resize in the pod's status counts.
        nonzero_cpu, nonzero_memory: milli-CPU and bytes charged for scoring, with defaults.
        ports: host ports.
        storage: volumes that storage plugins may have to handle.
        pvcs: keys of the claims that the volumes name.
        disks: disks that the volumes name without a claim.

    Other data is computed at its first use.
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
        #: Keys of the pod's questions to the plugins, kept here by the decision core; None until it has asked.
        self.signature: Any = None
        #: Pod with the same spec object in the same namespace, if one is known.
        self.model: PodInfo | None = None
        self._fit_requests: Resources | None = None
        self._score_requests: Resources | None = None
        self._affinity_terms: AffinityTerms | None = None

    def with_pod(self, pod: Pod) -> PodInfo:
        """Return a PodInfo with this derived data for another version of the pod.

        :meth:`derive` says which fields of the versions must be equal.
        """
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
        """Return a PodInfo with this derived data for another pod with the same spec object in the same namespace."""
        twin = self.with_pod(pod)
        twin.model = self
        return twin

    def derive_all(self) -> None:
        """Compute the data that is otherwise computed at its first use, so that later copies share it."""
        _ = self.fit_requests, self.score_requests, self.affinity_terms

    def on_node(self, node_name: str) -> PodInfo:
        """Return the pod with its node filled in."""
        return self.with_pod(self.pod.on_node(node_name))

    @classmethod
    def derive(cls, pod: Pod, like: PodInfo | None) -> PodInfo:
        """Return a PodInfo for another version of a pod; it takes over the derived data that cannot have changed.

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
        """Return True for two versions of a pod on one node that count equally in sums and in rules between pods."""
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
        """Priority of the pod: ``spec.priority``; 0 if unset."""
        return self.pod.spec.priority or 0

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        return self.pod.key

    @property
    def has_device_requests(self) -> bool:
        """True if the pod has resource claims, or requests a resource that may stand for devices."""
        if self.pod.spec.resource_claims:
            return True
        scalars = self.requests.scalars
        return bool(scalars) and any(map(may_be_devices, scalars))

    @property
    def fit_requests(self) -> Resources:
        """Requests that an incoming pod is filtered by: the spec alone, without a resize in the status."""
        if self._fit_requests is None:
            actual = has_actual_resources(self.pod)
            self._fit_requests = pod_requests(self.pod, status_aware=False) if actual else self.requests
        return self._fit_requests

    @fit_requests.setter
    def fit_requests(self, requests: Resources) -> None:
        self._fit_requests = requests

    @property
    def score_requests(self) -> Resources:
        """Requests that NodeResourcesFit scores an incoming pod by (rules/node-plugins §11 quirk 1)."""
        if self._score_requests is None:
            self._score_requests = container_requests_with_defaults(self.pod)
        return self._score_requests

    @property
    def affinity_terms(self) -> AffinityTerms:
        """Compiled terms of the pod about other pods."""
        if self._affinity_terms is None:
            self._affinity_terms = affinity_terms(self.pod)
        return self._affinity_terms

    @property
    def has_affinity(self) -> bool:
        """True if ``podAffinity`` or ``podAntiAffinity`` is present, even if it is empty."""
        affinity = self.pod.spec.affinity
        return affinity is not None and (affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None)

    def __repr__(self) -> str:
        return f"<PodInfo {self.key}>"

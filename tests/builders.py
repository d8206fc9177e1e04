"""Builders for pods and nodes: a test says what matters to it and nothing else.

Used by the tests of every package. ``a_pod("web", cpu="1", on="n1")`` is a pod; ``a_node("n1", cpu="4")`` is a
node that allows 110 pods by default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kubesched.api.kinds import NODES
from kubesched.api.types import (
    Affinity,
    Container,
    ContainerImage,
    ContainerPort,
    Node,
    NodeAffinity,
    NodeCondition,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    Toleration,
    Volume,
)
from kubesched.api.volume_sources import ClaimSource
from kubesched.cluster.kubelets import make_nodes
from kubesched.cluster.schema import Stored
from kubesched.cluster.store import Store
from kubesched.scheduler.core.observer import AttemptObserver
from kubesched.scheduler.framework.metrics import SchedulerMetrics
from kubesched.scheduler.framework.plugin_times import Stopwatch
from kubesched.scheduler.framework.preemption import Preemption
from kubesched.scheduler.nodes.podinfo import PodInfo

__all__ = [
    "Preemptions",
    "a_container",
    "a_node",
    "a_pod",
    "a_port",
    "a_taint",
    "a_toleration",
    "an_image",
    "create_nodes",
    "field_term",
    "info",
    "node_affinity",
    "requirement",
    "selector_of",
    "term",
]

Amounts = Mapping[str, str | int | float]
MIB = 1024 * 1024


def a_container(
    name: str = "c",
    requests: Amounts | None = None,
    *,
    image: str = "",
    ports: Iterable[ContainerPort] = (),
    always: bool = False,
    **more: Any,
) -> Container:
    """A container; ``always`` makes an init container a sidecar."""
    return Container(
        name=name,
        image=image,
        resources=ResourceRequirements(requests=dict(requests or {})),
        ports=tuple(ports),
        restart_policy="Always" if always else None,
        **more,
    )


def a_port(host_port: int, protocol: str = "", ip: str = "") -> ContainerPort:
    return ContainerPort(container_port=host_port, host_port=host_port, protocol=protocol, host_ip=ip)


def a_pod(
    name: str = "p",
    *,
    namespace: str = "ns",
    uid: str | None = None,
    on: str = "",
    nominated: str = "",
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    requests: Amounts | None = None,
    cpu: str = "",
    memory: str = "",
    image: str = "",
    ports: Iterable[ContainerPort] = (),
    containers: Iterable[Container] | None = None,
    init: Iterable[Container] = (),
    overhead: Amounts | None = None,
    pod_level: Amounts | None = None,
    tolerations: Iterable[Toleration] = (),
    node_selector: Mapping[str, str] | None = None,
    affinity: NodeAffinity | None = None,
    gates: Iterable[str] = (),
    claims: Iterable[str] = (),
    scheduler: str = "default-scheduler",
    status: PodStatus | None = None,
    **spec: Any,
) -> Pod:
    """A pod with one container (unless ``containers`` are given); its UID is its name with ``-uid``."""
    asked = {**({"cpu": cpu} if cpu else {}), **({"memory": memory} if memory else {}), **(requests or {})}
    if containers is None:
        containers = (a_container("c", asked, image=image, ports=ports),)
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=f"{name}-uid" if uid is None else uid, labels=dict(labels or {})
        ),
        spec=PodSpec(
            node_name=on,
            scheduler_name=scheduler,
            priority=priority,
            containers=tuple(containers),
            init_containers=tuple(init),
            overhead=dict(overhead or {}),
            resources=None if pod_level is None else ResourceRequirements(requests=dict(pod_level)),
            tolerations=tuple(tolerations),
            node_selector=None if node_selector is None else dict(node_selector),
            affinity=None if affinity is None else Affinity(node_affinity=affinity),
            scheduling_gates=tuple(PodSchedulingGate(name=gate) for gate in gates),
            volumes=tuple(
                Volume(name=f"v{index}", persistent_volume_claim=ClaimSource(claim_name=claim))
                for index, claim in enumerate(claims)
            ),
            **spec,
        ),
        status=status if status is not None else PodStatus(nominated_node_name=nominated),
    )


def info(pod: Pod | None = None, **wanted: Any) -> PodInfo:
    """A PodInfo of a pod, or of ``a_pod(**wanted)``."""
    return PodInfo(a_pod(**wanted) if pod is None else pod)


def an_image(name: str, mib: int) -> ContainerImage:
    return ContainerImage(names=(name,), size_bytes=mib * MIB)


def a_node(
    name: str = "n",
    *,
    labels: Mapping[str, str] | None = None,
    zone: str = "",
    annotations: Mapping[str, str] | None = None,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: str | int = 110,
    allocatable: Amounts | None = None,
    exactly: Amounts | None = None,
    taints: Iterable[Taint] = (),
    unschedulable: bool = False,
    images: Iterable[ContainerImage] = (),
    features: Iterable[str] = (),
    conditions: Mapping[str, str] | None = None,
) -> Node:
    """A node. ``allocatable`` adds to cpu, memory and pods; ``exactly`` stands in place of all of them."""
    amounts = {"cpu": cpu, "memory": memory, "pods": pods, **(allocatable or {})} if exactly is None else exactly
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=f"{name}-uid",
            labels={**({"topology.kubernetes.io/zone": zone} if zone else {}), **(labels or {})},
            annotations=dict(annotations or {}),
        ),
        spec=NodeSpec(unschedulable=unschedulable, taints=tuple(taints)),
        status=NodeStatus(
            allocatable=dict(amounts),
            images=tuple(images),
            declared_features=tuple(features),
            conditions=tuple(NodeCondition(type=kind, status=state) for kind, state in (conditions or {}).items()),
        ),
    )


def a_taint(text: str) -> Taint:
    """``key=value:Effect`` or ``key:Effect``."""
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    return Taint(key=key, value=value, effect=effect)


def a_toleration(text: str, operator: str = "") -> Toleration:
    """``key=value:Effect``, ``key:Effect``, ``key`` or nothing; the operator is Exists unless there is a ``=``."""
    head, colon, effect = text.rpartition(":")
    if not colon:
        head, effect = text, ""
    key, equal, value = head.partition("=")
    return Toleration(key=key, value=value, effect=effect, operator=operator or ("Equal" if equal else "Exists"))


def requirement(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def term(*expressions: NodeSelectorRequirement, fields: Sequence[NodeSelectorRequirement] = ()) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=expressions, match_fields=tuple(fields))


def field_term(*names: str) -> NodeSelectorTerm:
    """A term that asks for nodes by name."""
    return term(fields=[requirement("metadata.name", "In", *names)])


def selector_of(*terms: NodeSelectorTerm) -> NodeSelector:
    return NodeSelector(node_selector_terms=terms)


def node_affinity(
    required: Iterable[NodeSelectorTerm] | None = None,
    preferred: Iterable[tuple[int, NodeSelectorTerm]] | None = None,
) -> NodeAffinity:
    """Node affinity; None leaves a part out, an empty list makes it present and empty."""
    return NodeAffinity(
        required_during_scheduling_ignored_during_execution=None if required is None else selector_of(*required),
        preferred_during_scheduling_ignored_during_execution=None
        if preferred is None
        else tuple(PreferredSchedulingTerm(weight=weight, preference=item) for weight, item in preferred),
    )


def create_nodes(
    store: Store, count: int, template: Mapping[str, Any] | None = None, *, zones: Sequence[str] = ()
) -> list[Stored]:
    """Hollow nodes in a store."""
    return [store.create(NODES, "", node) for node in make_nodes(count, template, zones=zones)]


class Preemptions(AttemptObserver):
    """Observer that passes every preemption on."""

    def __init__(self, take: Callable[[Preemption], None]) -> None:
        self._take = take

    def preempted(self, preemption: Preemption) -> None:
        self._take(preemption)


def a_stopwatch() -> Stopwatch:
    """A stopwatch that is never on."""
    return Stopwatch(SchedulerMetrics(), lambda: 0.0)

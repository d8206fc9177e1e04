"""Random nodes and pods for the node-level plugins: ordinary ones, and the odd ones that break arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from builders import MIB, a_container, requirement
from kubesched.api.types import (
    Affinity,
    Container,
    ContainerImage,
    ContainerPort,
    ContainerRestartRule,
    ContainerStatus,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    ResourceRequirements,
    Taint,
    Toleration,
    Volume,
)

NODE_NAMES = tuple(f"n{index}" for index in range(6))
EXTENDED = ("example.com/gpu", "example.com/fpga", "other.org/tape")
SCALARS = (*EXTENDED, "hugepages-2Mi", "attachable-volumes-csi", "pods.kubernetes.io/odd")
IMAGES = ("app:latest", "db:1", "reg.io:5000/tool:latest", "huge:latest")
FEATURES = ("RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "Unknown")
CORDON = "node.kubernetes.io/unschedulable"


@dataclass
class Cluster:
    """Nodes in the order in which they are added, and the pods on each."""

    nodes: list[Node]
    pods: dict[str, list[Pod]] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """Image sizes as first recorded."""
        sizes: dict[str, int] = {}
        for node in self.nodes:
            for image in node.status.images:
                for name in image.names:
                    sizes.setdefault(name, image.size_bytes)
        return sizes


# -- amounts -----------------------------------------------------------------------------------------------

_cpu = st.sampled_from(["0", "1m", "100m", "250m", "999999n", "1", "1.5", "3", "2500u"])
_bytes = st.sampled_from(["0", "1", "100m", "64Mi", "200Mi", "1Gi", "3Gi", "1.5G"])
_count = st.sampled_from(["0", "1", "2", "3", "1500m"])
_huge = st.sampled_from(["9223372036854775807", "4611686018427387904", "8E", "92233720368547758", "100P"])


@st.composite
def amounts(draw: st.DrawFn, huge: bool = False) -> dict[str, str | int | float]:
    """A resource list: any of cpu, memory, ephemeral storage, scalars and a name that is not counted."""
    kinds: dict[str, st.SearchStrategy[str]] = {
        "cpu": _cpu,
        "memory": _bytes,
        "ephemeral-storage": _bytes,
        "storage": _bytes,
        **dict.fromkeys(SCALARS, _count),
    }
    names = draw(st.lists(st.sampled_from([*kinds, "cpu", "memory", "cpu", "memory"]), max_size=4, unique=True))
    chance = 12 if huge else 40
    return {name: draw(_huge if draw(st.integers(0, chance)) == 0 else kinds[name]) for name in names}


@st.composite
def capacities(draw: st.DrawFn) -> dict[str, str | int | float]:
    result: dict[str, str | int | float] = {}
    if draw(st.integers(0, 9)):
        result["cpu"] = draw(st.sampled_from(["0", "500m", "2", "4", "7"]))
    if draw(st.integers(0, 9)):
        result["memory"] = draw(st.sampled_from(["0", "512Mi", "2Gi", "8Gi", "8191Mi"]))
    if draw(st.integers(0, 9)):
        result["pods"] = draw(st.sampled_from([0, 1, 2, 5, 110]))
    if draw(st.booleans()):
        result["ephemeral-storage"] = draw(_bytes)
    for name in draw(st.lists(st.sampled_from(SCALARS), max_size=3, unique=True)):
        result[name] = draw(_count)
    if result and draw(st.integers(0, 7)) == 0:
        result[draw(st.sampled_from(sorted(result)))] = draw(_huge)
    return result


# -- nodes -------------------------------------------------------------------------------------------------

_label_values = st.sampled_from(["a", "b", "", "5", "0206", "-3", "99999999999999999999"])
labels = st.dictionaries(st.sampled_from(["zone", "disk", "example.com/rank"]), _label_values, max_size=3)

_effects = ["NoSchedule", "PreferNoSchedule", "NoExecute", "Odd"]
taints = st.builds(
    Taint,
    key=st.sampled_from(["k", "l", CORDON]),
    value=st.sampled_from(["", "x", "y"]),
    effect=st.sampled_from(_effects),
)
tolerations = st.builds(
    Toleration,
    key=st.sampled_from(["", "k", "l", CORDON]),
    operator=st.sampled_from(["", "Equal", "Exists", "Gt", "Lt", "Odd"]),
    value=st.sampled_from(["", "x", "y"]),
    effect=st.sampled_from(["", *_effects]),
)
_images = st.builds(
    ContainerImage,
    names=st.lists(st.sampled_from(IMAGES), min_size=1, max_size=2, unique=True).map(tuple),
    size_bytes=st.sampled_from([0, 10 * MIB, 300 * MIB, 500 * MIB + 1, 5000 * MIB]),
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, uid=f"{name}-uid", labels=draw(labels)),
        spec=NodeSpec(unschedulable=draw(st.booleans()), taints=tuple(draw(st.lists(taints, max_size=3)))),
        status=NodeStatus(
            allocatable=draw(capacities()),
            images=tuple(draw(st.lists(_images, max_size=2))),
            declared_features=tuple(sorted(draw(st.sets(st.sampled_from(FEATURES))))),
        ),
    )


# -- pods --------------------------------------------------------------------------------------------------

_ports = st.builds(
    ContainerPort,
    container_port=st.just(80),
    host_port=st.sampled_from([0, 80, 81, -1]),
    host_ip=st.sampled_from(["", "0.0.0.0", "10.0.0.1", "10.0.0.2"]),
    protocol=st.sampled_from(["", "TCP", "UDP"]),
)
_image_names = st.sampled_from(["app", "app:latest", "db:1", "db", "reg.io:5000/tool", "huge", "a@sha256:x"])


@st.composite
def containers(draw: st.DrawFn, name: str, *, init: bool = False) -> Container:
    return a_container(
        name,
        draw(amounts()),
        image=draw(_image_names),
        ports=draw(st.lists(_ports, max_size=2)),
        always=init and draw(st.booleans()),
        restart_policy_rules=draw(st.sampled_from([(), (), (ContainerRestartRule(action="RestartAllContainers"),)])),
    )


@st.composite
def statuses(draw: st.DrawFn, name: str) -> ContainerStatus:
    resources = None if draw(st.integers(0, 3)) == 0 else ResourceRequirements(requests=draw(amounts()))
    return ContainerStatus(name=name, resources=resources, allocated_resources=draw(amounts()))


_requirements = st.one_of(
    st.builds(
        lambda key, operator, values: requirement(key, operator, *values),
        st.sampled_from(["zone", "disk", "example.com/rank", "bad key"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(_label_values, max_size=2),
    ),
    st.builds(requirement, st.sampled_from(["zone", "disk"]), st.sampled_from(["Exists", "DoesNotExist", "Odd"])),
    st.builds(
        requirement,
        st.sampled_from(["zone", "example.com/rank"]),
        st.sampled_from(["Gt", "Lt"]),
        st.sampled_from(["4", "0206", "x", "300"]),
    ),
)
_fields = st.builds(
    lambda key, operator, names: NodeSelectorRequirement(key=key, operator=operator, values=tuple(names)),
    st.sampled_from(["metadata.name", "metadata.name", "metadata.name", "spec.odd"]),
    st.sampled_from(["In", "In", "NotIn", "Exists"]),
    st.lists(st.sampled_from([*NODE_NAMES[:3], "gone", ""]), min_size=1, max_size=2),
)
node_terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(_requirements, max_size=2).map(tuple),
    match_fields=st.one_of(st.just(()), st.lists(_fields, max_size=1).map(tuple)),
)
preferred = st.lists(
    st.builds(PreferredSchedulingTerm, weight=st.sampled_from([0, 1, 5, 100]), preference=node_terms), max_size=3
).map(tuple)
affinities = st.builds(
    NodeAffinity,
    required_during_scheduling_ignored_during_execution=st.none()
    | st.builds(NodeSelector, node_selector_terms=st.lists(node_terms, max_size=3).map(tuple)),
    preferred_during_scheduling_ignored_during_execution=st.none() | preferred,
)


@st.composite
def pods(draw: st.DrawFn, name: str = "pending", on: str = "", *, names_a_node: bool = False) -> Pod:
    """A pod; ``names_a_node`` lets an incoming one ask for a node by name."""
    own = [draw(containers(f"c{index}")) for index in range(draw(st.integers(1, 2)))]
    before = [draw(containers(f"i{index}", init=True)) for index in range(draw(st.sampled_from([0, 0, 1, 2])))]
    status = PodStatus()
    if draw(st.integers(0, 2)) == 0:
        status = PodStatus(
            container_statuses=tuple(draw(statuses(item.name)) for item in own),
            init_container_statuses=tuple(draw(statuses(item.name)) for item in before),
            resources=ResourceRequirements(requests=draw(amounts())) if draw(st.booleans()) else None,
            allocated_resources=draw(amounts()),
            conditions=draw(
                st.sampled_from(
                    [
                        (),
                        (PodCondition(type="PodResizePending", reason="Infeasible"),),
                        (PodCondition(type="PodResizePending", reason="Deferred"),),
                    ]
                )
            ),
        )
    return Pod(
        metadata=ObjectMeta(name=name, namespace="ns", uid=f"{name}-uid"),
        spec=PodSpec(
            node_name=on or (draw(st.sampled_from(["", "", *NODE_NAMES[:2], "gone"])) if names_a_node else ""),
            scheduler_name="default-scheduler",
            containers=tuple(own),
            init_containers=tuple(before),
            overhead=draw(amounts()) if draw(st.integers(0, 3)) == 0 else {},
            resources=ResourceRequirements(requests=draw(amounts())) if draw(st.integers(0, 2)) == 0 else None,
            tolerations=tuple(draw(st.lists(tolerations, max_size=3))),
            node_selector=draw(st.none() | labels),
            affinity=draw(st.none() | st.builds(Affinity, node_affinity=st.none() | affinities)),
            volumes=draw(st.sampled_from([(), (Volume(name="v", image={"reference": "app"}),)])),
            host_network=draw(st.booleans()),
            host_users=draw(st.sampled_from([None, True, False])),
        ),
        status=status,
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = NODE_NAMES[: draw(st.integers(1, len(NODE_NAMES)))]
    cluster = Cluster([draw(nodes(name)) for name in names])
    for name in names:
        count = draw(st.sampled_from([0, 0, 1, 2]))
        cluster.pods[name] = [draw(pods(f"{name}-{index}", on=name)) for index in range(count)]
    return cluster

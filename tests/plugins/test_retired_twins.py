"""Retired plugins: column form, one-row form and a plain twin from the specification give the same answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
import retired_twins as twins
from hypothesis import event, example, given
from hypothesis import strategies as st
from node_bench import Bench, is_skip
from node_clusters import EXTENDED, Cluster, clusters, pods

from builders import a_node, a_pod
from kubesched.api.types import Node, OwnerReference, Pod, TopologySpreadConstraint
from kubesched.retired.plugins import (
    RETIRED,
    NodeLabel,
    NodePreferAvoidPods,
    NodeResourcesLeastAllocated,
    NodeResourcesMostAllocated,
    RequestedToCapacityRatio,
    SelectorSpread,
    ServiceAffinity,
)
from kubesched.retired.plugins.node_prefer_avoid_pods import ANNOTATION
from kubesched.scheduler.framework.asking import ABSENT
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.events import QueueingHint
from kubesched.scheduler.framework.status import Status
from kubesched.scheduler.nodes import NodeList
from kubesched.scheduler.nodes.podinfo import PodInfo

JSON = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def bench(cluster: Cluster, services: Sequence[JSON] = ()) -> Bench:
    there = (pod for found in cluster.pods.values() for pod in found)
    return Bench(cluster.nodes, there, services=services)


# -- labels ------------------------------------------------------------------------------------------------

keys = st.lists(st.sampled_from(["zone", "disk", "example.com/rank", "nobody-has-it"]), max_size=3, unique=True)


@given(clusters(), keys, keys, keys, keys)
def test_node_label_agrees_with_its_twin(
    cluster: Cluster, present: list[str], absent: list[str], liked: list[str], disliked: list[str]
) -> None:
    absent = [key for key in absent if key not in present]
    disliked = [key for key in disliked if key not in liked]
    house = bench(cluster)
    args = {
        "presentLabels": present,
        "absentLabels": absent,
        "presentLabelsPreference": liked,
        "absentLabelsPreference": disliked,
    }
    plugin = house.build(NodeLabel, args)
    pod = a_pod()
    assert house.outcomes(plugin, pod) == {n.name: twins.node_label(n, present, absent) for n in cluster.nodes}
    assert house.scores(plugin, pod) == {n.name: twins.node_label_score(n, liked, disliked) for n in cluster.nodes}
    (registered,) = plugin.plugin.events_to_register()
    for node in cluster.nodes:
        helps = registered.hint(PodInfo(pod), None, node) is QueueingHint.QUEUE
        assert helps == (twins.node_label(node, present, absent) is None)


# -- avoided pods ------------------------------------------------------------------------------------------

controllers = st.builds(
    OwnerReference,
    kind=st.sampled_from(["ReplicaSet", "ReplicationController", "StatefulSet"]),
    uid=st.sampled_from(["u1", "u2"]),
    controller=st.sampled_from([True, True, True, False]),
)
entries = st.builds(
    lambda kind, uid: {"podSignature": {"podController": {"kind": kind, "uid": uid, "controller": True}}},
    st.sampled_from(["ReplicaSet", "ReplicationController", "StatefulSet"]),
    st.sampled_from(["u1", "u2"]),
)
annotation_texts = st.one_of(
    st.lists(entries, max_size=2).map(lambda found: json.dumps({"preferAvoidPods": found})),
    st.sampled_from(["", "no json", "[]", "{}", '{"preferAvoidPods": {}}', '{"preferAvoidPods": [3]}']),
)


def annotated(node: Node, text: str | None) -> Node:
    meta = msgspec.structs.replace(node.metadata, annotations={} if text is None else {ANNOTATION: text})
    return msgspec.structs.replace(node, metadata=meta)


def owned(pod: Pod, owners: Sequence[OwnerReference]) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, owner_references=tuple(owners))
    return msgspec.structs.replace(pod, metadata=meta)


@given(st.lists(st.none() | annotation_texts, min_size=1, max_size=4), st.lists(controllers, max_size=2))
def test_node_prefer_avoid_pods_agrees_with_its_twin(texts: list[str | None], owners: list[OwnerReference]) -> None:
    nodes = [annotated(a_node(f"n{index}"), text) for index, text in enumerate(texts)]
    house = bench(Cluster(nodes))
    plugin, pod = house.build(NodePreferAvoidPods), owned(a_pod(), owners)
    want = {node.name: twins.avoided(pod, node) for node in nodes}
    event(f"avoided: {0 in want.values()}")
    assert house.scores(plugin, pod) == want
    house.cache.set_node(annotated(nodes[0], None))
    assert house.scores(plugin, pod) == {**want, "n0": 100}


# -- resources ---------------------------------------------------------------------------------------------

resources = st.lists(
    st.tuples(
        st.sampled_from(["cpu", "memory", "ephemeral-storage", *EXTENDED, "nobody.has/it"]),
        st.sampled_from([1, 1, 2, 5, 100]),
    ),
    max_size=4,
    unique_by=lambda item: item[0],
)
shapes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=4, unique_by=lambda item: item[0]
).map(sorted)
STRATEGIES = {
    "least": NodeResourcesLeastAllocated,
    "most": NodeResourcesMostAllocated,
    "ratio": RequestedToCapacityRatio,
}


@given(clusters(), pods(), st.sampled_from(sorted(STRATEGIES)), resources, shapes)
@example(
    Cluster([a_node("n0", cpu="9223372036854775807", memory="9223372036854775807")]),
    a_pod(cpu="9223372036854775", memory="9223372036854775807"),
    "most",
    [("cpu", 1), ("memory", 100)],
    [(0, 0)],
)
@example(Cluster([a_node("n0", cpu="3", memory="3Gi")]), a_pod(cpu="1"), "ratio", [], [(0, 10), (100, 0)])
def test_allocation_scores_agree_with_their_twin(
    cluster: Cluster, pod: Pod, strategy: str, chosen: list[tuple[str, int]], shape: list[tuple[int, int]]
) -> None:
    house = bench(cluster)
    args: JSON = {"resources": [{"name": name, "weight": weight} for name, weight in chosen]}
    if strategy == "ratio":
        args["shape"] = [{"utilization": utilization, "score": score} for utilization, score in shape]
    listed = chosen or [("cpu", 1), ("memory", 1)]
    want = {
        node.name: twins.allocation(pod, node, cluster.pods.get(node.name, []), strategy, listed, shape)
        for node in cluster.nodes
    }
    assert house.scores(house.build(STRATEGIES[strategy], args), pod) == want


@given(clusters(), st.lists(pods(), min_size=2, max_size=4), resources)
def test_pods_with_equal_signatures_get_equal_scores(
    cluster: Cluster, some: list[Pod], chosen: list[tuple[str, int]]
) -> None:
    house = bench(cluster)
    plugin = house.build(
        NodeResourcesLeastAllocated, {"resources": [{"name": name, "weight": weight} for name, weight in chosen]}
    )
    answers: dict[object, object] = {}
    for pod in [*some, some[0]]:
        answer = house.scores(plugin, pod)
        assert answers.setdefault(plugin.key(PodInfo(pod)), answer) == answer


# -- services ----------------------------------------------------------------------------------------------

pairs = st.fixed_dictionaries({}, optional={"app": st.sampled_from(["web", "db"]), "tier": st.sampled_from(["x", "y"])})
places = st.fixed_dictionaries(
    {}, optional={ZONE: st.sampled_from(["a", "b"]), "rack": st.sampled_from(["1", "2", "3"])}
)
service_lists = st.lists(pairs.map(lambda selector: {"spec": {"selector": selector}}), max_size=3)


@st.composite
def worlds(draw: st.DrawFn) -> Cluster:
    """Nodes in zones and racks, with pods that services may select; some belong elsewhere, some are going."""
    nodes = [a_node(f"n{index}", labels=draw(places)) for index in range(draw(st.integers(1, 5)))]
    found: dict[str, list[Pod]] = {}
    for index in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from([node.name for node in nodes]))
        space = draw(st.sampled_from(["ns", "ns", "ns", "other"]))
        pod = a_pod(f"e{index}", namespace=space, on=name, labels=draw(pairs))
        if draw(st.integers(0, 4)) == 0:
            meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2030-01-01T00:00:00Z")
            pod = msgspec.structs.replace(pod, metadata=meta)
        found.setdefault(name, []).append(pod)
    return Cluster(nodes, found)


def selectors(services: Sequence[JSON]) -> list[dict[str, str]]:
    return [service["spec"]["selector"] for service in services]


def in_order(house: Bench) -> list[Node]:
    return [node.node for node in house.nodes if node.node is not None]


def normalized(house: Bench, plugin: Any, pod: Pod) -> dict[str, int]:
    """Scores after the plugin's own normalising."""
    found, state, nodes, table = PodInfo(pod), CycleState(), house.nodes, house.cache.table
    if "preScore" in plugin.points:
        assert plugin.pre_score(state, found, nodes) is None
    raw = plugin.question(state, found, "score").scores(nodes.rows)
    scores = plugin.plugin.normalize_score(state, found, NodeList(table, nodes.rows), raw)
    return dict(zip(nodes.names(), scores.tolist(), strict=True))


label_lists = st.lists(st.sampled_from([ZONE, "rack"]), min_size=1, max_size=2, unique=True)


@given(worlds(), pairs, st.none() | places, service_lists, label_lists)
def test_service_affinity_filters_as_its_twin(
    cluster: Cluster, labels: dict[str, str], chosen: dict[str, str] | None, services: list[JSON], demanded: list[str]
) -> None:
    house = bench(cluster, services)
    pod = a_pod("p", labels=labels, node_selector=chosen)
    plugin = house.build(ServiceAffinity, {"affinityLabels": demanded})
    nodes = in_order(house)

    def expected(placed: twins.Placed) -> dict[str, Any]:
        return {n.name: twins.service_affinity(pod, n, nodes, placed, selectors(services), demanded) for n in nodes}

    want = expected(cluster.pods)
    assert house.outcomes(plugin, pod) == want
    event(f"rejects: {any(want.values())}")
    # Without any one of the pods, and with it again.
    for name, there in cluster.pods.items():
        state, found = CycleState(), PodInfo(pod)
        plugin.pre_filter(state, found, house.nodes)
        trial = state.clone()
        removed, node = PodInfo(there[0]), house.cache.snapshot().get(name)
        plugin.remove_pod(trial, found, removed, node)
        fewer = expected({**cluster.pods, name: there[1:]})
        rows = house.nodes.rows
        verdicts = plugin.question(trial, found, "filter").verdicts(rows).tolist()
        assert dict(zip(house.nodes.names(), map(bool, verdicts), strict=True)) == {
            key: value is not None for key, value in fewer.items()
        }
        assert verdicts == [plugin.question(trial, found, "filter").verdict(info) for info in house.nodes]
        again = plugin.question(state, found, "filter").verdicts(rows).tolist()
        assert [bool(verdict) for verdict in again] == [
            want[node_name] is not None for node_name in house.nodes.names()
        ]


@given(worlds(), pairs, service_lists, label_lists)
def test_service_affinity_scores_as_its_twin(
    cluster: Cluster, labels: dict[str, str], services: list[JSON], spread: list[str]
) -> None:
    house = bench(cluster, services)
    pod = a_pod("p", labels=labels)
    plugin = house.build(ServiceAffinity, {"antiAffinityLabelsPreference": spread})
    want = twins.service_scores(pod, in_order(house), cluster.pods, selectors(services), spread)
    assert normalized(house, plugin, pod) == want
    assert not is_skip(house.scores(plugin, pod))  # one row, some rows and all rows agree
    assert is_skip(house.outcomes(plugin, pod))


@given(worlds(), pairs, service_lists)
def test_selector_spread_scores_as_its_twin(cluster: Cluster, labels: dict[str, str], services: list[JSON]) -> None:
    house = bench(cluster, services)
    pod = a_pod("p", labels=labels)
    plugin = house.build(SelectorSpread)
    want = twins.selector_spread(pod, in_order(house), cluster.pods, selectors(services))
    event(f"distinct scores: {len(set(want.values()))}")
    assert normalized(house, plugin, pod) == want
    assert not is_skip(house.scores(plugin, pod))


def test_selector_spread_skips_pods_with_constraints() -> None:
    house = Bench([a_node("n0")])
    plugin = house.build(SelectorSpread)
    constraint = TopologySpreadConstraint(max_skew=1, topology_key="rack", when_unsatisfiable="ScheduleAnyway")
    pod = a_pod(topology_spread_constraints=(constraint,))
    assert is_skip(house.scores(plugin, pod))
    assert plugin.key(PodInfo(pod)) == ABSENT
    assert plugin.key(PodInfo(a_pod())) is None


# -- arguments ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("NodeLabel", {"presentLabel": ["a"]}, "args.presentLabel: no such field; did you mean presentLabels?"),
        ("ServiceAffinity", {"affinityLabels": "zone"}, 'args.affinityLabels: the text "zone" is not a list'),
        ("RequestedToCapacityRatio", None, "args.shape: Required value"),
        ("NodeResourcesMostAllocated", {"resources": [{"name": "cpu", "weight": 101}]}, "args.resources[0].weight"),
    ],
)
def test_bad_arguments_are_refused_when_the_plugin_is_built(name: str, args: Any, text: str) -> None:
    with pytest.raises(ValueError, match="args") as caught:
        Bench().build(RETIRED[name], args)
    assert text in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(RETIRED) - {"RequestedToCapacityRatio"}))
def test_arguments_may_be_left_out(name: str) -> None:
    house = Bench([a_node("n0")])
    plugin = house.build(RETIRED[name])
    if "filter" in plugin.points:
        answer = house.outcomes(plugin, a_pod())
        assert isinstance(answer, Status) or answer == {"n0": None}
    assert set(normalized(house, plugin, a_pod()).values() if hasattr(plugin.plugin, "normalize_score") else (0,)) <= {
        0,
        100,
    }

"""Column form, one-row form and a plain twin from the specification give the same answers on random clusters."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import node_twins as twins
from hypothesis import event, example, given
from hypothesis import strategies as st
from node_bench import Bench, is_skip
from node_clusters import EXTENDED, SCALARS, Cluster, affinities, clusters, pods

from builders import a_node, a_pod
from kubesched.api.types import Node, NodeAffinity, Pod
from kubesched.scheduler.config.args import (
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.nodes.podinfo import PodInfo
from kubesched.scheduler.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kubesched.scheduler.plugins.image_locality import ImageLocality
from kubesched.scheduler.plugins.node_affinity import NodeAffinity as NodeAffinityPlugin
from kubesched.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from kubesched.scheduler.plugins.node_name import NodeName
from kubesched.scheduler.plugins.node_ports import NodePorts
from kubesched.scheduler.plugins.node_resources_fit import NodeResourcesFit
from kubesched.scheduler.plugins.node_unschedulable import NodeUnschedulable
from kubesched.scheduler.plugins.taint_toleration import TaintToleration

Twin = Callable[[Pod, Node, list[Pod]], twins.Outcome]

#: Filters that need no arguments: plugin and twin.
FILTERS: dict[type, Twin] = {
    NodeUnschedulable: lambda pod, node, there: twins.unschedulable(pod, node),
    NodeName: lambda pod, node, there: twins.node_name(pod, node),
    TaintToleration: lambda pod, node, there: twins.taints(pod, node),
    NodePorts: lambda pod, node, there: twins.node_ports(pod, there),
    NodeResourcesFit: twins.fit,
    NodeDeclaredFeatures: lambda pod, node, there: twins.declared_features(pod, node),
}


def bench(cluster: Cluster) -> Bench:
    return Bench(cluster.nodes, (pod for there in cluster.pods.values() for pod in there))


def expected(cluster: Cluster, twin: Callable[[Node, list[Pod]], object]) -> dict[str, object]:
    return {node.name: twin(node, cluster.pods.get(node.name, [])) for node in cluster.nodes}


@given(clusters(), pods(names_a_node=True))
def test_filters_agree_with_their_twins(cluster: Cluster, pod: Pod) -> None:
    house = bench(cluster)
    for plugin, twin in FILTERS.items():
        want = expected(cluster, lambda node, there, twin=twin: twin(pod, node, there))  # type: ignore[misc]
        got = house.outcomes(house.build(plugin), pod)
        if is_skip(got):
            event(f"{plugin.__name__} skips")
            assert set(want.values()) == {None}, plugin.__name__
        else:
            assert got == want, plugin.__name__


@given(clusters(), pods(), st.none() | affinities)
def test_node_affinity_agrees_with_its_twin(cluster: Cluster, pod: Pod, added: NodeAffinity | None) -> None:
    if added is not None:
        # Added affinity is parsed strictly: unparsable terms are refused at start-up, which another test checks.
        required = added.required.node_selector_terms if added.required is not None else ()
        weighted = [item.preference for item in added.preferred or () if item.weight]
        if not all(twins.term_parses(term) for term in (*required, *weighted)):
            added = None
    house = bench(cluster)
    plugin = house.build(NodeAffinityPlugin, NodeAffinityArgs(added_affinity=added))

    def twin(node: Node, there: list[Pod]) -> twins.Outcome:
        if added is not None and added.required is not None:
            terms = added.required.node_selector_terms
            if not any(twins.term_matches(term, node) for term in terms):
                return twins.UU, ("node(s) didn't match scheduler-enforced node affinity",)
        return twins.node_affinity(pod, node)

    want, got = expected(cluster, twin), house.outcomes(plugin, pod)
    if is_skip(got):
        assert set(want.values()) == {None}
    elif isinstance(got, Status):
        assert got == Status.unresolvable("pod affinity terms conflict")
    else:
        assert got == want

    own = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    preferred = own.preferred if own is not None else None
    more = added.preferred if added is not None else None
    scores = house.scores(plugin, pod)
    if preferred is None and not more:
        assert is_skip(scores)
    elif any(item.weight and not twins.term_parses(item.preference) for item in preferred or ()):
        assert isinstance(scores, Status)
        assert scores.code is Code.ERROR
    elif is_skip(scores):
        # Terms were there, but none that counts.
        assert preferred is None
        assert not any(
            item.weight and (item.preference.match_expressions or item.preference.match_fields) for item in more or ()
        )
    else:
        raw = {node.name: twins.preference((*(preferred or ()), *(more or ())), node) for node in cluster.nodes}
        assert scores == raw
        assert house.scores(plugin, pod, final=True) == twins.scaled(raw, reverse=False)


@given(clusters(), pods())
def test_taint_scores_agree_with_their_twin(cluster: Cluster, pod: Pod) -> None:
    house = bench(cluster)
    plugin = house.build(TaintToleration)
    raw = {node.name: twins.taint_score(pod, node) for node in cluster.nodes}
    assert house.scores(plugin, pod) == raw
    assert house.scores(plugin, pod, final=True) == twins.scaled(raw, reverse=True)


@given(
    clusters(),
    pods(),
    st.sets(st.sampled_from(SCALARS), max_size=2),
    st.sets(st.sampled_from(["example.com", "other.org"])),
)
def test_ignored_resources_are_ignored_as_by_the_twin(
    cluster: Cluster, pod: Pod, ignored: set[str], groups: set[str]
) -> None:
    house = bench(cluster)
    args = NodeResourcesFitArgs(ignored_resources=tuple(sorted(ignored)), ignored_resource_groups=tuple(sorted(groups)))
    want = expected(cluster, lambda node, there: twins.fit(pod, node, there, sorted(ignored), sorted(groups)))
    assert house.outcomes(house.build(NodeResourcesFit, args), pod) == want


weights = st.sampled_from([1, 1, 2, 5, 100])
resources = st.lists(
    st.tuples(st.sampled_from(["cpu", "memory", "ephemeral-storage", "pods", *EXTENDED, "hugepages-2Mi"]), weights),
    min_size=1,
    max_size=4,
    unique_by=lambda item: item[0],
)
shapes = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 10)), min_size=1, max_size=4, unique_by=lambda item: item[0]
).map(sorted)


@given(
    clusters(),
    pods(),
    st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
    resources,
    shapes,
)
@example(
    # Non-zero requests near int64 must not wrap round.
    Cluster([a_node("n0", cpu="9223372036854775807", memory="9223372036854775807")]),
    a_pod(cpu="9223372036854775", memory="9223372036854775807"),
    "LeastAllocated",
    [("cpu", 1), ("memory", 3)],
    [(0, 0), (100, 10)],
)
def test_fit_scores_agree_with_their_twin(
    cluster: Cluster, pod: Pod, strategy: str, chosen: list[tuple[str, int]], shape: list[tuple[int, int]]
) -> None:
    house = bench(cluster)
    ratio = RequestedToCapacityRatioParam(
        shape=tuple(UtilizationShapePoint(utilization=utilization, score=score) for utilization, score in shape)
    )
    args = NodeResourcesFitArgs(
        scoring_strategy=ScoringStrategy(
            type=strategy,
            resources=tuple(ResourceSpec(name=name, weight=weight) for name, weight in chosen),
            requested_to_capacity_ratio=ratio if strategy == "RequestedToCapacityRatio" else None,
        )
    )
    want = expected(cluster, lambda node, there: twins.fit_score(pod, node, there, strategy, chosen, shape))
    assert house.scores(house.build(NodeResourcesFit, args), pod) == want


@given(clusters(), pods(), resources)
def test_balanced_allocation_agrees_with_its_twin(cluster: Cluster, pod: Pod, chosen: list[tuple[str, int]]) -> None:
    house = bench(cluster)
    names = [name for name, _ in chosen]
    args = NodeResourcesBalancedAllocationArgs(resources=tuple(ResourceSpec(name=name) for name in names))
    want = expected(cluster, lambda node, there: twins.balanced(pod, node, there, names))
    got = house.scores(house.build(NodeResourcesBalancedAllocation, args), pod)
    if is_skip(got):
        assert set(want.values()) == {None}
    else:
        assert got == want


@given(clusters(), pods())
def test_image_locality_agrees_with_its_twin(cluster: Cluster, pod: Pod) -> None:
    house = bench(cluster)
    want = expected(cluster, lambda node, there: twins.image_score(pod, node, cluster.nodes, cluster.sizes()))
    assert house.scores(house.build(ImageLocality), pod) == want


# -- equal signatures, equal answers -----------------------------------------------------------------------

SIGNING = [*FILTERS, NodeAffinityPlugin, NodeResourcesBalancedAllocation, ImageLocality]


@given(clusters(), st.lists(pods(names_a_node=True), min_size=2, max_size=5), st.data())
def test_pods_with_equal_signatures_get_equal_answers(cluster: Cluster, some: list[Pod], data: st.DataObject) -> None:
    house = bench(cluster)
    # Pods that differ in one thing are the ones that could be mixed up.
    first = some[0]
    for other in list(some[1:]):
        part = data.draw(
            st.sampled_from(
                ["containers", "init_containers", "tolerations", "affinity", "node_selector", "overhead", "resources"]
            )
        )
        some.append(twin_pod(first, other, part))
    for kind in SIGNING:
        plugin = house.build(kind)
        answers: dict[object, object] = {}
        for pod in some:
            signature = plugin.key(PodInfo(pod))
            assert signature is not None, kind.__name__
            answer = (
                plain(house.outcomes(plugin, pod)) if "filter" in plugin.points else None,
                plain(house.scores(plugin, pod)) if "score" in plugin.points else None,
            )
            if answers.setdefault(signature, answer) != answer:
                raise AssertionError(f"{kind.__name__} signs {pod} like another pod with other results")
        if len(answers) < len(some):
            event(f"{kind.__name__}: equal signatures")


def plain(answer: object) -> object:
    return (int(answer.code), answer.message()) if isinstance(answer, Status) else answer


def twin_pod(first: Pod, other: Pod, part: str) -> Pod:
    """``first`` with one part of ``other``."""
    spec = msgspec.structs.replace(first.spec, **{part: getattr(other.spec, part)})
    return msgspec.structs.replace(first, spec=spec)

"""Scores of the node-level plugins in worked examples, the queue's order, and the binder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_bench import Bench, is_skip

from builders import (
    MIB,
    a_container,
    a_node,
    a_pod,
    a_taint,
    a_toleration,
    an_image,
    info,
    node_affinity,
    requirement,
    term,
)
from kubesched.api.selectors import SelectorError
from kubesched.api.types import Node, Pod
from kubesched.scheduler.config.args import (
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    RequestedToCapacityRatioParam,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from kubesched.scheduler.framework.cycle_state import CycleState
from kubesched.scheduler.framework.queued import QueuedPodInfo
from kubesched.scheduler.framework.status import Code, Status
from kubesched.scheduler.plugins.balanced_allocation import NodeResourcesBalancedAllocation
from kubesched.scheduler.plugins.default_binder import DefaultBinder
from kubesched.scheduler.plugins.image_locality import ImageLocality, normalized_image
from kubesched.scheduler.plugins.node_affinity import NodeAffinity
from kubesched.scheduler.plugins.node_resources_fit import NodeResourcesFit
from kubesched.scheduler.plugins.priority_sort import PrioritySort
from kubesched.scheduler.plugins.resource_scoring import broken_line, trunc_div
from kubesched.scheduler.plugins.taint_toleration import TaintToleration


def fit_args(
    strategy: str, weights: dict[str, int] | None = None, shape: Sequence[tuple[int, int]] = ((0, 0), (100, 10))
) -> NodeResourcesFitArgs:
    points = tuple(UtilizationShapePoint(utilization=utilization, score=score) for utilization, score in shape)
    ratio = RequestedToCapacityRatioParam(shape=points) if strategy == "RequestedToCapacityRatio" else None
    chosen = {"cpu": 1, "memory": 1} if weights is None else weights
    resources = tuple(ResourceSpec(name=name, weight=weight) for name, weight in chosen.items())
    strategy_ = ScoringStrategy(type=strategy, resources=resources, requested_to_capacity_ratio=ratio)
    return NodeResourcesFitArgs(scoring_strategy=strategy_)


def score(plugin: type, args: Any, pod: Pod, node: Node, there: Sequence[Pod] = ()) -> int:
    bench = Bench([node], there)
    scores = bench.scores(bench.build(plugin, args), pod)
    assert isinstance(scores, dict)
    return scores[node.name]


LEAST, MOST, RATIO = "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"
plain = a_node("n", exactly={"cpu": "4", "memory": "10000", "pods": 10})
with_gpus = a_node("n", exactly={"cpu": "4", "memory": "10000", "pods": 10, "example.com/gpu": 8})
three_quarters = a_pod(cpu="3", memory="6000")
and_gpus = a_pod(requests={"cpu": "3", "memory": "6000", "example.com/gpu": 3})
small = a_node("n", exactly={"cpu": "2", "memory": "4096Mi", "pods": 10})
two_silent = a_pod(containers=[a_container("a"), a_container("b")])
resident = [a_pod("x", on="n", cpu="500m", memory="1024Mi")]
FALLING = ((0, 10), (100, 0))

FIT = [
    ("two resources", LEAST, three_quarters, plain, (), None, None, 32),
    ("two resources", MOST, three_quarters, plain, (), None, None, 67),
    ("two resources", RATIO, three_quarters, plain, (), None, None, 68),
    ("a heavy third", LEAST, and_gpus, with_gpus, (), {"cpu": 1, "memory": 1, "example.com/gpu": 5}, None, 53),
    ("a heavy third", MOST, and_gpus, with_gpus, (), {"cpu": 1, "memory": 1, "example.com/gpu": 5}, None, 45),
    ("a heavy third", RATIO, and_gpus, with_gpus, (), {"cpu": 1, "memory": 1, "example.com/gpu": 5}, None, 46),
    ("defaults for containers that ask for nothing", LEAST, two_silent, small, resident, None, None, 65),
    ("defaults for containers that ask for nothing", MOST, two_silent, small, resident, None, None, 34),
    ("defaults for containers that ask for nothing", RATIO, two_silent, small, resident, None, None, 35),
    ("a full resource", LEAST, a_pod(cpu="4", memory="5000"), plain, (), None, None, 25),
    ("a full resource", MOST, a_pod(cpu="4", memory="5000"), plain, (), None, None, 75),
    ("a score of zero drops out", RATIO, a_pod(cpu="4", memory="5000"), plain, (), None, FALLING, 50),
    ("more than there is scores as all of it", MOST, a_pod(cpu="9", memory="5000"), plain, (), None, None, 75),
    ("more than there is scores as none left", LEAST, a_pod(cpu="9", memory="5000"), plain, (), None, None, 25),
    ("a scalar not asked for does not count", LEAST, three_quarters, with_gpus, (), {"cpu": 1, "example.com/gpu": 9}, None, 25),
    ("pods have no capacity here", LEAST, three_quarters, plain, (), {"cpu": 1, "pods": 9}, None, 25),
    ("a resource the node lacks does not count", LEAST, and_gpus, plain, (), {"cpu": 1, "example.com/gpu": 9}, None, 25),
    ("nothing counts", LEAST, and_gpus, plain, (), {"example.com/gpu": 9}, None, 0),
    # Quirk Q1: pod-level requests are not scored, containers are, with defaults.
    ("pod-level requests are not scored", LEAST, a_pod(pod_level={"cpu": "2"}, containers=[a_container("a"), a_container("b")]), small, (), {"cpu": 1}, None, 90),
]  # fmt: skip


@pytest.mark.parametrize(("name", "strategy", "pod", "node", "there", "weights", "shape", "want"), FIT)
def test_fit_scores(
    name: str, strategy: str, pod: Pod, node: Node, there: Sequence[Pod], weights: Any, shape: Any, want: int
) -> None:
    args = fit_args(strategy, weights, shape or ((0, 0), (100, 10)))
    assert score(NodeResourcesFit, args, pod, node, there) == want, name


@pytest.mark.parametrize(
    ("points", "x", "want"),
    [
        (((0, 100), (30, 0)), 10, 67),  # truncates toward zero; flooring would say 66
        (((0, 100), (30, 0)), 0, 100),
        (((0, 100), (30, 0)), 31, 0),
        (((10, 5), (20, 25)), 0, 5),
        (((10, 5), (20, 25)), 15, 15),
        (((50, 7),), 100, 7),
    ],
)
def test_broken_line(points: tuple[tuple[int, int], ...], x: int, want: int) -> None:
    assert broken_line(points, x) == want


@given(st.integers(-(10**30), 10**30), st.integers(-(10**20), 10**20).filter(bool))
def test_truncating_division_undoes_itself(value: int, divisor: int) -> None:
    quotient = trunc_div(value, divisor)
    rest = value - quotient * divisor
    assert abs(rest) < abs(divisor)
    assert rest == 0 or (rest < 0) == (value < 0)


BALANCED = [
    ("the pod evens things out", {"cpu": "4", "memory": "8Gi"}, ("1", "4Gi"), ("1", "1Gi"), 78),
    ("the pod tilts an even node", {"cpu": "4", "memory": "16Gi"}, ("1", "4Gi"), ("1", "1Gi"), 70),
    ("a third that leaves binary rounding", {"cpu": "100", "memory": "100"}, ("0", "0"), ("90", "22"), 57),
    ("nothing changes", {"cpu": "4", "memory": "4Gi"}, ("1", "1Gi"), ("1", "1Gi"), 75),
    ("beyond the capacity counts as full", {"cpu": "1", "memory": "4Gi"}, ("5", "4Gi"), ("1", "1Gi"), 75),
    ("one resource is always in balance", {"cpu": "4"}, ("1", "0"), ("1", "1Gi"), 75),
    ("no capacity at all", {}, ("1", "0"), ("1", "1Gi"), 75),
]


@pytest.mark.parametrize(("name", "offered", "used", "asked", "want"), BALANCED)
def test_balanced_allocation(name: str, offered: Any, used: tuple[str, str], asked: tuple[str, str], want: int) -> None:
    node = a_node("n", exactly={"pods": 9, **offered})
    there = [a_pod("x", on="n", requests={"cpu": used[0], "memory": used[1]})]
    pod = a_pod(requests={"cpu": asked[0], "memory": asked[1]})
    assert score(NodeResourcesBalancedAllocation, None, pod, node, there) == want, name


def test_balance_of_three_resources_is_their_population_deviation() -> None:
    args = NodeResourcesBalancedAllocationArgs(
        resources=tuple(ResourceSpec(name=name) for name in ("cpu", "memory", "example.com/gpu"))
    )
    node = a_node("n", exactly={"cpu": "10", "memory": "10", "example.com/gpu": 10, "pods": 9})
    pod = a_pod(requests={"cpu": "3", "memory": "6", "example.com/gpu": 9})
    # Fractions .3 .6 .9: deviation sqrt(.06) = .2449…, so 75 after, 100 before.
    assert score(NodeResourcesBalancedAllocation, args, pod, node) == 50 + (50 + 75 - 100) // 2


def test_balance_skips_pods_that_ask_for_nothing_of_it() -> None:
    bench = Bench([a_node("n")])
    plugin = bench.build(NodeResourcesBalancedAllocation)
    assert is_skip(bench.scores(plugin, a_pod(requests={"example.com/gpu": 3})))
    assert not is_skip(bench.scores(plugin, a_pod(cpu="1m")))


# -- images ------------------------------------------------------------------------------------------------

four = [a_node(f"n{index}", images=[an_image("app:latest", 500)] if index < 2 else []) for index in range(4)]
IMAGES = [
    ("an image on two of four nodes", a_pod(image="app"), [23, 23, 0, 0]),
    ("two containers halve it", a_pod(containers=[a_container("a", image="app"), a_container("b", image="x")]), [11, 11, 0, 0]),
    ("named twice it counts twice", a_pod(containers=[a_container("a", image="app"), a_container("b", image="app:latest")]), [24, 24, 0, 0]),
    ("an init container counts", a_pod(containers=[a_container("a", image="x")], init=[a_container("i", image="app")]), [11, 11, 0, 0]),
    ("an image on no node", a_pod(image="app:2"), [0, 0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pod", "want"), IMAGES)
def test_image_locality(name: str, pod: Pod, want: list[int]) -> None:
    bench = Bench(four)
    scores = bench.scores(bench.build(ImageLocality), pod)
    assert isinstance(scores, dict)
    assert [scores[f"n{index}"] for index in range(4)] == want, name


def test_image_scores_are_clamped_at_both_ends() -> None:
    bench = Bench([a_node("n", images=[an_image("small:latest", 22), an_image("big:latest", 5000)])])
    plugin = bench.build(ImageLocality)
    assert bench.scores(plugin, a_pod(image="small")) == {"n": 0}
    assert bench.scores(plugin, a_pod(image="big")) == {"n": 100}
    assert 23 * MIB < 1000 * MIB


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("app", "app:latest"),
        ("app:1", "app:1"),
        ("reg:5000/app", "reg:5000/app:latest"),
        ("reg:5000/app:1", "reg:5000/app:1"),
        ("a@sha256:x", "a@sha256:x"),
        ("", ":latest"),
    ],
)
def test_an_image_without_tag_is_the_latest(name: str, want: str) -> None:
    assert normalized_image(name) == want


# -- normalised scores -------------------------------------------------------------------------------------


def test_soft_taints_count_against_a_node() -> None:
    bench = Bench(
        [
            a_node("none"),
            a_node("one", taints=[a_taint("a:PreferNoSchedule")]),
            a_node("three", taints=[a_taint(f"{key}:PreferNoSchedule") for key in "abc"]),
            a_node("tolerated", taints=[a_taint("ok:PreferNoSchedule"), a_taint("x:NoSchedule")]),
        ]
    )
    plugin = bench.build(TaintToleration)
    pod = a_pod(tolerations=[a_toleration("ok")])
    assert bench.scores(plugin, pod) == {"none": 0, "one": 1, "three": 3, "tolerated": 0}
    assert bench.scores(plugin, pod, final=True) == {"none": 100, "one": 67, "three": 0, "tolerated": 100}
    assert bench.scores(plugin, a_pod(tolerations=[a_toleration("ok:NoSchedule")])) == {
        "none": 0,
        "one": 1,
        "three": 3,
        "tolerated": 1,  # a toleration of another effect is ignored
    }


def test_without_soft_taints_every_node_is_as_good() -> None:
    bench = Bench([a_node("n"), a_node("m")])
    assert bench.scores(bench.build(TaintToleration), a_pod(), final=True) == {"n": 100, "m": 100}


def test_preferred_terms_add_up_and_are_scaled() -> None:
    ssd, zone = term(requirement("disk", "In", "ssd")), term(requirement("zone", "Exists"))
    bench = Bench(
        [
            a_node("a", labels={"disk": "ssd"}),
            a_node("b", labels={"disk": "ssd", "zone": "z"}),
            a_node("c", labels={"zone": "z"}),
        ]
    )
    pod = a_pod(affinity=node_affinity(preferred=[(2, ssd), (9, zone), (0, ssd), (50, term())]))
    plugin = bench.build(NodeAffinity)
    assert bench.scores(plugin, pod) == {"a": 2, "b": 11, "c": 9}
    assert bench.scores(plugin, pod, final=True) == {"a": 18, "b": 100, "c": 81}
    added = bench.build(NodeAffinity, NodeAffinityArgs(added_affinity=node_affinity(preferred=[(7, ssd)])))
    assert bench.scores(added, a_pod()) == {"a": 7, "b": 7, "c": 0}


def test_a_preferred_list_that_is_empty_does_not_skip_but_an_absent_one_does() -> None:
    bench = Bench([a_node("n")])
    plugin = bench.build(NodeAffinity)
    assert bench.scores(plugin, a_pod(affinity=node_affinity(preferred=[])), final=True) == {"n": 0}
    assert is_skip(bench.scores(plugin, a_pod(affinity=node_affinity(required=[]))))


def test_a_preferred_term_that_cannot_be_parsed_is_an_error() -> None:
    bench = Bench([a_node("n")])
    pod = a_pod(affinity=node_affinity(preferred=[(1, term(requirement("disk", "Gt", "big")))]))
    answer = bench.scores(bench.build(NodeAffinity), pod)
    assert isinstance(answer, Status)
    assert answer.code is Code.ERROR
    assert "[0].matchExpressions[0].values[0]" in answer.message()


def test_taint_toleration_cannot_score_without_state() -> None:
    bench = Bench([a_node("n", taints=[a_taint("k:PreferNoSchedule")])])
    with pytest.raises(KeyError, match="not found"):
        bench.build(TaintToleration).question(CycleState(), info(), "score").scores(bench.nodes.rows)


def score_without_pre_score(plugin: type, pod: Pod) -> dict[str, int]:
    """Return the plugin's scores by node when PreScore did not run; its two forms must agree."""
    bench = Bench([a_node("a", cpu="4", labels={"disk": "ssd"}), a_node("b", cpu="2")])
    built, nodes, found = bench.build(plugin), bench.nodes, info(pod)
    scores = dict(
        zip(nodes.names(), built.question(CycleState(), found, "score").scores(nodes.rows).tolist(), strict=True)
    )
    assert scores == {node.name: built.question(CycleState(), found, "score").score(node) for node in nodes}
    return scores


def test_node_affinity_and_balanced_allocation_score_without_pre_score() -> None:
    preferring = a_pod(affinity=node_affinity(preferred=[(5, term(requirement("disk", "In", "ssd")))]))
    assert score_without_pre_score(NodeAffinity, preferring) == {"a": 5, "b": 0}
    assert score_without_pre_score(NodeAffinity, a_pod()) == {"a": 0, "b": 0}
    prepared = Bench([a_node("a", cpu="4"), a_node("b", cpu="2")])
    asking = a_pod(cpu="1", memory="1Gi")
    expected = prepared.scores(prepared.build(NodeResourcesBalancedAllocation), asking)
    assert score_without_pre_score(NodeResourcesBalancedAllocation, asking) == expected


def test_a_pod_that_requests_nothing_scores_zero_for_balance_without_pre_score() -> None:
    assert score_without_pre_score(NodeResourcesBalancedAllocation, a_pod()) == {"a": 0, "b": 0}


def test_a_term_that_cannot_be_parsed_is_an_error_without_pre_score() -> None:
    pod = a_pod(affinity=node_affinity(preferred=[(1, term(requirement("disk", "Gt", "big")))]))
    with pytest.raises(SelectorError, match="big"):
        score_without_pre_score(NodeAffinity, pod)


# -- order of the queue ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "first", "second", "want"),
    [
        ("higher priority goes first", (10, 5.0), (9, 1.0), True),
        ("lower priority goes later", (-1, 1.0), (None, 5.0), False),
        ("no priority is zero", (None, 1.0), (0, 2.0), True),
        ("who waited longer goes first", (5, 1.0), (5, 2.0), True),
        ("equals do not precede each other", (5, 1.0), (5, 1.0), False),
    ],
)
def test_priority_sort(name: str, first: tuple[Any, float], second: tuple[Any, float], want: bool) -> None:
    plugin = Bench().build(PrioritySort).plugin
    one, other = (QueuedPodInfo(info(priority=priority), timestamp=time) for priority, time in (first, second))
    assert plugin.less(one, other) is want, name
    assert (plugin.sort_key(one) < plugin.sort_key(other)) is want


# -- binding -----------------------------------------------------------------------------------------------


class Port:
    def __init__(self, error: Exception | None, *, at_once: bool) -> None:
        self.error = error
        self.at_once = at_once
        self.bound: list[tuple[str, str]] = []

    async def bind(self, pod: Pod, node_name: str) -> None:
        if not self.at_once:
            await asyncio.sleep(0)
        self.bound.append((pod.uid, node_name))
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [None, ConnectionError("no route"), ValueError("409 Conflict")])
def test_the_default_binder_binds_or_says_why_not(error: Exception | None, at_once: bool) -> None:
    port = Port(error, at_once=at_once)
    bench = Bench(client=port)
    answer = bench.build(DefaultBinder).plugin.bind(CycleState(), info(), "n1")
    if not at_once:
        answer = asyncio.run(answer)
    assert port.bound == [("p-uid", "n1")]
    if error is None:
        assert answer is None
    else:
        assert answer.code is Code.ERROR
        assert answer.as_error() is error

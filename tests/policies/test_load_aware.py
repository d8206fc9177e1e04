"""Policies by real load: published scores, columns against the rule for one node, reports and pods placed since."""

import math
import random
from typing import Any

import numpy as np
import pytest
from policy_kit import load, nodes_of, placement, scores_of, simulated

from builders import a_container, a_node, a_pod
from kubesched.api.types import Container, Pod, ResourceRequirements
from kubesched.scheduler.nodes.podinfo import PodInfo

load_aware = load("load_aware")
loads = load("load_aware.loads")
Load = loads.Load


def limited(name: str, cpu: str) -> Pod:
    resources = ResourceRequirements(requests={"cpu": cpu}, limits={"cpu": cpu})
    return a_pod(name, containers=[Container(name="c", resources=resources)])


def packing(load_of: Any, pod: Pod, cpu: str = "1", **args: Any) -> int:
    cluster = placement(load_aware.TargetLoadPacking, [a_node("n", cpu=cpu, memory="1Gi")], args=args)
    cluster.framework.plugins["TargetLoadPacking"].report("n", load_of)
    return scores_of(cluster, "TargetLoadPacking", pod)["n"]


@pytest.mark.parametrize(
    ("cpu", "pod", "score"),
    [
        (0, a_pod(containers=[]), 40),  # "new node"
        (50, a_pod(containers=[]), 33),  # "hot node"
        (30, limited("p", "1"), 0),  # "excess utilization returns min score"
    ],
)
def test_target_load_packing_scores_as_published(cpu: float, pod: Pod, score: int) -> None:
    """The cases of scheduler-plugins' tests."""
    assert packing(Load(cpu), pod) == score


def test_target_load_packing_scores_the_nodes_of_the_proposal() -> None:
    """KEP 61: four cores, 1, 2 and 3 of them used, target 50 %: 75, 100 and 25."""
    assert [packing(Load(cpu), a_pod(containers=[]), "4", targetUtilization=50) for cpu in (25, 50, 75)] == [
        75,
        100,
        25,
    ]
    assert packing(None, a_pod(containers=[])) == 0


def test_what_a_pod_is_expected_to_use() -> None:
    plugin = placement(load_aware.TargetLoadPacking, [], args={}).framework.plugins["TargetLoadPacking"]
    assert plugin.expected(PodInfo(limited("p", "300m"))) == (300, 0)
    assert plugin.expected(PodInfo(a_pod(cpu="200m"))) == (300, 0)
    assert plugin.expected(PodInfo(a_pod())) == (1000, 0)
    two = a_pod(containers=[a_container("a", {"cpu": "1"}), a_container("b")], overhead={"cpu": "50m"})
    assert plugin.expected(PodInfo(two)) == (2550, 0)


@pytest.mark.parametrize(
    ("margin", "sensitivity", "capacity", "mean", "deviation", "score"),
    [
        (1, 1, 100, 40, 36, 57),  # "valid data"
        (1, 2, 0, 40, 36, 0),  # "zero capacity"
        (1, 2, 100, -40, 36, 65),  # "negative usedAvg"
        (1, 2, 100, 200, 36, 20),  # "large usedAvg"
        (1, 2, 100, 40, -36, 75),  # "negative usedStdev"
        (1, 2, 100, 40, 120, 25),  # "large usedStdev"
        (1, 0, 100, 40, 36, 75),  # "zero sensitivity"
    ],
)
def test_risk_as_published(
    margin: float, sensitivity: float, capacity: float, mean: float, deviation: float, score: int
) -> None:
    """The cases of scheduler-plugins' tests: a request of 10. Their negative parameters are refused here."""
    found = load("load_aware.risk").risk(mean, deviation, 10, capacity, margin, sensitivity)
    assert round(100 * (1 - float(found))) == score


def risk_of_one(figures: Any, pod: PodInfo, cpu: int, memory: int, margin: float, sensitivity: float) -> int:
    worst = 0.0
    for mean, deviation, asked, whole in (
        (figures.cpu, figures.cpu_deviation, pod.fit_requests.milli_cpu, cpu),
        (figures.memory, figures.memory_deviation, pod.fit_requests.memory, memory),
    ):
        expected = min(1.0, mean / 100 + asked / whole)
        worst = max(worst, (expected + min(1.0, margin * (deviation / 100) ** (1 / sensitivity))) / 2)
    return math.floor(100 * (1 - worst) + 0.5)


def test_columns_agree_with_the_rules_for_one_node() -> None:
    rng = random.Random(1)
    for _ in range(5):
        nodes = [a_node(f"n{index}", cpu=str(rng.choice((2, 8))), memory="8Gi") for index in range(20)]
        target = rng.choice((20, 60))
        args = {"safeVarianceMargin": "0.7", "safeVarianceSensitivity": 2, "targetUtilization": target}
        clusters = {
            policy.name: placement(policy, nodes, args=args)
            for policy in (load_aware.TargetLoadPacking, load_aware.LoadVariationRiskBalancing)
        }
        known = {node.name: Load(*(rng.uniform(0, 100) for _ in range(4))) for node in nodes}
        for name, cluster in clusters.items():
            for node_name, figures in known.items():
                cluster.framework.plugins[name].report(node_name, figures)
        pod = a_pod(cpu="500m", memory="1Gi")
        packed = scores_of(clusters["TargetLoadPacking"], "TargetLoadPacking", pod)
        risky = scores_of(clusters["LoadVariationRiskBalancing"], "LoadVariationRiskBalancing", pod)
        for node in nodes:
            cpu = int(str((node.status.allocatable or {})["cpu"])) * 1000
            used = known[node.name].cpu + 75_000 / cpu
            expected = (
                (100 - target) * used / target + target if used <= target else target * (100 - used) / (100 - target)
            )
            assert packed[node.name] == (math.floor(expected + 0.5) if used <= 100 else 0)
            assert risky[node.name] == risk_of_one(known[node.name], PodInfo(pod), cpu, 8 << 30, 0.7, 2)


def test_pods_placed_since_the_report_count_until_the_next_one() -> None:
    cluster = placement(load_aware.TargetLoadPacking, [a_node("a", cpu="10"), a_node("b", cpu="10")], args={})
    plugin: Any = cluster.framework.plugins["TargetLoadPacking"]
    plugin.report("a", Load(20))
    plugin.report("b", Load(0))
    where = [cluster.place(limited(f"p{index}", "1")) for index in range(4)]
    # 20 % and two pods reach the target of 40 %; the third goes to the other node, and so does the fourth.
    assert where == ["a", "a", "b", "b"]
    assert plugin.loads.of(cluster.cache.snapshot().table, np.array([0, 1]))[4].tolist() == [2000, 2000]
    plugin.report("a", Load(30))
    assert cluster.place(limited("next", "1")) == "a"
    plugin.on_delete(limited("next", "1"))
    assert [uid for uid, (name, *_) in plugin.loads.placed.items() if name == "a"] == []
    cluster.cache.set_node(a_node("c", cpu="10"))
    assert plugin.loads.placed == {"p2-uid": ("b", 1000, 0), "p3-uid": ("b", 1000, 0)}
    assert scores_of(cluster, "TargetLoadPacking", limited("x", "1"))["c"] == 0


class OwnProvider:
    """A provider of a user's, which knows one node."""

    def __init__(self, handle: Any, report: Any) -> None:
        report("b", Load(10))


def test_another_provider_is_named_by_its_class() -> None:
    args = {"provider": f"{__name__}:OwnProvider"}
    cluster = placement(load_aware.LoadVariationRiskBalancing, [a_node("a"), a_node("b")], args=args)
    assert cluster.place(a_pod()) == "b"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"provider": "nothing"}, "provider: 'nothing': expected annotations, or package.module:Class"),
        ({"provider": "no_such_module:X"}, "provider: 'no_such_module:X': No module named"),
        ({"targetUtilization": "much"}, "targetUtilization: 'much'; expected a number of 0 or more"),
        ({"targetUtilization": 100}, "targetUtilization: 100; expected percents between 0 and 100"),
        ({"defaultRequestsMultiplier": -1}, "defaultRequestsMultiplier: -1; expected a number of 0 or more"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(args: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        placement(load_aware.TargetLoadPacking, [], args=args)


def test_the_example_fills_the_node_up_to_the_target(capsys: pytest.CaptureFixture[str]) -> None:
    result = simulated(capsys, "load-aware.yaml", "config/load-aware.yaml", "load_aware.target_load")
    assert list(nodes_of(result).values()) == ["quiet", "quiet"]


def test_loads_are_read_from_annotations() -> None:
    def read(text: str) -> Any:
        node = a_node("n")
        node.metadata.annotations["kubesched.io/load"] = text
        return loads.AnnotatedLoads.read(loads.AnnotatedLoads.__new__(loads.AnnotatedLoads), node)

    assert read("cpu=40/36 memory=20/10") == Load(40, 36, 20, 10)
    assert read("cpu=5") == Load(5)
    for text in ("", "memory=5", "cpu=x", "disk=1", "cpu"):
        with pytest.raises(ValueError, match=r"node n: annotation kubesched.io/load: .* expected percents such as"):
            read(text)

"""Autoscaling in virtual time: nodes within their bounds, cost, readiness, budgets, expanders, interruptions."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kubesched
from kubesched.lab.node_groups import NodeGroup
from kubesched.lab.simulate.scaling.expanders import Option, chosen
from kubesched.lab.simulate.scaling.settings import settings_of


def group(name: str, *, cpu: str = "4", memory: str = "16Gi", **spec: Any) -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": memory}
    return {
        "apiVersion": "kubesched.io/v1alpha1",
        "kind": "NodeGroup",
        "metadata": {"name": name},
        "spec": {"resources": resources, **spec},
    }


def pod(name: str, cpu: str, *, duration: str = "", arrival: str = "", **annotations: str) -> dict[str, Any]:
    marks = {"kubesched.io/duration": duration, "kubesched.io/arrival": arrival}
    marks = {key: value for key, value in marks.items() if value} | annotations
    requests = {"cpu": cpu, "memory": "1Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": marks},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]},
    }


def deployment(replicas: int, cpu: str, volumes: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": containers, "volumes": volumes or []},
            },
        },
    }


def deeds(result: Any) -> list[tuple[float, str, list[str]]]:
    return [(one.at, one.action, one.targets) for one in result.events]


def test_a_node_is_ordered_at_a_scan_costs_from_then_and_takes_pods_when_it_is_ready() -> None:
    result = kubesched.simulate([pod("a", "3", duration="10m")], node_groups=[group("g", price=3.6, readyAfter="2m")])
    assert deeds(result) == [(10.0, "scaleUp", ["g-0"]), (1350.0, "scaleDown", ["g-0"])]
    (placed,) = result.pods
    assert placed.bound is not None
    assert 130 <= placed.bound <= 140  # the pod was waiting for its next try
    assert placed.phase == "Succeeded"
    assert result.scaling is not None
    assert result.scaling.node_hours == pytest.approx(1340 / 3600, abs=1e-6)
    assert result.scaling.cost == pytest.approx(1.34, abs=1e-6)
    assert result.scaling.wait is not None
    assert result.scaling.wait.count == 1
    assert result.totals.succeeded == 1
    assert result.series.cost[-1] == pytest.approx(1.34, abs=1e-6)
    assert max(result.series.nodes["g"]) == 1


def test_pods_that_no_group_helps_end_the_run() -> None:
    result = kubesched.simulate([pod("huge", "64")], node_groups=[group("g", price=1)])
    assert deeds(result) == []
    assert result.totals.pending == 1
    assert result.scaling is not None
    assert result.scaling.cost == 0


def test_a_group_never_has_more_than_its_maximum_nor_less_than_its_minimum() -> None:
    pods = [pod(f"p{number}", "3", duration="5m") for number in range(5)]
    result = kubesched.simulate(pods, node_groups=[group("g", min=1, max=2, price=1, readyAfter=30)])
    assert result.scaling is not None
    assert (result.scaling.groups[0].peak, result.scaling.groups[0].nodes) == (2, 1)
    assert min(result.series.nodes["g"]) == 1
    assert result.totals.succeeded == 5


def test_limits_of_a_pool_bound_its_groups_together() -> None:
    pods = [pod(f"p{number}", "3") for number in range(5)]
    limits = {"cpu": "12"}
    groups = [group(name, pool="all", limits=limits, price=1) for name in ("a", "b")]
    result = kubesched.simulate(pods, node_groups=groups)
    assert (result.totals.nodes, result.totals.pending) == (3, 2)


_WEB_AND_JOBS = [
    deployment(2, "1"),
    pod("job-1", "3", duration="30m"),
    pod("job-2", "3", duration="30m"),
]


def test_a_node_goes_when_its_pods_fit_elsewhere_and_a_budget_keeps_it() -> None:
    groups = [group("g", price=1)]
    free = kubesched.simulate(_WEB_AND_JOBS, node_groups=groups)
    assert free.totals.nodes == 1
    drains = [drain for event in free.events for drain in event.drains]
    assert [len(drain.evicted) for drain in drains] == [1]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
    }
    kept = kubesched.simulate([*_WEB_AND_JOBS, budget], node_groups=groups)
    assert kept.totals.nodes == 2
    assert not any(event.action == "scaleDown" for event in kept.events)


@pytest.mark.parametrize(
    ("volumes", "settings", "nodes"),
    [
        ([{"name": "v", "emptyDir": {}}], {}, 2),
        ([{"name": "v", "emptyDir": {"medium": "Memory"}}], {}, 1),
        ([{"name": "v", "emptyDir": {}}], {"skip-nodes-with-local-storage": "false"}, 1),
        ([], {"scale_down_enabled": False}, 2),
    ],
)
def test_local_storage_keeps_a_node(volumes: list[dict[str, Any]], settings: dict[str, Any], nodes: int) -> None:
    objects = [deployment(2, "1", volumes), *_WEB_AND_JOBS[1:]]
    result = kubesched.simulate(objects, node_groups=[group("g", price=1)], autoscaler=settings)
    assert result.totals.nodes == nodes


@pytest.mark.parametrize(("safe", "nodes"), [("", 2), ("true", 1), ("false", 2)])
def test_a_pod_without_a_controller_keeps_a_node_unless_it_is_safe_to_evict(safe: str, nodes: int) -> None:
    marks = {"cluster-autoscaler.kubernetes.io/safe-to-evict": safe} if safe else {}
    objects = [pod("bare", "1", **marks), pod("other", "3"), pod("job", "3", duration="30m")]
    result = kubesched.simulate(objects, node_groups=[group("g", price=1, min=0)])
    assert result.totals.nodes == nodes


def test_the_same_seed_interrupts_the_same_nodes_and_the_minimum_is_kept() -> None:
    groups = [group("spot", price=1, min=1, spotFailureRate=0.5, readyAfter=60)]
    runs = [kubesched.simulate([deployment(3, "3")], node_groups=groups, until="12h", seed=seed) for seed in (1, 1, 2)]
    assert runs[0].to_json() == runs[1].to_json()
    assert deeds(runs[0]) != deeds(runs[2])
    assert runs[0].scaling is not None
    assert runs[0].scaling.groups[0].interrupted
    assert runs[0].virtual_seconds == 12 * 3600
    assert min(runs[0].series.nodes["spot"]) >= 1


def option(name: str, count: int, pods: int, cpu: tuple[int, int], price: float, priority: int = 0) -> Option:
    its = NodeGroup(name=name, price=price, priority=priority)
    return Option(its, count, pods, (cpu[0], 2**30 * pods), (cpu[1], 2**34 * count))


def test_expanders_choose_by_their_criterion_and_the_next_one_among_equals() -> None:

    small, big = option("small", 3, 6, (6000, 12000), 1.0, 5), option("big", 1, 6, (6000, 16000), 2.0, 5)
    choices = {
        names: chosen([small, big], names.split(","), random.Random(0)).group.name
        for names in ("price", "least-nodes", "least-waste", "priority,least-nodes", "most-pods,price")
    }
    assert choices == {
        "price": "big",
        "least-nodes": "big",
        "least-waste": "big",
        "priority,least-nodes": "big",
        "most-pods,price": "big",
    }
    assert {chosen([small, big], ["random"], random.Random(seed)).group.name for seed in range(9)} == {"small", "big"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"expander": "cheap"}, "autoscaler: expander: 'cheap': expected names"),
        (
            {"scale-down-unneeded": "5m"},
            "there is no setting 'scale-down-unneeded'; did you mean scale-down-unneeded-time?",
        ),
        ({"scale_down_unneeded_time": "-1s"}, "scale-down-unneeded-time: '-1s': expected seconds, or a duration"),
        ({"scale_down_utilization_threshold": 2}, "scale-down-utilization-threshold: 2: expected a number from 0 to 1"),
        ({"scan_interval": 0}, "scan-interval: 0: expected"),
    ],
)
def test_settings_that_cannot_be_used_are_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match="autoscaler: ") as raised:
        settings_of(given, "autoscaler")
    assert text in str(raised.value)


def test_settings_without_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="give node_groups"):
        kubesched.simulate([pod("a", "1")], nodes=1, autoscaler={"expander": "price"})


_CASES = settings().max_examples if settings().max_examples >= 1000 else 6
_PODS = st.lists(
    st.tuples(st.sampled_from(["500m", "1", "3", "6"]), st.integers(0, 40), st.integers(1, 60)), min_size=1, max_size=8
)


@settings(max_examples=_CASES)
@given(
    pods=_PODS,
    bounds=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), min_size=1, max_size=2),
    expander=st.sampled_from(["random", "price", "least-waste", "priority", "most-pods"]),
    rate=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 3),
)
def test_bounds_cost_and_readiness_hold(
    pods: list[tuple[str, int, int]], bounds: list[tuple[int, int]], expander: str, rate: float, seed: int
) -> None:
    objects = [
        pod(f"p{number}", cpu, arrival=f"{arrival}m", duration=f"{duration}m")
        for number, (cpu, arrival, duration) in enumerate(pods)
    ]
    groups = [
        group(
            f"g{number}", cpu=str(4 * (number + 1)), min=low, max=high, price=0.25, readyAfter=90, spotFailureRate=rate
        )
        for number, (low, high) in enumerate(bounds)
    ]
    result = kubesched.simulate(objects, node_groups=groups, autoscaler={"expander": expander}, until="4h", seed=seed)
    assert result.scaling is not None
    for one, (low, high) in zip(result.scaling.groups, bounds, strict=True):
        assert one.peak <= high
        assert min(result.series.nodes[one.name]) >= low
        assert one.cost == pytest.approx(one.node_hours * one.price, abs=1e-6)
    assert result.series.cost[-1] == pytest.approx(result.scaling.cost, abs=1e-4)
    ready = {name: event.at + 90 for event in result.events if event.action == "scaleUp" for name in event.targets}
    for its in result.pods:
        if its.bound is not None:
            assert its.bound >= ready.get(its.node, -math.inf)

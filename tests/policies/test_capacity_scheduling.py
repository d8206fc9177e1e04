"""Elastic quotas: the published stories in the whole scheduler, arithmetic, and limits that always hold."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from policy_kit import load, nodes_of, simulated

quotas = load("capacity_scheduling.quotas")

Objects = list[dict[str, Any]]


def node(name: str, cpu: int) -> dict[str, Any]:
    allocatable = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def pod(name: str, namespace: str, cpu: int, *, on: str = "", priority: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": str(cpu)}}}]}
    if on:
        spec["nodeName"] = on
    if priority:
        spec["priorityClassName"] = priority
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def important(value: int = 1_000_000) -> dict[str, Any]:
    metadata = {"name": "high-priority"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}


class Story:
    """Objects and quotas, simulated."""

    def __init__(self, capsys: Any, folder: Path) -> None:
        self._capsys = capsys
        self._folder = folder

    def run(self, given: dict[str, tuple[int, int]], objects: Objects, *more: str) -> dict[str, Any]:
        config = yaml.safe_load(
            (Path(load("capacity_scheduling").__file__).parents[1] / "config/quotas.yaml").read_text()
        )
        least = {name: {"min": {"cpu": low}, "max": {"cpu": high}} for name, (low, high) in given.items()}
        config["profiles"][0]["pluginConfig"][0]["args"]["quotas"] = least
        namespaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in given]
        (self._folder / "config.yaml").write_text(yaml.safe_dump(config))
        (self._folder / "objects.yaml").write_text(yaml.safe_dump_all([*namespaces, *objects]))
        files = str(self._folder / "objects.yaml"), str(self._folder / "config.yaml")
        return simulated(self._capsys, *files, "capacity_scheduling", *more)


@pytest.fixture
def story(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Story:
    return Story(capsys, tmp_path)


def victims(result: dict[str, Any]) -> list[str]:
    return [victim for preemption in result["preemptions"] for victim in preemption["victims"]]


def reasons(result: dict[str, Any]) -> dict[str, str]:
    return {name: group["reasons"][0]["text"] for group in result["pending"] for name in group["pods"]}


def test_the_demonstration(capsys: pytest.CaptureFixture[str]) -> None:
    """Two teams with min 4 and max 6 of 8 CPUs; the first has borrowed two, the second needs its own."""
    result = simulated(capsys, "quotas.yaml", "config/quotas.yaml", "capacity_scheduling")
    assert Counter(placed["namespace"] for placed in result["placements"]) == {"quota1": 2, "quota2": 2}
    (preemption,) = result["preemptions"]
    assert preemption["pod"].startswith("quota2/")
    assert preemption["victims"][0].startswith("quota1/")
    assert len(preemption["victims"]) == 1
    (pending,) = result["pending"]
    assert pending["count"] == 1


def test_no_more_than_max_and_then_what_is_guaranteed_is_taken_back(story: Story) -> None:
    """KEP 9, story 1: quota A (4 to 6) and B (6 to 8), 10 CPUs (GPUs there). A has 6, B 3 and wants 3 more."""
    running = [pod(f"a{index}", "a", 2, on="node") for index in range(3)] + [pod("b0", "b", 3, on="node")]
    given = {"a": (4, 6), "b": (6, 8)}
    more = story.run(given, [node("node", 10), *running, pod("a-more", "a", 1)])
    assert reasons(more) == {"a/a-more": "namespace a would have more cpu than the max of its quota"}
    back = story.run(given, [node("node", 10), *running, pod("b-more", "b", 3)])
    assert len(victims(back)) == 1
    assert victims(back)[0].startswith("a/a")
    assert nodes_of(back)["b-more"] == "node"
    # Then all of A's is guaranteed: another pod of B is not given a place.
    after = [pod(f"a{index}", "a", 2, on="node") for index in range(2)] + [
        pod("b0", "b", 6, on="node"),
        pod("b1", "b", 1),
    ]
    stays = story.run(given, [node("node", 10), *after])
    assert victims(stays) == []
    assert reasons(stays) == {"b/b1": "all namespaces would have more cpu than the min of their quotas together"}


def test_victims_are_of_the_namespace_that_has_more_than_its_min(story: Story) -> None:
    """KEP 9, story 2: A (3 to 4) has 4, B (4 to 6) has 3 and wants one more, C (3 to 4) has 3."""
    given = {"a": (3, 4), "b": (4, 6), "c": (3, 4)}
    running = [
        pod(f"{name}{index}", name, 1, on="node")
        for name, count in (("a", 4), ("b", 3), ("c", 3))
        for index in range(count)
    ]
    result = story.run(given, [node("node", 10), *running, pod("b-more", "b", 1)])
    assert len(victims(result)) == 1
    assert victims(result)[0].startswith("a/")


def test_beyond_min_only_pods_of_the_own_namespace_are_evicted(story: Story) -> None:
    """KEP 9, story 2: when B would have more than its min, a pod of lower priority of B is the victim."""
    given = {"a": (3, 4), "b": (4, 6), "c": (3, 4)}
    running = [
        pod("a0", "a", 2, on="node"),
        pod("c0", "c", 3, on="node"),
        pod("b0", "b", 3, on="node"),
        pod("b1", "b", 2, on="node"),
    ]
    result = story.run(
        given, [node("node", 10), *running, important(), pod("b-more", "b", 1, priority="high-priority")]
    )
    assert len(victims(result)) == 1
    assert victims(result)[0] in ("b/b0", "b/b1")


def test_priority_does_not_cross_namespaces_beyond_min(story: Story) -> None:
    """KEP 9, "Cross-namespace vs. single-namespace preemption": quota2 has no min, and takes nothing from quota1."""
    given = {"quota1": (0, 2), "quota2": (0, 2), "quota3": (1, 2)}
    running = [pod("nginx", "quota1", 1, on="node")]
    result = story.run(
        given, [node("node", 8), *running, important(), pod("high", "quota2", 1, priority="high-priority")]
    )
    assert victims(result) == []
    assert "quota2/high" in reasons(result)


def test_preemptors_whose_victims_are_leaving_count(story: Story) -> None:
    """Two pods of B within its min evict one pod each, not more; a third would be beyond it."""
    running = [pod(f"a{index}", "a", 1, on="node") for index in range(4)]
    result = story.run(
        {"a": (2, 4), "b": (2, 4)}, [node("node", 4), *running, *(pod(f"b{index}", "b", 1) for index in range(3))]
    )
    assert len(set(victims(result))) == 2
    assert Counter(placed["namespace"] for placed in result["placements"]) == {"a": 2, "b": 2}
    assert len(reasons(result)) == 1


def test_namespaces_without_a_quota_preempt_as_usual_but_not_from_those_with_one(story: Story) -> None:
    objects = [pod("plain", "default", 1, on="node"), pod("a0", "a", 1, on="node"), important()]
    result = story.run({"a": (0, 4)}, [node("node", 2), *objects, pod("high", "default", 1, priority="high-priority")])
    assert victims(result) == ["default/plain"]
    alone = story.run(
        {"a": (0, 4)}, [node("node", 1), *objects[1:], pod("high", "default", 1, priority="high-priority")]
    )
    assert victims(alone) == []


@pytest.mark.parametrize("seed", range(3))
def test_quotas_hold_whatever_comes(story: Story, seed: int) -> None:
    rng = random.Random(seed)
    given = {name: (low, low + rng.randrange(4)) for name in "abc" for low in (rng.randrange(1, 5),)}
    objects = [node(f"n{index}", 4) for index in range(3)]
    objects += [pod(f"p{index}", rng.choice("abc"), rng.choice((1, 1, 2, 3))) for index in range(14)]
    cpus = {
        item["metadata"]["name"]: int(item["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        for item in objects[3:]
    }
    result = story.run(given, objects, "--seed", str(seed))
    used: Counter[str] = Counter()
    for placed in result["placements"]:
        used[placed["namespace"]] += cpus[placed["name"]]
    assert used
    assert all(used[name] <= high for name, (_, high) in given.items())
    assert sum(used.values()) <= sum(low for low, _ in given.values())
    assert result["errors"] == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "quotas: None; expected namespaces, each with min and max"),
        ({"a": 4}, r"quotas.a: 4; expected min and max"),
        ({"a": {"least": {}}}, r"quotas.a: \{'least': \{\}\}; expected min and max"),
        ({"a": {"min": {"cpu": "many"}}}, r"quotas.a.min: .*many.*; expected amounts by resource"),
        ({"a": {"min": {"cpu": 2}, "max": {"cpu": 1}}}, "quotas.a: min is more than max for cpu"),
    ],
)
def test_quotas_that_cannot_be_used_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quotas.Quotas(given)


def test_amounts_of_quotas() -> None:
    found = quotas.Quotas(
        {"a": {"min": {"cpu": "500m", "nvidia.com/gpu": 1}}, "b": {"min": {"cpu": 2}, "max": {"memory": "1Gi"}}}
    )
    assert found.names == {"cpu", "memory", "nvidia.com/gpu"}
    assert found.min == {"cpu": 2500, "nvidia.com/gpu": 1}
    quota = next(iter(found))
    quota.put("x", {"cpu": 300})
    quota.put("y", {"cpu": 300})
    quota.put("y", {"cpu": 100})
    assert (quota.used, quota.is_over_min(quota.used)) == ({"cpu": 400}, False)
    quota.remove("x")
    quota.remove("x")
    assert found.total_used() == {"cpu": 100}
    assert quota.is_over_min({"cpu": 501})

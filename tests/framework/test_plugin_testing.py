"""``kubesched.testing``: a plugin in three lines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from kubesched.config import ConfigError
from kubesched.framework import Normalize, Plugin, PluginError, Question, Status
from kubesched.framework.registry import load_module
from kubesched.testing import PluginCluster, node, pod

EXAMPLES = Path(__file__).parents[2] / "examples"


class OneTenantPerNode(Plugin):
    name = "OneTenantPerNode"

    def filter(self, state: Any, pod: Any, node: Any) -> Status | None:
        tenants = {other.labels.get("tenant") for other in node.pods.values()}
        if tenants - {pod.labels.get("tenant")}:
            return Status.unschedulable("node(s) belonged to another tenant")
        return None


class Emptier(Plugin):
    name = "Emptier"
    normalize = Normalize.REVERSE

    def score(self, state: Any, pod: Any, node: Any) -> int:
        factor: int = (self.args or {}).get("factor", 1)
        return len(node.pods) * factor


def test_the_readmes_plugin_in_three_lines() -> None:
    cluster = PluginCluster(OneTenantPerNode, nodes=["a", "b"], pods=[pod("x", on="a", labels={"tenant": "red"})])
    assert cluster.feasible(pod("p", labels={"tenant": "blue"})) == ["b"]
    assert cluster.rejections(pod("p")) == {"a": ["node(s) belonged to another tenant"]}
    assert cluster.feasible(pod("p", labels={"tenant": "red"})) == ["a", "b"]
    cluster.check(pod("p"), pod("q", labels={"tenant": "red"}))


def test_pods_are_placed_and_count_from_then_on() -> None:
    cluster = PluginCluster(OneTenantPerNode, nodes=["a", "b"])
    places = [cluster.place(pod(name, labels={"tenant": name})) for name in ("red", "blue", "green")]
    assert sorted(name for name in places if name) == ["a", "b"]
    assert places[2] is None
    assert len(cluster.rejections(pod("p"))) == 2


def test_scores_are_normalised_and_arguments_arrive() -> None:
    pods = [pod("x", on="a"), pod("y", on="a"), pod("z", on="b")]
    cluster = PluginCluster(Emptier, nodes=["a", "b", "c"], pods=pods, args={"factor": 3})
    assert cluster.plugin.args == {"factor": 3}
    assert cluster.scores(pod("p")) == {"a": 0, "b": 50, "c": 100}
    assert cluster.place(pod("p")) == "c"
    assert PluginCluster(OneTenantPerNode, nodes=["a"]).scores(pod("p")) == {}


def test_the_default_plugins_decide_as_well_when_wanted() -> None:
    nodes = [
        node("a", cpu=1),
        node("b", cpu=4, **cast("dict[str, Any]", {"x/gpu": 1})),
        node("c", labels={"pool": "z"}),
    ]
    big = pod("big", requests={"cpu": 2})
    assert PluginCluster(OneTenantPerNode, nodes=nodes).feasible(big) == ["a", "b", "c"]
    cluster = PluginCluster(OneTenantPerNode, nodes=nodes, with_defaults=True)
    assert cluster.rejections(big) == {"a": ["Insufficient cpu"]}
    assert cluster.feasible(pod("g", requests={"x/gpu": 1})) == ["b"]
    assert cluster.feasible(pod("s", nodeSelector={"pool": "z"})) == ["c"]


def test_a_pod_rejected_everywhere_has_the_reason_at_every_node() -> None:
    class Never(Plugin):
        name = "Never"

        def pre_filter(self, state: Any, pod: Any, nodes: Any) -> Status | None:
            return Status.unresolvable("not today")

    assert PluginCluster(Never, nodes=["a", "b"]).rejections(pod("p")) == {"a": ["not today"], "b": ["not today"]}


class Unwanted(Question):
    """The node that a label names; ``wrong`` makes the answers for one row and for many disagree."""

    key = ()

    def __init__(self, pod: Any, nodes: Any, *, wrong: bool) -> None:
        self.unwanted, self.nodes, self.wrong = pod.labels.get("not"), nodes, wrong

    def verdicts(self, rows: Any) -> Any:
        return np.array([self.nodes.info(row).name == self.unwanted for row in rows.tolist()], np.uint64)

    def verdict(self, node: Any) -> int:
        return int(node.name == self.unwanted) ^ self.wrong

    def why(self, verdict: int) -> Status:
        return Status.unschedulable("not this one")


class Elsewhere(Plugin):
    name = "Elsewhere"
    asks = Unwanted
    wrong: bool = False

    def ask(self, pod: Any, nodes: Any) -> Question:
        return Unwanted(pod, nodes, wrong=self.wrong)


def test_answers_that_must_be_equal_are_compared() -> None:
    cluster = PluginCluster(Elsewhere, nodes=["a", "b"])
    cluster.check(pod("p"), pod("q"))
    with pytest.raises(
        AssertionError, match=r"pods p and q have the same signature \(\(\),\), but Elsewhere answers differently"
    ):
        cluster.check(pod("p"), pod("q", labels={"not": "a"}))
    wrong = type("Wrong", (Elsewhere,), {"wrong": True})
    with pytest.raises(AssertionError, match=r"pod p: Filter a: .* for one row, None for many"):
        PluginCluster(wrong, nodes=["a"]).check(pod("p"))

    class Forgetful(Plugin):
        name = "Forgetful"
        calls = 0

        def score(self, state: Any, pod: Any, node: Any) -> int:
            self.calls += 1
            return self.calls

    with pytest.raises(AssertionError, match=r"pod p: .*(for one row|when asked again)"):
        PluginCluster(Forgetful, nodes=["a"]).check(pod("p"))


@pytest.mark.parametrize("file", ["zone_maintenance", "gpu_last"])
def test_the_example_plugins_pass_the_check(file: str) -> None:
    module = load_module(str(EXAMPLES / "plugins" / f"{file}.py"))
    plugin = next(
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__ and hasattr(each, "name")
    )
    nodes = [node(name, labels={"topology.kubernetes.io/zone": f"zone-{name}"}, **{"nvidia.com/gpu": gpus})
             for name, gpus in (("a", 0), ("b", 8), ("c", 0))]  # fmt: skip
    cluster = PluginCluster(plugin, nodes=nodes)
    cluster.check(pod("p"), pod("q", requests={"nvidia.com/gpu": 1}))
    expected = {"zone_maintenance": ("a", "b"), "gpu_last": ("a", "c")}[file]
    assert {cluster.place(pod(f"p{number}")) for number in range(12)} == set(expected)
    del sys.modules[module.__name__]


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(PluginError, match="has no name"):
        PluginCluster(int, nodes=["a"])
    with pytest.raises(ValueError, match="pod x runs on 'c'; nodes are a, b"):
        PluginCluster(OneTenantPerNode, nodes=["a", "b"], pods=[pod("x", on="c")])

    class Picky(Plugin):
        name = "Picky"

        def __init__(self, args: Any, handle: Any) -> None:
            raise ValueError("no args")

        def score(self, state: Any, pod: Any, node: Any) -> int:
            return 0

    with pytest.raises(ConfigError, match="no args"):
        PluginCluster(Picky, nodes=["a"])
